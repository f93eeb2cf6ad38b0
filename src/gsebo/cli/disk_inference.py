"""``gsebo fit`` and ``gsebo predict`` on graph folders: nothing is read as a whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gsebo.cli.ui.output import messages
from gsebo.data.formats.folder import GraphFolder
from gsebo.data.formats.npy_stream import open_output, write_columns
from gsebo.errors import InvalidInput
from gsebo.experiments.versions import peak_memory_bytes
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.mapped import ScratchFolder, release
from gsebo.methods.folder_fit import checksum
from gsebo.model.large import LargeModel, Room
from gsebo.training.threads import alike_on_any_threads

_ROWS = 2**20
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


@dataclass(frozen=True)
class Outputs:
    """Where results for every node and edge go.

    Attributes:
        predictions: File for node, class and probability; ``.parquet`` or ``.npy``.
        strengths: File for the strength of every edge in the order of the folder.
        memory: Bytes that inference stays within.
    """

    predictions: Path | None
    strengths: Path | None
    memory: int

    def __post_init__(self) -> None:
        for path in (self.predictions, self.strengths):
            if path is not None and path.suffix not in (".parquet", ".npy"):
                raise InvalidInput(
                    f"{path} given; expected a file that ends in .parquet or .npy."
                )


def read_bytes(text: str) -> int:
    """Read an amount of memory.

    >>> read_bytes("1.5G")
    1610612736
    """
    factor = _UNITS.get(text[-1:].upper(), 1)
    number = text[:-1] if factor > 1 else text
    try:
        found = int(float(number) * factor)
    except (ValueError, OverflowError):
        found = 0
    if found < 1:
        raise InvalidInput(
            f"--memory {text} given; expected a size such as 500M or 2G."
        )
    return found


@alike_on_any_threads()
def inferred(
    model: LargeModel, folder: GraphFolder, outputs: Outputs
) -> dict[str, Any]:
    """Predict all nodes of a graph; write what was asked for, and say how right it is.

    Args:
        model: What was fitted.
        folder: The graph.
        outputs: Where to write.
    """
    begun = time.perf_counter()
    arrays, graph = folder.arrays(), checksum(folder)
    files = ScratchFolder()
    room = Room(outputs.memory, files.path)
    shape = arrays.num_nodes, model.num_classes
    path = files.path / "probability.npy"
    kind = np.float64 if arrays.dtype.itemsize == 8 else np.float32
    with open_output(path, shape, kind) as probability:
        model.probabilities(arrays, graph, room, probability)
    probability = np.load(path, mmap_mode="r", allow_pickle=False)
    result = _accuracies(arrays, probability)
    if outputs.predictions is not None:
        _write_predictions(outputs.predictions, probability)
        messages.note(f"The predictions are in {outputs.predictions}.")
    if outputs.strengths is not None:
        _write_strengths(outputs.strengths, model, arrays, graph, room)
        messages.note(f"The strengths are in {outputs.strengths}.")
    named = {"predictions": outputs.predictions, "strengths": outputs.strengths}
    return {
        **result,
        "inference_seconds": time.perf_counter() - begun,
        "peak_memory_bytes": peak_memory_bytes(model.device),
        **{name: None if p is None else str(p) for name, p in named.items()},
    }


def _accuracies(arrays: GraphArrays, probability: np.ndarray) -> dict[str, Any]:
    masks = {"val_accuracy": arrays.val, "test_accuracy": arrays.test}
    right = dict.fromkeys(masks, 0)
    known = dict.fromkeys(masks, 0)
    counts = np.zeros(probability.shape[1], np.int64)
    for rows in _slices(len(probability)):
        predicted = probability[rows].argmax(-1)
        counts += np.bincount(predicted, minlength=len(counts))
        release(probability)
        if arrays.y is None:
            continue
        labels = arrays.y[rows]
        for name, mask in masks.items():
            if mask is not None:
                chosen = mask[rows] & (labels >= 0)
                known[name] += int(chosen.sum())
                right[name] += int((predicted == labels)[chosen].sum())
        arrays.release()
    shares = {
        name: right[name] / known[name] if known[name] else None for name in masks
    }
    return {**shares, "counts": counts.tolist()}


def _write_predictions(path: Path, probability: np.ndarray) -> None:
    def pieces() -> Iterator[dict[str, np.ndarray]]:
        for rows in _slices(len(probability)):
            piece = np.asarray(probability[rows])
            predicted = piece.argmax(-1)
            if path.suffix == ".npy":
                yield {"predicted": predicted}
            else:
                yield {
                    "node": np.arange(rows.start, rows.start + len(piece)),
                    "predicted": predicted,
                    "probability": piece.max(-1),
                }
            release(probability)

    write_columns(path, pieces())


def _write_strengths(
    path: Path, model: LargeModel, arrays: GraphArrays, graph: str, room: Room
) -> None:
    def pieces() -> Iterator[dict[str, np.ndarray]]:
        for found in model.edge_strengths(arrays, graph, room):
            mean = found if found.dim() == 1 else found.mean(0)
            yield {"strength": mean.numpy()}

    write_columns(path, pieces())


def _slices(count: int) -> Iterator[slice]:
    for begin in range(0, count, _ROWS):
        yield slice(begin, min(begin + _ROWS, count))
