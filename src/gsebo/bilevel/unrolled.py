"""Unrolled differentiation: autograd keeps every step. Slow, simple, the oracle."""

from dataclasses import dataclass
from typing import final

import torch

from gsebo.bilevel.derivatives import inner_gradient
from gsebo.bilevel.hypergradient import (
    Hypergradient,
    HypergradientStep,
    Iterate,
    require_steps,
)
from gsebo.bilevel.optimizer import Optimizer, State
from gsebo.bilevel.problem import BilevelProblem, gradient
from gsebo.bilevel.tree import Tree, detach, filled, require_grad


@final
@dataclass(frozen=True)
class Unrolled(Hypergradient):
    """Record all of training, then differentiate ``F(W_tau(Z), Z)`` at once.

    Memory grows with the number of steps. It is what the other engines are tested
    against.

    Attributes:
        direct_term: whether ``partial F/partial Z`` is included.
    """

    direct_term: bool = True

    @torch.enable_grad()
    def run(
        self,
        problem: BilevelProblem,
        optimizer: Optimizer,
        iterate: Iterate,
        outer: Tree,
        steps: int,
    ) -> HypergradientStep:
        """Train with recording on and let autograd differentiate the whole."""
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
        outer_loss = problem.outer_loss(
            weights, varying if self.direct_term else detach(outer)
        )
        (found,) = gradient(outer_loss, varying)
        return HypergradientStep(
            gradient=filled(found, detach(outer)),
            iterate=Iterate(
                detach(weights),
                State(state.count, detach(state.slots)),
                iterate.step + steps,
            ),
            outer_loss=outer_loss.detach(),
            inner_losses=losses,
        )
