"""Which nodes a fit on batches looks at after each step: never the whole graph."""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from torch import Tensor

from gsebo.bilevel import Tree
from gsebo.training.batches.batched_graph import BatchedGraph, Nodes
from gsebo.training.batches.outer_update import StateAt, own_of
from gsebo.training.distributed.tables import EntryTable

# Enough to see an accuracy to two digits, and no more than a few batches.
_MOST = 2048


@final
class Evaluated:
    """Some training nodes and some that decide, numbered among themselves.

    Args:
        graph: What batches are made of.
        inner_nodes: Nodes that the weights are trained on.
        stop_nodes: Nodes that decide when to stop.
    """

    def __init__(
        self, graph: BatchedGraph, inner_nodes: Nodes, stop_nodes: Nodes
    ) -> None:
        inner, stop = _some(inner_nodes), _some(stop_nodes)
        self.nodes = np.union1d(inner, stop)
        self._graph = graph
        labels = graph.arrays.y
        assert labels is not None
        known = torch.from_numpy(np.asarray(labels[self.nodes]))
        self.labels = known.to(graph.device, torch.int64)
        self.inner_nodes = self._places(inner)
        self.stop_nodes = self._places(stop)

    def _places(self, nodes: Nodes) -> Tensor:
        found = torch.from_numpy(np.searchsorted(self.nodes, nodes))
        return found.to(self._graph.device)

    def unknown_change(self, runs: int) -> tuple[Tensor, Tensor]:
        """How many edges have changed, and by how much: a look at all would tell."""
        unknown = torch.full((runs,), torch.nan, device=self.labels.device)
        return unknown, unknown

    @torch.no_grad()
    def scores(
        self,
        weights: Tree,
        outer: Tree,
        table: EntryTable | None,
        state_at: StateAt | None = None,
        nodes: Nodes | None = None,
    ) -> Tensor:
        """Scores without dropout, ``[nodes, classes]``.

        Every process computes them all, so that every one stops at the same step.

        Args:
            weights: Of the network.
            outer: What all edges share.
            table: What each entry has of its own.
            state_at: What the structure looks at.
            nodes: Some of the evaluated nodes, ascending; all by default.
        """
        graph = self._graph
        found = []
        chosen = self.nodes if nodes is None else nodes
        for part, ids, problem in graph.problems_of(chosen):
            here = {**outer, **own_of(graph.structure, table, ids, graph.device)}
            if state_at is not None:
                problem = problem.with_state(state_at(problem, weights, here))
            logits = problem.logits(weights, here, None)
            found.append((part.nodes[part.seeds.cpu()], logits[part.seeds]))
        order = torch.cat([nodes for nodes, _ in found]).argsort()
        return torch.cat([logits for _, logits in found])[order.to(graph.device)]


def _some(nodes: Nodes) -> Nodes:
    """All of a few nodes, or many of them, evenly spread."""
    if len(nodes) <= _MOST:
        return nodes
    return nodes[np.arange(_MOST) * len(nodes) // _MOST]
