"""The largest singular values of a sparse matrix, by power iteration on its entries.

Each step costs two sparse products; the matrix is never made dense, nor multiplied by
its transpose.
"""

import torch
from torch import Tensor
from torch.linalg import vector_norm

from gsebo.sparse import Noise, Pattern, spmm, uniform

_START_SITE = 1900


def top_singular_values(
    pattern: Pattern, values: Tensor, count: int = 1, iterations: int = 30
) -> Tensor:
    """The ``count`` largest singular values, differentiable by ``values``.

    The singular vectors are found without a derivative, and one more step is taken with
    it. Where the iteration has converged the derivative by a value is the product of
    the two singular vectors at its entry, and 0 for a singular value that is 0.

    Args:
        pattern: Positions of the entries.
        values: Of one matrix or several, ``[..., entries]``, not negative.
        count: How many singular values.
        iterations: Steps of the power iteration for each.

    Returns:
        ``[..., count]``, in descending order where the iteration has converged.
    """
    fixed = values.detach()
    earlier = fixed.new_zeros(*fixed.shape[:-1], pattern.num_columns, 0)
    floor = fixed.new_zeros(())
    found: list[Tensor] = []
    for place in range(count):
        vector = _start(pattern, fixed, place)
        for _ in range(iterations):
            vector = _power_step(pattern, fixed, vector, earlier, floor)
        vector = _power_step(pattern, values, vector, earlier, floor)
        found.append(vector_norm(spmm(pattern, values, vector), dim=-2))
        earlier = torch.cat([earlier, vector.detach()], dim=-1)
        if place == 0:
            # What rounding leaves of a product by the largest vector.
            largest = found[0].detach().unsqueeze(-1)
            floor = 10 * torch.finfo(fixed.dtype).eps * largest.square()
    return torch.cat(found, dim=-1)


def _start(pattern: Pattern, like: Tensor, place: int) -> Tensor:
    """A vector that is not orthogonal to the one sought, ``[columns, 1]``."""
    if place == 0:
        # The first singular vector of a matrix without negative entries has none.
        return like.new_ones(pattern.num_columns, 1)
    shape = (pattern.num_columns, 1)
    return uniform(shape, Noise(0, place), _START_SITE, like) - 0.5


def _power_step(
    pattern: Pattern, values: Tensor, vector: Tensor, earlier: Tensor, floor: Tensor
) -> Tensor:
    """Aᵀ A v without its part along earlier vectors, scaled to length one (or 0)."""
    moved = spmm(pattern.T, values, spmm(pattern, values, vector))
    moved = _orthogonal(moved, earlier)
    length = vector_norm(moved, dim=-2, keepdim=True)
    vanished = length <= floor
    moved = (moved / length.masked_fill(vanished, 1)).masked_fill(vanished, 0)
    # Once more: where little was left, rounding has turned it towards earlier vectors.
    return _orthogonal(moved, earlier)


def _orthogonal(vector: Tensor, earlier: Tensor) -> Tensor:
    if earlier.shape[-1] == 0:
        return vector
    return vector - earlier @ (earlier.mT @ vector)
