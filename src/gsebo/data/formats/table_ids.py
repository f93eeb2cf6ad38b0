"""What tables call nodes: whole numbers or texts, decided by all rows of a column."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from gsebo.data.formats.table_rows import (
    ColumnKind,
    RowBatch,
    TableFile,
    first_true,
)
from gsebo.data.seeding import first_repeated
from gsebo.errors import InvalidInput
from gsebo.memory import require_memory

Ints = NDArray[np.int64]
Ids = NDArray[Any]  # Whole numbers or texts.
Faults = list[tuple[int, str]]

LONGEST_ID = 1000
"""Characters of a text that names a node, at most."""
# Ids up to so many times the number of nodes are looked up in a plain table.
_TABLE_PER_NODE = 8
# As one writes a number that counts: not 007, which is a text that looks like one.
_PLAIN_NUMBER = r"^(0|-?[1-9][0-9]*)$"


@final
class IdColumn:
    """Collects the ids of one column; what they are is decided when all are there.

    In a text file they are whole numbers if each of them is written as one; a column
    with a type is what its type says.
    """

    def __init__(self, table: TableFile, name: str) -> None:
        self.table, self.name = table, name
        self.first = 0  # Number of the first row.
        self._parts: list[Any] = []
        held = table.kinds()[name]
        if held is None:
            raise InvalidInput(
                f"column {name!r} of {table.path} is of a type that names nothing: "
                "expected whole numbers or texts."
            )
        is_number = held in (ColumnKind.INTEGER, ColumnKind.NUMBER)
        # What the first line of a text file holds says nothing of the others.
        self.kind = ColumnKind.TEXT
        if table.typed and is_number:
            self.kind = ColumnKind.INTEGER

    def add(self, batch: RowBatch, faults: Faults) -> None:
        """Take the ids of a batch, and say which of them is none."""
        self.first = self.first or batch.first
        if self.kind == ColumnKind.TEXT:
            self._parts.append(id_texts(batch, self.name, faults))
        else:
            self._parts.append(batch.columns[self.name])

    def numbers(self) -> Ints | None:
        """The ids as whole numbers, unless one of them is none."""
        column = pa.chunked_array(self._parts)
        if self.kind == ColumnKind.TEXT:
            plain = pc.match_substring_regex(column, _PLAIN_NUMBER)
            if self.table.typed or not pc.all(plain).as_py():
                return None
            try:
                column = column.cast(pa.int64())
            except pa.ArrowInvalid:
                # Beyond 64 bits.
                return None
        # A copy, because what pyarrow holds cannot be written to.
        return np.array(column.to_numpy(), np.int64)

    def texts(self) -> Any:
        """The ids as a pyarrow array of texts."""
        column = pa.chunked_array(self._parts).cast(pa.string())
        return pa.concat_arrays(column.chunks)


def id_texts(batch: RowBatch, name: str, faults: Faults) -> Any:
    """A column of a batch as texts that can name nodes; say which of them cannot."""
    texts = batch.columns[name]
    if not batch.typed:
        texts = pc.utf8_trim_whitespace(texts)
    lengths = pc.fill_null(pc.utf8_length(texts), 0).to_numpy(zero_copy_only=False)
    if (bad := first_true(lengths == 0)) is not None:
        faults.append((bad, f"has no {name}: expected what a node is called"))
    if (bad := first_true(lengths > LONGEST_ID)) is not None:
        held = f"holds {lengths[bad]} characters as {name}"
        faults.append((bad, f"{held}: expected {LONGEST_ID} at most"))
    null = pc.fill_null(pc.match_substring(texts, "\0"), False)
    if (bad := first_true(null.to_numpy(zero_copy_only=False))) is not None:
        faults.append((bad, f"holds a null character as {name}: expected text"))
    return texts


def decided(columns: Sequence[IdColumn]) -> list[Ints] | list[Any]:
    """Whole numbers if all columns hold such, or else texts, as pyarrow arrays."""
    numbers = [column.numbers() for column in columns]
    found = [each for each in numbers if each is not None]
    return found if len(found) == len(columns) else [each.texts() for each in columns]


def as_array(ids: Ints | Any) -> Ids:
    """Ids as numpy has them, where texts have the width of the longest."""
    if isinstance(ids, np.ndarray):
        return ids
    longest = pc.max(pc.utf8_length(ids)).as_py() or 1
    require_memory(
        4 * longest * len(ids),
        what=f"{len(ids)} names of up to {longest} characters",
        instead="shorter ones",
    )
    return np.array(ids.to_pylist(), dtype=np.str_)


@final
class NodeNumbers:
    """Finds the position of each of distinct ids, in memory that grows with them."""

    def __init__(self, ids: Ints) -> None:
        self.ids: Ids = ids
        self._low = int(ids.min())
        self._high = int(ids.max())
        span = self._high - self._low + 1
        self._table: NDArray[np.int32] | None = None
        if span <= _TABLE_PER_NODE * len(ids):
            self._table = np.full(span, -1, np.int32)
            self._table[ids - self._low] = np.arange(len(ids), dtype=np.int32)
        else:
            self._order = np.argsort(ids)
            self._sorted = ids[self._order]

    def find(self, wanted: Ints) -> Ints:
        """Positions of ids, -1 for those that nobody has."""
        if self._table is not None:
            inside = (wanted >= self._low) & (wanted <= self._high)
            places = self._table[np.where(inside, wanted - self._low, 0)]
            return np.where(inside, places, -1).astype(np.int64)
        near = np.searchsorted(self._sorted, wanted).clip(max=len(self._sorted) - 1)
        return np.where(self._sorted[near] == wanted, self._order[near], -1)


@final
class NodeTexts:
    """The same for ids that are texts."""

    def __init__(self, ids: NDArray[np.str_]) -> None:
        self.ids: Ids = ids
        self._place = {text: place for place, text in enumerate(ids.tolist())}

    def find(self, wanted: Any) -> Ints:
        """Positions of texts in a pyarrow array, -1 for those that nobody has."""
        encoded = wanted.dictionary_encode()
        few = [self._place.get(text, -1) for text in encoded.dictionary.to_pylist()]
        # A row without a text reads the last.
        places = np.array([*few, -1], np.int64)
        rows = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        found: Ints = places[rows]
        return found


def named_nodes(column: IdColumn, ids: Ints | Any) -> NodeNumbers | NodeTexts | None:
    """Finds nodes by the ids of a node table, once these are found to be distinct.

    ``None`` where they are just 0, 1, 2 and so on.
    """
    names = as_array(ids)
    if names.dtype.kind != "U" and np.array_equal(names, np.arange(len(names))):
        return None
    repeated = first_repeated(names)
    if repeated is not None:
        unit, path = column.table.unit, column.table.path
        place, earlier = (column.first + each for each in repeated)
        raise InvalidInput(
            f"{unit} {place} of {path} holds {column.name} "
            f"{str(names[repeated[0]])[:40]}, as {unit} {earlier} does: expected "
            "another one for each node."
        )
    return NodeTexts(names) if names.dtype.kind == "U" else NodeNumbers(names)
