"""Bilevel training in episodes: each begins with fresh weights, the structure goes on.

repeat until early stopping:                          (one episode)
    W ← fresh weights
    repeat while the training loss falls:
        W ← τ inner steps on L(W, Z)
        P ← d F(W_τ(Z), Z) / dZ                       (through these τ steps only)
        Z ← project(Z - η_o P)
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from gsebo.bilevel import Hypergradient, Optimizer, Tree, begin
from gsebo.training.joint_problem import JointProblem
from gsebo.training.loop import LoopSettings, run_loop
from gsebo.training.progress import Advance, Progress

# A training loss that is not smaller by this share has not fallen.
_FALL = 1e-3


class EpisodeProblem(JointProblem):
    """Two losses and where an episode begins; ``loss`` is the inner one.

    After every outer step ``settle`` projects the outer variables.
    """

    @abstractmethod
    def outer_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Return the loss that the structure is learned by.

        Args:
            weights: Of the network.
            outer: Of the structure.
            step: Number of inner steps before it; everything random is a function of
                it.
        """

    @abstractmethod
    def fresh_weights(self, episode: int) -> Tree:
        """Weights that an episode begins with, from number 0 on."""


@final
@dataclass(frozen=True)
class EpisodeSettings:
    """How long an episode lasts.

    Attributes:
        inner_steps: τ, inner steps for one outer step.
        max_inner_steps: Inner steps of an episode at most.
        inner_patience: An episode ends after so many outer steps in a row at which the
            training loss, the mean of the inner steps in between, has not fallen.
    """

    inner_steps: int
    max_inner_steps: int
    inner_patience: int


def train_episodes(
    problems: Sequence[EpisodeProblem],
    hypergradient: Hypergradient,
    inner_optimizer: Optimizer,
    outer_optimizer: Optimizer,
    *,
    episode: EpisodeSettings,
    settings: Sequence[LoopSettings],
) -> list[Progress]:
    """Learn a structure from many trainings, one for each step of the loop.

    Args:
        problems: The losses, of one run or of several.
        hypergradient: How to differentiate through the inner steps.
        inner_optimizer: Makes the inner steps, from a fresh state in each episode.
        outer_optimizer: Makes the outer steps; its state lives on across episodes.
        episode: How long one lasts.
        settings: When to stop, and what to keep; one for each run.
    """
    trainer = _Trainer(hypergradient, inner_optimizer, outer_optimizer, episode)
    starts = []
    for problem in problems:
        outer = problem.initial_outer()
        iterate = begin(inner_optimizer, problem.initial_weights())
        starts.append(Progress(iterate, outer, outer_optimizer.init(outer)))
    return run_loop(problems, trainer.episode, starts, settings)


@final
@dataclass(frozen=True)
class _Trainer:
    """Runs one episode after another."""

    hypergradient: Hypergradient
    inner: Optimizer
    outer: Optimizer
    settings: EpisodeSettings

    def episode(self, problem: EpisodeProblem, progress: Progress) -> Advance:
        weights = problem.fresh_weights(len(progress.history))
        start = begin(self.inner, weights, step=progress.iterate.step)
        outer, state = progress.outer, progress.outer_state
        taken = Advance(start, outer, state, torch.empty(0), outer)
        end = start.step + self.settings.max_inner_steps
        falling = _Falling(self.settings.inner_patience)
        while taken.iterate.step < end and falling.goes_on:
            steps = min(self.settings.inner_steps, end - taken.iterate.step)
            taken = self._outer_step(problem, taken, steps)
            falling.see(float(taken.train_loss))
        return taken

    def _outer_step(self, problem: EpisodeProblem, at: Advance, steps: int) -> Advance:
        chunk = _Chunk(problem, at.iterate.step + steps)
        found = self.hypergradient.run(chunk, self.inner, at.iterate, at.outer, steps)
        moved, state = self.outer.update(found.gradient, at.outer_state, at.outer)
        outer = problem.settle(found.iterate.weights, moved, found.iterate.step)
        loss = torch.stack(found.inner_losses).mean()
        return Advance(found.iterate, outer, state, loss, at.outer)


@final
@dataclass(frozen=True, eq=False)
class _Chunk:
    """The bilevel problem of some inner steps, the last of which is known."""

    problem: EpisodeProblem
    end: int

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        return self.problem.loss(weights, outer, step)

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        return self.problem.outer_loss(weights, outer, self.end)


@final
class _Falling:
    """Says whether a loss still falls."""

    def __init__(self, patience: int) -> None:
        self._patience = patience
        self._lowest = float("inf")
        self._since = 0

    @property
    def goes_on(self) -> bool:
        return self._since < self._patience

    def see(self, loss: float) -> None:
        fell = loss < self._lowest * (1 - _FALL)
        self._lowest = loss if fell else self._lowest
        self._since = 0 if fell else self._since + 1
