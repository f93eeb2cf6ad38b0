"""Sheets for programs: CSV and JSON."""

import csv
import io
import json

from gsebo.errors import escaped_json
from gsebo.report.tables.table import Sheet

_DIGITS = 6
_EXECUTED = ("=", "+", "-", "@", "\t", "\r")


def as_csv(sheet: Sheet) -> str:
    """Write a line of names, then one for each record; what is unknown is empty."""
    file = io.StringIO()
    names = list(sheet.records[0])
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    for record in _rounded(sheet):
        writer.writerow({name: _harmless(value) for name, value in record.items()})
    return file.getvalue().removesuffix("\n")


def as_json(sheet: Sheet) -> str:
    """Write one object: what holds for all, and the list of records."""
    content = {"title": sheet.title, **sheet.facts, sheet.kind: _rounded(sheet)}
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
    return escaped_json(text)


def _harmless(value: object) -> object:
    """A cell of CSV; a text that a spreadsheet would execute is quoted.

    >>> _harmless("=1+1"), _harmless(-1)
    ("'=1+1", -1)
    """
    executed = isinstance(value, str) and value.startswith(_EXECUTED)
    return f"'{value}" if executed else value


def _rounded(sheet: Sheet) -> list[dict[str, object]]:
    """Records without the digits in which sums in another order would differ."""
    return [
        {
            name: round(value, _DIGITS) if isinstance(value, float) else value
            for name, value in record.items()
        }
        for record in sheet.records
    ]
