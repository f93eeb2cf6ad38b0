"""How a run goes on, in lines: for logs, and whatever is no terminal."""

import sys
from collections.abc import Sequence
from typing import final

from gsebo.cli.output import messages, percent
from gsebo.errors import escaped
from gsebo.experiments import Batch, Lane, Result, RunWatcher, Stage
from gsebo.experiments.batches import is_dense


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

    def batch_begins(self, lane: Lane, batch: Batch) -> None:
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
