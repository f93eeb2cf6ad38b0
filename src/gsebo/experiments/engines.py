"""Where batches run: in worker processes of this machine, or on a Ray cluster."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import connection, parent_process
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, final

import torch
from threadpoolctl import threadpool_limits

from gsebo.errors import InvalidInput
from gsebo.experiments.fit import execute, failed_result
from gsebo.experiments.result import Result, Trial
from gsebo.experiments.runner import Engine, Slot, TrialBatch
from gsebo.experiments.store import Store

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
# Results are small; by default Ray takes a third of the memory for them.
_OBJECT_STORE_BYTES = 100_000_000

READY = "ready"
"""What a worker says before its first batch."""


# --- in the worker's process ---------------------------------------------------------


class WorkerFailed(Exception):
    """A worker had to give up; the message is its traceback."""


def serve(
    pipe: "connection.Connection[Any, Any]",
    folder: Path,
    device: str,
    data_dir: Path | None,
    environment: dict[str, str],
) -> None:
    """Run batches from a pipe until the runner ends.

    Each result is stored in the folder before it is reported, so that whatever happens
    to the runner, no finished trial is lost. What cannot be stored, or was not
    foreseen, is reported as an exception, and the worker ends.
    """
    # Ctrl-C reaches all processes of a terminal; the runner decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()
    # Libraries are no garbage: every trial would look through them, for half a second.
    gc.freeze()
    try:
        # The server that the worker is forked from may have been started without.
        os.environ.update(environment)
        prepare_process(device)
        store = Store(folder)
        pipe.send(READY)
        while True:
            batch = pipe.recv()
            pipe.send(run_and_store(batch, store, device, data_dir))
    except (EOFError, ConnectionError):
        # The runner is gone.
        return
    except InvalidInput as error:
        pipe.send(error)
    except Exception:
        # The runner tells, or all workers would print at once.
        pipe.send(WorkerFailed(traceback.format_exc()))


def _end_with_parent() -> None:
    """End this process as soon as the runner is gone, even if it was killed."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        # Not `sys.exit`, which would end this thread only.
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


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
        if one.key in known and (known[one.key].ok or not batch.retry_failed)
    ]
    results = [known[trial.key] for trial in done]
    rest = [trial for trial in batch.trials if trial not in done]
    # With gaps, the seeds do not count up any more.
    for trials in [[trial] for trial in rest] if done else [rest]:
        for some in run_batch(trials, device, data_dir):
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


# --- in the runner's process ---------------------------------------------------------


@dataclass
class _Worker:
    """A process, the way to talk to it, and what it is doing."""

    process: BaseProcess
    pipe: "connection.Connection[Any, Any]"  # Batches one way, results the other.
    ready: bool = False  # Whether it could start.
    batch: TrialBatch | None = None


@final
class ProcessEngine(Engine):
    """Worker processes, one for each slot, each of which stores its results itself.

    A worker that dies takes no other trials with it than those it was running: they
    are stored as failed, and a new worker takes its place.

    Args:
        store: Where results go.
        slots: Places for workers.
        data_dir: A folder to look in first for datasets.
    """

    def open(self) -> None:
        # No process yet: those that get no batch are not needed.
        self._workers: dict[Slot, _Worker] = {}
        _CONTEXT.set_forkserver_preload([serve.__module__])

    def start(self, slot: Slot, batch: TrialBatch) -> None:
        worker = self._workers.get(slot)
        if worker is None or not worker.process.is_alive():
            worker = self._workers[slot] = self._new_worker(slot.device)
        worker.batch = batch
        # If it dies this very moment, `wait` will see that.
        with suppress(OSError):
            worker.pipe.send(batch)

    def wait(self) -> list[tuple[Slot, list[Result]]]:
        ended: list[tuple[Slot, list[Result]]] = []
        while not ended:
            busy = {w.pipe: slot for slot, w in self._workers.items() if w.batch}
            for pipe in connection.wait(list(busy)):
                slot = next(slot for p, slot in busy.items() if p is pipe)
                results = self._receive(slot)
                if results is not None:
                    ended.append((slot, results))
        return ended

    def close(self) -> None:
        # What they have finished is stored.
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
        folder, environment = self._store.folder.absolute(), dict(os.environ)
        arguments = (theirs, folder, device, self._data_dir, environment)
        process = context.Process(target=serve, args=arguments, daemon=True)
        process.start()
        # With this end open here too, nobody would be told that the worker is gone.
        theirs.close()
        return _Worker(process, ours)

    def _receive(self, slot: Slot) -> list[Result] | None:
        """Read what a worker says: its results, or ``None`` if it has just started."""
        worker = self._workers[slot]
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            return self._bury(slot)
        if message == READY:
            worker.ready = True
            return None
        # Results cannot be stored, or the worker has a defect.
        if isinstance(message, Exception):
            raise message
        worker.batch = None
        return list(message)

    def _bury(self, slot: Slot) -> list[Result]:
        """Store that the trials of a dead worker failed, but those it had stored."""
        worker = self._workers.pop(slot)
        worker.pipe.close()
        worker.process.join()
        cause = _cause(worker.process.exitcode)
        if not worker.ready:
            raise RuntimeError(f"a worker process could not start: {cause}")
        assert worker.batch is not None
        error = f"the worker process {cause}"
        failed = [failed_result(t, error, slot.device) for t in worker.batch.trials]
        self._store.append(worker.batch.file, failed)
        stored = self._store.results()
        return [stored[result.key] for result in failed]


