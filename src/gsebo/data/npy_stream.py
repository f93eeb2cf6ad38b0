"""One ``.npy`` file that is written and read in pieces, never whole."""

import hashlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from gsebo.errors import InvalidInput

Array = NDArray[Any]

_HASHED_AT_ONCE = 2**18
_ROWS_AT_ONCE = 2**16


@final
class NpyHeader(NamedTuple):
    """What the first bytes of a ``.npy`` file say of the rest.

    Attributes:
        dtype: Type of the numbers.
        shape: Of the array.
        offset: Where the numbers begin.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        count = 1
        for side in self.shape:
            count *= side
        return self.offset + count * self.dtype.itemsize


@final
class NpyWriter:
    """A file that grows by rows; its length is written into the header at the end.

    Args:
        path: A file that does not exist.
        dtype: Type of the numbers, stored as little-endian.
        row_shape: Shape of one row, empty for a vector.
    """

    def __init__(
        self, path: Path, dtype: DTypeLike, row_shape: tuple[int, ...] = ()
    ) -> None:
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.row_shape = row_shape
        self.rows = 0
        self._file: BinaryIO = path.open("xb")
        self._write_header()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of what was written up to now."""
        return (self.rows, *self.row_shape)

    def append(self, rows: Array) -> None:
        """Write more rows, ``[any number, *row_shape]``."""
        if rows.shape[1:] != self.row_shape:
            raise ValueError(f"rows of {self.row_shape} expected, got {rows.shape}")
        self._file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.rows += len(rows)

    def close(self) -> None:
        """Write the length, and everything to the disk."""
        if self._file.closed:
            return
        # The header has room to spare for a longer first side: it does not move.
        self._file.seek(0)
        self._write_header()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def discard(self) -> None:
        """Let go of a file that is of no use any more."""
        self._file.close()

    def _write_header(self) -> None:
        _write_header(self._file, self.dtype, self.shape)


def read_header(path: Path) -> NpyHeader:
    """Read the header of a file and check that the file is as long as it says."""
    try:
        with path.open("rb") as file:
            if npy.read_magic(file) != (1, 0):
                raise ValueError("it is of another version than 1.0")
            shape, by_columns, dtype = npy.read_array_header_1_0(file)
            header = NpyHeader(dtype, shape, file.tell())
            held = os.fstat(file.fileno()).st_size
    except FileNotFoundError as error:
        raise InvalidInput(f"there is no file {path}: expected an array.") from error
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"{path} is no array that can be read ({error}): expected a .npy file."
        ) from error
    if by_columns or dtype.hasobject:
        raise InvalidInput(f"{path}: expected plain numbers, stored row by row.")
    if held != header.size:
        raise InvalidInput(
            f"{path} holds {held} bytes: expected {header.size}, as its header says."
        )
    return header


def chunks(path: Path, header: NpyHeader, rows: int) -> Iterator[Array]:
    """Read an array so many rows at a time; what was read is not kept in memory."""
    per_row = 1
    for side in header.shape[1:]:
        per_row *= side
    with path.open("rb") as file:
        file.seek(header.offset)
        for begin in range(0, header.shape[0], rows):
            count = min(rows, header.shape[0] - begin)
            flat = np.fromfile(file, header.dtype, count * per_row)
            yield flat.reshape(count, *header.shape[1:])


def sha256_of(path: Path) -> str:
    """The checksum that ``sha256sum`` gives, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_HASHED_AT_ONCE):
            digest.update(piece)
    return digest.hexdigest()


def sha256_of_array(values: Array, dtype: DTypeLike) -> str:
    """The checksum of the file that a :class:`NpyWriter` makes of an array."""
    stored = np.dtype(dtype).newbyteorder("<")
    header = io.BytesIO()
    _write_header(header, stored, values.shape)
    digest = hashlib.sha256(header.getvalue())
    for begin in range(0, len(values), _ROWS_AT_ONCE):
        rows = values[begin : begin + _ROWS_AT_ONCE]
        digest.update(np.ascontiguousarray(rows, stored).reshape(-1).data)
    return digest.hexdigest()


def _write_header(file: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    header = {
        "descr": npy.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    npy.write_array_header_1_0(file, header)
