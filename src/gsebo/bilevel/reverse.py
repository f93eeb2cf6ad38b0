"""Reverse mode by replay: the engine GSEBO uses (its Algorithm 1)."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch

from gsebo.bilevel.derivatives import Derivatives, known_derivatives
from gsebo.bilevel.hypergradient import (
    Hypergradient,
    HypergradientStep,
    Iterate,
    require_steps,
)
from gsebo.bilevel.inner import advance
from gsebo.bilevel.optimizer import Optimizer, pull_back
from gsebo.bilevel.problem import BilevelProblem
from gsebo.bilevel.recorded import RecordedDerivatives
from gsebo.bilevel.trajectory import Trajectory
from gsebo.bilevel.tree import Tree, add, detach, filled
from gsebo.errors import InvalidInput


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
