"""What a worker process does: run batches and store what comes out."""

import os
import signal
import threading
import time
import traceback
import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any, cast, final

import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from gsebo.data import edges_appended, noise_parts
from gsebo.data.noise.registry import LABELS
from gsebo.data.splits import has_unseen
from gsebo.errors import InvalidInput, escaped
from gsebo.experiments.engine import TrialBatch
from gsebo.experiments.fit import (
    FittedTrial,
    accuracy,
    edge_outcome,
    fit_trials,
    visible_noise,
)
from gsebo.experiments.result import Curves, EdgeGroups, Result
from gsebo.experiments.store import Store
from gsebo.experiments.trial import Trial, is_halved
from gsebo.experiments.versions import circumstances, device_name
from gsebo.graph.graph import Graph
from gsebo.methods import GraphClassifier
from gsebo.training import StepRecord

_DIGITS = 5


def execute(
    trials: Sequence[Trial], *, device: str = "cpu", data_dir: Path | None = None
) -> list[Result]:
    """Run trials; one that fails becomes a result that says why.

    Args:
        trials: One, or several that differ by their seeds alone, which count up, and
            have the same graph: they are fitted at once.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``.
        data_dir: Where to look for datasets first.
    """
    begun = time.perf_counter()
    try:
        results = _fit(trials, device, data_dir)
        # Nothing is stored that could not be read again, such as a loss of NaN.
        return [Result.from_line(result.line()) for result in results]
    except Exception as error:
        # Whatever it was is stored, and the other trials go on.
        seconds = round((time.perf_counter() - begun) / len(trials), 3)
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        return [
            Result(
                trial=trial,
                error=escaped(" ".join(text.split())),
                seconds=seconds,
                device=device,
                **circumstances(),
            )
            for trial in trials
        ]


def _fit(trials: Sequence[Trial], device: str, data_dir: Path | None) -> list[Result]:
    curves: list[_Curves] = []

    def watch(model: GraphClassifier, data: Graph) -> _Curves | None:
        if not trials[0].curves:
            return None
        if len(trials) > 1:
            raise ValueError("curves are recorded for one trial at a time")
        if has_unseen(data):
            raise ValueError("curves are recorded of nodes that the fit sees")
        curves.append(_Curves(data))
        return curves[0]

    fitted = fit_trials(trials, device=device, data_dir=data_dir, watch=watch)
    columns = curves[0].columns() if curves else None
    return [_result(one, columns) for one in fitted]


def _result(fitted: FittedTrial, curves: Curves | None) -> Result:
    model, tested = fitted.model, fitted.accuracy("test_mask")
    best = model.history_[model.best_step_ - 1]
    parameters = model.get_params(deep=False)
    for name in ("backbone", "device", "random_state"):
        del parameters[name]
    return Result(
        trial=fitted.trial,
        test_accuracy=None if tested is None else round(tested, _DIGITS),
        val_accuracy=round(best.val_accuracy, _DIGITS),
        val_loss=round(best.val_loss, _DIGITS),
        best_step=model.best_step_,
        outer_iterations=len(model.history_),
        new_edges=int(model.new_edge_index_.shape[1]),
        seconds=round(fitted.seconds, 3),
        peak_memory_bytes=fitted.peak_memory_bytes,
        together=fitted.together,
        all_parameters=parameters,
        edges=_edges(fitted.trial, model, fitted.data),
        curves=curves,
        device=device_name(model.model_.strengths.device),
        **circumstances(),
    )


def _edges(
    trial: Trial, model: GraphClassifier, data: Graph
) -> list[EdgeGroups] | None:
    # It is told by all labels, which must be true, and a search shall hold nothing
    # that test nodes know.
    if is_halved(trial.split) or noise_parts(trial.noise)[0] == LABELS:
        return None
    return edge_outcome(model, visible_noise(data, edges_appended(trial.noise)))


