"""What is printed where: results on standard output, all else on standard error."""

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

from rich import box
from rich.console import Console
from rich.table import Table

from gsebo.errors import InputWarning, escaped, escaped_json
from gsebo.training.progress_bar import ProgressBar as ProgressBar
from gsebo.training.progress_bar import progress_bar as progress_bar

# Wide enough that no table is cut when the output is a file or a pipe.
_PLAIN_WIDTH = 200
_LONGEST_LINE = 2000
_LONGEST_PART = 900


@final
class Messages:
    """Sentences on standard error.

    Notes and warnings are held back until real work begins or the command ends well:
    who is told that the input is bad should be told nothing else.
    """

    def __init__(self) -> None:
        self.quiet = False
        self.debug = False
        self._warned: set[str] = set()
        self._held: list[str] | None = None

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show each of the library's warnings once, as one line, until the end."""
        self.quiet = False
        self.debug = False
        self._warned.clear()
        self._held = []
        with warnings.catch_warnings():
            warnings.simplefilter("always", InputWarning)
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = self._show_warning
            try:
                yield
            finally:
                self.release()

    def note(self, text: str) -> None:
        """Say something that is good to know."""
        if self.quiet:
            return
        if self._held is not None:
            self._held.append(one_line(text))
            return
        print(one_line(text), file=sys.stderr)

    def release(self) -> None:
        """Say what was held back, and from now on everything at once."""
        held, self._held = self._held or [], None
        for text in held:
            print(text, file=sys.stderr)

    def error(self, text: str) -> None:
        """Say why nothing was done."""
        self._held = None
        print(f"Error: {one_line(text)}", file=sys.stderr)

    def read_on(self, page: str) -> None:
        """Say where it is written how it is meant."""
        print(f"Read on: {page}", file=sys.stderr)

    def _show_warning(self, message: Warning | str, *_: Any, **__: Any) -> None:
        text = one_line(str(message))
        if text not in self._warned:
            self._warned.add(text)
            self.note(f"Warning: {text}")


messages = Messages()


def one_line(text: str) -> str:
    r"""Join lines without control codes; end with a full stop unless there is some end.

    >>> one_line("no such\n  file")
    'no such file.'
    """
    joined = " ".join(text.split())
    if len(joined) > _LONGEST_LINE:
        # What was given comes first, and what was expected last.
        joined = f"{joined[:_LONGEST_PART]}…{joined[-_LONGEST_PART:]}"
    joined = escaped(joined, longest=len(joined))
    return joined if joined.endswith((".", "?", "!", "…")) else f"{joined}."


def print_json(content: dict[str, Any]) -> None:
    """Print one JSON object on standard output."""
    text = json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False)
    print(escaped_json(text))


def print_text(text: str) -> None:
    """Print lines on standard output, without what a terminal would obey."""
    print(*(_shown(line) for line in text.split("\n")), sep="\n")


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    """Print a table on standard output, without colours if that is no terminal.

    A heading that starts with ``>`` is for numbers, to the right; a cell that is
    ``None`` is shown as ``-``.
    """
    table = Table(box=box.SIMPLE_HEAD, show_header=any(columns))
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.removeprefix(">"), justify="right" if right else "left")
    for row in rows:
        table.add_row(*("-" if cell is None else _shown(str(cell)) for cell in row))
    terminal = sys.stdout.isatty()
    console = Console(
        file=sys.stdout,
        force_terminal=terminal,
        no_color=not terminal,
        width=None if terminal else _PLAIN_WIDTH,
        # Cells hold names of files, in which brackets are no markup.
        markup=False,
        highlight=False,
        emoji=False,
    )
    # As a title of the table it would be wrapped to the table's width.
    console.print(_shown(title), style="bold")
    with console.capture() as captured:
        console.print(table)
    # Rich fills every line to the width of the table.
    lines = (line.rstrip() for line in captured.get().splitlines())
    print(*filter(None, lines), "", sep="\n")


def _shown(text: str) -> str:
    """Text without what a terminal would obey, however long."""
    return text if text.isprintable() else escaped(text, longest=len(text))


def csv_field(value: object) -> str:
    """A field of a line of CSV, in quotes where it needs them.

    >>> csv_field(7), csv_field("a,b")
    ('7', '"a,b"')
    """
    text = str(value)
    if not any(mark in text for mark in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def percent(fraction: float | None) -> str | None:
    """Write a fraction as a percentage.

    >>> percent(0.8125)
    '81.2 %'
    """
    return None if fraction is None else f"{100 * fraction:.1f} %"
