"""Graph attention network (Veličković et al., ICLR 2018) with edge strengths."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import elu, leaky_relu

from gsebo.errors import InvalidInput
from gsebo.nn.base import Features, Layer, LayeredBackbone, glorot, require_counts
from gsebo.sparse import Noise, Pattern
from gsebo.sparse.operators import dropout, edge_softmax, row_expand, row_sum, spmm
from gsebo.sparse.symbol import Attend, Strengths, Symbol, Untraceable


def attend(
    pattern: Pattern,
    strength: Tensor,
    message: Tensor,
    attention: Tensor,
    *,
    slope: float,
    rate: float,
    noise: Noise | None,
    site: int,
    renormalise: bool = False,
    sources: Tensor | None = None,
) -> Tensor:
    """Sum the messages of each row, times their attention and their strength.

        e_ij = LeakyReLU(a_target · m_i + a_source · m_j),
        out_i = Σ_j dropout(softmax_j(e_ij)) s_ij m_j,

    for each head with its own channels of the messages ``[nodes, heads * channels]``;
    the attention ``[heads, channels, 2]`` is that to target and source. With
    ``renormalise`` the attention times strength is divided by its sum over the row,
    before the dropout. Columns of the pattern are all nodes, or those of ``sources``.
    """
    heads = attention.shape[0]
    if isinstance(message, Symbol) and isinstance(strength, Strengths):
        if renormalise:
            raise Untraceable("attention that is normalised again")
        name, dropped = message.weight_name(attention), 0.0 if noise is None else rate
        return message.then(Attend, strength.layer, name, heads, slope, site, dropped)
    nodes = pattern.num_rows
    by_head = message.view(nodes, heads, -1).transpose(0, 1).contiguous()
    # Both scores come from one product.
    target, source = (by_head @ attention).unbind(-1)
    if sources is not None:
        by_head = by_head.index_select(1, sources)
        source = source.index_select(1, sources)
    scores = row_expand(pattern, target) + row_expand(pattern.T, source)
    share = edge_softmax(pattern, leaky_relu(scores, slope))
    if renormalise:
        share = share * strength
        # A row of which nothing is left stays empty.
        total = row_sum(pattern, share).clamp(min=torch.finfo(share.dtype).tiny)
        share = dropout(share / row_expand(pattern, total), rate, noise, site)
    else:
        share = dropout(share, rate, noise, site) * strength
    out = spmm(pattern, share, by_head)
    return out.transpose(0, 1).reshape(nodes, -1)


@final
class GATLayer(Layer):
    """Attention over the entries of each row, times their strength: :func:`attend`.

    The heads are concatenated, or averaged. With ``renormalise`` the strengths are
    inside of the softmax, s_ij exp(e_ij) / Σ_k s_ik exp(e_ik).
    """

    def __init__(
        self, net: "GAT", number: int, in_channels: int, out_channels: int
    ) -> None:
        super().__init__()
        # The last one has heads of its own, which are averaged, unless it is hidden.
        self.concat = number < net.num_layers - 1 or net.input_projection
        heads = self.heads = net.heads if self.concat else net.output_heads
        self.number, self.dropout = number, net.dropout
        self.renormalise = net.renormalise
        self.weight = glorot(in_channels, heads * out_channels)
        # One column per role: target, source.
        self.attention = glorot(heads, out_channels, 2)
        width = heads * out_channels if self.concat else out_channels
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(
        self, h: Features, pattern: Pattern, strength: Tensor, noise: Noise | None
    ) -> Tensor:
        out = attend(
            pattern,
            strength,
            h @ self.weight,
            self.attention,
            slope=0.2,
            rate=self.dropout,
            noise=noise,
            site=2 * self.number + 1,
            renormalise=self.renormalise,
        )
        if self.concat or self.heads == 1:
            return out + self.bias
        return out.view(pattern.num_rows, self.heads, -1).mean(1) + self.bias


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GAT(LayeredBackbone):
    """GAT; the hidden width is ``heads * hidden_channels``, the output one head.

    Args:
        dropout: Rate of dropout on features and on attention.
        heads: Number of heads of the hidden layers.
        output_heads: Number of heads of the last layer, which are averaged; with an
            input projection the last layer is like the others.
        renormalise: Let the attention of each node sum to one after the strengths have
            weighed it: a strength of 0 then takes an edge out of the softmax.
    """

    traceable = True
    sums_messages = False
    heads: int = 8
    output_heads: int = 1
    renormalise: bool = False

    def __post_init__(self) -> None:
        require_counts(heads=self.heads, output_heads=self.output_heads)
        if self.input_projection and self.output_heads != 1:
            raise InvalidInput(
                f"output_heads={self.output_heads} given with input_projection; "
                "expected 1, because a linear map reads the classes out."
            )
        super().__post_init__()
        self.activation = elu

    def layer(self, number: int, in_channels: int, out_channels: int) -> GATLayer:
        width = self.heads * in_channels if number else in_channels
        return GATLayer(self, number, width, out_channels)
