"""A progress bar for what takes long, on a terminal only."""

import sys
import threading
from types import TracebackType
from typing import Any, Self, final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from torch import Tensor

from gsebo.cli.ui.output import messages
from gsebo.errors import escaped
from gsebo.training import StepRecord, Watcher

_PATIENCE_SECONDS = 2.0


@final
class FitProgress:
    """Outer steps, validation loss and accuracy of the fit that is running.

    Args:
        quiet: Show nothing, whatever the terminal.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._enabled = sys.stderr.isatty() and not quiet
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            TimeElapsedColumn(),
            console=Console(file=sys.stderr),
            transient=True,
        )
        self._task = self._bar.add_task("", total=None, state="")
        self._lock = threading.Lock()
        self._over = False
        # A timer, not a look at the clock after each step: the first may take minutes.
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

    def watch(self, label: str, parameters: dict[str, Any]) -> Watcher:
        """Begin with another fit and return what is to be told of its steps."""
        self._bar.reset(
            self._task,
            description=escaped(label),
            total=expected_steps(parameters),
            state="",
        )
        return self._update

    def _update(self, record: StepRecord, logits: Tensor) -> None:
        # With a first step taken, the input was good.
        messages.release()
        state = f"val loss {record.val_loss:.3f}  accuracy {record.val_accuracy:.1%}"
        self._bar.update(self._task, completed=record.step, state=state)

    def _appear(self) -> None:
        with self._lock:
            if not self._over:
                self._bar.start()


def expected_steps(parameters: dict[str, Any]) -> int | None:
    """Number of records that a fit writes if it does not stop early.

    Args:
        parameters: Of the estimator.

    Returns:
        ``None`` where the parameters do not tell.
    """
    if "max_outer_steps" in parameters:
        # Where networks take turns, a record is made when each of them has moved.
        turns = parameters["num_folds"] if parameters.get("label_use") == "folds" else 1
        rounds: int = -(-parameters["max_outer_steps"] // turns)
        return rounds
    if "max_epochs" in parameters:
        looks: int = -(-parameters["max_epochs"] // parameters.get("evaluate_every", 1))
        return looks
    return None
