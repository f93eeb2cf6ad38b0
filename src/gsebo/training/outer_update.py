"""The outer step on batches: what all edges share is moved whole, the rest sparsely."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, final

import torch
from torch import Tensor

from gsebo.bilevel import Hypergradient, Iterate, Optimizer, State, Tree, begin
from gsebo.distributed.entries import Entries
from gsebo.distributed.tables import EntryTable
from gsebo.structure.base import Predictions
from gsebo.structure.in_parts import StructureInParts
from gsebo.training.batched_graph import BatchedGraph, Plan, StateOf
from gsebo.training.history import Progress
from gsebo.training.outer_step import Found, OuterStep
from gsebo.training.problem import NodeClassification


class StateAt(Protocol):
    """What the structure looks at on a part."""

    def __call__(
        self, problem: NodeClassification, weights: Tree, outer: Tree
    ) -> Predictions | None:
        """Told the problem of the part, the weights and the outer variables."""
        ...


class Moved(NamedTuple):
    """What an outer step leads to; nothing is written yet.

    Attributes:
        iterate: The weights after the inner steps.
        shared: What all edges share.
        state: How that is optimised.
        changed: What entries have of their own, if they have anything.
        train_loss: The last training loss.
    """

    iterate: Iterate
    shared: Tree
    state: State
    changed: Entries | None
    train_loss: Tensor


@final
class OuterUpdate:
    """Makes outer steps on batches.

    Args:
        graph: What batches are made of.
        hypergradient: How to differentiate through the inner steps.
        inner_optimizer: Makes the inner steps.
        outer_step: Moves the structure.
    """

    def __init__(
        self,
        graph: BatchedGraph,
        hypergradient: Hypergradient,
        inner_optimizer: Optimizer,
        outer_step: OuterStep,
    ) -> None:
        self._graph = graph
        self._hypergradient = hypergradient
        self._inner, self._outer = inner_optimizer, outer_step

    def columns(self) -> dict[str, tuple[int, ...]]:
        """Names of what is kept for each entry, with their leading axes."""
        structure = self._graph.structure
        if structure.own is None:
            return {}
        names = [structure.own, *self._outer.slots_of(structure.own)]
        return dict.fromkeys(names, structure.layers)

    def start(self, weights: Tree, table: EntryTable | None) -> Progress:
        """The state before the first step.

        Args:
            weights: Of the network, or of several.
            table: What each entry has of its own.
        """
        shared = self._graph.structure.shared()
        begun = begin(self._inner, weights)
        own = self._graph.structure.own
        return Progress(
            begun,
            shared,
            self._outer.init(shared),
            table=table,
            own_columns=() if own is None else (own,),
        )

    def run(
        self,
        plan: Plan,
        iterate: Iterate,
        shared: Tree,
        state: State,
        table: EntryTable | None,
        *,
        inner_steps: int,
        state_at: StateAt | None = None,
    ) -> Moved:
        """Train on the batches of a plan, then step on the structure.

        Args:
            plan: The batches.
            iterate: Where inner training stands.
            shared: What all edges share.
            state: How that is optimised.
            table: What each entry has of its own, and how that is optimised.
            inner_steps: τ.
            state_at: What the structure looks at.
        """
        graph = self._graph
        outer = {**shared, **own_of(graph.structure, table, plan.ids, graph.device)}
        seen = looking(state_at, iterate.weights, outer)
        result = self._hypergradient.run(
            plan.problem(seen), self._inner, iterate, outer, inner_steps
        )
        batches = self._by_batch(result.gradient)
        loss = result.inner_losses[-1]
        gradient = graph.group.sum_in_order(batches, shared)
        own = graph.structure.own
        if own is None or table is None:
            found = Found(gradient, result.outer_loss, {}, self._projection())
            moved, state = self._outer.update(found, state, shared)
            return Moved(result.iterate, moved, state, None, loss)
        parts = [Entries(plan.ids, {own: batch[own].cpu()}) for batch in batches]
        ids, by_own = table.gathered(parts, [own])
        columns = table.read(ids)
        slots = {name: leaf for name, leaf in columns.items() if name != own}
        start = graph.start_of(ids).cpu()
        found = Found(
            {**gradient, **by_own},
            result.outer_loss.cpu(),
            graph.structure.units(start),
            self._projection(start),
            table.by_holder,
        )
        # Together, so that both have the same count of steps.
        moved, after = self._outer.update(
            found,
            State(state.count, {**state.slots, **slots}),
            {**shared, own: columns[own]},
        )
        table.release()
        kept = {name: leaf for name, leaf in after.slots.items() if name in slots}
        rest = {name: leaf for name, leaf in after.slots.items() if name not in slots}
        changed = Entries(ids, {own: moved.pop(own), **kept})
        return Moved(result.iterate, moved, State(after.count, rest), changed, loss)

    def _projection(self, start: Tensor | None = None) -> Callable[[Tree], Tree]:
        """To allowed parameters of entries with these vanilla strengths."""
        none = torch.empty(0)
        structure = self._graph.structure
        return partial(structure.project, start=none if start is None else start)

    def _by_batch(self, gradient: Tree) -> list[Tree]:
        """What each of the batches side by side adds to the gradient."""
        if not self._hypergradient.by_derivatives:
            return [gradient]
        names, leaves = zip(*gradient.items(), strict=True)
        return [
            dict(zip(names, rows, strict=True)) for rows in zip(*leaves, strict=True)
        ]


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
