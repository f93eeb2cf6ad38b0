"""Multi-hop attention network (Wang et al., IJCAI 2021) with edge strengths."""

from numbers import Real
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from gsebo.errors import InvalidInput
from gsebo.nn.base import Backbone, Features, LayerStrengths, glorot, require_counts
from gsebo.sparse import (
    Noise,
    Pattern,
    SparseFeatures,
    dropout,
    edge_softmax,
    row_expand,
    row_sum,
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


_EPSILON = 1e-6


@final
class DeviationNorm(nn.Module):
    """``scale ⊙ (x - mean) / (deviation + 1e-6) + shift`` of each node's channels.

    The deviation is the unbiased one, divided by channels - 1. Channels that are all
    equal, or only one, give the shift.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, h: Tensor) -> Tensor:
        """Normalise ``[nodes, channels]``."""
        centred = h - h.mean(-1, keepdim=True)
        deviation = _deviation(centred.square().sum(-1, keepdim=True), h.shape[-1])
        return centred / (deviation + _EPSILON) * self.scale + self.shift

    def times(self, h: Features, weight: Tensor) -> Tensor:
        """Normalise, then multiply by ``weight`` ``[channels, width]``.

        Sparse features stay sparse: the product is linear in what is subtracted.
        """
        if not isinstance(h, SparseFeatures):
            normalised: Tensor = self(h)
            return normalised @ weight
        channels = h.shape[-1]
        mean = row_sum(h.pattern, h.values) / channels
        away = h.values - mean[h.pattern.row_of_entry]
        absent = channels - h.pattern.row_counts
        squares = row_sum(h.pattern, away.square()) + absent * mean.square()
        divisor = _deviation(squares, channels) + _EPSILON
        scaled = self.scale.unsqueeze(-1) * weight
        centred = h @ scaled - torch.outer(mean, scaled.sum(0))
        return centred / divisor.unsqueeze(-1) + self.shift @ weight


def _deviation(squares: Tensor, channels: int) -> Tensor:
    """Root of the mean of squares, with derivative 0 where they are 0."""
    # Not "squares > 0", which would turn NaN into 0.
    zero = squares == 0
    variance = squares.masked_fill(zero, 1) / max(channels - 1, 1)
    return variance.sqrt().masked_fill(zero, 0)


_EXPANSION = 4
# Its sites depend on the number of hops, so that they begin above all others.
_FIRST_SITE = 1_000_000


@final
class FeedForward(nn.Module):
    """Two linear layers with a wider one in between."""

    def __init__(self, channels: int, *, dropout: float) -> None:
        super().__init__()
        wide = _EXPANSION * channels
        self.first, self.second = glorot(channels, wide), glorot(wide, channels)
        self.first_bias = nn.Parameter(torch.zeros(wide))
        self.second_bias = nn.Parameter(torch.zeros(channels))
        self.dropout = dropout

    def forward(self, h: Tensor, noise: Noise | None, site: int) -> Tensor:
        """Return ``[nodes, channels]``."""
        wide = torch.relu(h @ self.first + self.first_bias)
        return dropout(wide, self.dropout, noise, site) @ self.second + self.second_bias


@final
class MAGNABlock(nn.Module):
    """Diffused attention and a feed-forward network, each with a way around it.

        r = residual(h) + dropout(attention(norm(h) W) W_o),
        y = r + dropout(feed_forward(norm(r)))

    The first way is a linear map where the widths differ.
    """

    def __init__(
        self,
        in_channels: int,
        channels: int,
        *,
        number: int,
        dropout: float,
        feed_forward_dropout: float,
        hops: int,
        **attention: Any,
    ) -> None:
        super().__init__()
        self.input_norm = DeviationNorm(in_channels)
        self.weight = glorot(in_channels, channels)
        self.attention = DiffusionAttention(
            channels, dropout=dropout, hops=hops, **attention
        )
        self.output = glorot(channels, channels)
        same = in_channels == channels
        self.residual = None if same else glorot(in_channels, channels)
        self.norm = DeviationNorm(channels)
        self.feed_forward = FeedForward(channels, dropout=feed_forward_dropout)
        self.dropout = dropout
        self.site = _FIRST_SITE + 1 + number * (2 * hops + 3)

    def forward(
        self,
        h: Features,
        pattern: Pattern,
        strength: Tensor,
        dropped: Tensor | None,
        noise: Noise | None,
    ) -> Tensor:
        """Return ``[nodes, channels]``."""
        message = self.input_norm.times(h, self.weight)
        own = self.site
        mixed: Tensor = self.attention(
            message, pattern, strength, dropped, noise, own + 3
        )
        mixed = dropout(mixed @ self.output, self.dropout, noise, own)
        r = mixed + self._around(h)
        deep: Tensor = self.feed_forward(self.norm(r), noise, own + 1)
        return r + dropout(deep, self.dropout, noise, own + 2)

    def _around(self, h: Features) -> Tensor:
        if self.residual is not None:
            return h @ self.residual
        return h.to_dense() if isinstance(h, SparseFeatures) else h


@final
class MAGNANet(Backbone):
    """MAGNA: blocks of diffused attention and a linear read-out.

    One block is one propagation: its strengths multiply the attention, at every hop.

    Args:
        in_channels: Number of features.
        hidden_channels: Width of each block, a multiple of ``heads``.
        out_channels: Number of classes.
        num_layers: Number of blocks.
        dropout: Rate of dropout on what each hop, attention and feed-forward network
            gives.
        heads: Number of heads.
        hops: Steps of the diffusion of each block.
        teleport: How much of a block's messages returns at each hop (alpha).
        top_k: Entries of each node and head that get attention.
        attention_dropout: Rate of dropout on the attention, drawn anew at each hop.
        edge_dropout: Probability of a pair of neighbours to be left out of a training
            step; half of the published 0.1, which the authors' code halves.
        feed_forward_dropout: Rate of dropout inside of the feed-forward networks.
    """

    sums_messages = False

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        dropout: float = 0.25,
        heads: int = 8,
        hops: int = 4,
        teleport: float = 0.15,
        top_k: int = 5,
        attention_dropout: float = 0.5,
        edge_dropout: float = 0.05,
        feed_forward_dropout: float = 0.1,
    ) -> None:
        super().__init__()
        require_counts(heads=heads, hops=hops, top_k=top_k)
        _require_shares(
            teleport=teleport,
            attention_dropout=attention_dropout,
            edge_dropout=edge_dropout,
            feed_forward_dropout=feed_forward_dropout,
        )
        if hidden_channels % heads:
            raise InvalidInput(
                f"hidden_channels={hidden_channels} given with heads={heads}; expected "
                "a multiple of the heads."
            )
        self.blocks = nn.ModuleList(
            MAGNABlock(
                in_channels if number == 0 else hidden_channels,
                hidden_channels,
                number=number,
                dropout=dropout,
                feed_forward_dropout=feed_forward_dropout,
                heads=heads,
                hops=hops,
                teleport=teleport,
                top_k=top_k,
                attention_dropout=attention_dropout,
            )
            for number in range(num_layers)
        )
        self.weight = glorot(hidden_channels, out_channels)
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.edge_dropout = edge_dropout
        self.num_propagations = num_layers

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        """Return the logits, ``[nodes, classes]``."""
        if strengths is None:
            strengths = self.initial_strength(pattern)
        dropped = dropped_pairs(
            pattern, self.edge_dropout, noise, _FIRST_SITE, self.weight
        )
        h = features
        for number, block in enumerate(self.blocks):
            if callable(strengths):
                strength = strengths(number, h)
            else:
                strength = strengths if strengths.dim() == 1 else strengths[number]
            h = block(h, pattern, strength, dropped, noise)
        logits: Tensor = h @ self.weight + self.bias
        return logits

    def initial_strength(
        self, pattern: Pattern, degree: Tensor | None = None
    ) -> Tensor:
        """One: attention as it is."""
        return torch.ones(
            pattern.num_entries, dtype=self.weight.dtype, device=pattern.device
        )

    def normalise(
        self, pattern: Pattern, weights: Tensor, sums: Tensor | None = None
    ) -> Tensor:
        """The weights: attention does the rest."""
        return weights


def _require_shares(**options: Any) -> None:
    for name, value in options.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not 0 <= value < 1:
            raise InvalidInput(f"{name}={value!r} given; expected 0 <= {name} < 1.")
