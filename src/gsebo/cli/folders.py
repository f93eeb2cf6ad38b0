"""``gsebo fit`` and ``gsebo predict`` on graph folders: nothing is read as a whole."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gsebo.cli.fit import FitOptions, ModelPlace
from gsebo.cli.output import messages, print_json, print_table, progress_bar
from gsebo.data.formats.folder import GraphFolder
from gsebo.data.formats.npy_stream import open_output, write_columns
from gsebo.distributed import launched
from gsebo.errors import InvalidInput
from gsebo.experiments.fit import peak_memory_bytes, timed_fit, versions
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.mapped import ScratchFolder, release
from gsebo.methods import METHODS
from gsebo.methods.run import alike_on_any_threads
from gsebo.metrics import METRICS, Tally, require_fitting
from gsebo.model.fitted import FittedModel

_ROWS = 2**20
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}


class Outputs(NamedTuple):
    """Where results for every node and edge go, as ``.parquet`` or ``.npy``."""

    predictions: Path | None  # Node, class and probability.
    strengths: Path | None  # Of every edge, in the order of the folder.
    memory: int  # Bytes that inference stays within.

    @classmethod
    def read(
        cls, predictions: Path | None, strengths: Path | None, memory: str
    ) -> "Outputs":
        """Check what was given as options."""
        size = memory_in_bytes(memory)
        for path in (predictions, strengths):
            if path is not None and path.suffix not in (".parquet", ".npy"):
                raise InvalidInput(
                    f"{path} given; expected a file that ends in .parquet or .npy."
                )
        return cls(predictions, strengths, size)


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
    model: FittedModel, folder: GraphFolder, outputs: Outputs, metric: str
) -> dict[str, Any]:
    """Predict all nodes of a graph; write what was asked for, and say how right.

    Raises:
        InvalidInput: The metric that is to be shown does not fit the graph.
    """
    begun = time.perf_counter()
    arrays, files = folder.arrays(), ScratchFolder()
    graph, strengths = model.in_chunks(folder, outputs.memory, files.path)
    shape = arrays.num_nodes, model.num_classes
    path = files.path / "probability.npy"
    kind = np.float64 if arrays.dtype.itemsize == 8 else np.float32
    with open_output(path, shape, kind) as probability:
        graph.probabilities(model.backbone, strengths, out=probability)
    probability = np.load(path, mmap_mode="r", allow_pickle=False)
    result = _scores(arrays, probability, metric)
    if (place := outputs.predictions) is not None:
        columns = _predictions(probability, place.suffix == ".npy", folder)
        write_columns(place, columns)
        messages.note(f"The predictions are in {place}.")
    if (place := outputs.strengths) is not None:
        pieces = model.edge_strengths(graph, strengths)
        found = (one.strength for one in pieces)
        means = (one if one.dim() == 1 else one.mean(0) for one in found)
        write_columns(place, ({"strength": one.numpy()} for one in means))
        messages.note(f"The strengths are in {place}.")
    named = {"predictions": outputs.predictions, "strengths": outputs.strengths}
    return {
        **result,
        "inference_seconds": time.perf_counter() - begun,
        "peak_memory_bytes": peak_memory_bytes(model.device),
        **{name: None if p is None else str(p) for name, p in named.items()},
    }


def _scores(
    arrays: GraphArrays, probability: np.ndarray, metric: str
) -> dict[str, Any]:
    masks = {"val": arrays.val, "test": arrays.test}
    # Beside counts they hold a number for each node of a mask, of two classes only.
    tallies = {name: Tally(probability.shape[1]) for name in masks}
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
                tallies[name].add(labels[chosen], probability[rows][chosen])
        release(probability)
        arrays.release()
    for tally in tallies.values():
        if tally.num_nodes:
            # One that does not fit is an error if it was asked for.
            tally.value(metric)
    found: dict[str, Any] = {name: one.values() for name, one in tallies.items()}
    shares = {f"{name}_accuracy": one["accuracy"] for name, one in found.items()}
    return {**shares, **found, "counts": counts.tolist()}


def _require_metric(name: str, arrays: GraphArrays) -> None:
    """Raise before the fit if a metric cannot be had of the nodes that it is for."""
    if arrays.y is None:
        return
    masks = {"train": arrays.train, "val": arrays.val, "test": arrays.test}
    found: dict[str, set[int]] = {mask: set() for mask in masks}
    for rows in _slices(arrays.num_nodes):
        labels = arrays.y[rows]
        for mask, chosen in masks.items():
            if chosen is not None:
                known = labels[chosen[rows] & (labels >= 0)]
                found[mask] |= set(np.unique(known).tolist())
        arrays.release()
    classes = max(found["train"] | found["val"], default=0) + 1
    for mask in ("val", "test"):
        if found[mask]:
            require_fitting(name, np.array(sorted(found[mask])), classes)


def _predictions(
    probability: np.ndarray, classes_only: bool, folder: GraphFolder
) -> Iterator[dict[str, np.ndarray]]:
    """Numbers of classes alone, or nodes and classes as the user calls them."""
    ids, names = folder.ids(), folder.manifest.classes
    for rows in _slices(len(probability)):
        piece = np.asarray(probability[rows])
        predicted = piece.argmax(-1)
        if classes_only:
            yield {"predicted": predicted}
        else:
            yield {
                "node": ids[rows],
                "predicted": predicted if names is None else np.array(names)[predicted],
                "probability": piece.max(-1),
            }
        release(probability)


def _slices(count: int) -> Iterator[slice]:
    for begin in range(0, count, _ROWS):
        yield slice(begin, min(begin + _ROWS, count))


def fit_and_print_folder(
    options: FitOptions, method: str, outputs: Outputs, place: ModelPlace, json: bool
) -> None:
    """Fit on a graph folder, save the model where asked for, and print the outcome.

    Of several processes only the first one predicts and tells.
    """
    from gsebo.cli.experiment import checkpointed, save_fitted, step_watcher

    _refuse_options(options)
    folder = GraphFolder.open(options.dataset)
    model = METHODS[method].make(
        **options.parameters([method])[method],
        device=options.device,
        random_state=options.seed,
    )
    if not model.on_batches:
        raise InvalidInput(
            f"{method} without a batch size given for the graph folder "
            f"{options.dataset}; expected --batch-size and one of the methods gsebo "
            "and amortised."
        )
    # Whoever watches reads the parameters before the fit does.
    model.check_parameters()
    if METRICS[options.shown].is_binary:
        _require_metric(options.shown, folder.arrays())
    with checkpointed(place) as checkpoint, progress_bar(quiet=messages.quiet) as bar:
        watcher = step_watcher(bar, f"{method}, seed {options.seed}", model, folder)
        seconds = timed_fit(model, folder, checkpoint=checkpoint, watcher=watcher)
    if not place.is_first:
        return
    if checkpoint is not None:
        save_fitted(model, checkpoint, str(folder.path.resolve()))
    parameters = model.get_params(deep=False)
    result: dict[str, Any] = {
        "dataset": options.dataset,
        "method": method,
        "backbone": parameters["backbone"],
        "seed": parameters.pop("random_state"),
        "outer_iterations": len(model.history_),
        "best_step": model.best_step_,
        "seconds": max(seconds, model.history_[-1].seconds),
        "device": str(model.model_.device),
        "parameters": parameters,
        "num_nodes": folder.manifest.num_nodes,
        "num_edges": folder.manifest.num_edges,
        "versions": versions(),
    }
    if (launch := launched()) is not None:
        result["processes"] = launch.size
    result |= inferred(model.model_, folder, outputs, options.shown)
    result["metric"] = options.shown
    if json:
        print_json(result)
        return
    metric = METRICS[options.shown]
    shown = {
        "test": result["test"][options.shown],
        "validation": result["val"][options.shown],
    }
    print_table(
        f"{method}, {result['backbone']}, {options.dataset}, seed {result['seed']}",
        ("", ""),
        [
            *(
                (
                    f"{words} {metric.title}",
                    None if one is None else metric.written(one),
                )
                for words, one in shown.items()
            ),
            ("seconds of training", f"{result['seconds']:.1f}"),
            ("seconds of inference", f"{result['inference_seconds']:.1f}"),
            ("peak memory", f"{result['peak_memory_bytes'] / 2**20:.0f} MiB"),
            ("graph", f"{result['num_nodes']} nodes, {result['num_edges']} edges"),
            ("device", result["device"]),
        ],
    )


def _refuse_options(options: FitOptions) -> None:
    """Raise for what cannot be done to a graph that stays on disk."""
    for option, given in (
        ("--noise", options.noise_level),
        ("--split", options.split),
        ("--normalize", options.normalize),
        ("--seeds", options.seeds if options.seeds != 1 else None),
    ):
        if given:
            raise InvalidInput(
                f"{option} {given} given for the graph folder {options.dataset}; "
                "expected it as it is, with one seed."
            )
