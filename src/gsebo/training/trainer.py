"""The one trainer of structures: networks learn inside, the structure steps outside.

The labelled nodes are divided among K networks. Network k learns from its own nodes and
is judged by others, and all share one structure:

repeat in rounds until early stopping, for k = 1 ... K:
    W_k ← τ inner steps on L_k(W_k, Z)                (W_k is never reset)
    P ← d F_k(W_k(Z), Z) / dZ                         (the hypergradient)
    Z ← project(Z - η_o P)                            (or a safer step: outer_step.py)

One network with the given masks is Algorithm 1 of the paper. Five of them, each judged
by labels that it never saw, are cross-fitting. Where the losses come from is not said
here: from a whole graph, from several copies of it with different seeds, or from
batches of a graph in memory or on disk, in one process or in several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from gsebo.bilevel import Hypergradient, Iterate, Optimizer, State, Tree
from gsebo.bilevel.derivatives import descend
from gsebo.training.history import Advance, Progress
from gsebo.training.loop import LoopSettings, run_loop, run_stacked
from gsebo.training.outer_step import OuterStep
from gsebo.training.turns import Losses, Source

Judged = Literal["before", "after"]
"""Whether weights are judged, and kept, with the structure that they were trained on or
with the one that their own hypergradient led to."""


def train_structure(
    problems: Sequence[Source],
    hypergradient: Hypergradient,
    inner_optimizer: Optimizer,
    outer_step: OuterStep,
    *,
    inner_steps: int,
    settings: Sequence[LoopSettings],
    judged: Judged = "before",
) -> list[Progress]:
    """Learn weights and structure together.

    A record is made after each round, when all networks have moved.

    Args:
        problems: One for each run; several that differ in their seed are trained at
            once where there are kernels for that.
        hypergradient: How to differentiate through the inner steps.
        inner_optimizer: Makes the inner steps; its state lives on across outer steps.
        outer_step: Moves the structure.
        inner_steps: τ.
        settings: When to stop, and what to keep; one for each run.
        judged: With which structure the weights are judged.
    """

    def turn(problem: Losses, at: Advance, progress: Progress, number: int) -> Advance:
        networks, table = problem.num_networks, progress.table
        own = network_of(at.iterate, number, networks, inner_steps)
        here = problem.turn(number, range(own.step, own.step + inner_steps))
        outer = here.at_hand(at.outer, table)
        result = hypergradient.run(
            here.problem(own.weights, outer), inner_optimizer, own, outer, inner_steps
        )
        moved = here.move(outer_step, result, at.outer, at.outer_state, table)
        changed = moved.changed
        if judged == "after" and table is not None and changed is not None:
            # Written before the loop has looked: what diverged must not be.
            if all(bool(leaf.isfinite().all()) for leaf in changed.values.values()):
                table.write(*changed)
            changed = None
        return Advance(
            with_network(at.iterate, number, networks, result.iterate),
            moved.outer,
            moved.state,
            result.inner_losses[-1],
            at.outer if judged == "before" else moved.outer,
            changed,
        )

    def step(problem: Losses, progress: Progress) -> Advance:
        outer = progress.outer
        at = Advance(
            progress.iterate, outer, progress.outer_state, torch.zeros(()), outer
        )
        begun = progress.iterate.step // inner_steps
        for number in range(begun, begun + problem.num_networks):
            at = turn(problem, at, progress, number)
        return at

    starts = [problem.start(inner_optimizer, outer_step) for problem in problems]
    run = run_stacked if hypergradient.by_derivatives else run_loop
    return run(problems, step, starts, settings)


def train_weights(
    problems: Sequence[Source],
    optimizer: Optimizer,
    *,
    steps_per_evaluation: int,
    max_training_steps: int,
    settings: Sequence[LoopSettings],
) -> list[Progress]:
    """Train the weights; the structure stays as it is.

    Args:
        problems: The losses; only the inner ones are used. Several differ in their
            seed.
        optimizer: Makes the steps.
        steps_per_evaluation: How many steps pass between two looks at validation.
        max_training_steps: Number of steps in all; the last look may come earlier.
        settings: When to stop, and what to keep; one for each run.
    """

    def step(problem: Losses, progress: Progress) -> Advance:
        outer, first = progress.outer, progress.iterate.step
        steps = min(steps_per_evaluation, max_training_steps - first)
        derivatives = problem.training(range(first, first + steps), outer)
        iterate, losses = descend(derivatives, optimizer, progress.iterate, steps)
        return Advance(iterate, outer, progress.outer_state, losses[-1], outer)

    starts = [problem.start(optimizer, None) for problem in problems]
    return run_stacked(problems, step, starts, settings)


def network_of(
    together: Iterate, number: int, networks: int, inner_steps: int
) -> Iterate:
    """Weights and optimiser of the network whose turn it is."""
    if networks == 1:
        return together
    network, count = number % networks, number // networks * inner_steps
    slots = {name: leaf[network] for name, leaf in together.state.slots.items()}
    weights = {name: leaf[network] for name, leaf in together.weights.items()}
    return Iterate(weights, State(count, slots), together.step)


def with_network(
    together: Iterate, number: int, networks: int, own: Iterate
) -> Iterate:
    """The networks with that one replaced."""
    if networks == 1:
        return own
    network = number % networks
    weights = _replaced(together.weights, network, own.weights)
    slots = _replaced(together.state.slots, network, own.state.slots)
    return Iterate(weights, State(own.state.count, slots), own.step)


def _replaced(together: Tree, network: int, own: Tree) -> Tree:
    changed = {name: leaf.clone() for name, leaf in together.items()}
    for name, leaf in own.items():
        changed[name][network] = leaf
    return changed
