"""Weights and structure on one loss: at once, or in turns."""

from collections.abc import Sequence

import torch
from torch import Tensor

from gsebo.bilevel import Iterate, Optimizer, State, Tree, begin
from gsebo.bilevel.autodiff import gradient
from gsebo.bilevel.tree import filled, require_grad
from gsebo.training.joint_problem import JointProblem
from gsebo.training.loop import LoopSettings, run_loop
from gsebo.training.progress import Advance, Progress


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
