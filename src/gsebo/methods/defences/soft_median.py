"""Soft median: neighbors far from the median of all neighbors hardly count."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from gsebo.graph import Graph
from gsebo.methods.fitting import Outcome
from gsebo.methods.run import Run
from gsebo.methods.schedule import EpochClassifier, train_on_fixed_structure
from gsebo.nn.base import (
    SYMMETRIC,
    Features,
    Layer,
    LayeredBackbone,
    glorot,
    require_between,
)
from gsebo.sparse import Noise, Pattern, row_expand, row_sum, spmm

# Two halves of equal weight are a tie, however their sums were rounded.
_TIE = 1e-6
# An absent edge may be closer than all others: what it would count stays finite.
_LARGEST_EXPONENT = 30.0


@torch.no_grad()
def median_entries(pattern: Pattern, strength: Tensor, x: Tensor) -> Tensor:
    """Which entry of each row is its weighted median, ``[channels, rows]``.

    It is the first, in the order of what is read from ``x`` ``[channels, columns]``, up
    to which there is half of the row's strength. Of a row without entries it is any.
    """
    order = x.argsort(dim=-1, stable=True)
    each = torch.arange(pattern.num_columns, device=x.device).expand_as(order)
    rank = torch.empty_like(order).scatter_(-1, order, each)
    # Ranks are whole numbers, so that one sort is by row and then by size.
    rows = pattern.rows.long()
    keys = rows * pattern.num_columns + rank.index_select(-1, pattern.columns)
    order = keys.argsort(dim=-1)
    stored = strength.double().index_select(0, pattern.entries)[order]
    up_to = pad(stored.cumsum(-1), (1, 0))
    begin, end = pattern.indptr[:-1], pattern.indptr[1:]
    before = up_to.index_select(-1, begin)
    total = up_to.index_select(-1, end) - before
    wanted = (before + total * (0.5 - _TIE)).index_select(-1, rows)
    too_few = pad((up_to[:, 1:] < wanted).cumsum(-1), (1, 0))
    skipped = too_few.index_select(-1, end) - too_few.index_select(-1, begin)
    place = (begin + skipped).clamp(max=pattern.num_entries - 1)
    return pattern.entries.long()[order.gather(-1, place)]


def soft_median(
    pattern: Pattern, strength: Tensor, x: Tensor, temperature: float
) -> Tensor:
    """Robust sums of neighbors, from ``[columns, channels]`` to ``[rows, channels]``.

        u_ij = exp(-‖m_i - x_j‖ / (T √channels)),
        y_i = Σ_j s_ij · Σ_j u_ij s_ij x_j / Σ_j u_ij s_ij,

    where m_i is the weighted median of the x_j in each channel. With a high temperature
    it is the plain sum Σ_j s_ij x_j, with a low one the entry nearest to the median.
    Derivatives by the strengths and x are those at a fixed choice of medians, which
    changes in jumps; a strength of zero is no entry.
    """
    if pattern.num_entries == 0:
        return spmm(pattern, strength, x)
    # The sparse operators, instead of an index, whose derivatives have kernels.
    channels = x.mT.contiguous()
    messages = row_expand(pattern.T, channels)
    median = messages.gather(-1, median_entries(pattern, strength, channels))
    apart = (row_expand(pattern, median) - messages).square().mean(0)
    exponent = -_root(apart) / temperature
    closeness = (exponent - _largest_present(pattern, strength, exponent)).clamp(
        max=_LARGEST_EXPONENT
    )
    weighted = closeness.exp() * strength
    total = row_sum(pattern, weighted)
    empty = total == 0
    scale = row_sum(pattern, strength) / total.masked_fill(empty, 1)
    scale = scale.masked_fill(empty, 0)
    return spmm(pattern, weighted * row_expand(pattern, scale), x)


def _root(squares: Tensor) -> Tensor:
    """Square root, with derivative 0 at 0."""
    zero = squares == 0
    return squares.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)


@torch.no_grad()
def _largest_present(pattern: Pattern, strength: Tensor, exponent: Tensor) -> Tensor:
    """Largest exponent of each row among its edges, at every entry; it cancels out."""
    present = exponent.masked_fill(strength == 0, -torch.inf)
    largest = present.new_full((pattern.num_rows,), -torch.inf)
    largest = largest.scatter_reduce(0, pattern.row_of_entry, present, "amax")
    return largest.masked_fill(largest.isinf(), 0)[pattern.row_of_entry]


@final
class SoftMedianLayer(Layer):
    """H' = soft median of H W over the neighbors, + b."""

    def __init__(self, in_channels: int, out_channels: int, temperature: float) -> None:
        super().__init__()
        self.weight = glorot(in_channels, out_channels)
        self.bias = nn.Parameter(torch.zeros(out_channels))
        self.temperature = temperature
        # Messages and their distances, instead of a sum on the way.
        self.heads = 4 * out_channels

    def forward(
        self, h: Features, pattern: Pattern, strength: Tensor, noise: Noise | None
    ) -> Tensor:
        found = soft_median(pattern, strength, h @ self.weight, self.temperature)
        return found + self.bias


@final
@dataclass(kw_only=True, eq=False, repr=False)
class SoftMedianNet(LayeredBackbone):
    """A GCN whose sums over neighbors are soft medians, strengths as in a GCN.

    Args:
        temperature: T of :func:`soft_median`: the lower, the less outliers count.
    """

    normalisation = SYMMETRIC
    temperature: float = 0.2

    def layer(
        self, number: int, in_channels: int, out_channels: int
    ) -> SoftMedianLayer:
        require_between(1e-6, 1e6, temperature=self.temperature)
        return SoftMedianLayer(in_channels, out_channels, self.temperature)


@final
@dataclass(kw_only=True, eq=False, repr=False)
class SoftMedian(EpochClassifier):
    """A GCN with soft medians in place of sums (Geisler et al., NeurIPS 2021).

    Whoever adds some edges to a node can move the sum over its neighbors as far as they
    like, but hardly the median, as long as most neighbors are right. A network of its
    own; ``backbone_options`` are those of :class:`SoftMedianNet`. The authors combine
    it with a diffusion of the graph, which is not part of it.

    Args:
        backbone: ``"soft-median"``.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("soft-median",)

    backbone: str | type | nn.Module = field(default="soft-median", kw_only=False)

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        return train_on_fixed_structure(data, runs, self.network(), self.schedule())
