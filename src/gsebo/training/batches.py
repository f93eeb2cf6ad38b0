"""Learning on batches of a graph, in memory or on disk, in one process or several.

What all edges share is moved whole, what single entries have of their own is read from
a table and moved where batches met it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from gsebo.bilevel import HypergradientStep, Optimizer, State, Tree, begin
from gsebo.bilevel.derivatives import (
    FirstDerivatives,
    advance,
    descend,
    first_derivatives,
)
from gsebo.distributed.group import Group, share
from gsebo.distributed.tables import Entries, EntryTable
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.chunks import weight_sums
from gsebo.graph.mapped import gather_rows
from gsebo.loader.batch import Batch, Subgraph
from gsebo.loader.prefetch import map_in_threads, prefetch
from gsebo.loader.sampler import BoundSampler
from gsebo.nn.base import Backbone
from gsebo.sparse import Pattern
from gsebo.structure.base import BatchContext, BatchedStructure, Predictions
from gsebo.training.history import Progress
from gsebo.training.networks import Division, StateAt, TrainingGraph
from gsebo.training.outer_step import Found, OuterStep
from gsebo.training.problem import NodeClassification
from gsebo.training.step_problem import StepProblem, Weighted
from gsebo.training.tape_derivatives import FLAT
from gsebo.training.turns import Moved, Turn, started

Nodes = NDArray[np.int64]
StateOf = Callable[[NodeClassification], Predictions | None]
"""What the structure sees on a batch, before anything is learned in the step."""

# Batches of the outer loss are numbered from here: their draws are others than those of
# the inner steps.
_OUTER = 2**40
# Dropout of the second batch of a step is not that of the first.
_NEXT_SEED = 1_000_003
# Enough to see an accuracy to two digits, and no more than a few batches.
_EVALUATED = 2048
# Steps: what training takes must not grow with the graph for ever.
_LONGEST_EPOCH = 10


class Covering(NamedTuple):
    """A batch that covers some nodes; ``ids``: its entries with an own number."""

    part: Subgraph
    ids: Tensor
    problem: NodeClassification


@final
@dataclass(frozen=True, eq=False)
class BatchedGraph:
    """What batches are made of.

    ``batches_per_step`` batches make one step, which the processes of ``group`` share.
    """

    arrays: GraphArrays
    sampler: BoundSampler
    backbone: Backbone
    structure: BatchedStructure
    weight_decay: float
    seed: int
    device: torch.device
    batches_per_step: int
    group: Group
    _whole: dict[tuple[int, bytes], Subgraph] = field(
        default_factory=dict, init=False, repr=False
    )

    def plan(
        self, inner_nodes: Nodes, outer_nodes: Nodes, *, number: int, steps: range
    ) -> Plan:
        """Draw the batches of an outer step; without outer nodes nothing is judged."""
        rounds = 0
        if len(outer_nodes):
            # As many draws as there are inner steps, but about once through the nodes:
            # a single one drowns what all of them say in what a few happen to.
            rounds = min(len(steps), self.steps_in_pass(outer_nodes))
        first = _OUTER + number * rounds
        draws = [(inner_nodes, step) for step in steps]
        draws += [(outer_nodes, step) for step in range(first, first + rounds)]
        parts = map_in_threads(lambda draw: self._parts(*draw), draws)
        inner, outer = parts[: len(steps)], parts[len(steps) :]
        return Plan(self, inner, outer, steps.start, len(outer_nodes))

    def steps_in_pass(self, nodes: Nodes) -> int:
        """How many steps it takes to go once through some nodes."""
        return -(-self.sampler.batches_in_pass(nodes) // self.batches_per_step)

    def cover(self, nodes: Nodes) -> Iterator[Covering]:
        """Batches whose seeds are these nodes, each once, with their losses."""

        def covering(batch: Batch) -> Covering:
            part = self._part(batch)
            ids = self.own_entries(part)
            # Where there is all of a graph, products round as without batches.
            whole = part.nodes.numel() == self.arrays.num_nodes
            found = Covering(part, ids, self.problem(part, ids, used_again=whole))
            self.arrays.release()
            return found

        return prefetch(covering, self.sampler.cover(nodes))

    def _parts(self, nodes: Nodes, step: int) -> list[Subgraph]:
        first = step * self.batches_per_step
        drawn = [
            self._part(self.sampler.batch(nodes, first + place), place)
            for place in share(self.batches_per_step, self.group)
        ]
        # Pages of a mapped graph would add up over the batches.
        self.arrays.release()
        return drawn

    def _part(self, batch: Batch, place: int = 0) -> Subgraph:
        if batch.nodes.numel() < self.arrays.num_nodes:
            return Subgraph.of(batch, self.arrays, self.backbone, self.device, place)
        # Whoever draws the whole graph draws it every time.
        key = place, batch.seeds.numpy().tobytes()
        if key not in self._whole:
            part = Subgraph.of(batch, self.arrays, self.backbone, self.device, place)
            # Whichever thread is first: all have to get the same one.
            self._whole.setdefault(key, part)
        return self._whole[key]

    def own_entries(self, part: Subgraph) -> Tensor:
        """Numbers of the entries of a batch that have something of their own."""
        if self.structure.own is None:
            return part.entries[:0]
        return part.entries if self.structure.loops else self._edges(part)

    def _edges(self, part: Subgraph) -> Tensor:
        return part.entries[: part.graph.num_edges]

    def problem(
        self, part: Subgraph, ids: Tensor, *, used_again: bool = False
    ) -> NodeClassification:
        """The losses of a batch, whose seeds are inner and outer nodes.

        ``ids`` are ascending numbers of the entries at hand. Where many steps are made
        on it, it pays to write down their kernel calls.
        """
        places = torch.searchsorted(ids, self.own_entries(part)).to(self.device)
        context = BatchContext(
            graph=part.graph,
            nodes=part.nodes,
            edges=self._edges(part).to(self.device),
            features=part.features,
            start=part.start,
            scale=part.message_scale,
            normalise=part.normalise,
            places=places,
            at_hand=ids.numel(),
        )
        return NodeClassification(
            backbone=self.backbone,
            structure=self.structure.over(context),
            features=part.features,
            graph=part.graph,
            labels=part.labels,
            inner_nodes=part.seeds,
            outer_nodes=part.seeds,
            weight_decay=self.weight_decay,
            seed=(self.seed + part.place * _NEXT_SEED) % 2**63,
            by_hand=used_again and self.device.type == "cpu",
            nodes=part.nodes,
        )

    def own_of(self, table: EntryTable | None, ids: Tensor) -> Tree:
        """What some entries have of their own, if entries have anything."""
        own = self.structure.own
        if own is None or table is None:
            return {}
        return {own: table.take(ids, [own])[own].to(self.device)}

    def start_of(self, ids: Tensor) -> Tensor:
        """Vanilla strengths of some entries of the whole graph, ``[ids]``."""
        arrays = self.arrays
        entry = ids.numpy()
        edge = np.minimum(entry, arrays.num_edges - 1)
        loop = entry - arrays.num_edges
        target = np.searchsorted(arrays.indptr, edge, side="right") - 1
        sent_by = gather_rows(arrays.source, edge).astype(np.int64)
        ends = np.where(loop >= 0, loop, np.stack([sent_by, target]))
        nodes, local = np.unique(ends, return_inverse=True)
        source, target = torch.from_numpy(local.reshape(2, -1))
        pattern = Pattern.from_positions(target, source, len(nodes)).to(self.device)
        loops, weights = self.backbone.self_loops, None
        sums = weight_sums(arrays, self_loops=loops)
        if sums is None:
            sums = torch.from_numpy(arrays.degree(nodes)) + int(loops)
        else:
            given, _ = arrays.values_of_edges(edge)
            assert given is not None
            weights = torch.where(torch.from_numpy(loop >= 0), 1.0, given)
            sums, weights = sums[nodes], weights.to(self.device)
        arrays.release()
        found = self.backbone.initial_strength(pattern, sums.to(self.device), weights)
        return found.detach()

    def initial_weights(self) -> Tree:
        """All weights of the network as one vector."""
        trained = (each for each in self.backbone.parameters() if each.requires_grad)
        return {FLAT: parameters_to_vector(trained).detach()}


@final
class Plan:
    """The batches of one outer step, as far as this process computes them.

    Attributes:
        ids: Numbers of all entries whose own numbers are needed, ascending.
    """

    def __init__(
        self,
        graph: BatchedGraph,
        inner: Sequence[Sequence[Subgraph]],
        outer: Sequence[Sequence[Subgraph]],
        first_step: int,
        num_outer_nodes: int,
    ) -> None:
        self._graph = graph
        self._inner, self._outer = inner, outer
        self._first_step = first_step
        self._num_outer_nodes = num_outer_nodes
        parts = [part for parts in (*inner, *outer) for part in parts]
        parts = list({id(part): part for part in parts}.values())
        entries = [graph.own_entries(part) for part in parts]
        none = torch.empty(0, dtype=torch.int64)
        self.ids = torch.unique(torch.cat([none, *entries]))
        # A batch that comes again is one problem, whose derivatives add up.
        problems = map_in_threads(self._problem_of, parts)
        self._problems = dict(zip(map(id, parts), problems, strict=True))

    def problem(self, state_of: StateOf | None = None) -> StepProblem:
        """The losses of the step; without ``state_of`` the structure sees nothing."""
        group = self._graph.group
        seeds = [
            sum(part.seeds.numel() for part in parts)
            for parts in (*self._inner, *self._outer)
        ]
        totals = group.sum(torch.tensor(seeds, dtype=torch.float64)).tolist()
        judging = sum(totals[len(self._inner) :])
        seen = {
            key: problem.with_state(state_of(problem)) if state_of else problem
            for key, problem in self._problems.items()
        }
        # The inner loss is a mean over nodes, the outer one a sum.
        inner = [
            [Weighted(seen[id(part)], part.seeds.numel() / total) for part in parts]
            for parts, total in zip(self._inner, totals, strict=False)
        ]
        factor = self._num_outer_nodes / max(judging, 1)
        outer = [
            [Weighted(seen[id(part)], factor) for part in parts]
            for parts in self._outer
        ]
        return StepProblem(inner, self._first_step, outer, group)

    def _problem_of(self, part: Subgraph) -> NodeClassification:
        whole = part.nodes.numel() == self._graph.arrays.num_nodes
        problem = self._graph.problem(part, self.ids, used_again=whole)
        # Evidence reads the neighbors of both ends.
        self._graph.arrays.release()
        return problem


@final
class MiniBatches(TrainingGraph):
    """Batches of a graph as what networks learn on.

    Of many nodes, some that are evenly spread are evaluated. What each entry has of its
    own, and how ``outer_step`` moves it, is kept in a table, in ``folder`` or in
    memory; of several processes each has a share if it is ``sharded``.
    """

    def __init__(
        self,
        graph: BatchedGraph,
        train_nodes: Nodes,
        stop_nodes: Nodes,
        outer_step: OuterStep,
        *,
        folder: Path | None = None,
        sharded: bool = False,
    ) -> None:
        self.graph, structure, arrays = graph, graph.structure, graph.arrays
        self.table: EntryTable | None = None
        if structure.own is not None:
            names = [structure.own, *outer_step.slots_of(structure.own)]
            self.table = EntryTable(
                dict.fromkeys(names, structure.layers),
                arrays.num_edges + (arrays.num_nodes if structure.loops else 0),
                graph.group,
                sharded=sharded,
                dtype=arrays.dtype,
                folder=folder,
            )
        inner, stop = _some(train_nodes), _some(stop_nodes)
        nodes = np.union1d(inner, stop)
        self.nodes = torch.from_numpy(nodes)
        assert graph.arrays.y is not None
        known = torch.from_numpy(np.asarray(graph.arrays.y[nodes]))
        self.labels = known.to(graph.device, torch.int64)
        self.inner_nodes, self.stop_nodes = (
            torch.from_numpy(np.searchsorted(nodes, each)).to(graph.device)
            for each in (inner, stop)
        )

    def as_given(self) -> MiniBatches:
        other = copy(self)
        other.table = None
        return other

    def start(
        self, optimizer: Optimizer, outer_step: OuterStep | None, networks: int
    ) -> Progress:
        weights, structure = self.graph.initial_weights(), self.graph.structure
        shared = structure.shared()
        begun = started(weights, shared, optimizer, outer_step, networks=networks)
        own = () if structure.own is None else (structure.own,)
        return replace(begun, table=self.table, own_columns=own)

    def turn(
        self, division: Division, number: int, steps: range, state_at: StateAt
    ) -> Turn:
        inner, outer = (nodes.numpy() for nodes in division.nodes(number))
        plan = self.graph.plan(inner, outer, number=number, steps=steps)
        return _BatchTurn(self.graph, plan, state_at)

    def training(self, nodes: Tensor, steps: range, outer: Tree) -> FirstDerivatives:
        nobody = np.empty(0, np.int64)
        plan = self.graph.plan(nodes.numpy(), nobody, number=0, steps=steps)
        return plan.problem().first_derivatives(outer)

    def scores(
        self, weights: Tree, outer: Tree, state_at: StateAt, places: Tensor
    ) -> Tensor:
        """Every process computes them all, so that every one stops at the same step."""
        graph, found = self.graph, []
        for part, ids, problem in graph.cover(self.nodes[places.cpu()].numpy()):
            here = {**outer, **graph.own_of(self.table, ids)}
            problem = problem.with_state(state_at(problem, weights, here))
            scores = problem.scores(weights, here)
            found.append((part.nodes[part.seeds.cpu()], scores[part.seeds]))
        order = torch.cat([nodes for nodes, _ in found]).argsort()
        return torch.cat([scores for _, scores in found])[order.to(graph.device)]

    def changed_edges(self, outer: Tree, runs: int) -> tuple[Tensor, Tensor]:
        """Not known: only a look at all edges would tell."""
        unknown = torch.full((runs,), torch.nan, device=self.labels.device)
        return unknown, unknown


def _some(nodes: Nodes) -> Nodes:
    """All of a few nodes, or many of them, evenly spread."""
    if len(nodes) <= _EVALUATED:
        return nodes
    return nodes[np.arange(_EVALUATED) * len(nodes) // _EVALUATED]


@final
class _BatchTurn(Turn):
    """A turn on batches."""

    def __init__(self, graph: BatchedGraph, plan: Plan, state_at: StateAt) -> None:
        self._graph, self._plan, self._state_at = graph, plan, state_at

    def at_hand(self, outer: Tree, table: EntryTable | None) -> Tree:
        return {**outer, **self._graph.own_of(table, self._plan.ids)}

    def problem(self, weights: Tree, outer: Tree) -> StepProblem:
        return self._plan.problem(partial(_seen, self._state_at, (weights, outer)))

    def move(
        self,
        outer_step: OuterStep,
        result: HypergradientStep,
        outer: Tree,
        state: State,
        table: EntryTable | None,
    ) -> Moved:
        """Step on what is shared and on the entries that any process has met."""
        graph, structure = self._graph, self._graph.structure
        own, loss = structure.own, result.outer_loss
        if own is None or table is None:
            batches = _by_batch(result.gradient, outer)
            gradient = graph.group.sum_in_order(batches, outer)
            project = partial(structure.project, start=torch.empty(0))
            found = Found(gradient, loss, {}, project)
            return Moved(*outer_step.update(found, state, outer))
        at_hand = self._plan.ids.expand(*structure.layers, -1)
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
            structure.units(start),
            partial(structure.project, start=start),
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


def _seen(
    state_at: StateAt, at: tuple[Tree, Tree], problem: NodeClassification
) -> Predictions | None:
    return state_at(problem, *at)


def _by_batch(gradient: Tree, like: Tree) -> list[Tree]:
    """What each of the batches of a step adds to the gradient.

    It has a first axis of batches, unless one graph was recorded for all.
    """
    if all(leaf.dim() == like[name].dim() for name, leaf in gradient.items()):
        return [gradient]
    names, leaves = zip(*gradient.items(), strict=True)
    return [dict(zip(names, rows, strict=True)) for rows in zip(*leaves, strict=True)]


@torch.no_grad()
def train_fresh(
    graph: BatchedGraph,
    nodes: Nodes,
    optimizer: Optimizer,
    epochs: int,
    *,
    shared: Tree | None = None,
    table: EntryTable | None = None,
    state_at: StateAt | None = None,
) -> Tree:
    """Train fresh weights for a number of passes, each cut short where it is long.

    ``shared`` and ``table`` are what was learned of the edges.
    """
    iterate = begin(optimizer, graph.initial_weights())
    none = np.empty(0, np.int64)
    steps = range(epochs * min(graph.steps_in_pass(nodes), _LONGEST_EPOCH))

    def plan_of(step: int) -> Plan:
        return graph.plan(nodes, none, number=0, steps=range(step, step + 1))

    for step, plan in enumerate(prefetch(plan_of, steps)):
        outer = {**(shared or {}), **graph.own_of(table, plan.ids)}
        at = iterate.weights, outer
        problem = plan.problem(state_at and partial(_seen, state_at, at))
        derivatives = problem.first_derivatives(outer)
        gradients, _ = derivatives.inner_gradient(iterate.weights, step)
        iterate = advance(optimizer, iterate, gradients)
    return iterate.weights


@torch.no_grad()
def train_on_one_batch(
    graph: BatchedGraph, nodes: Nodes, optimizer: Optimizer, steps: int
) -> Tree:
    """Train on nodes that make a single batch, with nothing learned of the edges."""
    (found,) = graph.cover(nodes)
    problem = graph.problem(found.part, found.ids, used_again=True)
    start = begin(optimizer, graph.initial_weights())
    iterate, _ = descend(first_derivatives(problem, {}), optimizer, start, steps)
    return iterate.weights
