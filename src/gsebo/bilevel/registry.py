"""The hypergradient engines by name."""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from typing import ClassVar, final

import torch

from gsebo.bilevel.derivatives import descend, first_derivatives
from gsebo.bilevel.hypergradient import (
    Hypergradient,
    HypergradientStep,
    Iterate,
    require_steps,
)
from gsebo.bilevel.implicit import Implicit
from gsebo.bilevel.optimizer import Optimizer
from gsebo.bilevel.problem import BilevelProblem
from gsebo.bilevel.reverse import Reverse
from gsebo.bilevel.tree import Tree, detach, filled
from gsebo.bilevel.unrolled import Unrolled
from gsebo.errors import InvalidInput
from gsebo.lookup import lookup


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


def reverse(direct_term: bool = True, horizon: int | None = None) -> Reverse:
    """Store the iterates and replay the steps; keep the graphs of those that fit."""
    return Reverse(direct_term=direct_term, horizon=horizon, kept_graphs=None)


def truncated(direct_term: bool = True, horizon: int = 5) -> Reverse:
    """Truncated backpropagation (Shaban et al., 2019): reverse with a horizon."""
    return reverse(direct_term=direct_term, horizon=horizon)


def first_order(direct_term: bool = True) -> FirstOrder:
    """The direct term, whatever ``direct_term`` says: it is all there is."""
    return FirstOrder()


HYPERGRADIENTS: dict[str, Callable[..., Hypergradient]] = {
    "reverse": reverse,
    "unrolled": Unrolled,
    "truncated": truncated,
    "implicit": Implicit,
    "first_order": first_order,
}


def make_hypergradient(
    hypergradient: str | Hypergradient,
    *,
    direct_term: bool,
    horizon: int | None = None,
) -> Hypergradient:
    """Build an engine by name; an engine is returned as it is.

    Args:
        hypergradient: a name of ``HYPERGRADIENTS``, or an engine, which then has its
            own direct term and horizon.
        direct_term: whether ``partial F/partial Z`` is included.
        horizon: how many last steps count, for the engines that have one.

    >>> make_hypergradient("truncated", direct_term=False).horizon
    5
    """
    if isinstance(hypergradient, Hypergradient):
        return hypergradient
    build = lookup("hypergradient", hypergradient, HYPERGRADIENTS)
    if horizon is None:
        return build(direct_term=direct_term)
    if "horizon" not in signature(build).parameters:
        raise InvalidInput(
            f"horizon={horizon!r} given to hypergradient {hypergradient!r}, which has "
            "none; expected 'reverse' or 'truncated'."
        )
    return build(direct_term=direct_term, horizon=horizon)
