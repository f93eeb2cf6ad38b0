"""Algorithm 1 of the paper: train the weights, then step on the structure.

repeat until early stopping:
    W ← τ inner steps on L(W, Z)                      (W is never reset)
    P ← d F(W_τ(Z)) / dZ                              (the hypergradient)
    Z ← project(Z - η_o P)                            (or a safer step: outer_step.py)
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from gsebo.bilevel import Hypergradient, Iterate, Optimizer, State, Tree, begin
from gsebo.bilevel.problem import gradient
from gsebo.bilevel.tree import filled, require_grad
from gsebo.training.history import Advance, Progress
from gsebo.training.joint import JointProblem
from gsebo.training.loop import LoopSettings, run_loop, run_stacked
from gsebo.training.outer_step import Found, OuterStep
from gsebo.training.problem import NodeClassification
from gsebo.training.stack import Stack


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

    Args:
        problems: The losses, of one run or of several.
        optimizer: Makes the steps of the weights.
        structure_optimizer: Makes those of the structure; without one it only changes
            by ``settle``.
        steps_per_evaluation: How many steps pass between two looks at validation.
        max_training_steps: Number of steps in all.
        settings: When to stop, and what to keep; one for each run.
        weight_steps: In turns, how many steps the weights take for one of the
            structure.
        in_turns: Whether the structure takes its step alone, before the weights.
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


def train_bilevel(
    problems: Sequence[NodeClassification],
    hypergradient: Hypergradient,
    inner_optimizer: Optimizer,
    outer_step: OuterStep,
    *,
    inner_steps: int,
    settings: Sequence[LoopSettings],
) -> list[Progress]:
    """Learn weights and structure together.

    Args:
        problems: The losses, of one run or of several that differ in their seed.
        hypergradient: How to differentiate through the inner steps.
        inner_optimizer: Makes the inner steps; its state lives on across outer steps.
        outer_step: Moves the structure.
        inner_steps: τ.
        settings: When to stop, and what to keep; one for each run.
    """

    def step(problem: NodeClassification | Stack, progress: Progress) -> Advance:
        result = hypergradient.run(
            problem, inner_optimizer, progress.iterate, progress.outer, inner_steps
        )
        structure = problem.structure
        found = Found(
            result.gradient, result.outer_loss, structure.units(), structure.project
        )
        outer, outer_state = outer_step.update(
            found, progress.outer_state, progress.outer
        )
        loss = result.inner_losses[-1]
        return Advance(result.iterate, outer, outer_state, loss, progress.outer)

    starts = []
    for problem in problems:
        outer = problem.initial_outer()
        iterate = begin(inner_optimizer, problem.initial_weights())
        starts.append(Progress(iterate, outer, outer_step.init(outer)))
    run = run_stacked if hypergradient.by_derivatives else run_loop
    return run(problems, step, starts, settings)
