"""One ``.npy`` file that is written and read in pieces, never whole."""

import hashlib
import math
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import DTypeLike, NDArray

from gsebo.errors import InvalidInput, escaped
from gsebo.files import require_regular

Array = NDArray[Any]

_ROWS_AT_ONCE = 2**16
_ALIGNED = 64
_MOST_DIGITS = 21


def header_of(dtype: DTypeLike, shape: tuple[int, ...]) -> bytes:
    """The first bytes of a file with numbers of this type, in rows of this shape.

    They are those that numpy writes, which could change with its version, and with them
    every checksum. Their length does not depend on the number of rows.
    """
    name, sides = np.dtype(dtype).newbyteorder("<").str, tuple(map(int, shape))
    text = f"{{'descr': {name!r}, 'fortran_order': False, 'shape': {sides!r}, }}"
    text += " " * (_MOST_DIGITS - len(str(sides[0])))
    start = b"\x93NUMPY\x01\x00"
    room = _ALIGNED - (len(start) + 2 + len(text) + 1) % _ALIGNED
    text += " " * room + "\n"
    return start + len(text).to_bytes(2, "little") + text.encode("latin1")


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
        self._file.write(header_of(self.dtype, self.shape))

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
        self._file.write(header_of(self.dtype, self.shape))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def discard(self) -> None:
        """Let go of a file that is of no use any more."""
        self._file.close()


@final
class NpyReader:
    """A file that is read once from its begin to its end; its checksum comes along.

    Nothing is taken from the file's own header: it has to be the expected one.

    Args:
        path: The file.
        dtype: Type of its numbers.
        shape: Shape of the array.
        shown: What to call it in messages.

    Raises:
        InvalidInput: There is no plain file, or it does not hold such an array.
    """

    def __init__(
        self, path: Path, dtype: DTypeLike, shape: tuple[int, ...], shown: str
    ) -> None:
        self.dtype, self.shape, self.shown = np.dtype(dtype), shape, shown
        self.left = math.prod(shape)
        header = header_of(self.dtype, shape)
        expected = len(header) + self.left * self.dtype.itemsize
        held = require_regular(path, "an array written by gsebo").st_size
        what = f"{self.dtype.str} {list(shape)}"
        if held != expected:
            raise InvalidInput(
                f"{shown} holds {held} bytes: expected {expected}, an array of {what}."
            )
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise self._unreadable(error) from error
        begin = self._file.read(len(header))
        if begin != header:
            self._file.close()
            raise InvalidInput(
                f"{shown} does not begin as an array of {what} does: expected the "
                "header that gsebo and numpy write."
            )
        self._hasher = hashlib.sha256(begin)

    def read(self, count: int) -> Array:
        """The next numbers, without regard to rows."""
        found = np.empty(count, self.dtype)
        flat = found.view(np.uint8)
        try:
            held = self._file.readinto(flat.data) if count else 0
        except OSError as error:
            raise self._unreadable(error) from error
        if held != flat.nbytes:
            raise InvalidInput(f"{self.shown} was cut off while it was read.")
        self._hasher.update(flat.data)
        self.left -= count
        return found

    def pieces(self, at_once: int) -> Iterator[tuple[int, Array]]:
        """What is left, in pieces, each with the position of its first number."""
        while self.left:
            begin = math.prod(self.shape) - self.left
            yield begin, self.read(min(at_once, self.left))

    def digest(self) -> str:
        """The checksum of the file, as ``sha256sum`` prints it; all must be read."""
        assert not self.left
        return self._hasher.hexdigest()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _unreadable(self, error: OSError) -> InvalidInput:
        return InvalidInput(
            f"{self.shown} cannot be read ({escaped(error.strerror or str(error))}); "
            "expected an array written by gsebo."
        )


def map_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> Array:
    """An array in a file as memory that is read when it is looked at, read-only.

    Args:
        path: A file that a :class:`NpyReader` has read.
        dtype: Type of its numbers.
        shape: Shape of the array.
    """
    offset = len(header_of(dtype, shape))
    mapped: Array = np.memmap(path, dtype, "r", offset=offset, shape=shape)
    return mapped


