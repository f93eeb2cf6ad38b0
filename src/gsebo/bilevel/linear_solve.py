"""Solve ``A x = b`` for a symmetric ``A`` known only by its products with vectors."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Matvec = Callable[[Tensor], Tensor]


def conjugate_gradient(
    matvec: Matvec, b: Tensor, *, iterations: int, tolerance: float
) -> Tensor:
    """Conjugate gradient (Hestenes and Stiefel, 1952), started at 0.

    It stops when ``|b - A x| <= tolerance |b|``, and at the first direction ``p`` with
    ``p . A p <= 0``: there ``A`` is not positive definite, the inner problem is not at
    a minimum, and what was solved so far is the last trustworthy answer.

    Args:
        matvec: ``v -> A v``.
        b: the right-hand side, a vector.
        iterations: at most so many products with ``A``.
        tolerance: relative size of the residual that is good enough.
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
    gradient.

    Args:
        matvec: ``v -> A v``.
        b: the right-hand side, a vector.
        iterations: at most so many products with ``A``.
        tolerance: relative size of the residual that is good enough.
        step_size: ``eta``; None takes ``1 / lambda_max``, estimated.
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
