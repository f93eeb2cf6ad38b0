"""What a table is, whatever it is written as: nothing here knows of results."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby


@dataclass(frozen=True)
class Value:
    """A number in a table, the best of its column and section or not."""

    mean: float
    std: float | None = None
    # Over how many it is, where that has to be said.
    seeds: int | None = None
    # Whether it gets the mark of significance.
    marked: bool = False
    best: bool = False
    # Whether a plus is written.
    signed: bool = False
    # Another number to write behind it.
    brackets: float | None = None


@dataclass(frozen=True)
class Missing:
    """A number that is not there yet, with another to write behind it in brackets."""

    brackets: float | None = None


Content = Value | Missing | str


@dataclass(frozen=True)
class ColumnGroup:
    """Columns under one heading; a single empty one where the title says it all."""

    title: str
    columns: tuple[str, ...] = ("",)


@dataclass(frozen=True)
class Row:
    """What a line is about, and one content for each column of each group."""

    labels: tuple[str, ...]
    contents: tuple[Content, ...]


@dataclass(frozen=True)
class Table:
    """Lines under headings; those with the same first label are a section."""

    title: str
    # Headings of the rows' labels.
    labels: tuple[str, ...]
    groups: tuple[ColumnGroup, ...]
    rows: tuple[Row, ...]
    # The only dataset that it is about, and the kind of noise whose levels are columns.
    dataset: str = ""
    noise: str = ""

    def __post_init__(self) -> None:
        columns = sum(len(group.columns) for group in self.groups)
        shape = (len(self.labels), columns)
        for row in self.rows:
            if (len(row.labels), len(row.contents)) != shape:
                raise ValueError(f"{row} given; expected {shape} labels and contents")

    def sections(self) -> list[tuple[Row, ...]]:
        """The lines by their first label; all in one where no two share it."""
        found = [tuple(rows) for _, rows in groupby(self.rows, lambda r: r.labels[:1])]
        return found if len(found) < len(self.rows) else [self.rows]

    def without_empty(self, label: str) -> "Table":
        """The same without a label that is empty in all rows."""
        place = self.labels.index(label)
        if any(row.labels[place] for row in self.rows):
            return self

        def cut(labels: tuple[str, ...]) -> tuple[str, ...]:
            return labels[:place] + labels[place + 1 :]

        rows = tuple(Row(cut(row.labels), row.contents) for row in self.rows)
        return replace(self, labels=cut(self.labels), rows=rows)


@dataclass(frozen=True)
class Sheet:
    """Everything that is shown at once: tables for people, records for programs."""

    title: str
    about: str
    tables: tuple[Table, ...]
    # How to read the tables.
    notes: tuple[str, ...]
    # What holds for all records.
    facts: Mapping[str, object]
    # What the records are, in one word.
    kind: str
    # Numbers unrounded, the same names in each.
    records: tuple[Mapping[str, object], ...]
