"""One ``.npy`` file that is written and read in pieces, never whole."""

import hashlib
import math
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NoReturn, final

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
    """A new file that grows by rows; its length is written into the header at the end.

    Numbers are stored as little-endian.
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
        if rows.shape[1:] != self.row_shape:
            raise ValueError(f"rows of {self.row_shape} expected, got {rows.shape}")
        self._file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.rows += len(rows)

    def close(self) -> None:
        if self._file.closed:
            return
        # The header has room to spare for a longer first side: it does not move.
        self._file.seek(0)
        self._file.write(header_of(self.dtype, self.shape))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def discard(self) -> None:
        self._file.close()


@final
class NpyReader:
    """A file that is read once from its begin to its end; its checksum comes along.

    Nothing is taken from the file's own header: it has to be the expected one.
    ``shown`` is what the file is called in messages.
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
        """The checksum of the file; all must be read."""
        assert not self.left
        return self._hasher.hexdigest()

    def close(self) -> None:
        self._file.close()

    def require(self, good: Array, begin: int, values: Array, expected: str) -> None:
        """Raise for the first of the numbers from ``begin`` on that is not good."""
        if not good.all():
            place = int(np.argmin(good))
            self.refuse(begin + place, values[place], expected)

    def refuse(self, position: int, value: object, expected: str) -> NoReturn:
        raise InvalidInput(
            f"{self.shown} holds {value} at position {position}: expected {expected}."
        )

    def _unreadable(self, error: OSError) -> InvalidInput:
        return InvalidInput(
            f"{self.shown} cannot be read ({escaped(error.strerror or str(error))}); "
            "expected an array written by gsebo."
        )


def map_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> Array:
    """An array in a file that an :class:`NpyReader` has read, mapped, read-only."""
    offset = len(header_of(dtype, shape))
    mapped: Array = np.memmap(path, dtype, "r", offset=offset, shape=shape)
    return mapped


def open_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> Array:
    """The same, once the file's header and length are found to be the expected ones."""
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


@contextmanager
def open_output(
    path: str | PathLike[str], shape: tuple[int, ...], dtype: DTypeLike
) -> Iterator[Array]:
    """A ``.npy`` file, to be written or replaced, as an array to fill in any order.

    It has its name once the context is left; by an exception, there is no file.
    """
    with _under_another_name(Path(path)) as partial:
        little = np.dtype(dtype).newbyteorder("<")
        array = open_memmap(partial, "w+", little, shape, version=(1, 0))
        yield array
        array.flush()


def write_columns(
    path: str | PathLike[str], chunks: Iterator[dict[str, Array]]
) -> None:
    """Write pieces of named columns, all of the same names and types, into one file.

    It is a ``.parquet`` file, or ``.npy`` for a single column, and has its name once
    all is written; by an exception, or without any rows, there is no file.
    """
    path = Path(path)
    if path.suffix not in (".parquet", ".npy"):
        raise InvalidInput(f"cannot write {path}: expected .parquet or .npy.")
    # Not at the top: whoever reads arrays needs none of it.
    import pyarrow as pa
    import pyarrow.parquet as parquet

    with _under_another_name(path) as partial:
        writer: Any = None
        try:
            for chunk in chunks:
                if path.suffix == ".parquet":
                    table = pa.table(chunk)
                    writer = writer or parquet.ParquetWriter(partial, table.schema)
                    writer.write_table(table)
                    continue
                if len(chunk) != 1:
                    raise InvalidInput(
                        f"cannot write {', '.join(chunk)} to {path}: expected one "
                        "column, or a .parquet file."
                    )
                (values,) = chunk.values()
                writer = writer or NpyWriter(partial, values.dtype, values.shape[1:])
                writer.append(values)
        finally:
            if writer is not None:
                writer.close()
        if writer is None:
            raise InvalidInput(f"nothing to write to {path}: expected rows.")


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
