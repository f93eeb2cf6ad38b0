"""Algorithm 1 of the paper: train the weights, then step on the structure.

repeat until early stopping:
    W ← τ inner steps on L(W, Z)                      (W is never reset)
    P ← d F(W_τ(Z)) / dZ                              (the hypergradient)
    Z ← project(Z - η_o P)
"""

from gsebo.bilevel import Hypergradient, Optimizer, begin
from gsebo.training.loop import Advance, LoopSettings, run_loop
from gsebo.training.problem import NodeClassification
from gsebo.training.progress import Progress


def train_bilevel(
    problem: NodeClassification,
    hypergradient: Hypergradient,
    inner_optimizer: Optimizer,
    outer_optimizer: Optimizer,
    *,
    inner_steps: int,
    settings: LoopSettings,
) -> Progress:
    """Learn weights and structure together.

    Args:
        problem: The losses.
        hypergradient: How to differentiate through the inner steps.
        inner_optimizer: Makes the inner steps; its state lives on across outer steps.
        outer_optimizer: Makes the outer steps.
        inner_steps: τ.
        settings: When to stop, and what to keep.
    """

    def advance(progress: Progress) -> Advance:
        result = hypergradient.run(
            problem, inner_optimizer, progress.iterate, progress.outer, inner_steps
        )
        moved, outer_state = outer_optimizer.update(
            result.gradient, progress.outer_state, progress.outer
        )
        outer = problem.structure.project(moved)
        return Advance(result.iterate, outer, outer_state, result.inner_losses[-1])

    start = begin(inner_optimizer, problem.initial_weights())
    outer = problem.initial_outer()
    fresh = Progress(start, outer, outer_optimizer.init(outer))
    return run_loop(problem, advance, fresh, settings)
