"""A graph some of whose pairs are half changed, and how predictions depend on them.

Each pair of a block has a share p in [0, 1] by which it is changed: a pair that is
joined keeps 1 - p of its edges' weights, one that is not gets edges of weight p. With
shares of 0 and 1 it is a graph like any other, so what a network says of it can be
differentiated by p on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor

from gsebo.attacks.base import Scene
from gsebo.attacks.perturbation import both_directions, pair_keys

Objective = Callable[[Tensor], Tensor]
"""From the logits of every node to a number that an attack makes large."""


@final
class RelaxedGraph:
    """The graph of a scene, any pairs of which may be changed by any share."""

    def __init__(self, scene: Scene) -> None:
        self._victim, self._size = scene.victim, scene.graph.num_nodes
        self._edges, self._weights = scene.edges
        keys = pair_keys(self._edges.T, self._size)
        # Edges of one pair stand beside each other: two, or one of a directed graph.
        self._by_pair = keys.argsort(stable=True)
        self._keys = keys[self._by_pair]

    def block(self, pairs: Tensor) -> Block:
        """Lay pairs ``[pairs, 2]``, each of them once, over the graph."""
        keys = pair_keys(pairs, self._size)
        first = torch.searchsorted(self._keys, keys)
        count = torch.searchsorted(self._keys, keys, right=True) - first
        # The pairs of edges that are there, as often as there are such edges.
        owner = torch.arange(len(pairs)).repeat_interleave(count)
        begin = (first - count.cumsum(0) + count).repeat_interleave(count)
        edge = self._by_pair[begin + torch.arange(len(owner))]
        absent = (count == 0).nonzero().squeeze(1)
        more = both_directions(pairs[absent])
        return Block(
            torch.cat([self._edges, more], dim=1), self._weights, owner, edge, absent
        )

    def value(self, pairs: Tensor, objective: Objective) -> float:
        """The objective where these pairs ``[pairs, 2]`` are changed entirely."""
        block = self.block(pairs)
        with torch.no_grad():
            weights = block.weights(torch.ones(len(pairs)))
            return float(objective(self._victim.logits(block.edge_index, weights)))

    def gradient(self, block: Block, shares: Tensor, objective: Objective) -> Tensor:
        """Derivative of the objective by the share of each pair of a block."""
        weights = block.weights(shares).requires_grad_()
        reached = objective(self._victim.logits(block.edge_index, weights))
        (by_weight,) = torch.autograd.grad(reached, weights)
        return block.of_pairs(by_weight)


@final
class Block:
    """Some pairs of a graph: which of its edges are theirs, and which are to come.

    Attributes:
        edge_index: The edges of the graph, and then both directions of each pair that
            has none, ``[2, edges]``.
    """

    def __init__(
        self,
        edge_index: Tensor,
        given: Tensor,
        owner: Tensor,
        edge: Tensor,
        absent: Tensor,
    ) -> None:
        self.edge_index = edge_index
        self._given = given  # What the edges of the graph weigh.
        self._owner, self._edge = owner, edge  # Pairs that have edges, and which.
        self._absent = absent  # Pairs that have none.
        self._size = len(absent) + len(torch.unique(owner))

    def weights(self, shares: Tensor) -> Tensor:
        """Weight of every edge where each pair is changed by its share, ``[edges]``."""
        left = self._given.clone()
        left[self._edge] *= 1 - shares[self._owner].to(left)
        new = shares[self._absent].to(left)
        return torch.cat([left, new, new])

    def of_pairs(self, by_weight: Tensor) -> Tensor:
        """From the derivative by the weight of each edge to that by each share."""
        given, absent = len(self._given), len(self._absent)
        found = by_weight.new_zeros(self._size)
        less = -self._given.to(by_weight)[self._edge] * by_weight[self._edge]
        found.index_add_(0, self._owner, less)
        found[self._absent] = by_weight[given:].view(2, absent).sum(0)
        return found
