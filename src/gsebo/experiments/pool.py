"""Batches on the cores and GPUs of this machine: one process each."""

import multiprocessing
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, final

from gsebo.experiments.engine import Engine, Lane, TrialBatch
from gsebo.experiments.result import Result
from gsebo.experiments.store import Store
from gsebo.experiments.versions import circumstances
from gsebo.experiments.worker import READY, WorkerSettings, serve

# The libraries take seconds to load. On Linux one process loads them for all workers
# on CPUs, which are forked from it: it runs nothing itself, so that no thread or lock
# is there to be copied. Elsewhere each worker starts from nothing. So do those on GPUs:
# loading PyG asks the driver for devices, and after that no child may use CUDA.
_SPAWN = multiprocessing.get_context("spawn")
if sys.platform == "linux":
    _CONTEXT = multiprocessing.get_context("forkserver")
else:
    _CONTEXT = multiprocessing.get_context("spawn")
_END_SECONDS = 5.0


@dataclass
class _Worker:
    """A process, the way to talk to it, and what it is doing.

    Attributes:
        process: The process.
        pipe: Batches go one way, results the other.
        ready: Whether it could start.
        batch: What it runs.
    """

    process: BaseProcess
    pipe: "connection.Connection[Any, Any]"
    ready: bool = False
    batch: TrialBatch | None = None


@final
class ProcessEngine(Engine):
    """Worker processes, each of which stores its results itself.

    A worker that dies takes no other trials with it than those it was running: they
    are stored as failed, and a new worker takes its place.

    Args:
        store: Where results go.
        lanes: One worker for each.
        data_dir: Where to look for datasets first.
    """

    def __init__(
        self, store: Store, lanes: Sequence[Lane], data_dir: Path | None = None
    ) -> None:
        self._store = store
        self._lanes = tuple(lanes)
        self._data_dir = data_dir
        self._workers: dict[Lane, _Worker] = {}

    @property
    def lanes(self) -> Sequence[Lane]:
        """One for each worker."""
        return self._lanes

    def open(self) -> None:
        """Start no process yet: those that get no batch are not needed."""
        _CONTEXT.set_forkserver_preload([serve.__module__])

    def start(self, lane: Lane, batch: TrialBatch) -> None:
        """Hand a batch to the worker of a lane, which is started if there is none."""
        worker = self._workers.get(lane)
        if worker is None or not worker.process.is_alive():
            worker = self._workers[lane] = self._new_worker(lane.device)
        worker.batch = batch
        # If it dies this very moment, `wait` will see that.
        with suppress(OSError):
            worker.pipe.send(batch)

    def wait(self) -> list[tuple[Lane, list[Result]]]:
        """Wait until a batch ends, be it because its worker died."""
        ended: list[tuple[Lane, list[Result]]] = []
        while not ended:
            busy = {w.pipe: lane for lane, w in self._workers.items() if w.batch}
            for pipe in connection.wait(list(busy)):
                lane = next(lane for p, lane in busy.items() if p is pipe)
                results = self._receive(lane)
                if results is not None:
                    ended.append((lane, results))
        return ended

    def close(self) -> None:
        """End all workers at once; what they have finished is stored."""
        for worker in self._workers.values():
            worker.process.terminate()
        for worker in self._workers.values():
            worker.process.join(_END_SECONDS)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.pipe.close()
        self._workers.clear()

    def _new_worker(self, device: str) -> _Worker:
        context = _CONTEXT if device == "cpu" else _SPAWN
        ours, theirs = context.Pipe()
        settings = WorkerSettings(
            self._store.folder.absolute(), device, self._data_dir, dict(os.environ)
        )
        process = context.Process(target=serve, args=(theirs, settings), daemon=True)
        process.start()
        # With this end open here too, nobody would be told that the worker is gone.
        theirs.close()
        return _Worker(process, ours)

    def _receive(self, lane: Lane) -> list[Result] | None:
        """Read what a worker says: its results, or ``None`` if it has just started.

        Raises:
            InvalidInput: Results cannot be stored.
            WorkerFailed: The worker has a defect.
        """
        worker = self._workers[lane]
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            return self._bury(lane)
        if message == READY:
            worker.ready = True
            return None
        if isinstance(message, Exception):
            raise message
        worker.batch = None
        return list(message)

    def _bury(self, lane: Lane) -> list[Result]:
        """Store that the trials of a dead worker failed, but those it had stored."""
        worker = self._workers.pop(lane)
        worker.pipe.close()
        worker.process.join()
        cause = _cause(worker.process.exitcode)
        if not worker.ready:
            raise RuntimeError(f"a worker process could not start: {cause}")
        assert worker.batch is not None
        failed = [
            Result(
                trial=trial,
                error=f"the worker process {cause}",
                device=lane.device,
                **circumstances(),
            )
            for trial in worker.batch.trials
        ]
        self._store.append(worker.batch.file, failed)
        stored = self._store.results()
        return [stored[result.key] for result in failed]


def _cause(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"ended with exit code {exit_code}"
    name = signal.Signals(-exit_code).name
    hint = ", as by a system short of memory" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"
