"""Sheets to text: one file for each format, none of which knows of results."""

from collections.abc import Callable

from gsebo.report.formats.latex import as_latex as as_latex
from gsebo.report.formats.markdown import as_markdown as as_markdown
from gsebo.report.formats.records import as_csv as as_csv
from gsebo.report.formats.records import as_json as as_json
from gsebo.report.formats.text import as_text as as_text
from gsebo.report.tables.table import Sheet


def formats(width: int) -> dict[str, Callable[[Sheet], str]]:
    """The formats by name.

    Args:
        width: Of the terminal, for the format that has to know.
    """
    return {
        "table": lambda sheet: as_text(sheet, width),
        "markdown": as_markdown,
        "latex": as_latex,
        "csv": as_csv,
        "json": as_json,
    }
