"""How far something is: a bar where a bar can be drawn, else lines now and then."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, final

from gsebo.errors import escaped

if TYPE_CHECKING:
    from rich.progress import Progress

_PATIENCE_SECONDS = 2.0
# Often enough to see that it goes on, seldom enough for the log of a night.
_SECONDS_BETWEEN_LINES = 5.0


class Display(Protocol):
    """Whatever shows how far something is."""

    def report(self, what: str, done: int, total: int | None, state: str = "") -> None:
        """Show what is being done, how much of it is, and how that stands."""


@final
class ProgressBar:
    """How far something is, as a bar."""

    def __init__(self, bar: "Progress") -> None:
        self._bar = bar
        self._task = bar.add_task("", total=None, state="")
        self._what = ""

    def report(self, what: str, done: int, total: int | None, state: str = "") -> None:
        """Show what is being done, how much of it is, and how that stands."""
        if what != self._what:
            self._what = what
            self._bar.reset(self._task, description=escaped(what), total=total)
        self._bar.update(self._task, completed=done, total=total, state=state)


@contextmanager
def progress_bar(*, quiet: bool, percentage: bool = False) -> Iterator[ProgressBar]:
    """A bar on standard error, if that is a terminal, that appears if it takes long."""
    bar = _new_bar(percentage=percentage, transient=True)
    lock, over = threading.Lock(), threading.Event()

    def appear() -> None:
        with lock:
            if not over.is_set():
                bar.start()

    # A timer, not a look at the clock after each step: the first may take minutes.
    timer = threading.Timer(_PATIENCE_SECONDS, appear)
    timer.daemon = True
    if sys.stderr.isatty() and not quiet:
        timer.start()
    try:
        yield ProgressBar(bar)
    finally:
        timer.cancel()
        with lock:
            over.set()
            # Stopping a bar that never appeared would print an empty line.
            if bar.live.is_started:
                bar.stop()


def _new_bar(*, percentage: bool, transient: bool) -> "Progress":
    # Most commands need none of it.
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.TaskProgressColumn() if percentage else progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[state]}", markup=False),
        progress.TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=transient,
    )


@final
class ProgressLines:
    """How far something is, in lines on standard error, for logs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = self._said = time.monotonic()
        self._unsaid: str | None = None

    def report(self, what: str, done: int, total: int | None, state: str = "") -> None:
        """Remember how it stands; say it if nothing was said for a while."""
        now = time.monotonic()
        of = "" if total is None else f" of {total}"
        parts = f"{what}: {done}{of}", state, f"{now - self._begun:.1f} s"
        with self._lock:
            self._unsaid = escaped("  ".join(filter(None, parts)))
            if now - self._said >= _SECONDS_BETWEEN_LINES:
                self._said = now
                self._say()

    def finish(self) -> None:
        """Say how it stands at the end."""
        with self._lock:
            self._say()

    def _say(self) -> None:
        if self._unsaid is not None:
            print(self._unsaid, file=sys.stderr, flush=True)
        self._unsaid = None


@contextmanager
def display() -> Iterator[Display]:
    """A bar in a terminal or a notebook, lines elsewhere; what is there stays there."""
    if not _draws_bars():
        lines = ProgressLines()
        try:
            yield lines
        finally:
            lines.finish()
        return
    with _new_bar(percentage=False, transient=False) as bar:
        yield ProgressBar(bar)


def _draws_bars() -> bool:
    from rich.console import Console

    if Console(file=sys.stderr).is_jupyter:
        # Without it, rich would warn and draw nothing.
        return find_spec("ipywidgets") is not None
    return sys.stderr is not None and sys.stderr.isatty()
