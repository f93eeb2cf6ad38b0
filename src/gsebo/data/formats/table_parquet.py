"""Parquet files, read in batches of rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet as parquet

from gsebo.data.formats.table_rows import (
    EXPECTED,
    INTEGER,
    NUMBER,
    TEXT,
    TRUTH,
    Progress,
    RowBatch,
    TableFile,
)
from gsebo.errors import InvalidInput, escaped

# Numbers of a batch, in all of its columns.
_NUMBERS_AT_ONCE = 2**21
_BUFFER_BYTES = 2**20
# A damaged file may say anything of itself, and pyarrow may stumble over it anywhere.
_UNREADABLE = (
    pa.ArrowException,
    OSError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    MemoryError,
    OverflowError,
)
_TYPES = {
    INTEGER: pa.int64(),
    NUMBER: pa.float32(),
    TEXT: pa.string(),
    TRUTH: pa.bool_(),
}


@final
class ParquetFile(TableFile):
    """A Parquet file; its rows are counted from 1."""

    unit = "row"
    named = True

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as file:
            self._schema = file.schema_arrow
            self._rows = file.metadata.num_rows
        self.columns = tuple(self._schema.names)
        for place, name in enumerate(self.columns):
            if name in self.columns[:place]:
                raise InvalidInput(
                    f"{escaped(str(path))} has two columns {escaped(name)!r:.40}: "
                    "expected each name once."
                )
        if not self._rows:
            raise InvalidInput(f"{path} is empty: expected rows.")

    @property
    def size(self) -> int:
        """Number of rows."""
        return int(self._rows)

    def kinds(self) -> dict[str, str | None]:
        """What the schema says."""
        return {field.name: _kind(field.type) for field in self._schema}

    def batches(self, kinds: dict[str, str], progress: Progress) -> Iterator[RowBatch]:
        """Read these columns as these kinds."""
        at_once = max(_NUMBERS_AT_ONCE // len(kinds), 1)
        first = 1
        with self._opened() as file:
            batches = iter(
                file.iter_batches(at_once, columns=list(kinds), use_threads=False)
            )
            while (batch := self._next(batches)) is not None:
                gaps = _first_gaps(batch, kinds)
                if gaps:
                    # Whoever reads the rows before may find fault with one of them.
                    batch = batch.slice(0, min(gaps.values()))
                columns = {
                    name: self._column(batch.column(name), name, kind)
                    for name, kind in kinds.items()
                }
                rows = batch.num_rows
                if rows:
                    yield RowBatch(self.path, self.unit, first, rows, columns)
                first += rows
                if gaps:
                    name = min(gaps, key=lambda name: gaps[name])
                    raise InvalidInput(
                        f"row {first} of {self.path} has no {name}: expected "
                        f"{EXPECTED[kinds[name]]}."
                    )
                progress(f"reading {self.path.name}", first - 1, self.size)

    def _next(self, batches: Iterator[Any]) -> Any:
        try:
            batch = next(batches, None)
            if batch is not None:
                batch.validate(full=True)
            return batch
        except _UNREADABLE as error:
            raise self._unreadable(error) from error

    def _column(self, column: Any, name: str, kind: str) -> Any:
        try:
            # Numbers are rounded to single precision, not refused.
            return column.cast(_TYPES[kind], safe=kind != NUMBER)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInput(
                f"{name} of {self.path} is of type {column.type}: expected "
                f"{EXPECTED[kind]} in each row ({escaped(str(error), longest=200)})."
            ) from error

    def _opened(self) -> Any:
        try:
            # Buffered: a column of a row group may be larger than the memory.
            return parquet.ParquetFile(
                self.path, buffer_size=_BUFFER_BYTES, pre_buffer=False
            )
        except _UNREADABLE as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> InvalidInput:
        return InvalidInput(
            f"{escaped(str(self.path))} is no Parquet file that can be read "
            f"({escaped(str(error), longest=200)}): expected an undamaged one."
        )


def _first_gaps(batch: Any, kinds: dict[str, str]) -> dict[str, int]:
    """First row without a value in each column that has such and may not."""
    return {
        name: int(batch.column(name).is_null().to_numpy(zero_copy_only=False).argmax())
        for name, kind in kinds.items()
        if kind != TEXT and batch.column(name).null_count
    }


def _kind(type_: Any) -> str | None:
    if pa.types.is_boolean(type_):
        return TRUTH
    if pa.types.is_integer(type_):
        return INTEGER
    if pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        return NUMBER
    if pa.types.is_dictionary(type_):
        return _kind(type_.value_type)
    return TEXT if pa.types.is_string(type_) else None
