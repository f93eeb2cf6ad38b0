"""Plain training of the weights; the structure stays as it is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from gsebo.bilevel import Optimizer, Tree, begin
from gsebo.bilevel.derivatives import descend, first_derivatives
from gsebo.bilevel.optimizer import State
from gsebo.graph import Propagation
from gsebo.training.history import Advance, Progress
from gsebo.training.loop import LoopSettings, run_stacked
from gsebo.training.problem import NodeClassification, Task
from gsebo.training.stack import Stack


class Member(NamedTuple):
    """One network that predicts: alone, or averaged with others.

    Attributes:
        propagation: The graph that it runs on.
        weights: Its weights; ``None`` means those of the fit.
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

        Args:
            weights: Of the network.
            outer: Of the structure.
            step: Number of the step; everything random is a function of it.
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

    @cached_property
    def initial_strengths(self) -> Tensor:
        """Strengths of the vanilla propagation on the given graph, ``[entries]``."""
        return self.task.backbone.initial_strength(self.task.graph.pattern).detach()

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


def train_joint(
    problems: Sequence[NodeClassification],
    optimizer: Optimizer,
    *,
    steps_per_evaluation: int,
    max_training_steps: int,
    settings: Sequence[LoopSettings],
) -> list[Progress]:
    """Train the weights, looking at the validation nodes every so many steps.

    Args:
        problems: The losses; only the inner ones are used. Several differ in their
            seed.
        optimizer: Makes the steps.
        steps_per_evaluation: How many steps pass between two looks.
        max_training_steps: Number of steps in all; the last look may come earlier.
        settings: When to stop, and what to keep; one for each run.
    """

    def step(problem: NodeClassification | Stack, progress: Progress) -> Advance:
        left = max_training_steps - progress.iterate.step
        steps = min(steps_per_evaluation, left)
        derivatives = first_derivatives(problem, progress.outer)
        iterate, losses = descend(derivatives, optimizer, progress.iterate, steps)
        outer = progress.outer
        return Advance(iterate, outer, progress.outer_state, losses[-1], outer)

    starts = [
        Progress(
            begin(optimizer, problem.initial_weights()),
            problem.initial_outer(),
            State(0, {}),
        )
        for problem in problems
    ]
    return run_stacked(problems, step, starts, settings)
