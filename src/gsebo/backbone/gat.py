"""Graph attention network (Veličković et al., ICLR 2018) with edge strengths."""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from gsebo.backbone.base import (
    Features,
    Layer,
    LayeredBackbone,
    glorot,
    require_counts,
)
from gsebo.sparse import Noise, Pattern
from gsebo.sparse.attention import attend


@final
class GATLayer(Layer):
    """Attention over the entries of each row, times their strength.

        e_ij = LeakyReLU(a_target · h_i + a_source · h_j),
        h'_i = Σ_j softmax_j(e_ij) s_ij h_j

    The heads are concatenated, or averaged. With ``renormalise`` the strengths are
    inside of the softmax, s_ij exp(e_ij) / Σ_k s_ik exp(e_ik).
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        heads: int,
        concat: bool,
        dropout: float,
        number: int,
        renormalise: bool,
    ) -> None:
        super().__init__()
        self.heads, self.concat, self.dropout = heads, concat, dropout
        self.number, self.renormalise = number, renormalise
        self.weight = glorot(in_channels, heads * out_channels)
        # One column per role: target, source.
        self.attention = glorot(heads, out_channels, 2)
        width = heads * out_channels if concat else out_channels
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(
        self, h: Features, pattern: Pattern, strength: Tensor, noise: Noise | None
    ) -> Tensor:
        """Attend, weigh by strength, sum."""
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
class GAT(LayeredBackbone):
    """GAT; the hidden width is ``heads * hidden_channels``, the output one head.

    Args:
        in_channels: Number of features.
        hidden_channels: Width of each head.
        out_channels: Number of classes.
        num_layers: Number of layers.
        dropout: Rate of dropout on features and on attention.
        heads: Number of heads of the hidden layers.
        output_heads: Number of heads of the last layer, which are averaged.
        renormalise: Let the attention of each node sum to one after the strengths have
            weighed it: a strength of 0 then takes an edge out of the softmax.
    """

    traceable = True
    sums_messages = False

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        dropout: float = 0.5,
        heads: int = 8,
        output_heads: int = 1,
        renormalise: bool = False,
    ) -> None:
        super().__init__()
        require_counts(heads=heads, output_heads=output_heads)
        self.layers = nn.ModuleList()
        width = in_channels
        for number in range(num_layers):
            last = number == num_layers - 1
            self.layers.append(
                GATLayer(
                    width,
                    out_channels if last else hidden_channels,
                    heads=output_heads if last else heads,
                    concat=not last,
                    dropout=dropout,
                    number=number,
                    renormalise=renormalise,
                )
            )
            width = heads * hidden_channels
        self.activation = elu
        self.dropout = dropout
        self.num_propagations = num_layers

    def read_out(self, outputs: list[Tensor]) -> Tensor:
        """What the last layer gave."""
        return outputs[-1]

    def initial_strength(
        self, pattern: Pattern, degree: Tensor | None = None
    ) -> Tensor:
        """One: attention as it is."""
        return torch.ones(
            pattern.num_entries,
            dtype=next(self.parameters()).dtype,
            device=pattern.device,
        )

    def normalise(
        self, pattern: Pattern, weights: Tensor, sums: Tensor | None = None
    ) -> Tensor:
        """The weights: attention does the rest."""
        return weights
