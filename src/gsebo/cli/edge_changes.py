"""What a fit did to the edges: strengths against those at the start."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.methods import GraphClassifier
from gsebo.model.large import EdgePiece


@dataclass(frozen=True)
class EdgeGroup:
    """Some of the edges.

    Attributes:
        count: How many.
        mean_ratio: Mean of strength / start, where the start is not 0.
    """

    count: int
    mean_ratio: float | None


@dataclass(frozen=True)
class HistogramBar:
    """Edges whose strength / start lies in ``[low, high)``; ``high`` may be open."""

    low: float
    high: float | None
    count: int


@dataclass(frozen=True)
class ChangedEdge:
    """One edge; ``ratio`` is ``None`` where the start is 0, a class where unknown."""

    source: int
    target: int
    start: float
    strength: float
    ratio: float | None
    source_class: int | None
    target_class: int | None

    @property
    def change(self) -> float:
        """By how much the strength differs from the start."""
        return abs(self.strength - self.start)


@dataclass(frozen=True)
class LayerChanges:
    """What happened to the strengths of one layer, or of all if they share them.

    Attributes:
        layer: Number of the layer, from 0; ``None`` if shared.
        weakened: Edges with less strength than at the start.
        unchanged: Edges as at the start.
        strengthened: Edges with more.
        within_class: Edges between two nodes of one class, self-loops apart.
        between_classes: Edges between two nodes of different known classes.
        histogram: Of strength / start.
        most_changed: By |strength - start|, the largest first.
    """

    layer: int | None
    weakened: EdgeGroup
    unchanged: EdgeGroup
    strengthened: EdgeGroup
    within_class: EdgeGroup
    between_classes: EdgeGroup
    histogram: tuple[HistogramBar, ...]
    most_changed: tuple[ChangedEdge, ...]


@dataclass(frozen=True)
class EdgeChanges:
    """What a fit did to the edges of its graph.

    Attributes:
        learned: Whether strengths were learned at all.
        num_nodes: Number of nodes.
        num_edges: Number of edges, each direction counted.
        layers: One entry if all layers share the strengths, else one per layer.
    """

    learned: bool
    num_nodes: int
    num_edges: int
    layers: tuple[LayerChanges, ...]

    @property
    def unchanged_everywhere(self) -> bool:
        """Whether every edge counts as at the start."""
        return all(layer.unchanged.count == self.num_edges for layer in self.layers)


# Above the rounding of a float32, below anything that matters.
_TOLERANCE = 1e-6
_GROUPS = ("weakened", "unchanged", "strengthened", "within_class", "between_classes")
_BINS = (0.0, 0.5, 0.9, 0.99, 0.999, 1.001, 1.01, 1.1, 2.0, float("inf"))


def summarise(model: GraphClassifier, *, top: int) -> EdgeChanges:
    """Describe the edges of a model that was fitted in memory.

    Args:
        model: A fitted estimator.
        top: How many of the most changed edges to name.
    """
    return summarise_pieces(
        [fitted_edges(model)],
        model.graph_.y.cpu().numpy(),
        learned=model.model_.learned,
        num_nodes=model.model_.graph.num_nodes,
        top=top,
    )


def fitted_edges(model: GraphClassifier) -> EdgePiece:
    """All edges of a model that was fitted in memory, in the user's order."""
    edges = model.graph_.edge_index.cpu()
    return EdgePiece(edges, model.initial_strength_, model.strength_)


def summarise_pieces(
    pieces: Iterable[EdgePiece],
    labels: NDArray[Any] | None,
    *,
    learned: bool,
    num_nodes: int,
    top: int,
) -> EdgeChanges:
    """Describe edges that come piece by piece.

    Args:
        pieces: The edges.
        labels: Class of each node, negative if unknown; perhaps mapped from a file.
        learned: Whether strengths were learned at all.
        num_nodes: Number of nodes.
        top: How many of the most changed edges to name.
    """
    layers: list[_Layer] = []
    count, per_layer = 0, False
    for piece in pieces:
        per_layer = piece.strength.dim() == 2
        rows = piece.strength if per_layer else piece.strength.unsqueeze(0)
        layers = layers or [_Layer(top) for _ in rows]
        classes = _classes(labels, piece.edge_index)
        for layer, row in zip(layers, rows, strict=True):
            layer.add(piece.edge_index, piece.start, row, classes)
        count += piece.edge_index.shape[1]
    return EdgeChanges(
        learned=learned,
        num_nodes=num_nodes,
        num_edges=count,
        layers=tuple(
            layer.told(number if per_layer else None)
            for number, layer in enumerate(layers)
        ),
    )


