"""What a table is, whatever it is written as: nothing here knows of results."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import Any, Literal

from gsebo.report.names import backbone_title, dataset_title, method_title

Verdict = Literal["better", "worse", "same", "untested"]
"""What a test says of a number: that it is significantly above or below what it is
compared with, or not, or that there was none."""


@dataclass(frozen=True)
class Value:
    """A number in a table, the best of its column and section or not."""

    mean: float
    std: float | None = None
    # Over how many it is, where that has to be said.
    seeds: int | None = None
    # What a test says of it, which becomes its mark.
    verdict: Verdict | None = None
    best: bool = False
    # Whether a plus is written.
    signed: bool = False
    # Another number to write behind it.
    brackets: float | None = None


@dataclass(frozen=True)
class Missing:
    """A number that is not there yet, with another to write behind it in brackets."""

    brackets: float | None = None
    # The letter of the note that says why.
    reason: str = ""


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


_TITLES = {"network": backbone_title, "method": method_title, "dataset": dataset_title}


def lay_out(
    title: str,
    labels: tuple[str, ...],
    groups: Mapping[Any, ColumnGroup],
    lines: Collection[tuple[tuple[str, ...], Mapping[Any, Sequence[Content]]]],
    *,
    dataset: str = "",
    optional: str = "setting",
) -> Table:
    """Make a table of lines: names for the labels, and contents by the keys of groups.

    What a line has nothing for is missing; an optional label that none has is left out.
    """
    kept = [
        place
        for place, label in enumerate(labels)
        if label != optional or any(names[place] for names, _ in lines)
    ]
    rows = []
    for names, line in lines:
        words = (_TITLES.get(labels[place], str)(names[place]) for place in kept)
        contents = (
            line.get(key, [Missing()] * len(group.columns))
            for key, group in groups.items()
        )
        rows.append(Row(tuple(words), tuple(chain.from_iterable(contents))))
    headings = tuple(labels[place] for place in kept)
    return Table(title, headings, tuple(groups.values()), tuple(rows), dataset)


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