@final
class _Curves:
    """Watches a fit from outside: only here are test labels seen step by step."""

    def __init__(self, data: Graph) -> None:
        self._data = data
        self._columns: dict[str, list[float]] = defaultdict(list)
        self._lock = threading.Lock()

    def __call__(self, record: StepRecord, logits: Tensor) -> None:
        figures: dict[str, Any] = {
            name: getattr(record, name)
            for name in (
                "inner_steps",
                "train_loss",
                "train_accuracy",
                "val_loss",
                "val_accuracy",
            )
        }
        predicted = logits.detach().argmax(dim=-1).cpu()
        figures["test_accuracy"] = accuracy(predicted, self._data, "test_mask")
        with self._lock:
            for name, value in figures.items():
                self._columns[name].append(round(value, _DIGITS))

    def columns(self) -> Curves:
        """Figures of every step, by name."""
        return cast(Curves, dict(self._columns))


READY = "ready"
"""What a worker says before its first batch."""


class WorkerFailed(Exception):
    """A worker had to give up; the message is its traceback."""


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker has to know.

    Attributes:
        folder: Of the store.
        device: ``"cpu"`` or ``"cuda"``.
        data_dir: Where to look for datasets first.
        environment: Variables of the runner, which the server that the worker is
            forked from may have been started without.
    """

    folder: Path
    device: str
    data_dir: Path | None
    environment: dict[str, str]


def serve(pipe: "connection.Connection[Any, Any]", settings: WorkerSettings) -> None:
    """Run batches from a pipe until the runner ends.

    Each result is stored before it is reported, so that whatever happens to the runner,
    no finished trial is lost. What cannot be stored, or was not foreseen, is reported
    as an exception, and the worker ends.
    """
    # Ctrl-C reaches all processes of a terminal; the runner decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()
    try:
        os.environ.update(settings.environment)
        prepare_process(settings.device)
        store = Store(settings.folder)
        pipe.send(READY)
        while True:
            batch = pipe.recv()
            pipe.send(run_and_store(batch, store, settings.device, settings.data_dir))
    except (EOFError, ConnectionError):
        # The runner is gone.
        return
    except InvalidInput as error:
        pipe.send(error)
    except Exception:
        # The runner tells, or all workers would print at once.
        pipe.send(WorkerFailed(traceback.format_exc()))


def prepare_process(device: str) -> None:
    """Keep to one core, as there is one such process for each of them."""
    # Nobody sees from which trial a warning came, and the runner's table would break.
    warnings.simplefilter("ignore")
    if device == "cpu":
        # Our own kernels go by torch's setting too.
        torch.set_num_threads(1)
        threadpool_limits(1)


def run_and_store(
    batch: TrialBatch, store: Store, device: str, data_dir: Path | None
) -> list[Result]:
    """Run those trials of a batch that nobody has stored meanwhile."""
    known = store.results()
    done = [
        one
        for one in batch.trials
        if one.key in known and (known[one.key].ok or not batch.again)
    ]
    results = [known[trial.key] for trial in done]
    rest = [trial for trial in batch.trials if trial not in done]
    # With gaps, the seeds do not count up any more.
    parts = [[trial] for trial in rest] if done else [rest]
    for part in parts:
        for some in run_batch(part, device, data_dir):
            store.append(batch.file, some)
            results += some
    return results


def run_batch(
    trials: Sequence[Trial], device: str, data_dir: Path | None
) -> Iterator[list[Result]]:
    """Run trials at once; where that fails, each on its own, to see which it was."""
    results = execute(trials, device=device, data_dir=data_dir)
    if len(trials) == 1 or all(result.ok for result in results):
        yield results
        return
    for trial in trials:
        yield execute([trial], device=device, data_dir=data_dir)


def _end_with_parent() -> None:
    """End this process as soon as the runner is gone, even if it was killed."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        # Not `sys.exit`, which would end this thread only.
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
