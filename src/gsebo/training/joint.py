"""Plain training of the weights; the structure stays as it is."""

from collections.abc import Sequence

from gsebo.bilevel import Optimizer, begin
from gsebo.bilevel.derivatives import first_derivatives
from gsebo.bilevel.descend import descend
from gsebo.bilevel.optimizer import State
from gsebo.training.loop import LoopSettings, run_stacked
from gsebo.training.problem import NodeClassification
from gsebo.training.progress import Advance, Progress
from gsebo.training.stack import Stack


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
