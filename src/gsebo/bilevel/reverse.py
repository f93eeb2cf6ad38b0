"""Reverse mode by replay: the engine GSEBO uses (its Algorithm 1)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import torch

from gsebo.bilevel.derivatives import Derivatives, advance, known_derivatives
from gsebo.bilevel.hypergradient import (
    Hypergradient,
    HypergradientStep,
    Iterate,
    require_steps,
)
from gsebo.bilevel.optimizer import Optimizer, Transition, pull_back
from gsebo.bilevel.problem import BilevelProblem
from gsebo.bilevel.recorded import RecordedDerivatives
from gsebo.bilevel.tree import Tree, add, detach, filled
from gsebo.errors import InvalidInput


class PastStep(NamedTuple):
    """One step that was taken, and its number."""

    transition: Transition
    number: int


@final
class Trajectory:
    """The last steps of training, to be read backwards once.

    An iterate holds the weights and, for Adam, twice as much again. So all gradients
    are stored but only every so many iterates (the square root of their number): the
    others follow by taking the optimiser's steps again, which is exact and costs little
    beside a gradient.

    Args:
        optimizer: The one that makes the steps.
        steps: How many steps will be taken.
        horizon: How many of the last ones are to be remembered; None is all.
    """

    def __init__(self, optimizer: Optimizer, steps: int, horizon: int | None) -> None:
        self._optimizer = optimizer
        kept = min(horizon or steps, steps)
        self._forgotten = steps - kept
        self._stride = max(math.isqrt(kept), 1)
        self._anchors: list[Iterate] = []
        self._segments: list[deque[Tree]] = []
        self._taken = 0

    def append(self, iterate: Iterate, gradients: Tree) -> None:
        """Remember a step by the iterate before it and the gradient there."""
        place = self._taken - self._forgotten
        self._taken += 1
        if place < 0:
            return
        if place % self._stride == 0:
            self._anchors.append(iterate)
            self._segments.append(deque())
        self._segments[-1].append(gradients)

    def backwards(self, end: Iterate) -> Iterator[PastStep]:
        """Yield the steps from the last to the first, forgetting each on the way.

        Args:
            end: The iterate after the last step.
        """
        after = end.state
        while self._anchors:
            iterates, gradients = [self._anchors.pop()], self._segments.pop()
            for gradient in list(gradients)[:-1]:
                iterates.append(advance(self._optimizer, iterates[-1], gradient))
            while iterates:
                before = iterates.pop()
                yield PastStep(
                    Transition(gradients.pop(), before.state, before.weights, after),
                    before.step,
                )
                after = before.state


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

    @torch.no_grad()
    def run(
        self,
        problem: BilevelProblem,
        optimizer: Optimizer,
        iterate: Iterate,
        outer: Tree,
        steps: int,
    ) -> HypergradientStep:
        """Train and store the iterates, then replay them backwards."""
        require_steps(steps)
        derivatives = self._derivatives(problem, outer, iterate.step, steps)
        past = Trajectory(optimizer, steps, self.horizon)
        losses = []
        for _ in range(steps):
            gradients, loss = derivatives.inner_gradient(iterate.weights, iterate.step)
            past.append(iterate, gradients)
            iterate = advance(optimizer, iterate, gradients)
            losses.append(loss)
        outer_loss, alpha, direct = derivatives.outer_gradient(
            iterate.weights, direct_term=self.direct_term
        )
        _walk_back(derivatives, optimizer, past, iterate, alpha)
        gradient = filled(add(direct, derivatives.gathered()), detach(outer))
        return HypergradientStep(gradient, iterate, outer_loss, losses)

    def _derivatives(
        self, problem: BilevelProblem, outer: Tree, first: int, steps: int
    ) -> Derivatives:
        pulled_back = min(self.horizon or steps, steps)
        return known_derivatives(problem, outer) or RecordedDerivatives(
            problem,
            outer,
            range(first + steps - pulled_back, first + steps),
            kept_graphs=self.kept_graphs,
            graph_memory=self.graph_memory,
        )


def _walk_back(
    derivatives: Derivatives,
    optimizer: Optimizer,
    past: Trajectory,
    end: Iterate,
    alpha: Tree,
) -> None:
    """Gather ``alpha . dW_tau/dZ`` in ``derivatives``; forgets ``past`` as it goes.

    Args:
        derivatives: of the inner loss.
        optimizer: the one that made the steps.
        past: the steps.
        end: the iterate after the last step.
        alpha: the cotangent of the last weights.
    """
    sigma: Tree = {}
    for transition, number in past.backwards(end):
        gamma, sigma, alpha = pull_back(optimizer, transition, alpha, sigma)
        pulled = derivatives.pull_back(transition.weights, number, gamma)
        alpha = add(alpha, pulled)


def reverse(direct_term: bool = True, horizon: int | None = None) -> Reverse:
    """Store the iterates and replay the steps; keep the graphs of those that fit."""
    return Reverse(direct_term=direct_term, horizon=horizon, kept_graphs=None)


def truncated(direct_term: bool = True, horizon: int = 5) -> Reverse:
    """Truncated backpropagation (Shaban et al., 2019): reverse with a horizon."""
    return reverse(direct_term=direct_term, horizon=horizon)
