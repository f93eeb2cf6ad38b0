"""Tables in files, read in batches that know where each row stands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gsebo.errors import InvalidInput
from gsebo.files import require_regular

Array = NDArray[Any]
INTEGER, NUMBER, TEXT, TRUTH = "integer", "number", "text", "truth"
"""Kinds of columns; numbers are read in single precision."""
EXPECTED = {
    INTEGER: "a whole number",
    NUMBER: "a number",
    TEXT: "text",
    TRUTH: "true or false",
}

Progress = Callable[[str, int, int], None]
"""Told what is being done, how far it is, and where the end is."""


@final
@dataclass(frozen=True)
class RowBatch:
    """Consecutive rows of a table.

    Attributes:
        path: The file.
        unit: What rows are counted in: ``"line"`` or ``"row"``.
        first: Number of the first row.
        rows: How many there are.
        columns: pyarrow arrays by name; only those of text may have nulls.
    """

    path: Path
    unit: str
    first: int
    rows: int
    columns: dict[str, Any]

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
        """Raise for the first of some rows that do not fit, if there are any.

        Args:
            faults: Position of each in the batch, and the rest of the sentence.
        """
        if faults:
            row, fault = min(faults, key=lambda each: each[0])
            place = f"{self.unit} {self.first + row}"
            raise InvalidInput(f"{place} of {self.path} {fault}.")


class TableFile(ABC):
    """A file with a table.

    Attributes:
        path: The file.
        columns: Names of its columns; ``"column 1"`` and so on where it has none.
        named: Whether the file names its columns.
        unit: What rows are counted in.
    """

    path: Path
    columns: tuple[str, ...]
    named: bool
    unit: str

    @property
    @abstractmethod
    def size(self) -> int:
        """Where the end is, in the numbers that the progress is told."""

    @abstractmethod
    def kinds(self) -> dict[str, str | None]:
        """Kind of each column by the first row or the schema; ``None``: no such."""

    @abstractmethod
    def batches(self, kinds: dict[str, str], progress: Progress) -> Iterator[RowBatch]:
        """Read these columns as these kinds.

        Raises:
            InvalidInput: A row does not fit; the message names the first that does not.
        """


def open_table(
    path: Path, *, delimiter: str | None = None, block_bytes: int = 2**23
) -> TableFile:
    """Open a Parquet file, or else a text file with one row per line.

    Args:
        path: Ends in ``.parquet`` or is text.
        delimiter: Of a text file; by default tab, comma, semicolon or space, whichever
            of them comes first in this order and is in the first line.
        block_bytes: How much of a text file to read at once.
    """
    require_regular(path, "a table")
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise InvalidInput(
            f"reading {path} needs pyarrow, which is not installed; expected: "
            "pip install 'gsebo[large]'."
        ) from error
    # Here, because these two import pyarrow.
    from gsebo.data.formats.table_csv import CSVFile
    from gsebo.data.formats.table_parquet import ParquetFile

    if path.suffix == ".parquet":
        return ParquetFile(path)
    return CSVFile(path, delimiter, block_bytes)


def first_true(mask: Array) -> int | None:
    """Position of the first true value, if there is one."""
    place = int(np.argmax(mask)) if len(mask) else 0
    return place if len(mask) and mask[place] else None
