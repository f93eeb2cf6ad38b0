"""Attention cut to the largest of each node, and diffused over several hops."""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from gsebo.backbone.base import glorot
from gsebo.sparse import (
    Noise,
    Pattern,
    dropout,
    edge_softmax,
    row_expand,
    spmm,
    uniform,
)

_SLOPE = 0.2
# A score whose exponential is zero, and of which a whole row is still no NaN.
_NEVER = -1e20


@final
class DiffusionAttention(nn.Module):
    """Attention to the best neighbours, diffused: the propagation of a block.

        e_ij = LeakyReLU(a_target · tanh f_i + a_source · tanh f_j),
        A_ij = softmax_j(e_ij, the top k of each i) s_ij,

    for each head with its own channels f of the messages.
    """

    def __init__(
        self,
        channels: int,
        *,
        heads: int,
        hops: int,
        teleport: float,
        top_k: int,
        dropout: float,
        attention_dropout: float,
    ) -> None:
        super().__init__()
        self.heads, self.hops, self.teleport, self.top_k = heads, hops, teleport, top_k
        self.dropout, self.attention_dropout = dropout, attention_dropout
        # One column per role: target, source.
        self.attention = glorot(heads, channels // heads, 2)

    def forward(
        self,
        message: Tensor,
        pattern: Pattern,
        strength: Tensor,
        dropped: Tensor | None,
        noise: Noise | None,
        site: int,
    ) -> Tensor:
        """Diffuse ``message`` ``[nodes, channels]``; ``dropped`` entries are out."""
        nodes = pattern.num_rows
        by_head = message.view(nodes, self.heads, -1).transpose(0, 1).contiguous()
        target, source = (by_head.tanh() @ self.attention).unbind(-1)
        scores = row_expand(pattern, target) + row_expand(pattern.T, source)
        scores = leaky_relu(scores, _SLOPE)
        if dropped is not None:
            scores = scores.masked_fill(dropped, _NEVER)
        kept = among_largest(pattern, scores, self.top_k)
        scores = scores.masked_fill(~kept, _NEVER)
        out = diffuse(
            pattern,
            edge_softmax(pattern, scores) * strength,
            by_head,
            hops=self.hops,
            teleport=self.teleport,
            attention_dropout=self.attention_dropout,
            dropout_rate=self.dropout,
            noise=noise,
            site=site,
        )
        return out.transpose(0, 1).reshape(nodes, -1)


def among_largest(pattern: Pattern, scores: Tensor, count: int) -> Tensor:
    """Whether each score is one of the ``count`` largest of its row, or equals those.

    Args:
        pattern: Positions of the entries.
        scores: ``[heads, entries]``.
        count: How many to keep in each row; more where several equal the last of them.

    Returns:
        Booleans, ``[heads, entries]``.
    """
    if pattern.num_entries == 0:
        return torch.ones_like(scores, dtype=torch.bool)
    scores = scores.detach()
    stored = scores.index_select(-1, pattern.entries)
    falling, order = stored.sort(dim=-1, descending=True)
    # Stable, so that the scores of one row stay in falling order.
    by_row = pattern.rows[order].argsort(dim=-1, stable=True)
    falling = falling.gather(-1, by_row)
    last = pattern.indptr[:-1] + pattern.row_counts.clamp(max=count) - 1
    # A row without entries has no last one, and nobody to ask for it.
    smallest = falling.index_select(-1, last.clamp(min=0))
    return scores >= row_expand(pattern, smallest)


def dropped_pairs(
    pattern: Pattern, rate: float, noise: Noise | None, site: int, like: Tensor
) -> Tensor | None:
    """Entries left out of a training step; (i, j) and (j, i) share their fate.

    Args:
        pattern: Positions of the entries; those on the diagonal stay.
        rate: Probability of a pair to be left out, in [0, 1).
        noise: Seed and step, or None to keep all.
        site: Of the draw.
        like: Gives device and type.

    Returns:
        Booleans ``[entries]``, or None where nothing is dropped.
    """
    if noise is None or rate == 0.0:
        return None
    row, column = pattern.row_of_entry, pattern.column_of_entry
    pair = torch.minimum(row, column) * pattern.num_rows + torch.maximum(row, column)
    number: Tensor = torch.unique(pair, return_inverse=True)[1]
    # There are no more pairs than entries, so that nobody has to count them.
    drawn = uniform((pattern.num_entries,), noise, site, like)[number]
    return (drawn < rate) & (row != column)


def diffuse(
    pattern: Pattern,
    attention: Tensor,
    start: Tensor,
    *,
    hops: int,
    teleport: float,
    attention_dropout: float = 0.0,
    dropout_rate: float = 0.0,
    noise: Noise | None = None,
    site: int = 0,
) -> Tensor:
    """Mix each node with what lies up to ``hops`` edges away.

        Z_{t+1} = dropout((1 - a) dropout(A) Z_t + a Z_0)

    Without dropout and with rows of A that sum to at most one it converges to the
    personalised PageRank a (I - (1 - a) A)^-1 Z_0.

    Args:
        pattern: Positions of the entries.
        attention: A, ``[heads, entries]``.
        start: Z_0, ``[heads, nodes, channels]``.
        hops: Number of steps.
        teleport: a, how much of the start returns at each hop, in [0, 1].
        attention_dropout: Rate of dropout on A, drawn anew at every hop.
        dropout_rate: Rate of dropout on the result of every hop.
        noise: Randomness of a training step, or None.
        site: First of the ``2 * hops`` sites of the dropout.

    Returns:
        ``[heads, nodes, channels]``.
    """
    returned = start * teleport
    z = start
    for hop in range(hops):
        kept = dropout(attention, attention_dropout, noise, site + 2 * hop)
        z = spmm(pattern, kept * (1 - teleport), z) + returned
        z = dropout(z, dropout_rate, noise, site + 2 * hop + 1)
    return z
