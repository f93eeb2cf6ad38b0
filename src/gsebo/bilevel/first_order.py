"""The direct term alone: as if the trained weights did not depend on Z."""

from dataclasses import dataclass, field
from typing import final

import torch

from gsebo.bilevel.autodiff import gradient
from gsebo.bilevel.hypergradient import (
    Hypergradient,
    HypergradientStep,
    Iterate,
    require_steps,
)
from gsebo.bilevel.inner import descend
from gsebo.bilevel.optimizer import Optimizer
from gsebo.bilevel.problem import BilevelProblem
from gsebo.bilevel.tree import Tree, filled, require_grad


@final
@dataclass(frozen=True)
class FirstOrder(Hypergradient):
    """Train, then return ``partial F/partial Z`` at fixed ``W_tau``.

    The cheapest engine, first-order DARTS (Liu et al., 2019). It ignores how ``Z``
    changed the weights, so there is nothing left of it without the direct term.
    """

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
        iterate, losses = descend(problem, optimizer, iterate, outer, steps)
        varying = require_grad(outer)
        with torch.enable_grad():
            loss = problem.outer_loss(iterate.weights, varying)
        (found,) = gradient(loss, varying)
        return HypergradientStep(filled(found, varying), iterate, loss.detach(), losses)
