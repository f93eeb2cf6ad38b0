"""Networks that take turns on batches of a graph, in memory or on disk.

What all edges share is moved whole, what single entries have of their own is read from
a table and moved where batches met it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Protocol, final

import numpy as np
import torch
from torch import Tensor

from gsebo.bilevel import HypergradientStep, Optimizer, State, Tree, begin
from gsebo.bilevel.derivatives import (
    FirstDerivatives,
    advance,
    descend,
    first_derivatives,
)
from gsebo.bilevel.problem import BilevelProblem
from gsebo.bilevel.tree import flatten
from gsebo.distributed.entries import Entries
from gsebo.distributed.tables import EntryTable
from gsebo.loader.prefetch import ahead
from gsebo.nn.base import Features
from gsebo.structure.base import Predictions
from gsebo.structure.in_parts import StructureInParts
from gsebo.training.batched_graph import BatchedGraph, Nodes, Plan, StateOf
from gsebo.training.division import Division
from gsebo.training.history import Progress
from gsebo.training.outer_step import Found, OuterStep
from gsebo.training.problem import NodeClassification
from gsebo.training.tape_derivatives import FLAT
from gsebo.training.turns import Moved, Turn, each_network, started

# Enough to see an accuracy to two digits, and no more than a few batches.
_MOST = 2048


class StateAt(Protocol):
    """What the structure looks at on a part."""

    def __call__(
        self, problem: NodeClassification, weights: Tree, outer: Tree
    ) -> Predictions | None:
        """Told the problem of the part, the weights and the outer variables."""
        ...


Guess = Callable[[Features], Tensor]
"""Class probabilities from features alone, ``[nodes, classes]``."""


@torch.no_grad()
def seen_on_part(
    problem: NodeClassification,
    weights: Tree,
    outer: Tree,
    *,
    guess: Guess | None,
    own_predictions: bool,
) -> Predictions | None:
    """What a structure looks at on a part: a guess, and what a network makes of it."""
    if guess is None:
        return None
    guessed = guess(problem.features)
    if not own_predictions:
        return guessed, guessed
    here = problem.with_state((guessed, guessed))
    return guessed, here.logits(weights, outer, None).softmax(-1)


@final
class BatchedProblem:
    """Networks that take turns on batches, as a trainer sees them.

    Args:
        graph: What batches are made of.
        division: Which labelled nodes serve what.
        train_nodes: Evaluated for the training accuracy of a record.
        stop_nodes: Evaluated for the validation loss of a record.
        table: What each entry has of its own.
        guesses: What is known of the classes without edges, for each network; without,
            the structure looks at no predictions.
        own_predictions: Whether it looks at the network's predictions too.
    """

    def __init__(
        self,
        graph: BatchedGraph,
        division: Division,
        train_nodes: Nodes,
        stop_nodes: Nodes,
        *,
        table: EntryTable | None,
        guesses: Sequence[Guess] | None = None,
        own_predictions: bool = False,
    ) -> None:
        self.graph, self.division, self.table = graph, division, table
        self.evaluated = Evaluated(graph, train_nodes, stop_nodes)
        self._guesses = guesses
        self._own_predictions = own_predictions

    def as_given(self) -> BatchedProblem:
        """The same with the strengths as they were before anything was learned."""
        other = copy(self)
        other.table = None
        return other

    @property
    def num_networks(self) -> int:
        """Number of networks that take turns."""
        return self.division.num_networks

    @property
    def labels(self) -> Tensor:
        """Class of each evaluated node."""
        return self.evaluated.labels

    @property
    def inner_nodes(self) -> Tensor:
        """Evaluated training nodes."""
        return self.evaluated.inner_nodes

    def start(self, optimizer: Optimizer, outer_step: OuterStep | None) -> Progress:
        """The state before the first step."""
        structure = self.graph.structure
        weights = initial_weights(self.graph)
        begun = started(
            weights,
            structure.shared(),
            optimizer,
            outer_step,
            networks=self.num_networks,
        )
        own = () if structure.own is None else (structure.own,)
        return replace(begun, table=self.table, own_columns=own)

    def turn(self, number: int, steps: range) -> Turn:
        """Draw the batches of an outer step."""
        inner, outer = (nodes.numpy() for nodes in self.division.nodes(number))
        plan = self.graph.plan(inner, outer, number=number, steps=steps)
        return _BatchTurn(self.graph, plan, self._state_at(number % self.num_networks))

    def training(self, steps: range, outer: Tree) -> FirstDerivatives:
        """Draw batches to train on, on a structure that stays as it is."""
        nodes, _ = self.division.nodes(0)
        nobody = np.empty(0, np.int64)
        plan = self.graph.plan(nodes.numpy(), nobody, number=0, steps=steps)
        return plan.problem().first_derivatives(outer)

    def _state_at(self, network: int) -> StateAt | None:
        """What the structure looks at when one of the networks has its turn."""
        if self._guesses is None:
            return None
        return partial(
            seen_on_part,
            guess=self._guesses[network],
            own_predictions=self._own_predictions,
        )

    @torch.no_grad()
    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        """Scores of the evaluated nodes, each by a network that left it out."""
        nodes, found = self.evaluated.nodes, None
        judge = np.zeros(len(nodes), np.int64)
        for network in range(self.num_networks):
            judge[np.isin(nodes, self.division.held_out(network).numpy())] = network
        for network, own in enumerate(each_network(weights, self.num_networks)):
            mine = judge == network
            if not mine.any():
                continue
            logits = self.evaluated.scores(
                own, outer, self.table, self._state_at(network), nodes[mine]
            )
            if found is None:
                found = logits.new_zeros(len(nodes), logits.shape[-1])
            found[torch.from_numpy(mine).to(found.device)] = logits
        assert found is not None
        return found

    def changed_edges(self, outer: Tree, runs: int) -> tuple[Tensor, Tensor]:
        """Not known: only a look at all edges would tell."""
        unknown = torch.full((runs,), torch.nan, device=self.labels.device)
        return unknown, unknown


def own_columns(
    structure: StructureInParts, outer_step: OuterStep
) -> dict[str, tuple[int, ...]]:
    """Names of what is kept for each entry, with their leading axes."""
    if structure.own is None:
        return {}
    names = [structure.own, *outer_step.slots_of(structure.own)]
    return dict.fromkeys(names, structure.layers)


@final
class _BatchTurn(Turn):
    """A turn on batches.

    Args:
        graph: What they are made of.
        plan: The batches.
        state_at: What the structure looks at.
    """

    def __init__(
        self, graph: BatchedGraph, plan: Plan, state_at: StateAt | None
    ) -> None:
        self._graph, self._plan, self._state_at = graph, plan, state_at

    def at_hand(self, outer: Tree, table: EntryTable | None) -> Tree:
        """What is shared, and what the entries of the batches have of their own."""
        graph = self._graph
        own = own_of(graph.structure, table, self._plan.ids, graph.device)
        return {**outer, **own}

    def problem(self, weights: Tree, outer: Tree) -> BilevelProblem:
        """The losses of all batches together."""
        return self._plan.problem(looking(self._state_at, weights, outer))

    def move(
        self,
        outer_step: OuterStep,
        result: HypergradientStep,
        outer: Tree,
        state: State,
        table: EntryTable | None,
    ) -> Moved:
        """Step on what is shared and on the entries that any process has met."""
        graph, own = self._graph, self._graph.structure.own
        loss = result.outer_loss
        if own is None or table is None:
            batches = _by_batch(result.gradient, outer)
            gradient = graph.group.sum_in_order(batches, outer)
            found = Found(gradient, loss, {}, self._projection(torch.empty(0)))
            return Moved(*outer_step.update(found, state, outer))
        at_hand = self._plan.ids.expand(*graph.structure.layers, -1)
        batches = _by_batch(result.gradient, {**outer, own: at_hand})
        gradient = graph.group.sum_in_order(batches, outer)
        parts = [Entries(self._plan.ids, {own: batch[own].cpu()}) for batch in batches]
        ids, by_own = table.gathered(parts, [own])
        columns = table.read(ids)
        slots = {name: leaf for name, leaf in columns.items() if name != own}
        start = graph.start_of(ids).cpu()
        found = Found(
            {**gradient, **by_own},
            loss.cpu(),
            graph.structure.units(start),
            self._projection(start),
            table.by_holder,
        )
        # Together, so that both have the same count of steps.
        moved, after = outer_step.update(
            found,
            State(state.count, {**state.slots, **slots}),
            {**outer, own: columns[own]},
        )
        table.release()
        kept = {name: leaf for name, leaf in after.slots.items() if name in slots}
        rest = {name: leaf for name, leaf in after.slots.items() if name not in slots}
        changed = Entries(ids, {own: moved.pop(own), **kept})
        return Moved(moved, State(after.count, rest), changed)

    def _projection(self, start: Tensor) -> Callable[[Tree], Tree]:
        """To allowed parameters of entries with these vanilla strengths."""
        return partial(self._graph.structure.project, start=start)


def _by_batch(gradient: Tree, like: Tree) -> list[Tree]:
    """What each of the batches side by side adds to the gradient.

    Args:
        gradient: With a first axis of batches, unless one graph was recorded for all.
        like: The parameters, without such an axis.
    """
    if all(leaf.dim() == like[name].dim() for name, leaf in gradient.items()):
        return [gradient]
    names, leaves = zip(*gradient.items(), strict=True)
    return [dict(zip(names, rows, strict=True)) for rows in zip(*leaves, strict=True)]


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


def own_of(
    structure: StructureInParts,
    table: EntryTable | None,
    ids: Tensor,
    device: torch.device,
) -> Tree:
    """What some entries have of their own, if entries have anything."""
    if structure.own is None or table is None:
        return {}
    found = table.take(ids, [structure.own])
    return {structure.own: found[structure.own].to(device)}


def looking(state_at: StateAt | None, weights: Tree, outer: Tree) -> StateOf | None:
    """What the structure looks at as things are now."""
    if state_at is None:
        return None
    return partial(state_at, weights=weights, outer=outer)


# Steps: what training takes must not grow with the graph for ever.
_LONGEST_EPOCH = 10


def initial_weights(graph: BatchedGraph) -> Tree:
    """All weights of the network as one vector."""
    named = graph.backbone.named_parameters()
    trained: Tree = {name: weight for name, weight in named if weight.requires_grad}
    return {FLAT: flatten(trained).detach()}


@torch.no_grad()
def train_fresh(
    graph: BatchedGraph,
    nodes: Nodes,
    optimizer: Optimizer,
    epochs: int,
    *,
    shared: Tree,
    table: EntryTable | None = None,
    state_at: StateAt | None = None,
) -> Tree:
    """Train fresh weights for a number of passes, each cut short where it is long.

    Args:
        graph: What batches are made of.
        nodes: Labelled nodes to train on.
        optimizer: Makes the steps.
        epochs: Number of passes.
        shared: What all edges share.
        table: What each entry has of its own.
        state_at: What the structure looks at.
    """
    iterate = begin(optimizer, initial_weights(graph))
    none = np.empty(0, np.int64)
    steps = range(epochs * min(graph.steps_in_pass(nodes), _LONGEST_EPOCH))

    def plan_of(step: int) -> Plan:
        return graph.plan(nodes, none, number=0, steps=range(step, step + 1))

    for step, plan in enumerate(ahead(plan_of, steps)):
        outer = {**shared, **own_of(graph.structure, table, plan.ids, graph.device)}
        seen = looking(state_at, iterate.weights, outer)
        derivatives = plan.problem(seen).first_derivatives(outer)
        gradients, _ = derivatives.inner_gradient(iterate.weights, step)
        iterate = advance(optimizer, iterate, gradients)
    return iterate.weights


@torch.no_grad()
def train_on_one_batch(
    graph: BatchedGraph, nodes: Nodes, optimizer: Optimizer, steps: int
) -> Tree:
    """Train on nodes that make a single batch, with nothing learned of the edges."""
    (part,) = graph.cover(nodes)
    problem = graph.problem(part, graph.own_entries(part), used_again=True)
    start = begin(optimizer, initial_weights(graph))
    iterate, _ = descend(first_derivatives(problem, {}), optimizer, start, steps)
    return iterate.weights
