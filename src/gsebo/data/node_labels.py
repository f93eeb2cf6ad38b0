"""Labels as they stand in a table, made into numbered classes."""

import re
from typing import NoReturn, final

import numpy as np
from numpy.typing import NDArray

from gsebo.data.table_rows import RowBatch, TableFile
from gsebo.errors import InvalidInput

_MOST_LABELS = 2**20
# As people write them: Python would also take "1_000", and digits of any script.
_NUMBER = re.compile(
    r"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE
)


@final
class Labels:
    """Collects the labels of one column; decides at the end what they are.

    If they are whole numbers they are the classes, and -1 is none. If they are text,
    classes are numbered in the order of the alphabet. An empty field is none.

    Args:
        table: The file.
        name: The column.
    """

    def __init__(self, table: TableFile, name: str) -> None:
        self._table = table
        self._name = name
        self._code: dict[str, int] = {}
        # Of each label, in the order of the codes.
        self._first_row: list[int] = []
        self._parts: list[NDArray[np.int32]] = []

    def add(self, batch: RowBatch) -> None:
        """Take the labels of a batch."""
        texts, places = batch.categories(self._name)
        first = np.zeros(len(texts), np.int64)
        # Of several values for one place the last is kept: backwards, the first.
        first[places[::-1]] = np.arange(batch.rows)[::-1]
        codes = np.full(len(texts), -1, np.int32)
        # In the order of rows, or the first of two new labels would be any of them.
        for place in np.argsort(first, kind="stable").tolist():
            text = texts[place]
            if text and text not in self._code:
                self._code[text] = len(self._code)
                self._first_row.append(batch.first + int(first[place]))
            codes[place] = self._code.get(text, -1)
        self._parts.append(codes[places])
        if len(self._code) > _MOST_LABELS:
            raise InvalidInput(
                f"{self._name} of {self._table.path} holds more than {_MOST_LABELS} "
                "different labels: expected classes."
            )

    def classes(self) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
        """The class of each node, -1 for none, and the classes' names if any."""
        codes = np.concatenate(self._parts)
        values = [_value(text) for text in self._code]
        named = bool(values) and values[0] is None
        for code, value in enumerate(values):
            self._check(code, value, named, len(codes))
        names = tuple(sorted(self._code)) if named else None
        place = {name: number for number, name in enumerate(names or ())}
        found = [place[text] if named else int(float(text)) for text in self._code]
        # The code -1 reads the last.
        classes = np.array([*found, -1], np.int64)
        return classes[codes], names

    def _check(
        self, code: int, value: float | None, named: bool, num_nodes: int
    ) -> None:
        if (value is None) != named:
            self._refuse(
                code,
                f"{'text' if named else 'a whole number'}, as in "
                f"{self._table.unit} {self._first_row[0]}",
            )
        if value is None:
            return
        # A number that is not finite is not whole either.
        if not value.is_integer():
            self._refuse(code, "a whole number or text")
        highest = max(num_nodes, 2) - 1
        if not -1 <= value <= highest:
            expected = f"a class from 0 to {highest} at most, or -1 for none"
            self._refuse(code, expected)

    def _refuse(self, code: int, expected: str) -> NoReturn:
        text = list(self._code)[code]
        raise InvalidInput(
            f"{self._table.unit} {self._first_row[code]} of {self._table.path} holds "
            f"{text!r:.40} as {self._name}: expected {expected}."
        )


def _value(text: str) -> float | None:
    """The number that a label is, ``None`` for text."""
    return float(text) if _NUMBER.fullmatch(text) else None
