"""How a run goes on, as a table that is drawn anew all the time: for terminals."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self, final

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table

from gsebo.cli.ui.output import messages, percent
from gsebo.errors import escaped
from gsebo.experiments import Lane, Result, RunWatcher, Stage, TrialBatch
from gsebo.experiments.engine import is_dense


@final
class RunLines(RunWatcher):
    """One line for each trial that has ended.

    Args:
        quiet: Print nothing.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._number = 0
        self._ended = 0

    def stage_begins(
        self, stage: Stage, number: int, lanes: Sequence[Lane], left: float | None
    ) -> None:
        """Say what is run, where, and for how long."""
        self._number, self._ended = number, 0
        say_stage(stage, number, lanes, left)

    def batch_begins(self, lane: Lane, batch: TrialBatch) -> None:
        """Say nothing."""

    def batch_ends(
        self, lane: Lane, results: Sequence[Result], left: float | None
    ) -> None:
        """Say how each trial ended."""
        for result in results:
            self._ended += 1
            if not self._quiet:
                text = f"{self._ended}/{self._number} {result_in_words(result)}"
                print(escaped(text), file=sys.stderr, flush=True)


def say_stage(
    stage: Stage, number: int, lanes: Sequence[Lane], left: float | None
) -> None:
    """Say what is run, where, and for how long."""
    time = "" if left is None else f", about {duration_in_words(left)}"
    what = f"{stage.recipe.name}: {count(number, 'trial')} to run"
    messages.note(f"{what} {placement(stage, lanes)}{time}.")
    messages.release()


def placement(stage: Stage, lanes: Sequence[Lane]) -> str:
    """Say where the trials of a stage run."""
    cpus = sum(lane.device == "cpu" for lane in lanes)
    gpus = len(lanes) - cpus
    if not gpus:
        return f"on {count(cpus, 'CPU worker')}"
    if not cpus:
        return f"on {count(gpus, 'GPU worker')}"
    dense = dict.fromkeys(t.method for t in stage.missing if is_dense(t))
    workers = f"{count(cpus, 'CPU worker')} and {count(gpus, 'GPU worker')}"
    return f"on {workers}" + (f", {', '.join(dense)} on the GPU" if dense else "")


def count(number: int, what: str) -> str:
    """Write a number of things.

    >>> count(1, "trial"), count(2, "trial")
    ('1 trial', '2 trials')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def result_in_words(result: Result) -> str:
    """Say how a trial ended, on one line."""
    if not result.ok:
        return f"{result.trial}: failed: {result.error}"
    words = f"{result.trial}: test {percent(result.test_accuracy)}"
    return words if result.seconds is None else f"{words} ({result.seconds:.1f} s)"


def duration_in_words(seconds: float) -> str:
    """Say how long something takes, to two figures or so.

    >>> duration_in_words(42.4), duration_in_words(600), duration_in_words(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


_Row = tuple[str, str]


@final
class LiveTable(RunWatcher):
    """One row for each method and backbone: how much is done, and what runs now.

    Args:
        console: Where to draw.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        # The table is drawn in a thread of its own.
        self._lock = threading.Lock()
        self._title = ""
        self._row_of: dict[str, _Row] = {}
        self._all: Counter[_Row] = Counter()
        self._done: Counter[_Row] = Counter()
        self._failed: Counter[_Row] = Counter()
        self._running: dict[Lane, tuple[TrialBatch, float]] = {}
        self._ends_at: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    def stage_begins(
        self, stage: Stage, number: int, lanes: Sequence[Lane], left: float | None
    ) -> None:
        """Leave the table of the stage before, and begin a new one below."""
        self._stop()
        say_stage(stage, number, lanes, left)
        self._title = escaped(stage.recipe.title)
        self._row_of = {
            planned.trial.key: (planned.cell.method, planned.cell.row)
            for planned in stage.planned
        }
        known = [stage.results[key] for key in self._row_of if key in stage.results]
        self._all = Counter(self._row_of.values())
        self._done = Counter(self._row_of[one.key] for one in known if one.ok)
        self._failed = Counter(self._row_of[one.key] for one in known if not one.ok)
        self._running = {}
        self._expect(left)
        self._live = Live(
            get_renderable=self.table, console=self._console, refresh_per_second=4
        )
        self._live.start()

    def batch_begins(self, lane: Lane, batch: TrialBatch) -> None:
        """Show what runs."""
        with self._lock:
            self._running[lane] = (batch, time.monotonic())

    def batch_ends(
        self, lane: Lane, results: Sequence[Result], left: float | None
    ) -> None:
        """Count what ended."""
        with self._lock:
            del self._running[lane]
            for result in results:
                count = self._done if result.ok else self._failed
                count[self._row_of[result.key]] += 1
            self._expect(left)

    def table(self) -> Table:
        """The table as it is now."""
        with self._lock:
            table = Table(
                box=box.SIMPLE_HEAD,
                title=self._title,
                caption=self._caption(),
                title_justify="left",
                caption_justify="left",
            )
            table.add_column("method")
            table.add_column("backbone")
            table.add_column("done", justify="right")
            table.add_column("failed", justify="right")
            table.add_column("running now", no_wrap=True)
            for row, number in self._all.items():
                done = f"{self._done[row]} / {number}"
                failed = str(self._failed[row] or "")
                table.add_row(*map(escaped, row), done, failed, self._now(row))
            return table

    def _now(self, row: _Row) -> str:
        now = time.monotonic()
        words = []
        for batch, begun in self._running.values():
            first, last = batch.trials[0], batch.trials[-1]
            if self._row_of[first.key] != row:
                continue
            seeds = f"seed {first.seed}"
            if first is not last:
                seeds = f"seeds {first.seed} to {last.seed}"
            words.append(f"{first.dataset}, {seeds} ({now - begun:.0f} s)")
        return "; ".join(words)

    def _caption(self) -> str:
        done, number = self._done.total(), self._all.total()
        words = f"{done} of {number} trials are done"
        if self._ends_at is None:
            return words
        left = max(0.0, self._ends_at - time.monotonic())
        return f"{words}, about {duration_in_words(left)} left"

    def _expect(self, left: float | None) -> None:
        self._ends_at = None if left is None else time.monotonic() + left

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
