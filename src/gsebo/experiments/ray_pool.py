"""Batches on a Ray cluster."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from gsebo.errors import InvalidInput
from gsebo.experiments.fit import failed_result
from gsebo.experiments.pool import prepare_process, run_batch
from gsebo.experiments.result import Result, Trial
from gsebo.experiments.runner import Engine, Slot, TrialBatch
from gsebo.experiments.store import Store

# Results are small; by default Ray takes a third of the memory for them.
_OBJECT_STORE_BYTES = 100_000_000


@final
class RayEngine(Engine):
    """Tasks of a Ray cluster, one at a time for each slot; the driver stores results.

    The cluster is that of the environment variable ``RAY_ADDRESS``, else one on this
    machine that ends with the run; slots on GPUs share what it has. On other machines
    gsebo must be installed, and datasets are looked for in the same places as here.
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
        self._connect()
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

    def _connect(self) -> None:
        quiet = {"log_to_driver": False, "logging_level": "ERROR"}
        address = os.environ.get("RAY_ADDRESS")
        if address is None:
            self._ray.init(
                num_cpus=len(self.slots),
                include_dashboard=False,
                object_store_memory=_OBJECT_STORE_BYTES,
                **quiet,
            )
            return
        try:
            self._ray.init(address="auto", **quiet)
        except ConnectionError as error:
            raise InvalidInput(
                f"RAY_ADDRESS={address} given; expected the address of a cluster that "
                f"is running ({error})."
            ) from error

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
