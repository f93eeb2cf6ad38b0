"""The derivatives that engines need, and where they come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor

from gsebo.bilevel.autodiff import gradient
from gsebo.bilevel.inner import inner_gradient
from gsebo.bilevel.problem import BilevelProblem
from gsebo.bilevel.tree import Tree, detach, require_grad


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
