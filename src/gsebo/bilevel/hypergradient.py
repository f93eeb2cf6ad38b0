"""What differentiates an outer loss through training, and the two simplest engines."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor

from gsebo.bilevel.derivatives import (
    BilevelProblem,
    Iterate,
    begin,
    descend,
    first_derivatives,
    inner_gradient,
    require_steps,
)
from gsebo.bilevel.optimizers import Optimizer, State
from gsebo.bilevel.tree import Tree, detach, filled, gradient, require_grad


class HypergradientStep(NamedTuple):
    """What one call of an engine gives, without any graph.

    Attributes:
        gradient: dF(W_tau(Z), Z) / dZ, named and shaped as Z.
        iterate: Where inner training stands after the steps.
        outer_loss: F(W_tau, Z).
        inner_losses: L before each of the steps.
    """

    gradient: Tree
    iterate: Iterate
    outer_loss: Tensor
    inner_losses: list[Tensor]


class Hypergradient(ABC):
    """The derivative of ``F(W_tau(Z), Z)`` with respect to ``Z``.

        dF/dZ = [direct term] partial F/partial Z  +  partial F/partial W . dW_tau/dZ

    Attributes:
        direct_term: whether the first summand is included. GSEBO's Algorithm 1 leaves
            it out: with it an edge can memorise the label of its validation node.
        by_derivatives: whether an engine only asks for ``Derivatives``. Such an engine
            can treat several problems as one, with a leading axis in all trees.
    """

    direct_term: bool
    by_derivatives: ClassVar[bool] = False

    @abstractmethod
    def run(
        self,
        problem: BilevelProblem,
        optimizer: Optimizer,
        iterate: Iterate,
        outer: Tree,
        steps: int,
    ) -> HypergradientStep:
        """Train for ``tau >= 1`` steps, then differentiate the outer loss through them.

        Neither the iterate, where training begins, nor ``Z`` is changed.
        """

    def remembered_steps(self, steps: int) -> int:
        """Of how many steps gradients are kept until they are walked back."""
        return 0

    @final
    def __call__(
        self,
        problem: BilevelProblem,
        optimizer: Optimizer,
        weights: Tree,
        outer: Tree,
        steps: int,
    ) -> tuple[Tree, Tree, Tensor]:
        """Run from a fresh optimiser; return (gradient, new weights, outer loss)."""
        start = begin(optimizer, weights)
        result = self.run(problem, optimizer, start, outer, steps)
        return result.gradient, result.iterate.weights, result.outer_loss


@final
@dataclass(frozen=True)
class FirstOrder(Hypergradient):
    """Train, then return ``partial F/partial Z`` at fixed ``W_tau``.

    The cheapest engine, first-order DARTS (Liu et al., 2019). It ignores how ``Z``
    changed the weights, so there is nothing left of it without the direct term.
    """

    by_derivatives: ClassVar[bool] = True
    direct_term: bool = field(default=True, init=False, repr=False)

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
        derivatives = first_derivatives(problem, outer)
        iterate, losses = descend(derivatives, optimizer, iterate, steps)
        loss, _, found = derivatives.outer_gradient(iterate.weights, direct_term=True)
        return HypergradientStep(filled(found, detach(outer)), iterate, loss, losses)


def first_order(direct_term: bool = True) -> FirstOrder:
    """The direct term, whatever ``direct_term`` says: it is all there is."""
    return FirstOrder()


@final
@dataclass(frozen=True)
class Unrolled(Hypergradient):
    """Record all of training, then differentiate ``F(W_tau(Z), Z)`` at once.

    Memory grows with the number of steps. It is what the other engines are tested
    against.
    """

    direct_term: bool = True

    def remembered_steps(self, steps: int) -> int:
        return steps

    @torch.enable_grad()
    def run(
        self,
        problem: BilevelProblem,
        optimizer: Optimizer,
        iterate: Iterate,
        outer: Tree,
        steps: int,
    ) -> HypergradientStep:
        require_steps(steps)
        varying = require_grad(outer)
        weights = require_grad(iterate.weights)
        state = State(iterate.state.count, detach(iterate.state.slots))
        losses = []
        for step in range(iterate.step, iterate.step + steps):
            gradients, loss = inner_gradient(
                problem, weights, varying, step, create_graph=True
            )
            weights, state = optimizer.update(gradients, state, weights)
            losses.append(loss)
        judged = varying if self.direct_term else detach(outer)
        outer_loss = problem.outer_loss(weights, judged)
        (found,) = gradient(outer_loss, varying)
        state = State(state.count, detach(state.slots))
        end = Iterate(detach(weights), state, iterate.step + steps)
        total = filled(found, detach(outer))
        return HypergradientStep(total, end, outer_loss.detach(), losses)
