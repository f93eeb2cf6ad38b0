"""Sheets to text: terminal, Markdown, LaTeX, CSV and JSON; none knows of results."""

import csv
import io
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gsebo.errors import escaped_json
from gsebo.report.tables.table import Content, Missing, Sheet, Table, Value, Verdict


def formats(width: int) -> dict[str, Callable[[Sheet], str]]:
    """The formats by name; the terminal's has to know its width."""
    return {
        "table": lambda sheet: as_text(sheet, width),
        "markdown": as_markdown,
        "latex": as_latex,
        "csv": as_csv,
        "json": as_json,
    }


MARKS: dict[Verdict, str] = {"better": "↑", "worse": "↓", "same": "=", "untested": "?"}
"""What stands behind a number that was tested, or could not be."""


@dataclass(frozen=True)
class Style:
    """How a format makes any text safe and safe text bold, and what its signs are."""

    escape: Callable[[str], str]
    bold: Callable[[str], str]
    plus_minus: str = "±"
    minus: str = "-"
    mark: Callable[[Verdict], str] = MARKS.__getitem__

    def write(self, content: Content) -> str:
        """Write a content; numbers have one digit behind the point."""
        if isinstance(content, str):
            return self.escape(" ".join(content.split()))
        if isinstance(content, Missing):
            number = content.reason or "-"
        else:
            number = self._number(content)
        behind = "" if content.brackets is None else f" ({content.brackets:.1f})"
        return number + behind

    def _number(self, value: Value) -> str:
        text = f"{value.mean:{'+' if value.signed else ''}.1f}"
        if float(text) == 0:
            # Neither +0.0 nor -0.0.
            text = "0.0"
        text = text.replace("-", self.minus)
        if value.std is not None:
            text += f" {self.plus_minus} {value.std:.1f}"
        if value.best:
            text = self.bold(text)
        if value.verdict is not None:
            text += self.mark(value.verdict)
        if value.seeds is not None:
            text += f", {value.seeds} seed{'' if value.seeds == 1 else 's'}"
        return text


_PLAIN = Style(escape=str, bold=str)
_GAP = "  "
_READABLE = 88

# Text of one width: two lines of headings, then one for each row.
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
    labels = _label_strips(table)
    part: list[Strip] = []
    for strip in _group_strips(table):
        used = sum(len(one[0]) + len(_GAP) for one in (*labels, *part))
        if part and used + len(strip[0]) > width:
            yield _joined(table, [*labels, *part])
            part = []
        part.append(strip)
    yield _joined(table, [*labels, *part])


def _label_strips(table: Table) -> list[Strip]:
    strips = []
    for place, heading in enumerate(table.labels):
        cells = [_PLAIN.write(row.labels[place]) for row in table.rows]
        if place == 0:
            # Said once for each section.
            before = ["", *cells]
            cells = ["" if a == b else b for a, b in zip(before, cells, strict=False)]
        strips.append(_padded(["", heading, *cells]))
    return strips


def _group_strips(table: Table) -> Iterator[Strip]:
    place = 0
    for group in table.groups:
        columns = []
        for heading in group.columns:
            contents = [row.contents[place] for row in table.rows]
            right = any(isinstance(one, Value) and one.std is None for one in contents)
            cells = [heading or group.title, *map(_PLAIN.write, contents)]
            columns.append(_padded(cells, right))
            place += 1
        lines = [_GAP.join(cells) for cells in zip(*columns, strict=True)]
        yield _padded([group.title if any(group.columns) else "", *lines])


def _padded(cells: Sequence[str], right: bool = False) -> Strip:
    width = max(map(len, cells))
    return [cell.rjust(width) if right else cell.ljust(width) for cell in cells]


def _joined(table: Table, strips: list[Strip]) -> list[str]:
    lines = [_GAP.join(cells).rstrip() for cells in zip(*strips, strict=True)]
    rule = "─" * max(map(len, lines))
    found = [line for line in lines[:2] if line]
    rest = iter(lines[2:])
    for section in table.sections():
        found += [rule, *(next(rest) for _ in section)]
    return found


# An underscore within a word, or before one, ends no markup.
_SPECIAL = re.compile(r"[\\`*\[\]<>|~$]|_(?![A-Za-z0-9])")


def escape_markdown(text: str) -> str:
    r"""Take the meaning away from what would be markup.

    >>> escape_markdown("a|b * inner_steps")
    'a\\|b \\* inner_steps'
    """
    return _SPECIAL.sub(r"\\\g<0>", text.replace("&", "&amp;"))


