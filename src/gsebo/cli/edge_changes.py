"""What a fit did to the edges: strengths against those at the start."""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from gsebo.methods import GraphClassifier


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
_BINS = (0.0, 0.5, 0.9, 0.99, 0.999, 1.001, 1.01, 1.1, 2.0, float("inf"))


def summarise(model: GraphClassifier, *, top: int) -> EdgeChanges:
    """Describe a fitted model's edges.

    Args:
        model: A fitted estimator.
        top: How many of the most changed edges to name.
    """
    edges, labels = model.graph_.edge_index.cpu(), model.graph_.y.cpu()
    strengths = model.strength_
    per_layer = strengths.dim() == 2
    rows = strengths if per_layer else strengths.unsqueeze(0)
    return EdgeChanges(
        learned=model.model_.learned,
        num_nodes=model.model_.graph.num_nodes,
        num_edges=edges.shape[1],
        layers=tuple(
            describe_layer(
                edges,
                model.initial_strength_,
                row,
                labels,
                top=top,
                layer=number if per_layer else None,
            )
            for number, row in enumerate(rows)
        ),
    )


def describe_layer(
    edges: Tensor,
    start: Tensor,
    strength: Tensor,
    labels: Tensor,
    *,
    top: int,
    layer: int | None = None,
) -> LayerChanges:
    """Compare strengths with the start.

    Args:
        edges: ``[2, edges]``.
        start: ``[edges]``.
        strength: ``[edges]``.
        labels: Class of each node, negative if unknown, ``[nodes]``.
        top: How many of the most changed edges to name.
        layer: Number of the layer, if there are several.
    """
    ratio = ratios(start, strength)
    same = torch.isclose(strength, start, rtol=_TOLERANCE, atol=0.0)
    first, second = labels[edges[0]], labels[edges[1]]
    pair_known = (first >= 0) & (second >= 0) & (edges[0] != edges[1])
    return LayerChanges(
        layer=layer,
        weakened=_group(ratio, ~same & (strength < start)),
        unchanged=_group(ratio, same),
        strengthened=_group(ratio, ~same & (strength > start)),
        within_class=_group(ratio, pair_known & (first == second)),
        between_classes=_group(ratio, pair_known & (first != second)),
        histogram=_histogram(ratio),
        most_changed=_most_changed(edges, start, strength, labels, ~same, top),
    )


def ratios(start: Tensor, strength: Tensor) -> Tensor:
    """Strength / start in float64, NaN where the start is 0, ``[..., edges]``."""
    start = start.double()
    return torch.where(start > 0, strength.double() / start, torch.nan)


def _group(ratio: Tensor, members: Tensor) -> EdgeGroup:
    chosen = ratio[members]
    finite = chosen[~chosen.isnan()]
    return EdgeGroup(
        count=int(members.sum()),
        mean_ratio=float(finite.mean()) if finite.numel() else None,
    )


def _histogram(ratio: Tensor) -> tuple[HistogramBar, ...]:
    values = ratio[~ratio.isnan()]
    bars = []
    for low, high in pairwise(_BINS):
        count = int(((values >= low) & (values < high)).sum())
        bars.append(HistogramBar(low, None if high == _BINS[-1] else high, count))
    return tuple(bars)


def _most_changed(
    edges: Tensor,
    start: Tensor,
    strength: Tensor,
    labels: Tensor,
    changed: Tensor,
    top: int,
) -> tuple[ChangedEdge, ...]:
    size = (strength - start).abs()
    order = torch.argsort(size, descending=True, stable=True)
    chosen = order[changed[order]][:top].tolist()
    return tuple(_edge(edges, start, strength, labels, number) for number in chosen)


def _edge(
    edges: Tensor, start: Tensor, strength: Tensor, labels: Tensor, number: int
) -> ChangedEdge:
    source, target = int(edges[0, number]), int(edges[1, number])
    before, after = float(start[number]), float(strength[number])
    classes = [int(labels[node]) for node in (source, target)]
    return ChangedEdge(
        source=source,
        target=target,
        start=before,
        strength=after,
        ratio=after / before if before > 0 else None,
        source_class=classes[0] if classes[0] >= 0 else None,
        target_class=classes[1] if classes[1] >= 0 else None,
    )
