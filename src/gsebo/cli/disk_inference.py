"""``gsebo fit`` and ``gsebo predict`` on graph folders: nothing is read as a whole."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gsebo.cli.settings import FitOptions, ModelPlace, parameters_of, read_settings
from gsebo.cli.ui.output import messages, percent, print_json, print_table
from gsebo.cli.ui.progress import FitProgress
from gsebo.data.formats.folder import GraphFolder
from gsebo.data.formats.npy_stream import open_output, write_columns
from gsebo.distributed import launched
from gsebo.errors import InvalidInput
from gsebo.experiments.fit import timed_fit
from gsebo.experiments.versions import peak_memory_bytes, versions
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.mapped import ScratchFolder, release
from gsebo.lookup import own_name
from gsebo.methods import METHODS
from gsebo.methods.folder_fit import graph_checksum, on_folders
from gsebo.model.large import LargeModel, Room
from gsebo.training import Checkpoint
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


def memory_in_bytes(text: str) -> int:
    """Read an amount of memory.

    >>> memory_in_bytes("1.5G")
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
    arrays, graph = folder.arrays(), graph_checksum(folder)
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
        for piece in model.edge_strengths(arrays, graph, room):
            found = piece.strength
            mean = found if found.dim() == 1 else found.mean(0)
            yield {"strength": mean.numpy()}

    write_columns(path, pieces())


def _slices(count: int) -> Iterator[slice]:
    for begin in range(0, count, _ROWS):
        yield slice(begin, min(begin + _ROWS, count))


def fit_folder_and_print(
    plan: FitOptions,
    method: str,
    outputs: Outputs,
    place: ModelPlace | None,
    json: bool,
) -> None:
    """Fit on a graph folder, save the model where asked for, and print the outcome.

    Args:
        plan: The options.
        method: Name of the method.
        outputs: Where results for all nodes and edges go.
        place: Where the model goes, if it is to be saved.
        json: Whether to print JSON.
    """
    out = checkpoint = None
    if place is not None:
        out = place.out if place.is_first else None
        checkpoint = Checkpoint(
            place.out, every_seconds=place.checkpoint_seconds, resume=place.resume
        )
    result = _fit_folder(plan, method, outputs, out, checkpoint)
    if checkpoint is not None and out is not None:
        checkpoint.remove()
    if result is None:
        return
    if json:
        print_json(result)
        return
    _print_folder_fit(result)


def _refuse_options(plan: FitOptions) -> None:
    """Raise for what cannot be done to a graph that stays on disk."""
    for option, given in (
        ("--noise", plan.noise),
        ("--split", plan.split),
        ("--normalize", plan.normalize),
        ("--seeds", plan.seeds if plan.seeds != 1 else None),
    ):
        if given:
            raise InvalidInput(
                f"{option} {given} given for the graph folder {plan.dataset}; expected "
                "it as it is, with one seed."
            )


def _fit_folder(
    plan: FitOptions,
    method: str,
    outputs: Outputs,
    out: Path | None,
    checkpoint: Checkpoint | None,
) -> dict[str, Any] | None:
    """Fit a method on a graph folder, save the model, predict all nodes; tell of it.

    Of several processes only the first one predicts and tells.

    Args:
        plan: The options.
        method: Name of the method.
        outputs: Where results for all nodes and edges go.
        out: Where the model goes; ``None`` where it is not to be saved by this process.
        checkpoint: Where to save progress.
    """
    _refuse_options(plan)
    folder = GraphFolder.open(plan.dataset)
    name = own_name("method", method, METHODS)
    settings = read_settings(plan.settings, [METHODS[name].estimator])
    model = METHODS[name].make(
        **parameters_of(plan, name, settings),
        device=plan.device,
        random_state=plan.seed,
    )
    if on_folders(model) is None:
        raise InvalidInput(
            f"{name} without a batch size given for the graph folder {plan.dataset}; "
            "expected --batch-size and one of the methods gsebo and amortised."
        )
    with FitProgress(quiet=messages.quiet) as progress:
        watcher = progress.watch(f"{name}, seed {plan.seed}", model.get_params())
        seconds = timed_fit(model, folder, checkpoint=checkpoint, watcher=watcher)
    launch = launched()
    if launch is not None and launch.rank > 0:
        return None
    if out is not None:
        model.save(out, dataset=str(folder.path.resolve()))
        messages.note(f"The model is in {out}.")
    parameters = model.get_params(deep=False)
    seed = parameters.pop("random_state")
    facts: dict[str, Any] = {
        "dataset": plan.dataset,
        "method": name,
        "backbone": parameters["backbone"],
        "seed": seed,
        "outer_iterations": len(model.history_),
        "best_step": model.best_step_,
        "seconds": max(seconds, model.history_[-1].seconds),
        "device": str(model.large_model_.device),
        "parameters": parameters,
        "num_nodes": folder.manifest.num_nodes,
        "num_edges": folder.manifest.num_edges,
        "versions": versions(),
    }
    if launch is not None:
        facts["processes"] = launch.size
    return {**facts, **inferred(model.large_model_, folder, outputs)}


def _print_folder_fit(result: dict[str, Any]) -> None:
    """Print the outcome of a fit."""
    rows: list[tuple[str, object]] = [
        ("test accuracy", _share(result["test_accuracy"])),
        ("validation accuracy", _share(result["val_accuracy"])),
        ("seconds of training", f"{result['seconds']:.1f}"),
        ("seconds of inference", f"{result['inference_seconds']:.1f}"),
        ("peak memory", f"{result['peak_memory_bytes'] / 2**20:.0f} MiB"),
        ("graph", f"{result['num_nodes']} nodes, {result['num_edges']} edges"),
        ("device", result["device"]),
    ]
    title = f"{result['method']}, {result['backbone']}, {result['dataset']}"
    print_table(f"{title}, seed {result['seed']}", ("", ""), rows)


def _share(value: float | None) -> object:
    return "-" if value is None else percent(value)
