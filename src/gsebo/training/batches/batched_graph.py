"""A graph that is trained on in batches, and the batches of one outer step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.backbone.base import Backbone
from gsebo.data.arrays import GraphArrays
from gsebo.data.mapped import gather_rows
from gsebo.sparse import Pattern
from gsebo.structure.base import Predictions
from gsebo.structure.in_parts import PartGround, StructureInParts
from gsebo.training.batches.batch import Batch
from gsebo.training.batches.part import Part
from gsebo.training.batches.sampler import BoundSampler
from gsebo.training.batches.side_by_side import ahead, side_by_side
from gsebo.training.batches.step_problem import StepProblem, Weighted
from gsebo.training.distributed.group import Group, share
from gsebo.training.problem import NodeClassification

Nodes = NDArray[np.int64]
StateOf = Callable[[NodeClassification], Predictions | None]
"""What the structure looks at on a part, before anything is learned in the step."""

# Batches of the outer loss are numbered from here: their draws are others than those of
# the inner steps.
_OUTER = 2**40
# Dropout of the second batch of a step is not that of the first.
_NEXT_SEED = 1_000_003


@final
@dataclass(frozen=True, eq=False)
class BatchedGraph:
    """What batches are made of.

    Attributes:
        arrays: The whole graph.
        sampler: Draws batches of it.
        backbone: The network.
        structure: What is learned of the edges.
        weight_decay: λ of the inner loss.
        seed: Of dropout.
        device: Where to compute.
        batches_per_step: How many batches make one step; processes share them.
        group: Those who train together.
    """

    arrays: GraphArrays
    sampler: BoundSampler
    backbone: Backbone
    structure: StructureInParts
    weight_decay: float
    seed: int
    device: torch.device
    batches_per_step: int
    group: Group
    _whole: dict[tuple[int, bytes], Part] = field(
        default_factory=dict, init=False, repr=False
    )

    def plan(
        self, inner_nodes: Nodes, outer_nodes: Nodes, *, number: int, steps: range
    ) -> Plan:
        """Draw the batches of an outer step.

        Args:
            inner_nodes: Nodes to train the weights on.
            outer_nodes: Nodes to judge the structure by; none where it stays as it is.
            number: Of the outer step, from 0.
            steps: Numbers of its inner steps.
        """
        rounds = self._outer_rounds(outer_nodes, len(steps))
        first = _OUTER + number * rounds
        draws = [(inner_nodes, step) for step in steps]
        draws += [(outer_nodes, step) for step in range(first, first + rounds)]
        parts = side_by_side(lambda draw: self._parts(*draw), draws)
        inner, outer = parts[: len(steps)], parts[len(steps) :]
        return Plan(self, inner, outer, steps.start, len(outer_nodes))

    def _outer_rounds(self, nodes: Nodes, inner_steps: int) -> int:
        """How many draws of batches the structure is judged by.

        As many as there are inner steps, but about once through the nodes: a single
        one drowns what all of them say in what a few happen to.
        """
        return min(inner_steps, self.steps_in_pass(nodes)) if len(nodes) else 0

    def steps_in_pass(self, nodes: Nodes) -> int:
        """How many steps it takes to go once through some nodes."""
        return -(-self.sampler.batches_in_pass(nodes) // self.batches_per_step)

    def cover(self, nodes: Nodes) -> Iterator[Part]:
        """Parts whose seeds are these nodes, each once."""
        for batch in self.sampler.cover(nodes):
            yield self._part(batch)
            self.arrays.release()

    def problems_of(self, nodes: Nodes) -> Iterator[Covering]:
        """The parts that cover some nodes, with their losses."""

        def covering(batch: Batch) -> Covering:
            part = self._part(batch)
            ids = self.own_entries(part)
            found = Covering(part, ids, self.problem(part, ids))
            self.arrays.release()
            return found

        return ahead(covering, self.sampler.cover(nodes))

    def _parts(self, nodes: Nodes, step: int) -> list[Part]:
        first = step * self.batches_per_step
        drawn = [
            self._part(self.sampler.batch(nodes, first + place), place)
            for place in share(self.batches_per_step, self.group)
        ]
        # Pages of a mapped graph would add up over the batches.
        self.arrays.release()
        return drawn

    def _part(self, batch: Batch, place: int = 0) -> Part:
        if batch.nodes.numel() < self.arrays.num_nodes:
            return Part.of(batch, self.arrays, self.backbone, self.device, place)
        # Whoever draws the whole graph draws it every time.
        key = place, batch.seeds.numpy().tobytes()
        if key not in self._whole:
            part = Part.of(batch, self.arrays, self.backbone, self.device, place)
            # Whichever thread is first: all have to get the same one.
            self._whole.setdefault(key, part)
        return self._whole[key]

    def own_entries(self, part: Part) -> Tensor:
        """Numbers of the entries of a part that have something of their own."""
        if self.structure.own is None:
            return part.entries[:0]
        return part.entries if self.structure.loops else self._edges(part)

    def _edges(self, part: Part) -> Tensor:
        return part.entries[: part.graph.num_edges]

    def problem(
        self, part: Part, ids: Tensor, *, used_again: bool = False
    ) -> NodeClassification:
        """The losses of a part.

        Args:
            part: The part; its seeds are inner and outer nodes.
            ids: Ascending numbers of the entries at hand.
            used_again: Whether many steps are made on it, so that it pays to write
                down their kernel calls.
        """
        places = torch.searchsorted(ids, self.own_entries(part)).to(self.device)
        ground = PartGround(
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
            structure=self.structure.over(ground),
            features=part.features,
            graph=part.graph,
            labels=part.labels,
            inner_nodes=part.seeds,
            outer_nodes=part.seeds,
            weight_decay=self.weight_decay,
            seed=(self.seed + part.place * _NEXT_SEED) % 2**63,
            by_hand=used_again and self.device.type == "cpu",
        )

    def start_of(self, ids: Tensor) -> Tensor:
        """Vanilla strengths of some entries of the whole graph, ``[ids]``."""
        arrays = self.arrays
        entry = ids.numpy()
        edge = np.minimum(entry, arrays.num_edges - 1)
        loop = entry - arrays.num_edges
        target = np.searchsorted(arrays.indptr, edge, side="right") - 1
        sent_by = gather_rows(arrays.source, edge).astype(np.int64)
        ends = np.stack([sent_by, target])
        ends = np.where(loop >= 0, loop, ends)
        nodes, local = np.unique(ends, return_inverse=True)
        source, target = torch.from_numpy(local.reshape(2, -1))
        pattern = Pattern.from_positions(target, source, len(nodes)).to(self.device)
        degree = torch.from_numpy(arrays.degree(nodes)).to(self.device)
        arrays.release()
        entries = degree + int(self.backbone.self_loops)
        return self.backbone.initial_strength(pattern, entries).detach()


class Covering(NamedTuple):
    """A part that covers some nodes.

    Attributes:
        part: The part.
        ids: Numbers of its entries that have something of their own.
        problem: Its losses.
    """

    part: Part
    ids: Tensor
    problem: NodeClassification


@final
class Plan:
    """The batches of one outer step, as far as this process computes them.

    Attributes:
        ids: Numbers of all entries whose own numbers are needed, ascending.
    """

    def __init__(
        self,
        graph: BatchedGraph,
        inner: Sequence[Sequence[Part]],
        outer: Sequence[Sequence[Part]],
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
        # A part that comes again is one problem, whose derivatives add up.
        problems = side_by_side(self._problem_of, parts)
        self._problems = dict(zip(map(id, parts), problems, strict=True))

    def problem(self, state_of: StateOf | None = None) -> StepProblem:
        """The losses of the step.

        Args:
            state_of: What the structure looks at; without, at nothing.
        """
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

    def _problem_of(self, part: Part) -> NodeClassification:
        whole = part.nodes.numel() == self._graph.arrays.num_nodes
        problem = self._graph.problem(part, self.ids, used_again=whole)
        # Evidence reads the neighbours of both ends.
        self._graph.arrays.release()
        return problem
