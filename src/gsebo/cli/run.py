"""``gsebo run``: run what a recipe asks for and is not stored yet."""

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from typer import Argument, Option

from gsebo import experiments
from gsebo.cli.ui.live_table import (
    LiveTable,
    RunLines,
    count,
    duration_in_words,
    result_in_words,
)
from gsebo.cli.ui.options import DataDir, Json, Quiet, ResultsFolder
from gsebo.cli.ui.output import messages, print_json
from gsebo.errors import InvalidInput
from gsebo.experiments import (
    Engine,
    Lane,
    Request,
    Runner,
    RunOutcome,
    RunWatcher,
    Store,
    load_recipe,
    select,
)
from gsebo.lookup import own_name

# Measured: on a GPU ten fits at once take 1.6 times as long as one; on a core nine
# times, which is no gain over one after the other.
_REPLICAS_ON_GPU = 10
_GPU_WORKERS = 2
_ENGINES = dict.fromkeys(("processes", "ray"))


def run_recipe(
    recipe: Annotated[
        str,
        Argument(metavar="RECIPE", help="A name, such as table1, or a .toml file."),
    ],
    seeds: Annotated[
        int | None, Option(min=1, help="Number of seeds instead of the recipe's own.")
    ] = None,
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
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run the trials of a recipe that are not stored yet, and then those of its parts.

    Each result is stored at once: a run that is interrupted goes on where it was.
    """
    messages.quiet = quiet or json
    engine = own_name("engine", engine, _ENGINES)
    asked = load_recipe(recipe)
    # What is picked out by --only is picked out of the recipe itself.
    parts = () if only else tuple(load_recipe(name) for name in asked.parts)
    if engine == "processes":
        _load_libraries_for_workers()
    store = Store(results)
    lanes = _lanes(workers, gpu_workers, replicas, engine)
    outcomes, left = [], limit
    for each in (asked, *parts):
        request = Request(
            recipe=each,
            seeds=seeds,
            selection=select(each, only or (), seeds),
            limit=left,
            retry_failed=retry_failed,
        )
        with _watcher(quiet or json) as watcher:
            runner = Runner(
                request, store, _engine(engine, store, lanes, data_dir), watcher
            )
            try:
                outcome = runner.run()
            except KeyboardInterrupt:
                _say_how_to_go_on(runner.trials_run)
                raise
        outcomes.append(outcome)
        if not json:
            messages.note(_sentence(outcome, retry_failed))
        if left is not None:
            left -= len(outcome.results)
            if left < 1:
                break
    if json:
        first, *others = map(_summary, outcomes)
        print_json({**first, "parts": others} if parts else first)
    _finish(outcomes)


def _finish(outcomes: Sequence[RunOutcome]) -> None:
    """Say what failed, and leave with an error then."""
    for outcome in outcomes:
        if outcome.failed:
            _say_what_failed(outcome)
        for sentence in outcome.after.hopeless:
            messages.error(sentence)
    if any(outcome.failed or outcome.after.hopeless for outcome in outcomes):
        raise typer.Exit(1)


def _load_libraries_for_workers() -> None:
    """Let the process that workers are forked from load them while this one does."""
    if sys.platform == "linux":
        from multiprocessing import forkserver, set_forkserver_preload

        set_forkserver_preload(["gsebo.experiments.worker"])
        forkserver.ensure_running()


def _lanes(
    workers: int | None, gpu_workers: int | None, replicas: int | None, engine: str
) -> list[Lane]:
    # Whether a cluster has GPUs is seen when it is there.
    elsewhere = engine == "ray" and "RAY_ADDRESS" in os.environ
    if elsewhere and workers is None:
        raise InvalidInput(
            f"RAY_ADDRESS={os.environ['RAY_ADDRESS']} given; expected --workers too, "
            "the number of trials at once on that cluster."
        )
    if elsewhere and gpu_workers is None:
        gpu_workers = 0
    if gpu_workers is None:
        gpu_workers = _GPU_WORKERS if experiments.has_gpu() else 0
    elif gpu_workers and not elsewhere and not experiments.has_gpu():
        raise InvalidInput(
            f"--gpu-workers {gpu_workers} given; expected 0 on a machine without CUDA."
        )
    cpu_workers = _cores() if workers is None else workers
    if not cpu_workers + gpu_workers:
        raise InvalidInput("--workers 0 given; expected 1 or more without a GPU.")
    on_gpu = [
        Lane(f"gpu {number}", "cuda", replicas or _REPLICAS_ON_GPU)
        for number in range(gpu_workers)
    ]
    on_cpu = [
        Lane(f"cpu {number}", "cpu", replicas or 1) for number in range(cpu_workers)
    ]
    return [*on_gpu, *on_cpu]


def _cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _engine(
    name: str, store: Store, lanes: list[Lane], data_dir: Path | None
) -> Engine:
    if name == "ray":
        return experiments.RayEngine(store, lanes, data_dir)
    return experiments.ProcessEngine(store, lanes, data_dir)


def _watcher(quiet: bool) -> AbstractContextManager[RunWatcher]:
    if sys.stderr.isatty() and not quiet:
        return LiveTable(Console(file=sys.stderr, markup=False, highlight=False))
    return nullcontext(RunLines(quiet=quiet))


def _say_how_to_go_on(number: int) -> None:
    messages.release()
    done = f"{count(number, 'trial')} of this run stored"
    messages.note(f"Interrupted with {done}; the same command goes on.")


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
    number, stored = len(outcome.results), count(outcome.after.stored, "trial")
    if number:
        time = duration_in_words(outcome.seconds)
        text = f"{outcome.recipe}: {count(number, 'trial')} run in {time}; {stored} of "
        text += f"the recipe stored, {outcome.after.missing} missing."
    else:
        text = f"{outcome.recipe}: nothing to run; {stored} stored, none missing."
    earlier = len(outcome.before.failed)
    if earlier and not retried:
        text += f" {earlier} failed earlier: --retry-failed runs them again."
    return text


def _say_what_failed(outcome: RunOutcome) -> None:
    messages.release()
    number = len(outcome.failed)
    what = f"{number} of {len(outcome.results)} trials failed"
    messages.error(f"{what}; the first: {result_in_words(outcome.failed[0])}")
