"""Algorithm 1 of the paper on batches: the same loop, on another source of losses."""

from __future__ import annotations

from copy import copy
from typing import final

import numpy as np
import torch
from torch import Tensor

from gsebo.bilevel import Optimizer, State, Tree, begin
from gsebo.bilevel.derivatives import descend
from gsebo.distributed.tables import EntryTable
from gsebo.training.batched_graph import BatchedGraph, Nodes
from gsebo.training.batched_plain import initial_weights
from gsebo.training.history import Advance, Progress
from gsebo.training.loop import LoopSettings, run_loop
from gsebo.training.outer_update import OuterUpdate, StateAt, own_of

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


@final
class BatchedBilevel:
    """A bilevel problem on batches, as the loop sees it.

    Args:
        graph: What batches are made of.
        inner_nodes: Nodes to train the weights on.
        outer_nodes: Nodes to judge the structure by.
        stop_nodes: Nodes that decide when to stop.
        table: What each entry has of its own.
    """

    def __init__(
        self,
        graph: BatchedGraph,
        inner_nodes: Nodes,
        outer_nodes: Nodes,
        stop_nodes: Nodes,
        table: EntryTable | None,
    ) -> None:
        self.graph, self.table = graph, table
        self.sets = inner_nodes, outer_nodes
        self.evaluated = Evaluated(graph, inner_nodes, stop_nodes)

    def as_given(self) -> BatchedBilevel:
        """The same with the strengths as they were before anything was learned."""
        other = copy(self)
        other.table = None
        return other

    @property
    def labels(self) -> Tensor:
        """Class of each evaluated node."""
        return self.evaluated.labels

    @property
    def inner_nodes(self) -> Tensor:
        """Evaluated nodes that the weights are trained on."""
        return self.evaluated.inner_nodes

    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        """Scores of the evaluated nodes, ``[nodes, classes]``."""
        return self.evaluated.scores(weights, outer, self.table)

    def changed_edges(self, outer: Tree, runs: int) -> tuple[Tensor, Tensor]:
        """Not known."""
        return self.evaluated.unknown_change(runs)


def train_bilevel_on_batches(
    problem: BatchedBilevel,
    update: OuterUpdate,
    *,
    inner_steps: int,
    settings: LoopSettings,
) -> Progress:
    """Learn weights and structure together.

    Args:
        problem: The batches.
        update: Makes the outer steps; the inner optimiser's state lives on across them.
        inner_steps: τ.
        settings: When to stop, and what to keep.
    """
    graph = problem.graph

    def step(here: BatchedBilevel, progress: Progress) -> Advance:
        first = progress.iterate.step
        plan = graph.plan(
            *here.sets,
            number=first // inner_steps,
            steps=range(first, first + inner_steps),
        )
        moved = update.run(
            plan,
            progress.iterate,
            progress.outer,
            progress.outer_state,
            progress.table,
            inner_steps=inner_steps,
        )
        return Advance(
            moved.iterate,
            moved.shared,
            moved.state,
            moved.train_loss,
            progress.outer,
            moved.changed,
        )

    start = update.start(initial_weights(graph), problem.table)
    (progress,) = run_loop([problem], step, [start], [settings])
    return progress


def train_on_given(
    problem: BatchedBilevel,
    inner_optimizer: Optimizer,
    *,
    inner_steps: int,
    settings: LoopSettings,
) -> Progress:
    """Train the weights by the same schedule on the graph as it was given.

    Args:
        problem: The batches; the table is not looked at.
        inner_optimizer: Makes the steps.
        inner_steps: Steps between two evaluations.
        settings: When to stop, and what to keep.
    """
    graph, (inner_nodes, _) = problem.graph, problem.sets
    nobody = np.empty(0, np.int64)

    def step(here: BatchedBilevel, progress: Progress) -> Advance:
        first = progress.iterate.step
        plan = graph.plan(
            inner_nodes, nobody, number=0, steps=range(first, first + inner_steps)
        )
        derivatives = plan.problem().first_derivatives({})
        iterate, losses = descend(
            derivatives, inner_optimizer, progress.iterate, inner_steps
        )
        return Advance(iterate, {}, progress.outer_state, losses[-1], {})

    start = Progress(begin(inner_optimizer, initial_weights(graph)), {}, State(0, {}))
    (progress,) = run_loop([problem.as_given()], step, [start], [settings])
    return progress
