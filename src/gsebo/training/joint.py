"""Methods whose weights and structure follow the gradient of one loss.

Most baselines are such: what they minimise is a :class:`JointProblem`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from gsebo.bilevel import Iterate, Optimizer, State, Tree, begin
from gsebo.bilevel.tree import filled, gradient, require_grad
from gsebo.graph import Propagation
from gsebo.training.history import Advance, Progress
from gsebo.training.loop import LoopSettings, run_loop
from gsebo.training.problem import Task


class Member(NamedTuple):
    """One network that predicts, on its graph: alone, or averaged with others.

    Attributes:
        propagation: The graph that it is on.
        weights: Its own; without, it has those of the fit.
    """

    propagation: Propagation
    weights: Tree | None = None


class JointProblem(ABC):
    """What a method of structure learning minimises, and what it predicts with.

    The weights of the network and the parameters of the structure ("outer") are trees
    of tensors, and all that changes during a fit lives in them.

    Args:
        task: The network, the graph and the labels.

    Attributes:
        learned: Whether predictions need what was learned for this very graph.
        dense: Whether a step computes with all pairs of nodes.
    """

    learned: bool = True
    dense: bool = False

    def __init__(self, task: Task) -> None:
        self.task = task

    @property
    def labels(self) -> Tensor:
        """Class of each node."""
        return self.task.labels

    @property
    def inner_nodes(self) -> Tensor:
        """Nodes that the loss is taken over."""
        return self.task.inner_nodes

    def initial_weights(self) -> Tree:
        """Weights before the first step."""
        return self.task.initial_weights()

    @abstractmethod
    def initial_outer(self) -> Tree:
        """Parameters of the structure before the first step."""

    @abstractmethod
    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Return what is minimised, penalties included.

        Everything random is a function of the number of the step.
        """

    @abstractmethod
    def members(self, weights: Tree, outer: Tree) -> Sequence[Member]:
        """Return what predictions are made with; of several the mean is taken."""

    def settle(self, weights: Tree, outer: Tree, step: int) -> Tree:
        """Change the structure otherwise than by a gradient, after a step on it."""
        return outer

    @torch.no_grad()
    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        """Scores of every node without noise, ``[nodes, classes]``."""
        members = self.members(weights, outer)
        logits = [self._logits_of(member, weights) for member in members]
        if len(logits) == 1:
            return logits[0]
        mean = torch.stack(logits).softmax(-1).mean(0)
        # A class that all are sure not to see has a score too, if a low one.
        return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()

    def _logits_of(self, member: Member, weights: Tree) -> Tensor:
        own = weights if member.weights is None else member.weights
        return self.task.logits(own, *member.propagation, None)

    @property
    def initial_strengths(self) -> Tensor:
        """Strengths of the vanilla propagation on the given graph, ``[entries]``."""
        return self.task.initial_strengths

    @torch.no_grad()
    def strengths(self, weights: Tree, outer: Tree) -> Tensor:
        """Mean strength over the members of each entry of the given graph."""
        total = torch.zeros_like(self.initial_strengths)
        members = self.members(weights, outer)
        for member in members:
            edges, loops = member.propagation.at(self.task.graph.graph)
            parts = [edges, loops] if self.task.graph.num_loops else [edges]
            total = total + torch.cat(parts, dim=-1) / len(members)
        return total

    def changed_edges(self, outer: Tree, runs: int) -> tuple[Tensor, Tensor]:
        """Nothing is told while training: it would cost as much as the training."""
        start = self.initial_strengths
        unknown = start.new_full((runs,), torch.nan)
        return unknown, unknown


