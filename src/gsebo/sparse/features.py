"""Node features as a sparse matrix: citation graphs hold 98 to 99 % zeros."""

from __future__ import annotations

import torch
from torch import Tensor

from gsebo.sparse.operators import row_sum, spmm
from gsebo.sparse.pattern import Pattern

# On features of Cora's size the two products break even here with 128 columns, and the
# sparse one is still a quarter faster with 16 (benchmarks/thresholds.py).
_SPARSE_BELOW = 0.25


class SparseFeatures:
    """A constant feature matrix in sparse form; ``features @ weight`` is dense."""

    def __init__(self, pattern: Pattern, values: Tensor) -> None:
        self.pattern = pattern
        self.values = values

    @property
    def shape(self) -> torch.Size:
        """Number of nodes and of features."""
        return torch.Size((self.pattern.num_rows, self.pattern.num_columns))

    @property
    def dtype(self) -> torch.dtype:
        """Type of the stored numbers."""
        return self.values.dtype

    @property
    def device(self) -> torch.device:
        """Device of the stored numbers."""
        return self.values.device

    def __matmul__(self, weight: Tensor) -> Tensor:
        return spmm(self.pattern, self.values, weight)

    def to_dense(self) -> Tensor:
        """Return the ordinary matrix."""
        dense = self.values.new_zeros(self.shape)
        position = (self.pattern.row_of_entry, self.pattern.column_of_entry)
        return dense.index_put(position, self.values, accumulate=True)

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"SparseFeatures({rows} x {columns}, stored={self.values.numel()})"


def make_features(
    x: Tensor, dtype: torch.dtype, device: torch.device | str
) -> Tensor | SparseFeatures:
    """Choose the cheaper form of ``x``, dense or ``sparse_csr``, on ``device``."""
    if x.layout == torch.strided:
        stored = int(torch.count_nonzero(x))
    else:
        x = x.to_sparse().coalesce()
        stored = x.values().numel()
    if stored >= _SPARSE_BELOW * x.numel():
        # A copy of its own: memory that came from NumPy is aligned by chance, and a
        # matrix product may round differently with the alignment.
        return x.to_dense().to(device, dtype, copy=True).contiguous()
    coo = x.to_sparse().coalesce()
    rows, columns = coo.indices()
    pattern = Pattern.from_positions(rows, columns, x.shape[0], x.shape[1])
    return SparseFeatures(pattern.to(device), coo.values().to(device, dtype))


def features_as_stored(
    x: Tensor, dtype: torch.dtype, device: torch.device | str
) -> Tensor | SparseFeatures:
    """Keep the form of ``x``, dense or ``sparse_csr``, on ``device``."""
    if x.layout == torch.strided:
        return x.to(device, dtype).contiguous()
    columns = x.col_indices()
    index = Pattern.index_dtype(max(columns.numel(), *x.shape))
    pattern = Pattern(
        x.shape[0],
        x.shape[1],
        x.crow_indices(),
        columns.to(index),
        torch.arange(columns.numel(), dtype=index),
    )
    return SparseFeatures(pattern.to(device), x.values().to(device, dtype))


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
