"""Tables in Markdown, from lines of results."""

from collections.abc import Callable, Sequence
from typing import Any

Line = dict[str, Any]
MISSING = "-"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, all columns but the first aligned to the right.

    >>> print(table(["who", "ms"], [["ours", "1.5"]]))
    | who | ms |
    |---|--:|
    | ours | 1.5 |
    """
    lines = [heads, *rows]
    shown = [f"| {' | '.join(line)} |" for line in lines]
    shown.insert(1, "|---|" + "--:|" * (len(heads) - 1))
    return "\n".join(shown)


def pivot(
    lines: Sequence[Line],
    rows: Sequence[str],
    column: str,
    cell: Callable[[Line], str],
) -> str:
    """A table with one row for each value of ``rows``, one column for each of one key.

    Args:
        lines: Results; each fills one cell.
        rows: Keys that name a row.
        column: Key that names a column.
        cell: What to write for a result.
    """
    columns = distinct(line[column] for line in lines)
    cells = {
        (tuple(line[key] for key in rows), line[column]): cell(line) for line in lines
    }
    names = distinct(name for name, _ in cells)
    return table(
        [*(key.replace("_", " ") for key in rows), *map(str, columns)],
        [
            [*map(str, name), *(cells.get((name, value), MISSING) for value in columns)]
            for name in names
        ],
    )


def distinct(values: Any) -> list[Any]:
    """Every value once, in the order of first appearance."""
    return list(dict.fromkeys(values))


def latest(lines: Sequence[Line], keys: Sequence[str]) -> list[Line]:
    """Of the lines that agree in ``keys``, the last; in the order of the first."""
    newest: dict[tuple[Any, ...], Line] = {}
    for line in lines:
        newest[tuple(line.get(key) for key in keys)] = line
    return list(newest.values())


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits, never as a power of ten if short.

    >>> number(1234.5), number(0.0123), number(1.2e-9), number(None)
    ('1234', '0.0123', '1.2e-09', '-')
    """
    if value is None:
        return MISSING
    if abs(value) >= 10**digits:
        return f"{value:.0f}"
    return f"{value:.{digits}g}"


def megabytes(value: float | None) -> str:
    """Bytes as MB."""
    return MISSING if value is None else number(value / 1e6)


def measured(line: Line | None, key: str) -> str:
    """The number, or why there is none."""
    if line is None:
        return MISSING
    if key in line:
        return number(line[key])
    free = line.get("free_bytes")
    return f"{line['outcome']}{f' ({megabytes(free)} MB)' if free else ''}"


def ratio(found: dict[str, float] | None) -> str:
    """Median and, in brackets, the least; the largest too where it is known."""
    if found is None:
        return MISSING
    ends = [found[end] for end in ("min", "max") if end in found]
    return f"{number(found['median'])} ({' to '.join(map(number, ends))})"
