"""A pattern from positions that are sorted already, in linear time."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from gsebo.sparse.pattern import Pattern

Array = NDArray[Any]


def sorted_pattern(
    rows: Tensor, columns: Tensor, size: int, *, loops: bool, device: torch.device | str
) -> Pattern:
    """Build a square pattern with its transpose.

    It is that of :meth:`Pattern.from_positions`, for graphs that are looked at once:
    nothing is sorted.

    Args:
        rows: Row of each entry, int64 ``[entries]`` on the CPU.
        columns: Column of each; sorted by row and column, each position once.
        size: Number of rows and of columns.
        loops: Whether ``size`` further entries follow, those of the diagonal, which
            are not among the positions given.
        device: Where the pattern is to lie.

    >>> pattern = sorted_pattern(
    ...     torch.tensor([0]), torch.tensor([1]), 2, loops=True, device="cpu"
    ... )
    >>> pattern.columns.tolist(), pattern.entries.tolist()
    ([0, 1, 1], [1, 0, 2])
    """
    row, column = rows.numpy(), columns.numpy()
    order = np.arange(len(row))
    if loops:
        diagonal = np.arange(size)
        row = np.concatenate([row, diagonal])
        column = np.concatenate([column, diagonal])
        # Two runs that are sorted: this algorithm only merges them.
        order = np.argsort(row * size + column, kind="stable")
    indptr = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=size), out=indptr[1:])
    largest = max(len(row), size)
    index = np.int64 if Pattern.index_dtype(largest) == torch.int64 else np.int32
    stored, entries = column[order].astype(index), order.astype(index)
    turned = csr_matrix((entries, stored, indptr), shape=(size, size)).tocsc()
    turned_indptr = turned.indptr.astype(np.int64)
    turned_stored = turned.indices.astype(index, copy=False)
    pattern = _pattern(size, indptr, stored, entries, device)
    pattern.with_transpose(
        _pattern(size, turned_indptr, turned_stored, turned.data, device)
    )
    # They are known here, and all that asks for strengths asks for them.
    pattern.__dict__["row_of_entry"] = torch.from_numpy(row).to(device)
    pattern.__dict__["column_of_entry"] = torch.from_numpy(column).to(device)
    return pattern


def _pattern(
    size: int, indptr: Array, columns: Array, entries: Array, device: torch.device | str
) -> Pattern:
    parts = (torch.from_numpy(part).to(device) for part in (indptr, columns, entries))
    return Pattern(size, size, *parts)
