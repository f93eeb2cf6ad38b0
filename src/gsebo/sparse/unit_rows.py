"""Rows of length one, so that their products are cosines."""

import torch
from torch import Tensor

from gsebo.sparse.features import SparseFeatures
from gsebo.sparse.operators import row_sum


def unit_rows(matrix: Tensor | SparseFeatures) -> Tensor | SparseFeatures:
    """Divide every row by its length; rows of zeros stay zero.

    >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    if isinstance(matrix, Tensor):
        return matrix * _inverse_root(matrix.square().sum(-1, keepdim=True))
    scale = _inverse_root(row_sum(matrix.pattern, matrix.values.square()))
    scaled = matrix.values * scale[matrix.pattern.row_of_entry]
    return SparseFeatures(matrix.pattern, scaled)


def _inverse_root(squares: Tensor) -> Tensor:
    return torch.where(squares > 0, squares, 1).rsqrt()
