"""Propagation with strengths that are in part computed from what is propagated."""

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from gsebo.sparse.dropout import Noise, dropout
from gsebo.sparse.operators import edge_softmax, row_expand, row_sum, spmm
from gsebo.sparse.pattern import Pattern
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
) -> Tensor:
    """Sum the messages of each row, times their attention and their strength.

        e_ij = LeakyReLU(a_target · m_i + a_source · m_j),
        out_i = Σ_j dropout(softmax_j(e_ij)) s_ij m_j,

    for each head with its own channels of the messages.

    Args:
        pattern: Positions of the entries, as many rows as columns.
        strength: Of the entries, ``[entries]``.
        message: ``[nodes, heads * channels]``.
        attention: The weights ``a``, ``[heads, channels, 2]``: target, source.
        slope: Of the leaky ReLU where its argument is negative.
        rate: Of the dropout.
        noise: Randomness of the dropout, or None to drop nothing.
        site: Of the dropout.
        renormalise: Divide attention times strength by its sum over the row, before
            the dropout.

    Returns:
        ``[nodes, heads * channels]``.
    """
    heads = attention.shape[0]
    if isinstance(message, Symbol) and isinstance(strength, Strengths):
        if renormalise:
            raise Untraceable("attention that is normalised again")
        node = Attend(
            channels=message.node.channels,
            argument=message.node,
            layer=strength.layer,
            weight=message.weight_name(attention),
            heads=heads,
            slope=slope,
            site=site,
            rate=0.0 if noise is None else rate,
        )
        return message.then(node)
    nodes = pattern.num_rows
    by_head = message.view(nodes, heads, -1).transpose(0, 1).contiguous()
    # Both scores come from one product.
    target, source = (by_head @ attention).unbind(-1)
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
