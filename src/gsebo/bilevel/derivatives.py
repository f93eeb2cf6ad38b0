"""The derivatives that engines need, and where they come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor

from gsebo.bilevel.hypergradient import Iterate
from gsebo.bilevel.optimizer import Optimizer
from gsebo.bilevel.problem import BilevelProblem, gradient
from gsebo.bilevel.tree import Tree, detach, filled, require_grad


def inner_gradient(
    problem: BilevelProblem,
    weights: Tree,
    outer: Tree,
    step: int,
    *,
    create_graph: bool = False,
) -> tuple[Tree, Tensor]:
    """Return ``g = grad_W L(W, Z, step)`` and the detached loss.

    Args:
        problem: holds the inner loss.
        weights: leaves that require a gradient.
        outer: what requires a gradient here is recorded if ``create_graph``.
        step: the number of the inner step.
        create_graph: whether ``g`` can be differentiated again.
    """
    with torch.enable_grad():
        loss = problem.inner_loss(weights, outer, step)
    (found,) = gradient(loss, weights, create_graph=create_graph)
    return filled(found, weights), loss.detach()


@torch.no_grad()
def advance(optimizer: Optimizer, iterate: Iterate, gradients: Tree) -> Iterate:
    """Return the next iterate, given the gradient at this one."""
    weights, state = optimizer.update(gradients, iterate.state, iterate.weights)
    return Iterate(weights, state, iterate.step + 1)


class FirstDerivatives(ABC):
    """First derivatives of the two losses at fixed outer variables ``Z``."""

    @abstractmethod
    def inner_gradient(self, weights: Tree, step: int) -> tuple[Tree, Tensor]:
        """Return ``g = grad_W L(W, Z, step)`` and the loss, new tensors both."""

    @abstractmethod
    def outer_gradient(
        self, weights: Tree, *, direct_term: bool
    ) -> tuple[Tensor, Tree, Tree]:
        """Evaluate the outer loss and its two partial derivatives.

        Returns:
            ``F(W, Z)``, ``partial F/partial W`` and ``partial F/partial Z``; in both
            trees a missing name means zero, and without the direct term the second is
            empty.
        """


class Derivatives(FirstDerivatives):
    """The same with second derivatives of the inner loss."""

    @abstractmethod
    def pull_back(self, weights: Tree, step: int, cotangent: Tree) -> Tree:
        """Return ``cotangent . d g/dW``, and add ``cotangent . d g/dZ`` to a sum."""

    @abstractmethod
    def gathered(self) -> Tree:
        """Return that sum over all calls of ``pull_back`` so far."""


class HandDifferentiated(ABC):
    """A bilevel problem that knows its derivatives better than autograd does."""

    @abstractmethod
    def derivatives(self, outer: Tree) -> Derivatives | None:
        """Return the derivatives at ``outer``, or None to leave them to autograd.

        The result is only good until the next call.
        """


def known_derivatives(problem: BilevelProblem, outer: Tree) -> Derivatives | None:
    """Return what the problem itself knows of its derivatives, if anything."""
    if isinstance(problem, HandDifferentiated):
        return problem.derivatives(detach(outer))
    return None


@final
class AutogradDerivatives(FirstDerivatives):
    """By autograd, which records one loss at a time."""

    def __init__(self, problem: BilevelProblem, outer: Tree) -> None:
        self._problem = problem
        self._outer = detach(outer)

    def inner_gradient(self, weights: Tree, step: int) -> tuple[Tree, Tensor]:
        """Record one loss and differentiate it."""
        leaves = require_grad(weights)
        return inner_gradient(self._problem, leaves, self._outer, step)

    def outer_gradient(
        self, weights: Tree, *, direct_term: bool
    ) -> tuple[Tensor, Tree, Tree]:
        """Record the outer loss and differentiate it."""
        weights = require_grad(weights)
        outer = require_grad(self._outer) if direct_term else self._outer
        with torch.enable_grad():
            loss = self._problem.outer_loss(weights, outer)
        by_weights, by_outer = gradient(loss, weights, outer if direct_term else {})
        return loss.detach(), by_weights, by_outer


def first_derivatives(problem: BilevelProblem, outer: Tree) -> FirstDerivatives:
    """Return the derivatives that training needs, the problem's own if it has any."""
    return known_derivatives(problem, outer) or AutogradDerivatives(problem, outer)


@torch.no_grad()
def descend(
    derivatives: FirstDerivatives, optimizer: Optimizer, iterate: Iterate, steps: int
) -> tuple[Iterate, list[Tensor]]:
    """Take inner steps with fixed ``Z``; return the last iterate and the losses."""
    losses = []
    for _ in range(steps):
        gradients, loss = derivatives.inner_gradient(iterate.weights, iterate.step)
        iterate = advance(optimizer, iterate, gradients)
        losses.append(loss)
    return iterate, losses
