"""How far predictions agree at both ends of edges, and how sure they are."""

from __future__ import annotations

from typing import NamedTuple, final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from gsebo.graph.topology import Topology
from gsebo.sparse import sddmm
from gsebo.structure.base import Predictions

_PREDICTORS = 2
_PER_PREDICTOR = 3
NUM_AGREEMENTS = _PREDICTORS * _PER_PREDICTOR
"""Numbers that predictions by two predictors say of an edge."""
# Predictions whose agreement is remembered: the guesses and predictions of a round.
_REMEMBERED = 12


@final
class Agreements:
    """What predictions say of edges; the last ones are remembered."""

    def __init__(self) -> None:
        self._seen: list[tuple[Topology, Tensor, Tensor]] = []

    def of(self, graph: Topology, state: Predictions | None, like: Tensor) -> Tensor:
        """Agreement and confidence of predictions, ``[edges, numbers]``, or zeros."""
        if state is None:
            return like.new_zeros(graph.num_edges, NUM_AGREEMENTS)
        return torch.cat([self._columns(graph, one) for one in state], dim=-1)

    def forget(self) -> None:
        """Let go of the predictions that were looked at."""
        self._seen = []

    def _columns(self, graph: Topology, predicted: Tensor) -> Tensor:
        # Asked several times in an outer step, and for what features say in every one.
        for place, (where, what, columns) in enumerate(self._seen):
            if where is graph and what is predicted:
                self._seen.append(self._seen.pop(place))
                return columns
        with torch.no_grad():
            columns = agreement(graph, predicted)
        self._seen = [*self._seen[1 - _REMEMBERED :], (graph, predicted, columns)]
        return columns


def agreement(graph: Topology, predicted: Tensor) -> Tensor:
    """How far predictions agree at both ends of edges, and how sure they are.

    Differentiable by the predictions ``[nodes, classes]``; ``[edges, numbers]``. Where
    only nodes of one type have classes, others are of those that they are joined with:
    see :class:`_Told`.
    """
    edges = slice(0, graph.num_edges)
    target = graph.pattern.row_of_entry[edges]
    source = graph.pattern.column_of_entry[edges]
    predicted = predicted.contiguous()
    around = _around(graph)
    if around is not None:
        left, right = around.at_ends(predicted)
        agree = (left * right).sum(-1)
        ends = left.amax(dim=-1), right.amax(dim=-1)
    else:
        agree = sddmm(graph.pattern, predicted, predicted)[edges]
        sure = predicted.amax(dim=-1)
        ends = sure[target], sure[source]
    columns = [agree, torch.minimum(*ends), torch.maximum(*ends)]
    return 2 * torch.stack(columns, dim=-1) - 1


def told_predictions(graph: Topology, predicted: Tensor) -> Tensor:
    """Predictions ``[nodes, classes]``; nodes without classes have what they are told.

    See :class:`_Told`.
    """
    around = _around(graph)
    return predicted if around is None else around.spread(predicted).found


def _around(graph: Topology) -> _Told | None:
    """Who tells nodes without classes of theirs; ``None`` where all have classes."""
    types = graph.graph.types
    if types is None or types.classified is None:
        return None
    return _Told.of(graph, types.node_type, types.classified)


_told: WeakKeyDictionary[Topology, _Told] = WeakKeyDictionary()


class _Spread(NamedTuple):
    """What every node is or is told, and what that was made of."""

    found: Tensor  # [nodes, classes]
    total: Tensor  # Sum of what those say that tell a node, [nodes, classes],
    tellers: Tensor  # and how many they are, [nodes, 1].
    distance: Tensor  # Number of the ring of each node, [nodes].


@final
class _Told(NamedTuple):
    """What nodes without classes of their own are told by those around them.

    Such a node has the mean of the predictions of its neighbors that have classes, or
    if it has none of these, of its neighbors that are told so, and so on; at an edge to
    a node that it is told by, of the others alone: whether the edge is right shows in
    what the node is without it. What a network itself says of nodes whose classes
    nothing taught it is worth nothing.
    """

    joined: Tensor  # Both ends of every edge, each way: who is told, and by whom.
    rings: list[Tensor]  # Nodes by how far they are from one with classes; 0 first.
    target: Tensor  # The ends of each edge, [edges].
    source: Tensor

    @classmethod
    def of(cls, graph: Topology, node_type: Tensor, classified: int) -> _Told:
        """Who is told by whom; found once for a graph."""
        if graph not in _told:
            source, target = graph.graph.edge_index.to(graph.pattern.device)
            pairs = torch.stack(
                [torch.cat([target, source]), torch.cat([source, target])]
            )
            joined = torch.unique(pairs, dim=1)
            ring = node_type.to(source.device).eq(classified)
            rings, reached = [ring.nonzero().squeeze(-1)], ring
            while len(rings[-1]):
                told = joined[0][reached[joined[1]] & ~reached[joined[0]]]
                rings.append(torch.unique(told))
                reached = reached.index_fill(0, rings[-1], True)
            _told[graph] = cls(joined, rings[:-1] or rings, target, source)
        return _told[graph]

    def spread(self, predicted: Tensor) -> _Spread:
        """Tell all nodes, ring after ring."""
        nodes, classes = predicted.shape
        unknown = predicted.new_full((nodes, classes), 1 / classes)
        distance = torch.full((nodes,), len(self.rings), device=predicted.device)
        for number, ring in enumerate(self.rings):
            distance[ring] = number
        # Of the nodes of each ring, the sum over the ring before and its size.
        found = unknown.index_copy(0, self.rings[0], predicted[self.rings[0]])
        count = predicted.new_zeros(nodes, 1)
        total = torch.zeros_like(predicted)
        told, by = self.joined
        for number, ring in enumerate(self.rings[1:]):
            chosen = (distance[told] == number + 1) & (distance[by] == number)
            here, there = told[chosen], by[chosen]
            total = total.index_add(0, here, found[there])
            count = count.index_add(0, here, count.new_ones(len(here), 1))
            found = found.index_copy(0, ring, total[ring] / count[ring])
        return _Spread(found, total, count, distance)

    def at_ends(self, predicted: Tensor) -> tuple[Tensor, Tensor]:
        """Predictions at the target and at the source of each edge."""
        found, total, count, distance = self.spread(predicted)
        unknown = 1 / predicted.shape[1]
        ends = []
        for end, other in ((self.target, self.source), (self.source, self.target)):
            told_by_other = (distance[end] == distance[other] + 1).unsqueeze(-1)
            rest = (total[end] - found[other]) / (count[end] - 1).clamp(min=1)
            rest = torch.where(count[end] > 1, rest, unknown)
            ends.append(torch.where(told_by_other, rest, found[end]))
        return ends[0], ends[1]
