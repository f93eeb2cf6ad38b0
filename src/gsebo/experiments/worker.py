"""What a worker process does: run batches and store what comes out."""

import os
import signal
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from gsebo.errors import InvalidInput
from gsebo.experiments.batches import Batch
from gsebo.experiments.execute import execute
from gsebo.experiments.result import Result
from gsebo.experiments.store import Store
from gsebo.experiments.trial import Trial

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
    batch: Batch, store: Store, device: str, data_dir: Path | None
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
