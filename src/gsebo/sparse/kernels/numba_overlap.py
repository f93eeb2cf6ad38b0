"""Products of pairs of rows of a sparse matrix, as a numba loop for the CPU."""

from typing import Any

import numpy as np
from numba import njit, prange

from gsebo.sparse.kernels.numba_compile import compile_twice, run_kernel

# Of a longer row only so many positions are looked at, evenly spread: two hubs of a
# large graph would otherwise cost more than all other pairs together.
_MOST = 256


@njit(inline="always")
def _find(columns, begin, end, wanted):  # type: ignore[no-untyped-def]
    """Place of ``wanted`` in a sorted stretch, or -1."""
    low, high = begin, end
    while low < high:
        middle = (low + high) // 2
        if columns[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < end and columns[low] == wanted else -1


@njit(inline="always")
def _shorter_first(indptr, one, other):  # type: ignore[no-untyped-def]
    """The two rows, that with fewer columns first, and how many of those to look at."""
    if indptr[one + 1] - indptr[one] > indptr[other + 1] - indptr[other]:
        one, other = other, one
    length = indptr[one + 1] - indptr[one]
    return one, other, length, min(length, _MOST)


def _row_overlap(  # type: ignore[no-untyped-def]
    indptr, columns, entries, values, first, second, out
):
    for pair in prange(first.shape[0]):
        short, long, length, looks = _shorter_first(indptr, first[pair], second[pair])
        total = 0.0
        for number in range(looks):
            k = indptr[short] + number * length // looks
            found = _find(columns, indptr[long], indptr[long + 1], columns[k])
            if found >= 0:
                total += values[entries[k]] * values[entries[found]]
        out[pair] = total * length / max(looks, 1)


def _common_columns(  # type: ignore[no-untyped-def]
    indptr, columns, first, second, count, share
):
    for pair in prange(first.shape[0]):
        short, long, length, looks = _shorter_first(indptr, first[pair], second[pair])
        seen, total = 0, 0.0
        for number in range(looks):
            k = indptr[short] + number * length // looks
            wanted = columns[k]
            if _find(columns, indptr[long], indptr[long + 1], wanted) >= 0:
                seen += 1
                total += 1.0 / max(indptr[wanted + 1] - indptr[wanted], 1)
        scale = length / max(looks, 1)
        count[pair] = seen * scale
        share[pair] = total * scale


_ROW_OVERLAP = compile_twice(_row_overlap)
_COMMON_COLUMNS = compile_twice(_common_columns)


def row_overlap(
    arrays: tuple[np.ndarray[Any, Any], ...],
    values: np.ndarray[Any, Any],
    first: np.ndarray[Any, Any],
    second: np.ndarray[Any, Any],
    out: np.ndarray[Any, Any],
) -> None:
    """Write the product of the rows ``first[k]`` and ``second[k]`` to ``out[k]``."""
    average = values.shape[0] // max(arrays[0].shape[0] - 1, 1) + 1
    work = 8 * average * len(first)
    run_kernel(_ROW_OVERLAP, work, *arrays, values, first, second, out)


def common_columns(
    indptr: np.ndarray[Any, Any],
    columns: np.ndarray[Any, Any],
    first: np.ndarray[Any, Any],
    second: np.ndarray[Any, Any],
    count: np.ndarray[Any, Any],
    share: np.ndarray[Any, Any],
) -> None:
    """Count the columns that two rows of a square matrix share, for many pairs.

    It reads nothing as long as the matrix but the matrix itself, which may lie in
    files.

    Args:
        indptr: Where each row begins.
        columns: Sorted in each row.
        first: Numbers of rows.
        second: The others of each pair.
        count: Where the numbers of shared columns are written.
        share: Where the sums over shared columns of 1 / length of the row of the same
            number are written.
    """
    work = 8 * (len(columns) // max(len(indptr) - 1, 1) + 1) * len(first)
    run_kernel(_COMMON_COLUMNS, work, indptr, columns, first, second, count, share)
