"""Algorithm 1 of the paper: train the weights, then step on the structure.

repeat until early stopping:
    W ← τ inner steps on L(W, Z)                      (W is never reset)
    P ← d F(W_τ(Z)) / dZ                              (the hypergradient)
    Z ← project(Z - η_o P)                            (or a safer step: outer_step.py)
"""

from collections.abc import Sequence

from gsebo.bilevel import Hypergradient, Optimizer, begin
from gsebo.training.loop import LoopSettings, run_loop, run_stacked
from gsebo.training.outer_step import Found, OuterStep
from gsebo.training.problem import NodeClassification
from gsebo.training.progress import Advance, Progress
from gsebo.training.stack import Stack


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
