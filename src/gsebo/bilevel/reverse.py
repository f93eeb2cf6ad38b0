"""Reverse mode by replay: the engine GSEBO uses (its Algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from gsebo.bilevel.derivatives import (
    AutogradDerivatives,
    BilevelProblem,
    Derivatives,
    Iterate,
    StepsAtOnce,
    advance,
    compiled_steps,
    descend,
    known_derivatives,
    require_steps,
)
from gsebo.bilevel.hypergradient import Hypergradient, HypergradientStep
from gsebo.bilevel.optimizers import Optimizer, State, Transition, pull_back
from gsebo.bilevel.tree import Tree, add, detach, filled
from gsebo.errors import InvalidInput


@final
class Trajectory:
    """The last steps of training, to be read backwards once.

    An iterate holds the weights and, for Adam, twice as much again. So all gradients
    are stored but only every so many iterates (the square root of their number): the
    others follow by taking the optimiser's steps again, which is exact and costs little
    beside a gradient. Of ``steps`` steps the last ``kept`` are remembered.
    """

    def __init__(self, optimizer: Optimizer, steps: int, kept: int) -> None:
        self._optimizer = optimizer
        self._forgotten = steps - kept
        self._stride = max(math.isqrt(kept), 1)
        self._anchors: list[Iterate] = []
        self._segments: list[list[Tree]] = []
        self._taken = 0

    def append(self, iterate: Iterate, gradients: Tree) -> None:
        """Remember a step by the iterate before it and the gradient there."""
        place = self._taken - self._forgotten
        self._taken += 1
        if place < 0:
            return
        if place % self._stride == 0:
            self._anchors.append(iterate)
            self._segments.append([])
        self._segments[-1].append(gradients)

    def backwards(self, after: State) -> Iterator[tuple[Transition, int]]:
        """Yield the steps and their numbers, the last first, and forget them.

        ``after`` is the optimiser's state after the last step.
        """
        while self._anchors:
            iterates, gradients = [self._anchors.pop()], self._segments.pop()
            for gradient in gradients[:-1]:
                iterates.append(advance(self._optimizer, iterates[-1], gradient))
            while iterates:
                weights, before, number = iterates.pop()
                yield Transition(gradients.pop(), before, weights, after), number
                after = before


@final
class _StepByStep(StepsAtOnce):
    """Training and the way back for any derivatives and any optimiser."""

    def __init__(
        self, derivatives: Derivatives, optimizer: Optimizer, steps: int, kept: int
    ) -> None:
        self._derivatives, self._optimizer = derivatives, optimizer
        self._steps, self._past = steps, Trajectory(optimizer, steps, kept)

    def train(self, iterate: Iterate) -> tuple[Iterate, list[Tensor]]:
        optimizer, remember = self._optimizer, self._past.append
        last, losses = descend(
            self._derivatives, optimizer, iterate, self._steps, remember
        )
        self._after = last.state
        return last, losses

    def walk_back(self, cotangent: Tree) -> None:
        alpha, sigma = cotangent, Tree()
        for transition, number in self._past.backwards(self._after):
            gamma, sigma, alpha = pull_back(self._optimizer, transition, alpha, sigma)
            pulled = self._derivatives.pull_back(transition.weights, number, gamma)
            alpha = add(alpha, pulled)


@final
@dataclass(frozen=True)
class Reverse(Hypergradient):
    """Remember the steps, then walk back through them one at a time.

    With ``(W_t, S_t) = update(g_t, S_{t-1}, W_{t-1})`` and ``alpha, sigma`` the
    cotangents of ``W_t, S_t``, start from ``alpha = partial F/partial W`` at ``W_tau``,
    ``sigma = 0``, ``P = partial F/partial Z`` (or 0 without the direct term), and for
    ``t = tau ... 1``

        gamma, sigma, alpha = pull (alpha, sigma) back through update
        P     <- P     + gamma . d g_t / dZ
        alpha <- alpha + gamma . d g_t / dW_{t-1}

    Memory is one gradient per step plus one step's graph, or a few that fit into a
    bound, whatever ``tau``. A problem that knows its own derivatives needs no graph.

    Attributes:
        direct_term: whether ``partial F/partial Z`` is included.
        horizon: walk back through (and store) only the last so many steps; None is all.
        kept_graphs: how many steps' graphs may be alive at once, at least 1. That many
            last steps are recorded on the way forward and need no replay, which is
            faster and gives the same bits. None keeps as many as fit into
            ``graph_memory``.
        graph_memory: bound for the kept graphs, in bytes; one is always kept.
    """

    by_derivatives: ClassVar[bool] = True
    direct_term: bool = True
    horizon: int | None = None
    kept_graphs: int | None = 1
    graph_memory: int = 16 * 2**20

    def __post_init__(self) -> None:
        if self.horizon is not None and self.horizon < 1:
            raise InvalidInput(
                f"horizon={self.horizon!r} given; expected at least 1, or None for all."
            )
        if self.kept_graphs is not None and self.kept_graphs < 1:
            raise InvalidInput(
                f"kept_graphs={self.kept_graphs!r} given; expected at least 1, or None "
                "for as many as fit."
            )

    def remembered_steps(self, steps: int) -> int:
        return min(self.horizon or steps, steps)

    @torch.no_grad()
    def run(
        self,
        problem: BilevelProblem,
        optimizer: Optimizer,
        iterate: Iterate,
        outer: Tree,
        steps: int,
    ) -> HypergradientStep:
        require_steps(steps)
        kept = min(self.horizon or steps, steps)
        end = iterate.step + steps
        derivatives = known_derivatives(problem, outer) or AutogradDerivatives(
            problem,
            outer,
            range(end - kept, end),
            kept_graphs=self.kept_graphs,
            graph_memory=self.graph_memory,
        )
        walk = compiled_steps(derivatives, optimizer, steps, kept)
        if walk is None:
            walk = _StepByStep(derivatives, optimizer, steps, kept)
        iterate, losses = walk.train(iterate)
        outer_loss, alpha, direct = derivatives.outer_gradient(
            iterate.weights, direct_term=self.direct_term
        )
        walk.walk_back(alpha)
        gradient = filled(add(direct, derivatives.gathered()), detach(outer))
        return HypergradientStep(gradient, iterate, outer_loss, losses)


def reverse(direct_term: bool = True, horizon: int | None = None) -> Reverse:
    """Store the iterates and replay the steps; keep the graphs of those that fit."""
    return Reverse(direct_term=direct_term, horizon=horizon, kept_graphs=None)


def truncated(direct_term: bool = True, horizon: int = 5) -> Reverse:
    """Truncated backpropagation (Shaban et al., 2019): reverse with a horizon."""
    return reverse(direct_term=direct_term, horizon=horizon)
