"""How far a conversion is, on a terminal only."""

import sys
import threading
from types import TracebackType
from typing import Self, final

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from gsebo.errors import escaped

_PATIENCE_SECONDS = 1.0


@final
class TableProgress:
    """A bar on standard error that appears once it takes long.

    Args:
        quiet: Show nothing, whatever the terminal.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._enabled = sys.stderr.isatty() and not quiet
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = self._bar.add_task("", total=None)
        self._what = ""
        self._lock = threading.Lock()
        self._over = False
        self._timer = threading.Timer(_PATIENCE_SECONDS, self._appear)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if self._enabled:
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            # Stopping a bar that never appeared would print an empty line.
            if self._bar.live.is_started:
                self._bar.stop()

    def tell(self, what: str, done: int, end: int) -> None:
        """Show what is being done and how far it is."""
        if what != self._what:
            self._what = what
            self._bar.reset(self._task, description=escaped(what), total=end)
        self._bar.update(self._task, completed=done, total=end)

    def _appear(self) -> None:
        with self._lock:
            if not self._over:
                self._bar.start()