_MARKDOWN = Style(escape_markdown, bold=lambda text: f"**{text}**")


def as_markdown(sheet: Sheet) -> str:
    """Write GitHub's tables and notes; a title comes from the text around them."""
    parts = []
    for table in sheet.tables:
        if table.title:
            parts.append(_MARKDOWN.bold(escape_markdown(table.title)))
        headings = [*table.labels]
        for group in table.groups:
            # There is one line for headings only: the first of a group names it.
            first, *others = group.columns
            headings += [": ".join(filter(None, (group.title, first))), *others]
        cells = [[escape_markdown(heading) for heading in headings]]
        cells += [[*map(_MARKDOWN.write, r.labels + r.contents)] for r in table.rows]
        first, *rest = (f"| {' | '.join(line)} |" for line in cells)
        parts.append("\n".join([first, "|" + "---|" * len(headings), *rest]))
    parts.append("\n".join(escape_markdown(note) for note in sheet.notes))
    return "\n\n".join(parts)


_LATEX_SIGNS = str.maketrans(
    {sign: f"\\{sign}" for sign in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        "±": r"$\pm$",
        # Right behind the end of a line these two would belong to it.
        "[": "{[}",
        "*": "{*}",
    }
)


def escape_latex(text: str) -> str:
    r"""Take the meaning away from what would be a command.

    >>> escape_latex("train_val & 5 %")
    'train\\_val \\& 5 \\%'
    """
    return text.translate(_LATEX_SIGNS)


_LATEX_MARKS: dict[Verdict, str] = {
    "better": r"$^{\uparrow}$",
    "worse": r"$^{\downarrow}$",
    "same": "$^{=}$",
    "untested": "$^{?}$",
}
_LATEX = Style(
    escape=escape_latex,
    bold=lambda text: rf"\textbf{{{text}}}",
    plus_minus=r"$\pm$",
    minus="$-$",
    mark=_LATEX_MARKS.__getitem__,
)


def as_latex(sheet: Sheet) -> str:
    r"""Write one tabular with booktabs for each table; notes become comments.

    The best mean of each section and column is bold. ``\usepackage{booktabs}`` and
    ``\usepackage[T1]{fontenc}`` are needed.
    """
    lines = [
        r"% \usepackage{booktabs}",
        r"% \usepackage[T1]{fontenc}",
        _comment(sheet.title),
    ]
    for table in sheet.tables:
        if table.title:
            lines.append(_comment(table.title))
        lines += _tabular(table)
    return "\n".join([*lines, *(_comment(note) for note in sheet.notes)])


def _comment(text: str) -> str:
    return f"% {' '.join(text.split())}"


def _tabular(table: Table) -> Iterator[str]:
    columns = sum(len(group.columns) for group in table.groups)
    yield rf"\begin{{tabular}}{{{'l' * len(table.labels)}{'r' * columns}}}"
    yield r"\toprule"
    yield from _latex_headings(table)
    for section in table.sections():
        yield r"\midrule"
        said = ""
        for row in section:
            first, *others = row.labels
            cells = ["" if first == said else first, *others, *row.contents]
            yield _latex_line(map(_LATEX.write, cells))
            said = first
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _latex_headings(table: Table) -> Iterator[str]:
    titles = [""] * len(table.labels)
    rules = []
    below = [escape_latex(label) for label in table.labels]
    for group in table.groups:
        begin, width = len(below) + 1, len(group.columns)
        title = escape_latex(group.title)
        if any(group.columns):
            titles.append(rf"\multicolumn{{{width}}}{{c}}{{{title}}}")
            rules.append(rf"\cmidrule(lr){{{begin}-{begin + width - 1}}}")
            below += [escape_latex(column) for column in group.columns]
        else:
            titles.append("")
            below.append(title)
    if rules:
        yield _latex_line(titles)
        yield "".join(rules)
    yield _latex_line(below)


def _latex_line(cells: Iterable[str]) -> str:
    return rf"{' & '.join(cells)} \\"


_DIGITS = 6
_EXECUTED = ("=", "+", "-", "@", "\t", "\r")


def as_csv(sheet: Sheet) -> str:
    """Write a line of names, then one for each record; what is unknown is empty."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(sheet.records[0]), lineterminator="\n")
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
