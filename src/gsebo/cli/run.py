"""``gsebo run``: run what a recipe asks for and is not stored yet."""

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Annotated, final

import typer
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Column, Table
from typer import Option

from gsebo import experiments
from gsebo.cli.options import (
    DataDir,
    Json,
    MetricOption,
    Quiet,
    Recipe,
    RecipeSeeds,
    ResultsFolder,
)
from gsebo.cli.output import messages, percent, print_json
from gsebo.errors import InvalidInput, escaped
from gsebo.experiments import (
    Result,
    Runner,
    RunOutcome,
    RunWatcher,
    Slot,
    Stage,
    Store,
    TrialBatch,
    load_recipe,
    select,
)
from gsebo.experiments.runner import is_dense
from gsebo.metrics import METRICS
from gsebo.names import own_name

# Measured: on a GPU ten fits at once take 1.6 times as long as one; on a core nine
# times, which is no gain over one after the other.
_REPLICAS_ON_GPU = 10
_GPU_WORKERS = 2
_ENGINES = {"processes": "ProcessEngine", "ray": "RayEngine"}


def run_recipe(
    recipe: Recipe,
    seeds: RecipeSeeds = None,
    workers: Annotated[
        int | None,
        Option(min=0, help="Trials at once on CPUs. By default one for each core."),
    ] = None,
    gpu_workers: Annotated[
        int | None,
        Option(
            min=0,
            help="Trials, or groups of seeds, at once on GPUs: methods of dense "
            "matrices first, and those run nowhere else then. By default 2 where "
            "there is CUDA.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        Option(
            metavar="KEY=VALUE,...",
            help="Run only these: method, backbone, dataset, noise or seed, such as "
            "method=gsebo,vanilla. Repeatable.",
        ),
    ] = None,
    limit: Annotated[
        int | None, Option(min=1, help="Run so many trials at most.")
    ] = None,
    engine: Annotated[
        str,
        Option(
            help="processes, or ray: the cluster of RAY_ADDRESS, or one on this "
            "machine."
        ),
    ] = "processes",
    replicas: Annotated[
        int | None,
        Option(
            min=1,
            help="Seeds of one cell that are fitted at once. By default 10 on GPUs, "
            "1 on CPUs.",
        ),
    ] = None,
    results: ResultsFolder = Path("results"),
    data_dir: DataDir = None,
    retry_failed: Annotated[
        bool, Option("--retry-failed", help="Run trials that failed earlier again.")
    ] = False,
    metric: MetricOption = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the trials of a recipe that are not stored yet, and then those of its parts.

    Each result is stored at once: a run that is interrupted goes on where it was.
    """
    messages.quiet = quiet or json
    engine = own_name("engine", engine, _ENGINES)
    asked = load_recipe(recipe, metric=metric)
    # What is picked out by --only is picked out of the recipe itself.
    names = () if only else asked.parts
    parts = tuple(load_recipe(name, metric=metric) for name in names)
    if engine == "processes":
        _load_libraries_for_workers()
    store = Store(results)
    slots = _slots(workers, gpu_workers, replicas, engine)
    outcomes: list[RunOutcome] = []
    for each in (asked, *parts):
        done = sum(len(outcome.results) for outcome in outcomes)
        if limit is not None and done >= limit:
            break
        with _watcher(quiet or json) as watcher:
            runner = Runner(
                each,
                store,
                getattr(experiments, _ENGINES[engine])(store, slots, data_dir),
                watcher,
                seeds=seeds,
                selection=select(each, only or (), seeds),
                limit=None if limit is None else limit - done,
                retry_failed=retry_failed,
            )
            try:
                outcomes.append(runner.run())
            except KeyboardInterrupt:
                messages.release()
                stored = f"{_count(len(runner.ran), 'trial')} of this run stored"
                messages.note(f"Interrupted with {stored}; the same command goes on.")
                raise
        if not json:
            messages.note(_sentence(outcomes[-1], retry_failed))
    if json:
        first, *others = map(_summary, outcomes)
        print_json({**first, "parts": others} if parts else first)
    _say_what_failed(outcomes)


def _say_what_failed(outcomes: Sequence[RunOutcome]) -> None:
    """Leave with an error if anything did."""
    for outcome in outcomes:
        if outcome.failed:
            messages.release()
            what = f"{len(outcome.failed)} of {len(outcome.results)} trials failed"
            messages.error(f"{what}; the first: {_result_in_words(outcome.failed[0])}")
        for sentence in outcome.after.hopeless:
            messages.error(sentence)
    if any(outcome.failed or outcome.after.hopeless for outcome in outcomes):
        raise typer.Exit(1)


def _load_libraries_for_workers() -> None:
    """Let the process that workers are forked from load them while this one does."""
    if sys.platform == "linux":
        from multiprocessing import forkserver, set_forkserver_preload

        set_forkserver_preload(["gsebo.experiments.engines"])
        forkserver.ensure_running()


def _slots(
    workers: int | None, gpu_workers: int | None, replicas: int | None, engine: str
) -> list[Slot]:
    # Whether a cluster has GPUs is seen when it is there.
    elsewhere = engine == "ray" and "RAY_ADDRESS" in os.environ
    if elsewhere and workers is None:
        raise InvalidInput(
            f"RAY_ADDRESS={os.environ['RAY_ADDRESS']} given; expected --workers too, "
            "the number of trials at once on that cluster."
        )
    if elsewhere:
        gpu_workers = gpu_workers or 0
    else:
        import torch

        if gpu_workers is None:
            gpu_workers = _GPU_WORKERS if torch.cuda.is_available() else 0
        elif gpu_workers and not torch.cuda.is_available():
            raise InvalidInput(
                f"--gpu-workers {gpu_workers} given; expected 0 on a machine without "
                "CUDA."
            )
    if workers is None and hasattr(os, "sched_getaffinity"):
        # The cores that this process may use.
        workers = len(os.sched_getaffinity(0))
    elif workers is None:
        workers = os.cpu_count() or 1
    if not workers + gpu_workers:
        raise InvalidInput("--workers 0 given; expected 1 or more without a GPU.")
    on_gpu = replicas or _REPLICAS_ON_GPU
    return [
        *(Slot(f"gpu {number}", "cuda", on_gpu) for number in range(gpu_workers)),
        *(Slot(f"cpu {number}", "cpu", replicas or 1) for number in range(workers)),
    ]


def _summary(outcome: RunOutcome) -> dict[str, object]:
    return {
        "recipe": outcome.recipe,
        "stored": outcome.before.stored,
        "skipped": len(outcome.before.failed),
        "run": len(outcome.results),
        "failed": len(outcome.failed),
        "remaining": outcome.after.missing,
        "seconds": outcome.seconds,
    }


def _sentence(outcome: RunOutcome, retried: bool) -> str:
    number, stored = len(outcome.results), _count(outcome.after.stored, "trial")
    if number:
        time = _duration_in_words(outcome.seconds)
        text = f"{outcome.recipe}: {_count(number, 'trial')} run in {time}; {stored} "
        text += f"of the recipe stored, {outcome.after.missing} missing."
    else:
        text = f"{outcome.recipe}: nothing to run; {stored} stored, none missing."
    earlier = len(outcome.before.failed)
    if earlier and not retried:
        text += f" {earlier} failed earlier: --retry-failed runs them again."
    return text


def _count(number: int, what: str) -> str:
    """Write a number of things.

    >>> _count(1, "trial"), _count(2, "trial")
    ('1 trial', '2 trials')
    """
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _result_in_words(result: Result, metric: str = "accuracy") -> str:
    if not result.ok:
        return f"{result.trial}: failed: {result.error}"
    words = f"{result.trial}: test {percent(result.test_accuracy)}"
    if metric != "accuracy":
        shown, score = METRICS[metric], result.score(metric)
        known = "not known" if score is None else shown.written(score)
        words = f"{result.trial}: test {shown.title} {known}"
    return words if result.seconds is None else f"{words} ({result.seconds:.1f} s)"


def _duration_in_words(seconds: float) -> str:
    """Say how long something takes, to two figures or so.

    >>> _duration_in_words(42.4), _duration_in_words(600), _duration_in_words(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


# --- how a run goes on ---------------------------------------------------------------


def _watcher(quiet: bool) -> AbstractContextManager[RunWatcher]:
    if sys.stderr.isatty() and not quiet:
        console = Console(file=sys.stderr, markup=False, highlight=False)
        return closing(LiveTable(console))
    return nullcontext(_RunLines(quiet))


def _say_stage(
    stage: Stage, number: int, slots: Sequence[Slot], left: float | None
) -> None:
    gpus = sum(slot.device == "cuda" for slot in slots)
    counts = {"CPU worker": len(slots) - gpus, "GPU worker": gpus}
    where = " and ".join(_count(n, what) for what, n in counts.items() if n)
    dense = dict.fromkeys(t.method for t in stage.missing if is_dense(t))
    if dense and all(counts.values()):
        where += f", {', '.join(dense)} on the GPU"
    time = "" if left is None else f", about {_duration_in_words(left)}"
    what = f"{stage.recipe.name}: {_count(number, 'trial')} to run"
    messages.note(f"{what} on {where}{time}.")
    messages.release()


@final
class _RunLines(RunWatcher):
    """One line for each trial that has ended, unless it is to be quiet."""

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet

    def stage_begins(
        self, stage: Stage, number: int, slots: Sequence[Slot], left: float | None
    ) -> None:
        self._number, self._ended = number, 0
        self._metric_of = stage.recipe.metric_of
        _say_stage(stage, number, slots, left)

    def batch_begins(self, slot: Slot, batch: TrialBatch) -> None:
        pass

    def batch_ends(
        self, slot: Slot, results: Sequence[Result], left: float | None
    ) -> None:
        for result in results:
            self._ended += 1
            if not self._quiet:
                metric = self._metric_of(result.trial.dataset)
                words = _result_in_words(result, metric)
                text = f"{self._ended}/{self._number} {words}"
                print(escaped(text), file=sys.stderr, flush=True)


_Row = tuple[str, str]


@final
class LiveTable(RunWatcher):
    """A row for each method and backbone, drawn anew all the time: for terminals."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        # The table is drawn in a thread of its own.
        self._lock = threading.Lock()

    def stage_begins(
        self, stage: Stage, number: int, slots: Sequence[Slot], left: float | None
    ) -> None:
        # The table of the stage before stays above.
        self.close()
        _say_stage(stage, number, slots, left)
        self._title = escaped(stage.recipe.title)
        self._row_of: dict[str, _Row] = {
            planned.trial.key: (planned.cell.method, planned.cell.row)
            for planned in stage.planned
        }
        known = [stage.results[key] for key in self._row_of if key in stage.results]
        self._all = Counter(self._row_of.values())
        self._done = Counter(self._row_of[one.key] for one in known if one.ok)
        self._failed = Counter(self._row_of[one.key] for one in known if not one.ok)
        self._running: dict[Slot, tuple[TrialBatch, float]] = {}
        self._expect(left)
        self._live = Live(
            get_renderable=self.table, console=self._console, refresh_per_second=4
        )
        self._live.start()

    def batch_begins(self, slot: Slot, batch: TrialBatch) -> None:
        with self._lock:
            self._running[slot] = (batch, time.monotonic())

    def batch_ends(
        self, slot: Slot, results: Sequence[Result], left: float | None
    ) -> None:
        with self._lock:
            del self._running[slot]
            for result in results:
                count = self._done if result.ok else self._failed
                count[self._row_of[result.key]] += 1
            self._expect(left)

    def table(self) -> Table:
        """The table as it is now."""
        with self._lock:
            table = Table(
                *("method", "backbone"),
                *(Column("done", justify="right"), Column("failed", justify="right")),
                Column("running now", no_wrap=True),
                box=box.SIMPLE_HEAD,
                title=self._title,
                caption=self._caption(),
                title_justify="left",
                caption_justify="left",
            )
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
        return f"{words}, about {_duration_in_words(left)} left"

    def _expect(self, left: float | None) -> None:
        self._ends_at = None if left is None else time.monotonic() + left

    def close(self) -> None:
        """Leave the table as it is."""
        if self._live is not None:
            self._live.stop()
            self._live = None
