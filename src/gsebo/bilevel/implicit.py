"""Implicit differentiation: as if training had reached a minimum."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch import Tensor

from gsebo.bilevel.derivatives import (
    BilevelProblem,
    Iterate,
    descend,
    first_derivatives,
    inner_gradient,
    require_steps,
)
from gsebo.bilevel.hypergradient import Hypergradient, HypergradientStep
from gsebo.bilevel.optimizers import Optimizer
from gsebo.bilevel.tree import Tree, add, filled, flatten, require_grad, unflatten, vjp
from gsebo.errors import InvalidInput
from gsebo.names import lookup

Matvec = Callable[[Tensor], Tensor]


def conjugate_gradient(
    matvec: Matvec, b: Tensor, *, iterations: int, tolerance: float
) -> Tensor:
    """Solve ``A x = b`` by conjugate gradient (Hestenes and Stiefel, 1952), from 0.

    ``matvec`` is ``v -> A v``. It stops when ``|b - A x| <= tolerance |b|``, and at the
    first direction ``p`` with ``p . A p <= 0``: there ``A`` is not positive definite,
    the inner problem is not at a minimum, and what was solved so far is the last
    trustworthy answer.
    """
    x = torch.zeros_like(b)
    residual = direction = b
    size = float(b.dot(b))
    if not math.isfinite(size):
        return torch.full_like(b, math.nan)
    target = tolerance**2 * size
    for _ in range(iterations):
        if size <= target:
            break
        product = matvec(direction)
        curvature = float(direction.dot(product))
        if math.isnan(curvature):
            return torch.full_like(b, math.nan)
        if curvature <= 0:
            break
        x = x + (size / curvature) * direction
        residual = residual - (size / curvature) * product
        last, size = size, float(residual.dot(residual))
        direction = residual + (size / last) * direction
    return x


def neumann(
    matvec: Matvec,
    b: Tensor,
    *,
    iterations: int,
    tolerance: float,
    step_size: float | None = None,
) -> Tensor:
    """Neumann series ``x = sum_k (I - eta A)^k eta b`` (Lorraine et al., 2020).

    Converges when ``0 < eta < 2 / lambda_max(A)`` and ``A`` is positive definite. The
    term after ``x`` is ``eta (b - A x)``, so it stops by the same rule as conjugate
    gradient. ``step_size`` is ``eta``; None takes ``1 / lambda_max``, estimated.
    """
    eta = 1 / largest_eigenvalue(matvec, b) if step_size is None else step_size
    term = x = eta * b
    target = tolerance * float(term.norm())
    for _ in range(iterations):
        term = term - eta * matvec(term)
        x = x + term
        if float(term.norm()) <= target:
            break
    return x


def largest_eigenvalue(matvec: Matvec, start: Tensor, *, iterations: int = 10) -> float:
    """Estimate ``|lambda|_max`` by power iterations from ``start``; 1 for ``A = 0``.

    It comes from below, and a component that ``start`` lacks does not count. Both are
    harmless for ``neumann``: its step may be twice too long, and its right-hand side
    lacks the same component.
    """
    vector, size = start, float(start.norm())
    for _ in range(iterations):
        if size == 0:
            return 1.0
        vector = matvec(vector / size)
        size = float(vector.norm())
    return size or 1.0


@final
@dataclass(frozen=True)
class Implicit(Hypergradient):
    """Differentiate ``grad_W L(W*(Z), Z) = 0`` instead of the steps that led there.

        dF/dZ = partial F/partial Z - d/dZ (grad_W L . a),
        (H + damping I) a = partial F/partial W,   H = grad^2_W L

    all at ``W_tau`` and at the last step's number. Exact at a minimum of the inner
    loss, biased before it; its cost does not depend on the number of steps.

    Attributes:
        direct_term: whether ``partial F/partial Z`` is included.
        solver: ``"cg"`` or ``"neumann"``.
        iterations: at most so many Hessian-vector products.
        tolerance: relative residual at which the solver stops.
        damping: added to the diagonal of ``H``, at least 0.
        step_size: ``eta`` of the Neumann series; None takes ``1 / lambda_max(H)``,
            estimated. Conjugate gradient has none.
    """

    direct_term: bool = True
    solver: str = "cg"
    iterations: int = 50
    tolerance: float = 1e-6
    damping: float = 0.0
    step_size: float | None = None

    def __post_init__(self) -> None:
        _ = self._solver  # An unknown name is better refused here than after training.
        if self.iterations < 1:
            raise InvalidInput(f"iterations={self.iterations!r}; expected at least 1.")
        if not (self.tolerance >= 0 and self.damping >= 0):
            raise InvalidInput(
                f"tolerance={self.tolerance!r}, damping={self.damping!r} given; "
                "expected numbers >= 0."
            )
        if self.step_size is not None and not self.step_size > 0:
            raise InvalidInput(f"step_size={self.step_size!r}; expected > 0 or None.")

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
        outer_loss, by_weights, direct = derivatives.outer_gradient(
            iterate.weights, direct_term=self.direct_term
        )
        weights, varying = require_grad(iterate.weights), require_grad(outer)
        gradients, _ = inner_gradient(
            problem, weights, varying, iterate.step - 1, create_graph=True
        )

        def matvec(vector: Tensor) -> Tensor:
            cotangent = unflatten(vector, weights)
            (product,) = vjp(gradients, cotangent, weights, retain_graph=True)
            return flatten(filled(product, weights)) + self.damping * vector

        a = self._solver(matvec, flatten(filled(by_weights, weights)))
        (found,) = vjp(gradients, unflatten(-a, weights), varying)
        gradient = filled(add(direct, found), outer)
        return HypergradientStep(gradient, iterate, outer_loss, losses)

    @property
    def _solver(self) -> Callable[[Matvec, Tensor], Tensor]:
        solvers: dict[str, Callable[..., Tensor]] = {
            "cg": conjugate_gradient,
            "neumann": partial(neumann, step_size=self.step_size),
        }
        solve = lookup("solver", self.solver, solvers)
        return partial(solve, iterations=self.iterations, tolerance=self.tolerance)
