"""What an attack does to a graph: pairs of nodes that it joins and pairs it parts."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from gsebo.data.validate import sized
from gsebo.errors import InvalidInput
from gsebo.graph.graph import Graph, GraphLike, as_graph, given_back
from gsebo.graph.node_match import at_or_median

# What is said of edges one by one and has no value for an edge that is new.
_OF_GIVEN_EDGES = ("edge_type", "edge_strength")


def pair_keys(pairs: Tensor, num_nodes: int) -> Tensor:
    """One number for each pair ``[pairs, 2]``, the same in both directions.

    >>> pair_keys(torch.tensor([[0, 2], [2, 0]]), 3)
    tensor([2, 2])
    """
    return pairs.amin(1) * num_nodes + pairs.amax(1)


def pairs_of_keys(keys: Tensor, num_nodes: int) -> Tensor:
    """The pairs ``[keys, 2]`` that have these numbers, the smaller node first."""
    return torch.stack([keys // num_nodes, keys % num_nodes], dim=1)


def undirected_pairs(graph: Graph) -> Tensor:
    """The distinct pairs that edges of a graph join, sorted, int64 ``[pairs, 2]``.

    The smaller node comes first; direction, repetition and self-loops do not count.
    """
    size, ends = graph.num_nodes, graph.edge_index.cpu().long().T
    keys = pair_keys(ends[ends[:, 0] != ends[:, 1]], size)
    return pairs_of_keys(_distinct(keys), size)


def both_directions(pairs: Tensor) -> Tensor:
    """Pairs ``[pairs, 2]`` as an ``edge_index``: all one way, then all the other."""
    return torch.cat([pairs, pairs.flip(1)]).T.contiguous()


def _distinct(keys: Tensor) -> Tensor:
    found: Tensor = torch.unique(keys)
    return found


def _no_pairs() -> Tensor:
    return torch.empty((0, 2), dtype=torch.int64)


@final
@dataclass(frozen=True, eq=False)
class Perturbation:
    """Pairs of nodes that change: those that are joined, and those that are parted.

    Attributes:
        added: Pairs that get an edge, int64 ``[pairs, 2]``, the smaller node first.
        removed: Pairs that lose theirs, likewise.
    """

    added: Tensor = field(default_factory=_no_pairs)
    removed: Tensor = field(default_factory=_no_pairs)

    @classmethod
    def of_flips(cls, pairs: Tensor, graph: Graph) -> Perturbation:
        """Add those pairs ``[pairs, 2]`` that a graph does not join, remove the rest.

        They are sorted; one that is there twice counts once.
        """
        size = graph.num_nodes
        keys = _distinct(pair_keys(pairs.cpu(), size))
        joined = torch.isin(keys, pair_keys(undirected_pairs(graph), size))
        found = pairs_of_keys(keys, size)
        return cls(found[~joined], found[joined])

    @classmethod
    def union(cls, parts: Iterable[Perturbation]) -> Perturbation:
        """All changes of several perturbations of one graph, each once."""
        every = list(parts)
        added = torch.cat([_no_pairs(), *(one.added for one in every)])
        removed = torch.cat([_no_pairs(), *(one.removed for one in every)])
        return cls(torch.unique(added, dim=0), torch.unique(removed, dim=0))

    @property
    def num_flips(self) -> int:
        """Number of pairs that change; an edge counts once, not in both directions."""
        return len(self.added) + len(self.removed)

    @property
    def flips(self) -> Tensor:
        """All pairs that change, int64 ``[pairs, 2]``."""
        return torch.cat([self.added, self.removed])

    def apply(self, graph: GraphLike) -> Any:
        """A copy of a graph in which every one of these pairs is changed.

        What is joined is parted, in both directions and however often it was given;
        what is not gets an edge in both directions, of weight one where edges have
        weights and with the median attributes. So to apply it twice gives the edges
        that there were. Features, labels, masks and ids stay, and so does the order of
        the edges that stay.

        Raises:
            InvalidInput: A pair is of nodes that the graph does not have.
        """
        given, graph = graph, sized(as_graph(graph))
        size, flips = graph.num_nodes, self.flips
        if len(flips) and int(flips.max()) >= size:
            raise InvalidInput(
                f"a perturbation of node {int(flips.max())} given for a graph of "
                f"{size} nodes; expected the graph that was attacked."
            )
        keys = _distinct(pair_keys(flips, size))
        edges = graph.edge_index.cpu().long()
        own = pair_keys(edges.T, size)
        parted = torch.isin(own, keys) & (edges[0] != edges[1])
        joined = pairs_of_keys(keys[~torch.isin(keys, own)], size)
        attacked, kept = copy(graph), (~parted).nonzero().squeeze(1)
        new = both_directions(joined).to(graph.edge_index)
        stay = graph.edge_index[:, kept.to(graph.edge_index.device)]
        attacked.edge_index = torch.cat([stay, new], dim=1)
        place = torch.cat([kept, torch.full((new.shape[1],), -1)])
        if "edge_attr" in graph:
            held = graph.edge_attr
            attacked.edge_attr = at_or_median(held, place.to(held.device))
        if "edge_weight" in graph:
            weight = graph.edge_weight[kept.to(graph.edge_weight.device)]
            attacked.edge_weight = torch.cat([weight, weight.new_ones(new.shape[1])])
        for name in _OF_GIVEN_EDGES:
            if name in graph:
                del attacked[name]
        return given_back(attacked, given)