def _classes(labels: NDArray[Any] | None, edges: Tensor) -> Tensor:
    """Classes at both ends, ``[2, edges]``, -1 where unknown."""
    if labels is None:
        return torch.full_like(edges, -1)
    nodes, places = torch.unique(edges, return_inverse=True)
    return torch.from_numpy(np.asarray(labels[nodes.numpy()], np.int64))[places]


def describe_layer(
    edges: Tensor, start: Tensor, strength: Tensor, labels: Tensor, *, top: int
) -> LayerChanges:
    """Compare strengths with the start.

    Args:
        edges: ``[2, edges]``.
        start: ``[edges]``.
        strength: ``[edges]``.
        labels: Class of each node, negative if unknown, ``[nodes]``.
        top: How many of the most changed edges to name.
    """
    layer = _Layer(top)
    layer.add(edges, start, strength, labels[edges])
    return layer.told(None)


class _Group:
    """Counts edges and adds up their ratios."""

    def __init__(self) -> None:
        self._count = self._known = 0
        self._total = 0.0

    def add(self, ratio: Tensor, members: Tensor) -> None:
        chosen = ratio[members]
        finite = chosen[~chosen.isnan()]
        self._count += int(members.sum())
        self._known += finite.numel()
        self._total += float(finite.sum())

    def told(self) -> EdgeGroup:
        mean = self._total / self._known if self._known else None
        return EdgeGroup(self._count, mean)


class _Layer:
    """Gathers what happened to the strengths of a layer, some edges at a time."""

    def __init__(self, top: int) -> None:
        self._top = top
        names = [
            "weakened",
            "unchanged",
            "strengthened",
            "within_class",
            "between_classes",
        ]
        self._groups = {name: _Group() for name in names}
        self._bars = [0] * (len(_BINS) - 1)
        self._most: list[ChangedEdge] = []

    def add(
        self, edges: Tensor, start: Tensor, strength: Tensor, classes: Tensor
    ) -> None:
        ratio = ratios(start, strength)
        same = torch.isclose(strength, start, rtol=_TOLERANCE, atol=0.0)
        first, second = classes
        pair_known = (first >= 0) & (second >= 0) & (edges[0] != edges[1])
        members = {
            "weakened": ~same & (strength < start),
            "unchanged": same,
            "strengthened": ~same & (strength > start),
            "within_class": pair_known & (first == second),
            "between_classes": pair_known & (first != second),
        }
        for name, group in self._groups.items():
            group.add(ratio, members[name])
        values = ratio[~ratio.isnan()]
        for place, (low, high) in enumerate(pairwise(_BINS)):
            self._bars[place] += int(((values >= low) & (values < high)).sum())
        size = (strength - start).abs()
        order = torch.argsort(size, descending=True, stable=True)
        chosen = order[~same[order]][: self._top].tolist()
        found = [_edge(edges, start, strength, classes, number) for number in chosen]
        # Of edges that changed by the same amount, the first stays the first.
        every = sorted([*self._most, *found], key=lambda edge: -edge.change)
        self._most = every[: self._top]

    def told(self, layer: int | None) -> LayerChanges:
        bars = zip(pairwise(_BINS), self._bars, strict=True)
        return LayerChanges(
            layer=layer,
            **{name: group.told() for name, group in self._groups.items()},
            histogram=tuple(
                HistogramBar(low, None if high == _BINS[-1] else high, count)
                for (low, high), count in bars
            ),
            most_changed=tuple(self._most),
        )


def ratios(start: Tensor, strength: Tensor) -> Tensor:
    """Strength / start in float64, NaN where the start is 0, ``[..., edges]``."""
    start = start.double()
    return torch.where(start > 0, strength.double() / start, torch.nan)


def _edge(
    edges: Tensor, start: Tensor, strength: Tensor, classes: Tensor, number: int
) -> ChangedEdge:
    source, target = edges[:, number].tolist()
    before, after = float(start[number]), float(strength[number])
    known = [each if each >= 0 else None for each in classes[:, number].tolist()]
    return ChangedEdge(
        source=source,
        target=target,
        start=before,
        strength=after,
        ratio=after / before if before > 0 else None,
        source_class=known[0],
        target_class=known[1],
    )
