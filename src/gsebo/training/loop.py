"""The one loop over steps: advance, evaluate, keep the best, stop in time."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.training.checkpoint import Checkpoint
from gsebo.training.evaluate import Evaluation, evaluate
from gsebo.training.history import StepRecord, Watcher
from gsebo.training.problem import NodeClassification
from gsebo.training.progress import Advance, Progress
from gsebo.training.stack import Stack, stackable
from gsebo.training.stopping import Patience

StepFunction = Callable[[NodeClassification | Stack, Progress], Advance]
"""One step of training, for one run or for a stack of them."""


@dataclass(frozen=True)
class LoopSettings:
    """How a loop runs, whatever it trains.

    Attributes:
        max_steps: Number of steps at most.
        patience: When to stop earlier and which step to keep.
        stop_nodes: Labelled nodes that decide it.
        fingerprint: Of the whole fit, to match checkpoints.
        checkpoint: Where to save progress, if anywhere.
        watcher: Told about every step, if anybody.
    """

    max_steps: int
    patience: Patience
    stop_nodes: Tensor
    fingerprint: str
    checkpoint: Checkpoint | None = None
    watcher: Watcher | None = None


def run_loop(
    problems: Sequence[NodeClassification],
    step: StepFunction,
    starts: Sequence[Progress],
    settings: Sequence[LoopSettings],
    *,
    together: bool,
) -> list[Progress]:
    """Train until ``max_steps``, out of patience, or diverged; keep the best state.

    Problems that differ only in their seed are trained at once, as one stack; each
    stops on its own, with the result that it would have had alone.

    Args:
        problems: One for each run.
        step: What happens between two evaluations.
        starts: The state before the first step.
        settings: Of each run.
        together: Whether ``step`` can take a stack.
    """
    runs = [_Run(*each) for each in zip(problems, starts, settings, strict=True)]
    if together and stackable(problems):
        _train_together(runs, step)
    else:
        for run in runs:
            _train_alone(run, step)
    for run in runs:
        run.save()
    return [run.progress for run in runs]


def _train_alone(run: "_Run", step: StepFunction) -> None:
    while run.goes_on:
        progress = run.progress
        taken = step(run.problem, progress)
        logits = run.problem.scores(taken.iterate.weights, progress.outer)
        run.absorb(taken, logits)


def _train_together(runs: list["_Run"], step: StepFunction) -> None:
    bound = [run for run in runs if run.goes_on]
    stack = Stack([run.problem for run in bound])
    while any(run.goes_on for run in bound):
        if 2 * sum(run.goes_on for run in bound) <= len(bound):
            # Whoever has stopped is carried along until half of all have.
            bound = [run for run in bound if run.goes_on]
            stack = Stack([run.problem for run in bound])
        together = stack.join([run.progress for run in bound])
        taken = step(stack, together)
        logits = stack.scores(taken.iterate.weights, together.outer)
        for run, own, scores in zip(bound, stack.split(taken), logits, strict=True):
            if run.goes_on:
                run.absorb(own, scores)


class _Run:
    """One run of the loop: where it stands and whether it goes on."""

    def __init__(
        self, problem: NodeClassification, start: Progress, settings: LoopSettings
    ) -> None:
        self.problem = problem
        self._settings = settings
        self.progress = self._resumed() or start
        self._diverged = False
        self._begun = time.perf_counter()
        history = self.progress.history
        self._earlier = history[-1].seconds if history else 0.0

    @property
    def goes_on(self) -> bool:
        done = len(self.progress.history)
        over = self._settings.patience.is_over(done, self.progress.best)
        return not (over or self._diverged or done >= self._settings.max_steps)

    def absorb(self, taken: Advance, logits: Tensor) -> None:
        """Take over what a step has changed, unless it has gone wrong."""
        progress, settings = self.progress, self._settings
        seconds = self._earlier + time.perf_counter() - self._begun
        found = evaluate(
            self.problem, settings.stop_nodes, taken, logits, progress.outer
        )
        record = _record(found, len(progress.history) + 1, taken, seconds)
        if found.broken:
            _warn_diverged(record.step, found.broken, progress.best)
            self._diverged = True
            return
        progress.history.append(record)
        if settings.patience.is_better(record, progress.best):
            progress.best = record
            progress.best_weights = taken.iterate.weights
            progress.best_outer = progress.outer
        progress.iterate, progress.outer = taken.iterate, taken.outer
        progress.outer_state = taken.outer_state
        if settings.watcher is not None:
            settings.watcher(record, logits)
        if settings.checkpoint is not None:
            settings.checkpoint.save(progress, settings.fingerprint, force=False)

    def save(self) -> None:
        """Save the last state, where states are saved."""
        settings = self._settings
        if settings.checkpoint is not None:
            settings.checkpoint.save(self.progress, settings.fingerprint, force=True)

    def _resumed(self) -> Progress | None:
        settings = self._settings
        if settings.checkpoint is None:
            return None
        settings.checkpoint.prepare()
        device = str(self.problem.labels.device)
        return settings.checkpoint.load(settings.fingerprint, device)


def _record(found: Evaluation, step: int, taken: Advance, seconds: float) -> StepRecord:
    return StepRecord(
        step=step,
        inner_steps=taken.iterate.step,
        train_loss=found.train_loss,
        val_loss=found.val_loss,
        train_accuracy=found.train_accuracy,
        val_accuracy=found.val_accuracy,
        changed_edges=found.changed_edges,
        changed_strength=found.changed_strength,
        seconds=seconds,
    )


def _warn_diverged(step: int, broken: list[str], best: StepRecord | None) -> None:
    what = f"training diverged at step {step}: {', '.join(broken)} is not finite"
    if best is None:
        raise InvalidInput(
            f"{what}, before any usable step; expected smaller learning rates or "
            "smaller features"
        )
    warnings.warn(
        f"{what}; the state of step {best.step} is returned. Smaller learning rates "
        "may help.",
        RuntimeWarning,
        stacklevel=2,
    )
