"""Plain training of the weights; the structure stays as it is."""

from gsebo.bilevel import Optimizer, begin
from gsebo.bilevel.inner import descend
from gsebo.bilevel.optimizer import State
from gsebo.training.loop import Advance, LoopSettings, run_loop
from gsebo.training.problem import NodeClassification
from gsebo.training.progress import Progress


def train_joint(
    problem: NodeClassification,
    optimizer: Optimizer,
    *,
    steps_per_evaluation: int,
    max_training_steps: int,
    settings: LoopSettings,
) -> Progress:
    """Train the weights, looking at the validation nodes every so many steps.

    Args:
        problem: The losses; only the inner one is used.
        optimizer: Makes the steps.
        steps_per_evaluation: How many steps pass between two looks.
        max_training_steps: Number of steps in all; the last look may come earlier.
        settings: When to stop, and what to keep.
    """

    def advance(progress: Progress) -> Advance:
        left = max_training_steps - progress.iterate.step
        steps = min(steps_per_evaluation, left)
        iterate, losses = descend(
            problem, optimizer, progress.iterate, progress.outer, steps
        )
        return Advance(iterate, progress.outer, progress.outer_state, losses[-1])

    start = begin(optimizer, problem.initial_weights())
    fresh = Progress(start, problem.initial_outer(), State(0, {}))
    return run_loop(problem, advance, fresh, settings)
