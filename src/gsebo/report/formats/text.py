"""Sheets as plain text, for a terminal."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from gsebo.report.formats.style import Style, written
from gsebo.report.tables.table import Content, Sheet, Table, Value

_STYLE = Style(escape=str, bold=str)
_GAP = "  "
_RULE = "─"
_READABLE = 88

# Text of one width: two lines of headings, then one for each line of a section.
Strip = list[str]


def as_text(sheet: Sheet, width: int) -> str:
    """Write a sheet in lines that are not longer than ``width`` where possible.

    A table that is too wide is cut between groups of columns, and its parts follow one
    below the other.
    """
    parts = ["\n".join(_wrapped((sheet.title, sheet.about), width))]
    for table in sheet.tables:
        cut = ("\n".join(lines) for lines in _cut(table, width))
        parts += [f"{table.title}\n{next(cut)}" if table.title else next(cut), *cut]
    parts.append("\n".join(_wrapped(sheet.notes, width)))
    return "\n\n".join(parts)


def _wrapped(texts: Iterable[str], width: int) -> Iterator[str]:
    for text in texts:
        yield from textwrap.wrap(" ".join(text.split()), min(width, _READABLE))


def _cut(table: Table, width: int) -> Iterator[list[str]]:
    """The lines of a table, as many groups of columns at once as there is room for."""
    labels = _labels(table)
    part: list[Strip] = []
    for strip in _groups(table):
        used = sum(len(one[0]) + len(_GAP) for one in (*labels, *part))
        if part and used + len(strip[0]) > width:
            yield _lines(table, [*labels, *part])
            part = []
        part.append(strip)
    yield _lines(table, [*labels, *part])


def _labels(table: Table) -> list[Strip]:
    strips = []
    for place, heading in enumerate(table.labels):
        cells = [written(row.labels[place], _STYLE) for row in table.rows]
        if place == 0:
            # Said once for each section.
            before = ["", *cells]
            cells = ["" if a == b else b for a, b in zip(before, cells, strict=False)]
        strips.append(_padded(["", heading, *cells]))
    return strips


def _groups(table: Table) -> Iterator[Strip]:
    place = 0
    for group in table.groups:
        columns = []
        for heading in group.columns:
            contents = [row.contents[place] for row in table.rows]
            columns.append(_column(heading or group.title, contents))
            place += 1
        lines = [_GAP.join(cells) for cells in zip(*columns, strict=True)]
        yield _padded([group.title if any(group.columns) else "", *lines])


def _column(heading: str, contents: Sequence[Content]) -> Strip:
    right = any(isinstance(one, Value) and one.std is None for one in contents)
    cells = [written(content, _STYLE) for content in contents]
    return _padded([heading, *cells], right)


def _padded(cells: list[str], right: bool = False) -> Strip:
    width = max(map(len, cells))
    return [cell.rjust(width) if right else cell.ljust(width) for cell in cells]


def _lines(table: Table, strips: list[Strip]) -> list[str]:
    lines = [_GAP.join(cells).rstrip() for cells in zip(*strips, strict=True)]
    rule = _RULE * max(map(len, lines))
    found = [line for line in lines[:2] if line]
    rest = iter(lines[2:])
    for section in table.sections():
        found += [rule, *(next(rest) for _ in section)]
    return found
