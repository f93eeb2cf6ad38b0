"""What a table is, whatever it is written as: nothing here knows of results."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True)
class Value:
    """A number in a table.

    Attributes:
        mean: The number.
        std: Its standard deviation, if it is a mean.
        seeds: Over how many it is, where that has to be said.
        marked: Whether it gets the mark of significance.
        best: Whether it is the best of its column and section.
        signed: Whether a plus is written.
        brackets: Another number to write behind it in brackets.
    """

    mean: float
    std: float | None = None
    seeds: int | None = None
    marked: bool = False
    best: bool = False
    signed: bool = False
    brackets: float | None = None


@dataclass(frozen=True)
class Missing:
    """A number that is not there yet.

    Attributes:
        brackets: Another number to write behind it in brackets.
    """

    brackets: float | None = None


Content = Value | Missing | str


@dataclass(frozen=True)
class ColumnGroup:
    """Columns that belong together.

    Attributes:
        title: Heading of all.
        columns: Heading of each; a single empty one where the title says it all.
    """

    title: str
    columns: tuple[str, ...] = ("",)


@dataclass(frozen=True)
class Row:
    """One line.

    Attributes:
        labels: What the line is about, one for each of the table's labels; lines with
            the same first label are a section.
        contents: One for each column of each group, in order.
    """

    labels: tuple[str, ...]
    contents: tuple[Content, ...]


@dataclass(frozen=True)
class Table:
    """Lines under headings.

    Attributes:
        title: What it shows, if there are several beside each other.
        labels: Headings of the labels.
        groups: Headings of the contents.
        rows: The lines.
        dataset: Name of the only dataset that it is about, if there is one.
        noise: Kind of the noise whose levels are columns, if they are.
    """

    title: str
    labels: tuple[str, ...]
    groups: tuple[ColumnGroup, ...]
    rows: tuple[Row, ...]
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


@dataclass(frozen=True)
class Sheet:
    """Everything that is shown at once, laid out as tables and as plain records.

    Attributes:
        title: One line.
        about: A few sentences.
        tables: For people.
        notes: How to read the tables.
        facts: What holds for all records, for programs.
        kind: What the records are, in one word.
        records: For programs: numbers unrounded, the same names in each.
    """

    title: str
    about: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...]
    facts: Mapping[str, object]
    kind: str
    records: tuple[Mapping[str, object], ...]
