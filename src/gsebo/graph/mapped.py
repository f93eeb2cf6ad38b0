"""Rows of arrays that may lie in files, read without keeping the file in memory.

Every page of a mapped file that was touched counts as memory of the process until it is
let go, and the system brings in several at a time. Rows that are read in ascending
order are therefore read stretch by stretch of the file, and each stretch is let go.
"""

from __future__ import annotations

import mmap
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.errors import InvalidInput


@final
class ScratchFolder:
    """A new folder among the system's temporary files; it goes with this object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="gsebo-"))
        # Files that are still mapped stay readable until they are let go.
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


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
    """Copy some ascending rows of an array that may lie in a file, piece by piece."""
    if getattr(array, "_mmap", None) is None:
        copied: Array = array[rows]
        return copied
    found = np.empty((len(rows), *array.shape[1:]), array.dtype)
    for piece in stretches(rows * array.strides[0], length):
        found[piece] = array[rows[piece]]
        release(array)
    return found


@final
class ScratchTable:
    """A matrix that is written from top to bottom and then read by rows.

    Its file, if any, has no name: it is gone with the table, however the process ends.

    Raises:
        InvalidInput: The folder has no room for it.
    """

    def __init__(
        self,
        rows: int,
        width: int,
        dtype: torch.dtype,
        *,
        in_file: bool,
        folder: Path | None = None,
    ) -> None:
        kind = torch.empty(0, dtype=dtype).numpy().dtype
        self.array: Array
        if not in_file or rows * width == 0:
            self.array = np.empty((rows, width), kind)
            return
        needed = rows * width * kind.itemsize
        where = Path(tempfile.gettempdir()) if folder is None else folder
        free = shutil.disk_usage(where).free
        if free < needed:
            # Written to a full disk, a mapped file would end the process.
            raise InvalidInput(
                f"{where} has {free} bytes free; expected at least {needed} for what "
                "does not fit into memory."
            )
        with tempfile.TemporaryFile(dir=where) as file:
            self.array = np.memmap(file, kind, "w+", shape=(rows, width))

    def put(self, begin: int, rows: Tensor) -> None:
        """Write consecutive rows from ``begin`` on."""
        self.array[begin : begin + len(rows)] = rows.numpy(force=True)
        release(self.array)

    def read(self, begin: int, end: int) -> Tensor:
        """Copy consecutive rows."""
        found = torch.from_numpy(np.array(self.array[begin:end]))
        release(self.array)
        return found

    def take(self, rows: Array) -> Tensor:
        """Copy some rows, given in ascending order."""
        return torch.from_numpy(gather_rows(self.array, rows))
