"""Sheets as tabulars of LaTeX with booktabs."""

from collections.abc import Iterator

from gsebo.report.formats.style import Style, written
from gsebo.report.tables.table import Sheet, Table

_ESCAPES = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
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


def as_latex(sheet: Sheet) -> str:
    r"""Write one tabular for each table; notes become comments.

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


def escape_latex(text: str) -> str:
    r"""Take the meaning away from what would be a command.

    >>> escape_latex("train_val & 5 %")
    'train\\_val \\& 5 \\%'
    """
    return text.translate(_ESCAPES)


_STYLE = Style(
    escape=escape_latex,
    bold=lambda text: rf"\textbf{{{text}}}",
    plus_minus=r"$\pm$",
    star=r"$^{*}$",
    minus="$-$",
)


def _comment(text: str) -> str:
    return f"% {' '.join(text.split())}"


def _tabular(table: Table) -> Iterator[str]:
    columns = sum(len(group.columns) for group in table.groups)
    yield rf"\begin{{tabular}}{{{'l' * len(table.labels)}{'r' * columns}}}"
    yield r"\toprule"
    yield from _headings(table)
    for section in table.sections():
        yield r"\midrule"
        said = ""
        for row in section:
            first, *others = row.labels
            cells = ["" if first == said else first, *others, *row.contents]
            yield _line([written(cell, _STYLE) for cell in cells])
            said = first
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _headings(table: Table) -> Iterator[str]:
    titles = [""] * len(table.labels)
    rules = []
    below = [escape_latex(label) for label in table.labels]
    for group in table.groups:
        begin, width = len(below) + 1, len(group.columns)
        if any(group.columns):
            titles.append(
                rf"\multicolumn{{{width}}}{{c}}{{{escape_latex(group.title)}}}"
            )
            rules.append(rf"\cmidrule(lr){{{begin}-{begin + width - 1}}}")
            below += [escape_latex(column) for column in group.columns]
        else:
            titles.append("")
            below.append(escape_latex(group.title))
    if rules:
        yield _line(titles)
        yield "".join(rules)
    yield _line(below)


def _line(cells: list[str]) -> str:
    return rf"{' & '.join(cells)} \\"
