"""MAGNA: attention that reaches several hops in every layer, and its network."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, final

import torch
from msgspec import Meta
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from gsebo.bilevel import clipped, make_optimizer, scheduled
from gsebo.errors import InvalidInput
from gsebo.files import Count
from gsebo.graph import Graph
from gsebo.methods.baselines.pairs import dense_features
from gsebo.methods.fitting import Outcome
from gsebo.methods.parameters import Rate, ShareBelowOne, Steps, Width
from gsebo.methods.run import Run
from gsebo.methods.schedule import EpochClassifier, train_on_fixed_structure
from gsebo.nn.base import (
    Features,
    LayerStrengths,
    SizedBackbone,
    glorot,
    require_between,
    require_counts,
    strength_at,
)
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
from gsebo.training.history import SelectBy

_SLOPE = 0.2
# A score whose exponential is zero, and of which a whole row is still no NaN.
_NEVER = -1e20
_EPSILON = 1e-6
_EXPANSION = 4
_SHARES = ("teleport", "attention_dropout", "edge_dropout", "feed_forward_dropout")
# Its sites depend on the number of hops, so that they begin above all others.
_FIRST_SITE = 1_000_000


@final
class DiffusionAttention(nn.Module):
    """Attention to the best neighbors, diffused: the propagation of a block.

        e_ij = LeakyReLU(a_target · tanh f_i + a_source · tanh f_j),
        A_ij = softmax_j(e_ij, the top k of each i) s_ij,

    for each head with its own channels f of the messages.
    """

    def __init__(self, net: "MAGNANet") -> None:
        super().__init__()
        self.heads, self.hops, self.teleport = net.heads, net.hops, net.teleport
        self.top_k, self.dropout = net.top_k, net.dropout
        self.attention_dropout = net.attention_dropout
        # One column per role: target, source.
        self.attention = glorot(net.heads, net.hidden_channels // net.heads, 2)

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
    """Whether each score is one of the ``count`` largest of its row, or equals one."""
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
    """Entries left out of a training step, none of them on the diagonal.

    (i, j) and (j, i) share their fate. ``None`` where nothing is dropped.
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
    personalised PageRank a (I - (1 - a) A)^-1 Z_0. A is ``[heads, entries]``, Z_0
    ``[heads, nodes, channels]``; the dropout takes ``2 * hops`` sites from ``site`` on.
    """
    returned = start * teleport
    z = start
    for hop in range(hops):
        kept = dropout(attention, attention_dropout, noise, site + 2 * hop)
        z = spmm(pattern, kept * (1 - teleport), z) + returned
        z = dropout(z, dropout_rate, noise, site + 2 * hop + 1)
    return z


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

    def __init__(self, net: "MAGNANet", number: int) -> None:
        super().__init__()
        channels = net.hidden_channels
        in_channels = channels if number else net.in_channels
        self.input_norm = DeviationNorm(in_channels)
        self.weight = glorot(in_channels, channels)
        self.attention = DiffusionAttention(net)
        self.output = glorot(channels, channels)
        same = in_channels == channels
        self.residual = None if same else glorot(in_channels, channels)
        self.norm = DeviationNorm(channels)
        self.feed_forward = FeedForward(channels, dropout=net.feed_forward_dropout)
        self.dropout = net.dropout
        self.site = _FIRST_SITE + 1 + number * (2 * net.hops + 3)

    def forward(
        self,
        h: Features,
        pattern: Pattern,
        strength: Tensor,
        dropped: Tensor | None,
        noise: Noise | None,
    ) -> Tensor:
        """Return ``[nodes, channels]``."""
        message, site = self.input_norm.times(h, self.weight), self.site
        mixed: Tensor = self.attention(
            message, pattern, strength, dropped, noise, site + 3
        )
        mixed = dropout(mixed @ self.output, self.dropout, noise, site)
        r = mixed + (dense_features(h) if self.residual is None else h @ self.residual)
        deep: Tensor = self.feed_forward(self.norm(r), noise, site + 1)
        return r + dropout(deep, self.dropout, noise, site + 2)


@final
@dataclass(kw_only=True, eq=False, repr=False)
class MAGNANet(SizedBackbone):
    """MAGNA: blocks of diffused attention and a linear read-out.

    One block is one propagation: its strengths multiply the attention, at every hop.
    The hidden width is a multiple of ``heads``.

    Args:
        dropout: Rate of dropout on what each hop, attention and feed-forward network
            gives.
        heads: Number of heads.
        hops: Steps of the diffusion of each block.
        teleport: How much of a block's messages returns at each hop (alpha).
        top_k: Entries of each node and head that get attention.
        attention_dropout: Rate of dropout on the attention, drawn anew at each hop.
        edge_dropout: Probability of a pair of neighbors to be left out of a training
            step; half of the published 0.1, which the authors' code halves.
        feed_forward_dropout: Rate of dropout inside of the feed-forward networks.
    """

    sums_messages = False
    dropout: float = 0.25
    heads: int = 8
    hops: int = 4
    teleport: float = 0.15
    top_k: int = 5
    attention_dropout: float = 0.5
    edge_dropout: float = 0.05
    feed_forward_dropout: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_counts(heads=self.heads, hops=self.hops, top_k=self.top_k)
        require_between(0, 1, **{name: getattr(self, name) for name in _SHARES})
        if self.hidden_channels % self.heads:
            raise InvalidInput(
                f"hidden_channels={self.hidden_channels} given with heads={self.heads};"
                " expected a multiple of the heads."
            )
        numbers = range(self.num_layers)
        self.blocks = nn.ModuleList(MAGNABlock(self, number) for number in numbers)
        self.weight = glorot(self.hidden_channels, self.out_channels)
        self.bias = nn.Parameter(torch.zeros(self.out_channels))

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        if strengths is None:
            strengths = self.initial_strength(pattern)
        rate, h = self.edge_dropout, features
        dropped = dropped_pairs(pattern, rate, noise, _FIRST_SITE, self.weight)
        for number, block in enumerate(self.blocks):
            strength = strength_at(strengths, number, h)
            h = block(h, pattern, strength, dropped, noise)
        logits: Tensor = h @ self.weight + self.bias
        return logits


_Norm = Annotated[float, Meta(gt=0, description="a finite number above 0")]


@final
@dataclass(kw_only=True, eq=False, repr=False)
class MAGNA(EpochClassifier):
    """Attention diffused over several hops (Wang et al., IJCAI 2021).

    A network of its own, on the graph as it is given; ``backbone_options`` are those of
    :class:`MAGNANet` (heads, hops, teleport, top_k, ...). All defaults are the
    published ones. The learning rate falls along a cosine, and the norm of the gradient
    is clipped.

    Args:
        backbone: ``"magna"``.
        hidden_channels: Width of each block, a multiple of the number of heads.
        num_layers: Number of blocks.
        dropout: Rate of dropout on what each hop and each half of a block gives.
        inner_lr: Learning rate of the weights at the first step.
        weight_decay: λ of the penalty λ/2 ‖W‖².
        max_epochs: Number of training steps at most.
        patience: Looks without a better one before stopping.
        select_by: Keep the step with the best validation ``"loss"``, ``"accuracy"`` or
            other metric, such as ``"roc_auc"``, or the ``"last"``.
        final_lr: Learning rate after ``max_epochs`` steps.
        max_norm: Largest norm of the gradient.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("magna",)

    backbone: str | type | nn.Module = field(default="magna", kw_only=False)
    hidden_channels: Width = 512
    dropout: ShareBelowOne = 0.25
    inner_lr: Rate = 2e-4
    weight_decay: Rate = 1e-5
    max_epochs: Steps = 600
    patience: Count = 300
    select_by: SelectBy = "accuracy"
    final_lr: Rate = 1e-8
    max_norm: _Norm = 1.0

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        falling = scheduled(
            make_optimizer(self.inner_optimizer, self.inner_lr),
            cosine(self.inner_lr, self.final_lr, self.max_epochs),
        )
        schedule = self.schedule(clipped(falling, self.max_norm))
        return train_on_fixed_structure(data, runs, self.network(), schedule)


def cosine(first: float, final: float, steps: int) -> Callable[[int], float]:
    """Factor on ``first`` that moves it to ``final`` along half a wave.

    >>> factor = cosine(2.0, 1.0, 10)
    >>> [round(factor(count), 3) for count in (0, 5, 10)]
    [1.0, 0.75, 0.5]
    """
    # Whatever the factor on a learning rate of zero.
    lowest = final / first if first else 1.0

    def factor(count: int) -> float:
        return lowest + (1 - lowest) * (1 + math.cos(math.pi * count / steps)) / 2

    return factor
