"""Results that are too large for memory: written in pieces, whole or not at all."""

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import DTypeLike, NDArray

from gsebo.data.npy_stream import NpyWriter
from gsebo.errors import InvalidInput

Array = NDArray[Any]
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
