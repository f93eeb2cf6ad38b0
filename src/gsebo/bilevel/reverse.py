"""Reverse mode by replay: the engine GSEBO uses (its Algorithm 1)."""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from gsebo.bilevel.autodiff import vjp
from gsebo.bilevel.graph_memory import graph_bytes
from gsebo.bilevel.hypergradient import (
    Hypergradient,
    HypergradientStep,
    Iterate,
    require_steps,
)
from gsebo.bilevel.inner import advance, inner_gradient, outer_gradient
from gsebo.bilevel.optimizer import Optimizer, Transition, pull_back
from gsebo.bilevel.problem import BilevelProblem
from gsebo.bilevel.tree import Tree, add, detach, filled, require_grad
from gsebo.errors import InvalidInput


class _Graph(NamedTuple):
    """One inner gradient that can be differentiated by its weights and by ``Z``."""

    weights: Tree
    gradients: Tree


class _Past(NamedTuple):
    """The iterate before a step, and the step's graph if it was kept."""

    iterate: Iterate
    graph: _Graph | None


@final
@dataclass(frozen=True)
class Reverse(Hypergradient):
    """Store the iterates, then walk back through the steps one at a time.

    With ``(W_t, S_t) = update(g_t, S_{t-1}, W_{t-1})`` and ``alpha, sigma`` the
    cotangents of ``W_t, S_t``, start from ``alpha = partial F/partial W`` at ``W_tau``,
    ``sigma = 0``, ``P = partial F/partial Z`` (or 0 without the direct term), and for
    ``t = tau ... 1``

        gamma, sigma, alpha = pull (alpha, sigma) back through update
        P     <- P     + gamma . d g_t / dZ
        alpha <- alpha + gamma . d g_t / dW_{t-1}

    Memory is the iterates plus one step's graph, or a few that fit into a bound,
    whatever ``tau``.

    Attributes:
        direct_term: whether ``partial F/partial Z`` is included.
        horizon: walk back through (and store) only the last so many steps; None is all.
        kept_graphs: how many steps' graphs may be alive at once, at least 1. That many
            last steps are recorded on the way forward and need no replay, which is
            faster and gives the same bits. None keeps as many as fit into
            ``graph_memory``.
        graph_memory: bound for the kept graphs, in bytes; one is always kept.
    """

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
        varying = require_grad(outer)
        past, end, losses = self._train(problem, optimizer, iterate, varying, steps)
        outer_loss, alpha, direct = outer_gradient(
            problem, end.weights, outer, direct_term=self.direct_term
        )
        found = _walk_back(problem, optimizer, past, end, varying, alpha)
        gradient = filled(add(direct, found), varying)
        return HypergradientStep(gradient, end, outer_loss, losses)

    def _train(
        self,
        problem: BilevelProblem,
        optimizer: Optimizer,
        iterate: Iterate,
        varying: Tree,
        steps: int,
    ) -> tuple[deque[_Past], Iterate, list[Tensor]]:
        """Return the steps to walk back through, the last iterate and the losses."""
        fixed = detach(varying)
        past: deque[_Past] = deque(maxlen=self.horizon)
        losses = []
        kept = self.kept_graphs
        for index in range(steps):
            # Without a number, the first step is recorded to see how many would fit.
            keep = kept is None or self._is_kept(index, steps, kept)
            outer = varying if keep else fixed
            weights = require_grad(iterate.weights)
            gradients, loss = inner_gradient(
                problem, weights, outer, iterate.step, create_graph=keep
            )
            if kept is None:
                size = max(graph_bytes(gradients.values()), 1)
                kept = max(self.graph_memory // size, 1)
                keep = self._is_kept(index, steps, kept)
            past.append(_Past(iterate, _Graph(weights, gradients) if keep else None))
            gradients = detach(gradients)  # so that a graph not kept is gone by now
            iterate = advance(optimizer, iterate, gradients)
            losses.append(loss)
        return past, iterate, losses

    def _is_kept(self, index: int, steps: int, kept: int) -> bool:
        """Whether the graph of a step is among the last ones that are kept."""
        return index >= steps - min(kept, self.horizon or steps)


def _walk_back(
    problem: BilevelProblem,
    optimizer: Optimizer,
    past: deque[_Past],
    end: Iterate,
    outer: Tree,
    alpha: Tree,
) -> Tree:
    """Return ``alpha . dW_tau/dZ``; empties ``past`` as it goes.

    Args:
        problem: holds the inner loss.
        optimizer: the one that made the steps.
        past: the steps, oldest first.
        end: the iterate after the last step.
        outer: ``Z``, leaves that require a gradient.
        alpha: the cotangent of the last weights.
    """
    total: Tree = {}
    sigma: Tree = {}
    after = end.state
    while past:
        before, graph = past.pop()
        if graph is None:
            graph = _record(problem, before, outer)
        transition = Transition(
            detach(graph.gradients), before.state, before.weights, after
        )
        gamma, sigma, alpha = pull_back(optimizer, transition, alpha, sigma)
        # The cotangent of the oldest weights is not needed by anyone.
        weights = graph.weights if past else {}
        by_outer, by_weights = vjp(graph.gradients, gamma, outer, weights)
        total = add(total, by_outer)
        alpha = add(alpha, by_weights)
        after = before.state
    return total


def _record(problem: BilevelProblem, iterate: Iterate, outer: Tree) -> _Graph:
    weights = require_grad(iterate.weights)
    gradients, _ = inner_gradient(
        problem, weights, outer, iterate.step, create_graph=True
    )
    return _Graph(weights, gradients)
