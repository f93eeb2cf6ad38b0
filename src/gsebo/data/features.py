"""Node features as dense or sparse tensors, and back to CSR arrays."""

import warnings

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

LARGEST_DENSE = 2**28
"""Entries up to which features become a dense tensor: 1 GiB in float32."""


def features_from_csr(matrix: csr_matrix) -> Tensor:
    """Return float32 features, dense unless that would hold too many entries."""
    rows, columns = (int(side) for side in matrix.shape)
    if rows * columns <= LARGEST_DENSE:
        return torch.from_numpy(matrix.toarray().astype(np.float32, copy=False))
    return csr_tensor(
        torch.from_numpy(matrix.indptr.astype(np.int64)),
        torch.from_numpy(matrix.indices.astype(np.int64)),
        torch.from_numpy(matrix.data.astype(np.float32)),
        (rows, columns),
    )


def features_to_csr(x: Tensor) -> csr_matrix:
    """Return features as a float32 CSR matrix: sorted columns and no stored zeros."""
    x = x.detach().cpu()
    if x.layout == torch.sparse_csr:
        parts = (x.values(), x.col_indices(), x.crow_indices())
        arrays = tuple(part.numpy() for part in parts)
        matrix = csr_matrix(arrays, shape=tuple(x.shape), dtype=np.float32, copy=True)
    else:
        matrix = csr_matrix(x.numpy().astype(np.float32, copy=False))
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def normalise_rows(x: Tensor) -> Tensor:
    """Divide each row by the sum of its absolute values; rows of zeros stay zero."""
    if x.layout != torch.sparse_csr:
        total = x.abs().sum(dim=1, keepdim=True)
        return x / torch.where(total == 0, 1, total)
    starts, columns, values = x.crow_indices(), x.col_indices(), x.values()
    row = torch.arange(x.shape[0]).repeat_interleave(starts.diff())
    total = torch.zeros(x.shape[0], dtype=values.dtype).index_add(0, row, values.abs())
    scaled = values / torch.where(total == 0, 1, total)[row]
    return csr_tensor(starts, columns, scaled, (x.shape[0], x.shape[1]))


def take_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return some rows of a dense or ``sparse_csr`` matrix, in the given order."""
    if x.layout != torch.sparse_csr:
        return x[rows]
    starts, counts = x.crow_indices()[rows], x.crow_indices().diff()[rows]
    new_starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    stored = (starts - new_starts[:-1]).repeat_interleave(counts)
    stored = stored + torch.arange(stored.numel(), device=stored.device)
    columns, values = x.col_indices()[stored], x.values()[stored]
    return csr_tensor(new_starts, columns, values, (len(rows), x.shape[1]))


def csr_tensor(
    starts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]
) -> Tensor:
    """Return a ``sparse_csr`` matrix, without the warning that torch has for it."""
    with warnings.catch_warnings():
        # torch warns on every first sparse_csr tensor that its support is in beta.
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(
            starts, columns, values, shape, check_invariants=False
        )
