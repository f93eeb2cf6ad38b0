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

The graph as it was given is the yardstick of what was learned.
A structure is learned from the labels that decide which step to keep, so a low loss on
them may mean that it has learned them by heart. The same training on the given graph
tells: it sees none of those labels. What was learned is given up for it where

- its best step is better on the nodes that decide, or
- it was ahead, step by step, most of the way: steps on the structure that each follow
  the derivative of the validation loss, and still trail a training without any, lead
  to nodes that were not looked at nowhere.

A yardstick that trails for as long as patience lasts has told what it can, and ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from gsebo.bilevel import Hypergradient, Iterate, Optimizer, State, Tree
from gsebo.bilevel.derivatives import descend
from gsebo.training.history import Advance, Patience, Progress, StepRecord
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

    A record is made after each round, when all networks have moved. Several problems
    that differ in their seed are trained at once where there are kernels for that. The
    state of the inner optimiser lives on across outer steps.

    Args:
        problems: What is trained; they differ in their seed.
        hypergradient: The engine.
        inner_optimizer: Makes the steps of the weights.
        outer_step: Makes the steps of the structure.
        inner_steps: Steps of the weights for one of the structure.
        settings: Of the loop, one for each problem.
        judged: Whether weights are judged with the structure from ``"before"`` the
            step, which they were trained on, or with the one ``"after"`` it.
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
    """Train the weights by the inner loss; the structure stays as it is.

    The last evaluation may come earlier than after ``steps_per_evaluation`` steps.

    Args:
        problems: What is trained; they differ in their seed.
        optimizer: Makes the steps.
        steps_per_evaluation: Training steps between two looks.
        max_training_steps: Number of training steps at most.
        settings: Of the loop, one for each problem.
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


_STAGE = "given"


def beside(learned: Progress, settings: LoopSettings) -> LoopSettings:
    """How the training on the given graph runs, once the other has ended."""
    longest = settings.patience.patience

    def hopeless(history: Sequence[StepRecord]) -> bool:
        trail = list(zip(history, learned.history, strict=False))[-longest:]
        return len(trail) == longest and not any(_ahead(*pair) for pair in trail)

    checkpoint = settings.checkpoint and settings.checkpoint.stage(_STAGE)
    # Whoever has stopped the one does not want to wait for the other.
    most = len(learned.history) if learned.stopped else settings.max_steps
    return replace(
        settings,
        max_steps=most,
        checkpoint=checkpoint,
        watcher=None,
        gives_up=hopeless,
    )


def against_given(
    problems: Sequence[Source],
    optimizer: Optimizer,
    learned: Sequence[Progress],
    *,
    inner_steps: int,
    settings: Sequence[LoopSettings],
) -> list[Progress]:
    """Train on the given graph as well; return the better of both for each run."""
    pairs = list(zip(learned, settings, strict=True))
    given = train_weights(
        [problem.as_given() for problem in problems],
        optimizer,
        steps_per_evaluation=inner_steps,
        max_training_steps=inner_steps * settings[0].max_steps,
        settings=[beside(*pair) for pair in pairs],
    )
    return [
        _in_place_of(plain, progress)
        if is_preferable(plain, progress, setting.patience)
        else progress
        for plain, (progress, setting) in zip(given, pairs, strict=True)
    ]


def _in_place_of(given: Progress, learned: Progress) -> Progress:
    """The given graph, in whatever held what was learned."""
    if learned.table is not None:
        learned.table.clear()
    return replace(given, table=learned.table)


def is_preferable(given: Progress, learned: Progress, patience: Patience) -> bool:
    """Whether the given graph does better than what was learned."""
    pairs = list(zip(given.history, learned.history, strict=False))
    if 2 * sum(_ahead(*pair) for pair in pairs) > len(pairs):
        return True
    if given.best is None or learned.best is None:
        return learned.best is None
    if patience.select_by == "last":
        return given.best.val_loss < learned.best.val_loss
    return patience.is_better(given.best, learned.best)


def _ahead(given: StepRecord, learned: StepRecord) -> bool:
    return given.val_loss < learned.val_loss