def open_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> Array:
    """The same, once the file's header and length are known to be those of the array.

    Raises:
        InvalidInput: There is no plain file, or it does not hold such an array.
    """
    NpyReader(path, dtype, shape, escaped(str(path))).close()
    return map_array(path, dtype, shape)


def sha256_of_array(values: Array, dtype: DTypeLike) -> str:
    """The checksum of the file that a :class:`NpyWriter` makes of an array."""
    stored = np.dtype(dtype).newbyteorder("<")
    digest = hashlib.sha256(header_of(stored, values.shape))
    for begin in range(0, len(values), _ROWS_AT_ONCE):
        rows = values[begin : begin + _ROWS_AT_ONCE]
        digest.update(np.ascontiguousarray(rows, stored).reshape(-1).data)
    return digest.hexdigest()


Columns = dict[str, Array]


@contextmanager
def open_output(
    path: str | PathLike[str], shape: tuple[int, ...], dtype: DTypeLike
) -> Iterator[Array]:
    """A ``.npy`` file as an array to be filled in any order.

    It has its name once the context is left; by an exception, there is no file.

    Args:
        path: The file to write or replace.
        shape: Of the array.
        dtype: Type of its numbers, stored as little-endian.
    """
    with _under_another_name(Path(path)) as partial:
        little = np.dtype(dtype).newbyteorder("<")
        array = open_memmap(partial, "w+", little, shape, version=(1, 0))
        yield array
        array.flush()


@contextmanager
def parquet_writer(path: str | PathLike[str]) -> Iterator[Callable[[Columns], None]]:
    """What appends rows, as vectors by name, to a Parquet file.

    All pieces have the same columns. The file has its name once the context is left;
    by an exception, or without any rows, there is no file.

    Args:
        path: The file to write or replace.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise InvalidInput(
            f"writing {path} needs pyarrow, which is not installed; expected: "
            "pip install 'gsebo[large]'."
        ) from error
    with _under_another_name(Path(path)) as partial:
        writer: Any = None

        def append(columns: Columns) -> None:
            nonlocal writer
            table = pa.table({name: pa.array(each) for name, each in columns.items()})
            if writer is None:
                writer = parquet.ParquetWriter(partial, table.schema)
            writer.write_table(table)

        try:
            yield append
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise InvalidInput(f"nothing to write to {path}: expected rows.")


def write_columns(path: str | PathLike[str], chunks: Iterator[Columns]) -> None:
    """Write pieces of named columns one after the other, by the suffix of the path.

    Args:
        path: ``.parquet``, or ``.npy`` for a single column.
        chunks: The pieces, all with the same names and types.
    """
    path = Path(path)
    if path.suffix == ".parquet":
        with parquet_writer(path) as append:
            for chunk in chunks:
                append(chunk)
    elif path.suffix == ".npy":
        with _under_another_name(path) as partial:
            _write_one(path, partial, chunks)
    else:
        raise InvalidInput(f"cannot write {path}: expected .parquet or .npy.")


def _write_one(path: Path, partial: Path, chunks: Iterator[Columns]) -> None:
    writer = None
    try:
        for chunk in chunks:
            if len(chunk) != 1:
                raise InvalidInput(
                    f"cannot write {', '.join(chunk)} to {path}: expected one column, "
                    "or a .parquet file."
                )
            (values,) = chunk.values()
            if writer is None:
                writer = NpyWriter(partial, values.dtype, values.shape[1:])
            writer.append(values)
        if writer is None:
            raise InvalidInput(f"nothing to write to {path}: expected rows.")
        writer.close()
    finally:
        if writer is not None:
            writer.discard()


@contextmanager
def _under_another_name(path: Path) -> Iterator[Path]:
    """A path beside this one, which replaces it at the end if all goes well."""
    partial = path.parent / f".{path.name}.{secrets.token_hex(4)}.partial"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise InvalidInput(
            f"cannot write {path} ({error.strerror or error}); expected a place that "
            "is writable, with enough room."
        ) from error
    finally:
        partial.unlink(missing_ok=True)
