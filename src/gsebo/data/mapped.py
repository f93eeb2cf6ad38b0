"""Rows of arrays that may lie in files, read without keeping the file in memory.

Every page of a mapped file that was touched counts as memory of the process until it is
let go, and the system brings in several at a time. Rows that are read in ascending
order are therefore read stretch by stretch of the file, and each stretch is let go.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

STRETCH = 2**24
"""Bytes of a file that are in memory at a time."""


def release(array: Array) -> None:
    """Let go of what was read or written; nothing is lost, and it can be read again."""
    mapped = getattr(array, "_mmap", None)
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def stretches(offsets: Array, length: int = STRETCH) -> Iterator[slice]:
    """Cut ascending offsets into pieces, none of which spans more than ``length``.

    >>> [piece.stop for piece in stretches(np.array([0, 3, 11, 19, 40]), 10)]
    [2, 4, 5]
    """
    block = offsets // length
    cuts = np.flatnonzero(block[1:] != block[:-1]) + 1
    edges = [0, *cuts.tolist(), len(offsets)]
    for begin, end in pairwise(edges):
        if begin < end:
            yield slice(begin, end)


def gather_rows(array: Array, rows: Array, length: int = STRETCH) -> Array:
    """Copy some rows of an array that may lie in a file.

    Args:
        array: ``[rows, ...]``.
        rows: Their numbers, ascending.
        length: Bytes of the file to hold at a time.
    """
    if getattr(array, "_mmap", None) is None:
        copied: Array = array[rows]
        return copied
    found = np.empty((len(rows), *array.shape[1:]), array.dtype)
    for piece in stretches(rows * array.strides[0], length):
        found[piece] = array[rows[piece]]
        release(array)
    return found
