"""Is a hypergradient right? Compare it with finite differences of whole trainings."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from gsebo.bilevel.derivatives import (
    BilevelProblem,
    begin,
    descend,
    first_derivatives,
)
from gsebo.bilevel.hypergradient import Hypergradient
from gsebo.bilevel.optimizers import Optimizer
from gsebo.bilevel.reverse import Reverse
from gsebo.bilevel.tree import Tree, detach, flatten, unflatten
from gsebo.errors import InvalidInput


@final
@dataclass(frozen=True, eq=False)
class HypergradientCheck:
    """Directional derivatives, computed in two ways.

    Attributes:
        analytic: hypergradient times direction, ``[directions]``.
        numeric: central finite differences, ``[directions]``.
        relative_error: ``|analytic - numeric|`` over the larger of the two norms.
    """

    analytic: Tensor
    numeric: Tensor
    relative_error: float

    def raise_if_worse_than(self, tolerance: float) -> None:
        """Raise ``InvalidInput`` if the two differ by more, or are not finite."""
        if self.relative_error <= tolerance:
            return
        raise InvalidInput(
            f"the hypergradient differs from finite differences by a relative "
            f"{self.relative_error:.1e}; expected at most {tolerance:.1e}. An "
            "operation inside one of the losses may be wrong in second order."
        )


@torch.no_grad()
def check_problem(
    problem: BilevelProblem,
    optimizer: Optimizer,
    weights: Tree,
    outer: Tree,
    steps: int,
    *,
    hypergradient: Hypergradient | None = None,
    directions: int = 3,
    epsilon: float = 1e-6,
    seed: int = 0,
    step: int = 0,
) -> HypergradientCheck:
    """Compare ``dF/dZ . u`` with ``(F(Z + eps u) - F(Z - eps u)) / (2 eps)``.

    The directions ``u`` are random and of length 1. Without the engine's direct term
    ``Z`` varies in the inner training only. Engines that approximate (truncated,
    implicit, first-order) show the size of their bias here.

    Args:
        problem: the two losses.
        optimizer: makes the inner steps, from a fresh state.
        weights: where inner training starts, in float64.
        outer: the outer variables, in float64.
        steps: number of inner steps.
        hypergradient: the engine to check; None is ``Reverse()``.
        directions: how many directions are tried.
        epsilon: half the distance of the two trainings.
        seed: of the directions.
        step: the number of the first inner step.
    """
    for name, leaf in (*weights.items(), *outer.items()):
        if leaf.dtype != torch.float64:
            raise InvalidInput(
                f"{name!r} is {leaf.dtype}; finite differences are only meaningful in "
                "torch.float64, so convert weights, outer variables and data first."
            )
    engine = Reverse() if hypergradient is None else hypergradient
    start = begin(optimizer, weights, step=step)
    result = engine.run(problem, optimizer, start, outer, steps)
    center = flatten(detach(outer))

    def trained_loss(point: Tensor) -> Tensor:
        moved = unflatten(point, outer)
        derivatives = first_derivatives(problem, moved)
        end, _ = descend(derivatives, optimizer, start, steps)
        return problem.outer_loss(end.weights, moved if engine.direct_term else outer)

    # Random rows of length 1, the same on any device.
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(directions, len(center), dtype=center.dtype, generator=generator)
    units = torch.nn.functional.normalize(rows, dim=1).to(center.device)
    differences = [
        trained_loss(center + epsilon * unit) - trained_loss(center - epsilon * unit)
        for unit in units
    ]
    numeric = torch.stack(differences) / (2 * epsilon)
    analytic = units @ flatten(result.gradient)
    scale = float(torch.maximum(analytic.norm(), numeric.norm()))
    distance = float((analytic - numeric).norm())
    return HypergradientCheck(analytic, numeric, distance / scale if scale else 0.0)
