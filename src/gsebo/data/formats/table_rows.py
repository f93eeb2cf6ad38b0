"""Tables, read in batches that know where each row stands."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gsebo.errors import InvalidInput
from gsebo.files import require_regular

Array = NDArray[Any]
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how far it is, and where the end is."""


@final
class ColumnKind(Enum):
    """What each row of a column holds; numbers are read in single precision."""

    INTEGER = "a whole number"
    NUMBER = "a number"
    TEXT = "text"
    TRUTH = "true or false"


Kinds = dict[str, ColumnKind]


@final
@dataclass(frozen=True)
class RowBatch:
    """Consecutive rows of a table."""

    path: Path
    unit: str
    # Number of the first row in the file, in its unit.
    first: int
    rows: int
    # pyarrow arrays by name; only those of text may have nulls.
    columns: dict[str, Any]
    typed: bool

    def numbers(self, name: str) -> Array:
        """A column of numbers or truth values."""
        array: Array = self.columns[name].to_numpy(zero_copy_only=False)
        return array

    def categories(self, name: str) -> tuple[list[str], Array]:
        """A column of text: its distinct values, and the place of each row's value.

        The first value is empty: what rows without one have.
        """
        encoded = self.columns[name].dictionary_encode()
        texts = [str(value).strip() for value in encoded.dictionary.to_pylist()]
        places = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        return ["", *texts], places + 1

    def refuse_first(self, faults: list[tuple[int, str]]) -> None:
        """Raise for the first of some rows (position, end of sentence), if any."""
        if faults:
            row, fault = min(faults, key=lambda each: each[0])
            place = f"{self.unit} {self.first + row}"
            raise InvalidInput(f"{place} of {self.path} {fault}.")


class TableFile(ABC):
    """A file with a table, or one in memory whose path is just what it is called."""

    path: Path
    # ``"column 1"`` and so on where the file does not name them.
    columns: tuple[str, ...]
    named: bool
    # What rows are counted in: ``"line"`` or ``"row"``.
    unit: str
    # Whether columns are of a type that all rows have; text files have none.
    typed: bool

    @abstractmethod
    def kinds(self) -> dict[str, ColumnKind | None]:
        """Kind of each column by the first row or the schema; ``None``: no such."""

    @abstractmethod
    def batches(self, kinds: Kinds, progress: Progress) -> Iterator[RowBatch]:
        """Read these columns as these kinds; the first row that does not fit raises."""

    @final
    def _repeated_name(self) -> str | None:
        names = enumerate(self.columns)
        return next((one for place, one in names if one in self.columns[:place]), None)


def open_table(
    file: str | PathLike[str], delimiter: str | None, block_bytes: int
) -> TableFile:
    """Open a Parquet file, or else a text file with one row per line.

    The delimiter of text is by default tab, comma, semicolon or space, whichever of
    them comes first in this order and is in the first line.
    """
    path = Path(os.path.expanduser(file))
    require_regular(path, "a table")
    # Here, because these build on what is above.
    from gsebo.data.formats.table_files import CSVFile, ParquetFile

    if path.suffix.lower() == ".parquet":
        return ParquetFile(path)
    return CSVFile(path, delimiter, block_bytes)


def first_true(mask: Array) -> int | None:
    """Position of the first true value, if there is one."""
    return int(np.argmax(mask)) if mask.any() else None
