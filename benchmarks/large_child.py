"""The process that ``python -m benchmarks large`` starts: one graph, one fit."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from benchmarks.private_memory import memory_of
from benchmarks.process_memory import limited_to_free_memory, unless_out_of_memory
from gsebo import Amortised
from gsebo.data.formats.folder import GraphFolder
from gsebo.data.formats.npy_stream import open_output
from gsebo.graph.mapped import ScratchFolder, gather_rows
from gsebo.training.history import StepRecord

T = TypeVar("T")

_ROOM = 2**30


class Clock:
    """When each round of outer steps was over, by the clock and by the processor."""

    def __init__(self) -> None:
        self._at: list[tuple[float, float]] = []

    def __call__(self, record: StepRecord, logits: Tensor) -> None:
        """Told of a round."""
        self._at.append((time.perf_counter(), time.process_time()))

    def per_step(self, steps: int) -> dict[str, float]:
        """Seconds of an outer step; the first round, which compiles, is left out."""
        spans = np.subtract(self._at[-1], self._at[0]) / (len(self._at) - 1) / steps
        return dict(zip(("step_seconds", "step_processor_seconds"), spans, strict=True))


def measure(
    path: str, batch_size: int | None, device: str, predict: bool
) -> dict[str, Any]:
    """Fit on the graph; on batches of it, also predict all of its nodes, if asked."""
    method = Amortised(
        batch_size=batch_size,
        inner_steps=5,
        max_outer_steps=10,
        refit_epochs=20,
        device=device,
        random_state=0,
    )
    graph = GraphFolder.open(path)
    if batch_size is None:
        return _whole(method, graph)
    clock = Clock()
    _, fit = _stage(lambda: method.fit(graph, watcher=clock), device)
    line = {**clock.per_step(method.num_folds), "fit": fit, "room_bytes": _ROOM}
    if not predict:
        return line
    found, inference = _stage(lambda: _predicted(method, graph), device)
    return {
        **line,
        "inference": inference,
        "test_accuracy": _accuracy(graph, *found),
    }


def _whole(method: Amortised, graph: GraphFolder) -> dict[str, Any]:
    """The same in memory, on all edges in every step, if there is room."""
    clock = Clock()

    def fit() -> Amortised:
        return method.fit(graph.to_data(), watcher=clock)

    with limited_to_free_memory(method.device) as free:
        fitted, stage = _stage(lambda: unless_out_of_memory(fit), method.device)
    if fitted is None:
        return {"outcome": "out of memory", "free_bytes": free}
    labels = graph.labels()
    right = (fitted.transduction_ == labels.y)[labels.test_mask]
    return {
        **clock.per_step(method.num_folds),
        "fit": stage,
        "test_accuracy": float(right.double().mean()),
    }


def _predicted(method: Amortised, graph: GraphFolder) -> tuple[Path, ScratchFolder]:
    """Write class probabilities of all nodes to a file."""
    model, arrays = method.model_, graph.arrays()
    files = ScratchFolder()
    path = files.path / "probability.npy"
    shape = arrays.num_nodes, model.num_classes
    with open_output(path, shape, np.float32) as out:
        chunks, strengths = model.in_chunks(graph, memory=_ROOM)
        chunks.probabilities(model.backbone, strengths, out=out)
    return path, files


def _accuracy(graph: GraphFolder, path: Path, files: ScratchFolder) -> float:
    """Share of the test nodes that were predicted right."""
    arrays = graph.arrays()
    assert arrays.test is not None and arrays.y is not None
    nodes = np.flatnonzero(arrays.test)
    probability = np.load(path, mmap_mode="r", allow_pickle=False)
    predicted = gather_rows(probability, nodes).argmax(-1)
    return float((predicted == arrays.y[nodes]).mean())


def _stage(call: Callable[[], T], device: str) -> tuple[T, dict[str, Any]]:
    """What a call gives, and what it took."""
    begun, used = time.perf_counter(), time.process_time()
    result, memory = memory_of(call, device)
    return result, {
        "seconds": time.perf_counter() - begun,
        "processor_seconds": time.process_time() - used,
        **memory,
    }


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], *json.loads(sys.argv[2]))))