def train_together(
    problems: Sequence[JointProblem],
    optimizer: Optimizer,
    structure_optimizer: Optimizer | None,
    *,
    steps_per_evaluation: int,
    max_training_steps: int,
    settings: Sequence[LoopSettings],
    weight_steps: int = 1,
    in_turns: bool = False,
) -> list[Progress]:
    """Train the weights and the structure by the gradient of one loss.

    Without an optimiser of its own the structure only changes by ``settle``. In turns,
    it takes its step alone, before ``weight_steps`` of the weights.

    Args:
        problems: What is minimised, one for each seed.
        optimizer: Makes the steps of the weights.
        structure_optimizer: Makes those of the structure.
        steps_per_evaluation: Training steps between two looks.
        max_training_steps: Number of training steps at most.
        settings: Of the loop, one for each problem.
        weight_steps: Steps of the weights for one of the structure, in turns.
        in_turns: Whether weights and structure move one after the other.
    """
    mover = _Mover(optimizer, structure_optimizer, weight_steps if in_turns else None)

    def step(problem: JointProblem, progress: Progress) -> Advance:
        left = max_training_steps - progress.iterate.step // mover.weight_steps
        taken = Advance(
            progress.iterate,
            progress.outer,
            progress.outer_state,
            torch.zeros(()),
            progress.outer,
        )
        for _ in range(min(steps_per_evaluation, left)):
            taken = mover.move(problem, taken)
        return taken

    starts = []
    for problem in problems:
        outer = problem.initial_outer()
        state = State(0, {}) if mover.structure is None else mover.structure.init(outer)
        iterate = begin(optimizer, problem.initial_weights())
        starts.append(Progress(iterate, outer, state))
    return run_loop(problems, step, starts, settings)


class _Mover:
    """Takes one step, whichever way."""

    def __init__(
        self, weights: Optimizer, structure: Optimizer | None, turns: int | None
    ) -> None:
        self._weights = weights
        self.structure = structure
        self._in_turns = turns is not None
        self.weight_steps = turns or 1

    def move(self, problem: JointProblem, at: Advance) -> Advance:
        if self._in_turns:
            return self._move_in_turns(problem, at)
        loss, by_weights, by_outer = _gradients(
            problem, at.iterate, at.outer, structure=self.structure is not None
        )
        iterate = self._moved_weights(at.iterate, by_weights)
        outer, state = self._moved_structure(at, by_outer)
        outer = _settled(problem, iterate, outer)
        return Advance(iterate, outer, state, loss, outer)

    def _move_in_turns(self, problem: JointProblem, at: Advance) -> Advance:
        _, _, by_outer = _gradients(problem, at.iterate, at.outer, structure=True)
        outer, state = self._moved_structure(at, by_outer)
        outer = _settled(problem, at.iterate, outer)
        iterate, loss = at.iterate, at.train_loss
        for _ in range(self.weight_steps):
            loss, by_weights, _ = _gradients(problem, iterate, outer, structure=False)
            iterate = self._moved_weights(iterate, by_weights)
        return Advance(iterate, outer, state, loss, outer)

    @torch.no_grad()
    def _moved_weights(self, iterate: Iterate, gradients: Tree) -> Iterate:
        weights, state = self._weights.update(gradients, iterate.state, iterate.weights)
        return Iterate(weights, state, iterate.step + 1)

    @torch.no_grad()
    def _moved_structure(self, at: Advance, gradients: Tree) -> tuple[Tree, State]:
        if self.structure is None:
            return at.outer, at.outer_state
        return self.structure.update(gradients, at.outer_state, at.outer)


@torch.no_grad()
def _settled(problem: JointProblem, iterate: Iterate, outer: Tree) -> Tree:
    return problem.settle(iterate.weights, outer, iterate.step)


def _gradients(
    problem: JointProblem, iterate: Iterate, outer: Tree, *, structure: bool
) -> tuple[Tensor, Tree, Tree]:
    """Loss, and its gradients by the weights and by the structure."""
    weights = require_grad(iterate.weights)
    leaves = require_grad(outer) if structure else outer
    with torch.enable_grad():
        loss = problem.loss(weights, leaves, iterate.step)
    by_weights, by_outer = gradient(loss, weights, leaves if structure else {})
    return (
        loss.detach(),
        filled(by_weights, weights),
        filled(by_outer, leaves) if structure else {},
    )
