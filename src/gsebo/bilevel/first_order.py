"""The cheapest hypergradient: that of fixed weights."""

from dataclasses import dataclass, field
from typing import ClassVar, final

import torch

from gsebo.bilevel.derivatives import descend, first_derivatives
from gsebo.bilevel.hypergradient import (
    Hypergradient,
    HypergradientStep,
    Iterate,
    require_steps,
)
from gsebo.bilevel.optimizer import Optimizer
from gsebo.bilevel.problem import BilevelProblem
from gsebo.bilevel.tree import Tree, detach, filled


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
        """Train, then differentiate the outer loss at fixed weights."""
        require_steps(steps)
        derivatives = first_derivatives(problem, outer)
        iterate, losses = descend(derivatives, optimizer, iterate, steps)
        loss, _, found = derivatives.outer_gradient(iterate.weights, direct_term=True)
        return HypergradientStep(filled(found, detach(outer)), iterate, loss, losses)


def first_order(direct_term: bool = True) -> FirstOrder:
    """The direct term, whatever ``direct_term`` says: it is all there is."""
    return FirstOrder()
