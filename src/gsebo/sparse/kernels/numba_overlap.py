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


def _row_overlap(  # type: ignore[no-untyped-def]
    indptr, columns, entries, values, first, second, out
):
    for pair in prange(first.shape[0]):
        short, long = first[pair], second[pair]
        if indptr[short + 1] - indptr[short] > indptr[long + 1] - indptr[long]:
            short, long = long, short
        begin, length = indptr[short], indptr[short + 1] - indptr[short]
        looks = min(length, _MOST)
        total = 0.0
        for number in range(looks):
            k = begin + number * length // looks
            found = _find(columns, indptr[long], indptr[long + 1], columns[k])
            if found >= 0:
                total += values[entries[k]] * values[entries[found]]
        out[pair] = total * length / max(looks, 1)


_kernel = compile_twice(_row_overlap, _find=_find, _MOST=_MOST)


def row_overlap(
    arrays: tuple[np.ndarray[Any, Any], ...],
    values: np.ndarray[Any, Any],
    first: np.ndarray[Any, Any],
    second: np.ndarray[Any, Any],
    out: np.ndarray[Any, Any],
) -> None:
    """Write the product of the rows ``first[k]`` and ``second[k]`` to ``out[k]``."""
    average = values.shape[0] // max(arrays[0].shape[0] - 1, 1) + 1
    run_kernel(_kernel, 8 * average * len(first), *arrays, values, first, second, out)
