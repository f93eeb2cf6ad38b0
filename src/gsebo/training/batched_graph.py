"""A graph that is trained on in batches, and the batches of one outer step.

One outer step on batches: the losses of the batches that it uses, as one problem.

    L_t(W, Z) = mean over the training nodes in the batches of inner step t
    F(W, Z)   = sum over the outer nodes, estimated from the outer batches

Every batch is a problem of its own on a small graph. What is computed for several of
them, here or by other processes, is added up, so that one problem comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.bilevel import Tree
from gsebo.bilevel.derivatives import Derivatives, FirstDerivatives, HandDifferentiated
from gsebo.bilevel.recorded import RecordedDerivatives
from gsebo.bilevel.tree import add, filled
from gsebo.distributed.group import Group, share
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.mapped import gather_rows
from gsebo.loader.batch import Batch, Part
from gsebo.loader.prefetch import ahead, side_by_side
from gsebo.loader.sampler import BoundSampler
from gsebo.nn.base import Backbone
from gsebo.sparse import Pattern
from gsebo.structure.base import Predictions
from gsebo.structure.in_parts import PartGround, StructureInParts
from gsebo.training.problem import NodeClassification

_LOSS = "loss"


class Weighted(NamedTuple):
    """A batch's problem, and how much it counts."""

    problem: NodeClassification
    share: float


@final
class StepProblem(HandDifferentiated):
    """The losses of one outer step.

    Args:
        inner: For each inner step the batches that this process computes.
        first_step: Number of the first inner step.
        outer: The same for each draw of the outer loss.
        group: Those who compute the others.
    """

    def __init__(
        self,
        inner: Sequence[Sequence[Weighted]],
        first_step: int,
        outer: Sequence[Sequence[Weighted]],
        group: Group,
    ) -> None:
        self.inner = inner
        self.first_step = first_step
        self.outer = outer
        self.group = group

    def at(self, step: int) -> Sequence[Weighted]:
        """The batches of an inner step."""
        return self.inner[step - self.first_step]

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Mean cross-entropy of the training nodes at hand, plus weight decay."""
        losses = [
            problem.inner_loss(weights, outer, step) * part
            for problem, part in self.at(step)
        ]
        return torch.stack(losses).sum(0)

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        """Summed cross-entropy of all outer nodes, judged by those at hand."""
        losses = [
            problem.outer_loss(weights, outer) * part
            for batches in self.outer
            for problem, part in batches
        ]
        return torch.stack(losses).sum(0)

    def derivatives(self, outer: Tree) -> Derivatives:
        """Derivatives of every batch, by the weights added up.

        Those by the outer variables stay apart, ``[batches, ...]`` for each name, one
        for each of the batches that this process computes side by side: whoever adds
        them up in order rounds as one process does.
        """
        # The graph of a batch's last step is kept until the walk back.
        return _SummedDerivatives(self, outer, kept_graphs=1)

    def first_derivatives(self, outer: Tree) -> FirstDerivatives:
        """The same where nothing will be walked back."""
        return _SummedDerivatives(self, outer, kept_graphs=0)


@final
class _SummedDerivatives(Derivatives):
    def __init__(self, problem: StepProblem, outer: Tree, *, kept_graphs: int) -> None:
        self._problem = problem
        self._outer = outer
        self._kept_graphs = kept_graphs
        self._known: dict[int, Derivatives] = {}
        # With the place of the batch among those of its step.
        self._pulled: dict[int, tuple[int, Derivatives]] = {}

    def _of(self, problem: NodeClassification) -> Derivatives:
        """Of one batch, which may serve several steps."""
        if id(problem) not in self._known:
            known = problem.derivatives(self._outer)
            self._known[id(problem)] = known or self._recorded(problem)
        return self._known[id(problem)]

    def _recorded(self, problem: NodeClassification) -> Derivatives:
        first, last = self._problem.first_step, 0
        for place, batches in enumerate(self._problem.inner):
            if any(each.problem is problem for each in batches):
                last = place
        return RecordedDerivatives(
            problem,
            self._outer,
            range(first, first + last + 1),
            kept_graphs=self._kept_graphs,
            graph_memory=0,
        )

    def inner_gradient(self, weights: Tree, step: int) -> tuple[Tree, Tensor]:
        found = []
        for problem, part in self._problem.at(step):
            gradients, loss = self._of(problem).inner_gradient(weights, step)
            found.append(_times({**gradients, _LOSS: loss}, part))
        summed = self._together(found, weights)
        loss = summed.pop(_LOSS)
        return summed, loss

    def outer_gradient(
        self, weights: Tree, *, direct_term: bool
    ) -> tuple[Tensor, Tree, Tree]:
        # A sum for each of the batches side by side, as in ``gathered``.
        places = range(len(self._problem.outer[0]))
        found: list[Tree] = [{} for _ in places]
        by_outer: list[Tree] = [{} for _ in places]
        for batches in self._problem.outer:
            for place, (problem, part) in enumerate(batches):
                loss, gradients, direct = self._of(problem).outer_gradient(
                    weights, direct_term=direct_term
                )
                judged = _times({**gradients, _LOSS: loss}, part)
                found[place] = add(found[place], judged)
                by_outer[place] = add(by_outer[place], _times(direct, part))
        summed = self._together(found, weights)
        loss = summed.pop(_LOSS)
        return loss, summed, self._stacked(by_outer) if direct_term else {}

    def pull_back(self, weights: Tree, step: int, cotangent: Tree) -> Tree:
        found = []
        for place, (problem, part) in enumerate(self._problem.at(step)):
            derivatives = self._of(problem)
            self._pulled[id(problem)] = place, derivatives
            found.append(derivatives.pull_back(weights, step, _times(cotangent, part)))
        summed = self._together(found, weights)
        del summed[_LOSS]
        return summed

    def gathered(self) -> Tree:
        """The sum over the inner steps, for each batch of a step."""
        batches: list[Tree] = [{} for _ in self._problem.inner[0]]
        for place, derivatives in self._pulled.values():
            batches[place] = add(batches[place], derivatives.gathered())
        return self._stacked(batches)

    def _stacked(self, batches: Sequence[Tree]) -> Tree:
        if not batches:
            return {name: leaf[None][:0] for name, leaf in self._outer.items()}
        every = [filled(batch, self._outer) for batch in batches]
        return {
            name: torch.stack([batch[name] for batch in every]) for name in self._outer
        }

    def _together(self, found: list[Tree], weights: Tree) -> Tree:
        zero = next(iter(weights.values())).new_zeros(())
        like = {**weights, _LOSS: zero}
        filled = [
            {
                name: each.get(name, torch.zeros_like(leaf))
                for name, leaf in like.items()
            }
            for each in found
        ]
        # One after another, whoever has them: any number of processes rounds alike.
        return self._problem.group.sum_in_order(filled, like)


def _times(tree: Tree, share: float) -> Tree:
    # Alone, a batch is what it is, to the last bit.
    return tree if share == 1 else {name: leaf * share for name, leaf in tree.items()}


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
