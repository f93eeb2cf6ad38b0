"""Sheets as tables of GitHub's Markdown."""

import re
from collections.abc import Iterator

from gsebo.report.formats.style import Style, written
from gsebo.report.tables.table import ColumnGroup, Sheet, Table

# An underscore within a word, or before one, ends no markup.
_SPECIAL = re.compile(r"[\\`*\[\]<>|~$]|_(?![A-Za-z0-9])")


def as_markdown(sheet: Sheet) -> str:
    """Write the tables and notes; a title comes from the text around them."""
    parts = []
    for table in sheet.tables:
        if table.title:
            parts.append(_bold(escape_markdown(table.title)))
        parts.append("\n".join(_lines(table)))
    parts.append("\n".join(escape_markdown(note) for note in sheet.notes))
    return "\n\n".join(parts)


def escape_markdown(text: str) -> str:
    r"""Take the meaning away from what would be markup.

    >>> escape_markdown("a|b * inner_steps")
    'a\\|b \\* inner_steps'
    """
    return _SPECIAL.sub(r"\\\g<0>", text.replace("&", "&amp;"))


def _bold(text: str) -> str:
    return f"**{text}**"


_STYLE = Style(escape=escape_markdown, bold=_bold, star=r"\*")


def _lines(table: Table) -> Iterator[str]:
    headings = [heading for group in table.groups for heading in _headings(group)]
    yield _line([*(escape_markdown(label) for label in table.labels), *headings])
    yield "|" + "---|" * (len(table.labels) + len(headings))
    for row in table.rows:
        yield _line([written(one, _STYLE) for one in (*row.labels, *row.contents)])


def _headings(group: ColumnGroup) -> Iterator[str]:
    """There is one line for headings only: the first of a group names it."""
    for number, column in enumerate(group.columns):
        words = [] if number else [group.title]
        yield escape_markdown(": ".join(filter(None, [*words, column])))


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
