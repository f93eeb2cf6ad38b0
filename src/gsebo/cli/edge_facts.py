"""What can be said of the edges of a fitted model; all of it goes into JSON."""

from dataclasses import dataclass


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