def _cause(exit_code: int | None) -> str:
    if exit_code is None or exit_code >= 0:
        return f"ended with exit code {exit_code}"
    name = signal.Signals(-exit_code).name
    hint = ", as by a system short of memory" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"


# --- on a cluster --------------------------------------------------------------------


@final
class RayEngine(Engine):
    """Tasks of a Ray cluster, one at a time for each slot; the driver stores results.

    The cluster is that of the environment variable ``RAY_ADDRESS``, else one on this
    machine that ends with the run; slots on GPUs share what it has. On other machines
    gsebo must be installed, and datasets are looked for in the same places as here.

    Args:
        store: Where results go.
        slots: Places for tasks.
        data_dir: A folder to look in first for datasets.
    """

    def __init__(
        self, store: Store, slots: Sequence[Slot], data_dir: Path | None = None
    ) -> None:
        super().__init__(store, slots, data_dir and data_dir.absolute())
        # Must be set before Ray is imported: it would report its use to its makers.
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        try:
            import ray
        except ImportError as error:
            raise InvalidInput(
                "--engine ray given, but Ray is not installed; expected it from "
                "`pip install 'gsebo[cluster]'`."
            ) from error
        self._ray = ray
        self._gpu_share = 0.0
        self._running: dict[Any, tuple[Slot, TrialBatch]] = {}

    def open(self) -> None:
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        if (address := os.environ.get("RAY_ADDRESS")) is None:
            self._ray.init(
                num_cpus=len(self.slots),
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                **quiet,
            )
        else:
            try:
                self._ray.init(address="auto", **quiet)
            except ConnectionError as error:
                raise InvalidInput(
                    f"RAY_ADDRESS={address} given; expected the address of a cluster "
                    f"that is running ({error})."
                ) from error
        sharing = sum(slot.device == "cuda" for slot in self.slots)
        gpus = self._ray.cluster_resources().get("GPU", 0.0)
        if sharing and not gpus:
            raise InvalidInput(
                f"--gpu-workers {sharing} given; the Ray cluster has no GPU."
            )
        self._gpu_share = min(1.0, gpus / max(sharing, 1))

    def start(self, slot: Slot, batch: TrialBatch) -> None:
        gpus = self._gpu_share if slot.device == "cuda" else 0.0
        # A task whose process dies would be run again in silence.
        remote = self._ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(_lines)
        task = remote.remote(batch.trials, slot.device, self._data_dir)
        self._running[task] = (slot, batch)

    def wait(self) -> list[tuple[Slot, list[Result]]]:
        tasks, _ = self._ray.wait(list(self._running))
        ended = []
        for task in tasks:
            slot, batch = self._running.pop(task)
            results = self._results(task, slot, batch)
            self._store.append(batch.file, results)
            ended.append((slot, results))
        return ended

    def close(self) -> None:
        for task in self._running:
            self._ray.cancel(task, force=True)
        self._running.clear()
        self._ray.shutdown()

    def _results(self, task: Any, slot: Slot, batch: TrialBatch) -> list[Result]:
        try:
            return [Result.from_line(line) for line in self._ray.get(task)]
        except self._ray.exceptions.RayError as error:
            text = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return [failed_result(trial, text, slot.device) for trial in batch.trials]


def _lines(trials: tuple[Trial, ...], device: str, data_dir: Path | None) -> list[str]:
    """Run a batch on a machine of the cluster."""
    prepare_process(device)
    return [
        result.line()
        for results in run_batch(trials, device, data_dir)
        for result in results
    ]
