"""Trials, fitted and measured: for the command line and for workers alike."""

import ctypes
import gc
import os
import platform
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast, final

import numpy
import torch
from torch import Tensor

from gsebo.code_paths import processor, reproducibility
from gsebo.data import (
    apply_noise,
    apply_split,
    edges_appended,
    load,
    noise_parts,
    num_classes,
    validate,
    visible_part,
)
from gsebo.data.formats.folder import GraphFolder
from gsebo.data.noise.registry import LABELS
from gsebo.data.splits import has_unseen
from gsebo.errors import InputWarning, escaped
from gsebo.experiments.detection import DETECTORS, detect
from gsebo.experiments.protocols import EVASIONS
from gsebo.experiments.result import (
    BINS,
    AttackOutcome,
    Curves,
    EdgeGroups,
    GroupName,
    GroupOutcome,
    Result,
    Scores,
    StoredChoice,
    Trial,
    is_halved,
)
from gsebo.graph.graph import Graph
from gsebo.methods import METHODS, Auto, GraphClassifier
from gsebo.metrics import METRICS, Tally, require_fitting
from gsebo.names import lookup
from gsebo.suspects import SuspiciousEdges
from gsebo.training import Checkpoint, StepRecord, Watcher
from gsebo.version import __version__

_DIGITS = 5
_RECORDING = threading.Lock()
Columns = dict[str, list[float]]


@final
@dataclass(frozen=True, eq=False)
class FittedTrial:
    """A trial, the estimator that it became, and what the fit took."""

    trial: Trial
    model: GraphClassifier
    data: Graph  # With the nodes that the fit did not see, if there are any.
    seconds: float  # Of fits made together, the share of each.
    peak_memory_bytes: int  # Of the process or the GPU, of all fits made together.
    together: int  # Number of fits made at once.

    @cached_property
    def probability(self) -> Tensor:
        """Class probabilities of every node, ``[nodes, classes]``."""
        return predicted_probabilities(self.model, self.data)

    @cached_property
    def predicted(self) -> Tensor:
        """Class of every node, ``[nodes]``."""
        return self.probability.argmax(dim=-1)

    def accuracy(self, mask: str) -> float | None:
        """See :func:`accuracy`."""
        return accuracy(self.predicted, self.data, mask)

    def scores(self, mask: str) -> dict[str, float | None]:
        """See :func:`scores`."""
        return scores(self.probability, self.data, mask)


def fit_trials(
    trials: Sequence[Trial],
    *,
    device: str,
    loaded: Graph | None = None,
    data_dir: Path | None = None,
    checkpoint: Checkpoint | None = None,
    watch: Callable[[GraphClassifier, Graph], Watcher | None] | None = None,
) -> list[FittedTrial]:
    """Fit a trial, or at once several of the same graph whose seeds count up.

    What is called after each outer step is made by ``watch`` from the estimator before
    the fit and the whole graph, which may have been loaded, without split and noise.
    """
    first = trials[0]
    data = trial_graph(first, data_dir, loaded)
    model = lookup("method", first.method, METHODS).make(
        backbone=first.backbone,
        device=device,
        random_state=first.seed,
        **first.parameters,
    )
    # Whoever watches reads the parameters before the fit does.
    model.check_parameters()
    watcher = None if watch is None else watch(model, data)
    seconds = timed_fit(
        model,
        fitted_graph(data),
        replicas=len(trials),
        checkpoint=checkpoint,
        watcher=watcher,
    )
    peak = peak_memory_bytes(model.model_.device)
    return [
        FittedTrial(
            trial,
            replica,
            data,
            # The history of a resumed fit includes what was done before.
            max(seconds, replica.history_[-1].seconds) / len(trials),
            peak,
            len(trials),
        )
        for trial, replica in zip(trials, model.replicas_, strict=True)
    ]


def timed_fit(
    model: GraphClassifier | SuspiciousEdges,
    graph: Graph | GraphFolder,
    **options: Any,
) -> float:
    """Fit, and return how many seconds that took; forget earlier peaks of memory."""
    reset_peak_memory()
    begun = time.perf_counter()
    model.fit(graph, **options)
    return time.perf_counter() - begun


def trial_graph(
    trial: Trial, data_dir: Path | None = None, loaded: Graph | None = None
) -> Graph:
    """The graph of a trial, split, and with noise where the trial has some."""
    data = load(trial.dataset, data_dir=data_dir) if loaded is None else loaded
    data = apply_split(data, trial.split, trial.seed)
    if trial.noise:
        # Noise takes for granted that edges name existing nodes, and the like.
        validate(data, features_needed=False)
        data = apply_noise(data, trial.noise, seed=trial.seed)
    return data


def fitted_graph(data: Graph) -> Graph:
    """The part of a graph that a fit may see: all of it, unless there is a mask."""
    return visible_part(data) if has_unseen(data) else data


def predicted_probabilities(model: GraphClassifier, data: Graph) -> Tensor:
    """Of every node of the whole graph, of which the fit saw a part or all."""
    if not has_unseen(data):
        return model.probability_
    with warnings.catch_warnings():
        # That new edges get the vanilla weight is what is measured here.
        warnings.simplefilter("ignore", InputWarning)
        return model.predict_proba(data)


def accuracy(predicted: Tensor, data: Graph, mask: str | None) -> float | None:
    """Accuracy over all nodes, or those of a mask, whose label is known, if any are."""
    known = labelled_nodes(data, mask)
    if known is None:
        return None
    return float((predicted[known] == data.y.cpu()[known]).double().mean())


def scores(
    probability: Tensor, data: Graph, mask: str | None
) -> dict[str, float | None]:
    """Every metric over the same nodes; ``None`` of one that does not fit them."""
    tally, known = Tally(probability.shape[1]), labelled_nodes(data, mask)
    if known is not None:
        tally.add(data.y.cpu()[known].numpy(), probability[known].numpy())
    return tally.values()


def labelled_nodes(data: Graph, mask: str | None) -> Tensor | None:
    """Which nodes, of all or of a mask, have a label; ``None`` where none has."""
    if any(name not in data or data[name] is None for name in ("y", mask or "y")):
        return None
    known: Tensor = data.y.cpu() >= 0
    if mask is not None:
        known &= data[mask].cpu()
    return known if bool(known.any()) else None


def require_metric(name: str, data: Graph, *, classes: int | None = None) -> None:
    """Raise if a metric cannot be had of the test or the validation nodes of a graph.

    The number of classes is that of a model, or else of one that were fitted to it.
    """
    if not METRICS[name].is_binary:
        return
    if classes is None:
        validate(data, features_needed=False)
        classes = num_classes(data)
    for mask in ("test_mask", "val_mask"):
        known = labelled_nodes(data, mask)
        if known is not None:
            require_fitting(name, data.y.cpu()[known].numpy(), classes)


# --- results -------------------------------------------------------------------------


def execute(
    trials: Sequence[Trial], *, device: str = "cpu", data_dir: Path | None = None
) -> list[Result]:
    """Run trials as :func:`fit_trials` does; a failure is a result that says why.

    Args:
        trials: Which differ by their seeds alone.
        device: ``"cpu"`` or ``"cuda"``.
        data_dir: A folder to look in first for datasets.
    """
    begun = time.perf_counter()
    columns: Columns = {}

    def watch(model: GraphClassifier, data: Graph) -> Watcher | None:
        if not trials[0].curves:
            return None
        if len(trials) > 1:
            raise ValueError("curves are recorded for one trial at a time")
        if has_unseen(data):
            raise ValueError("curves are recorded of nodes that the fit sees")
        return partial(_record, columns, data)

    try:
        if trials[0].method in DETECTORS:
            found = [detect(trial, device, data_dir) for trial in trials]
            return [Result.from_line(result.line()) for result in found]
        fitted = fit_trials(trials, device=device, data_dir=data_dir, watch=watch)
        curves = cast(Curves, columns) if columns else None
        results = [_result(one, curves) for one in fitted]
        # Nothing is stored that could not be read again, such as a loss of NaN.
        return [Result.from_line(result.line()) for result in results]
    except Exception as error:
        # Whatever it was is stored, and the other trials go on.
        seconds = round((time.perf_counter() - begun) / len(trials), 3)
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        text = escaped(" ".join(text.split()))
        return [failed_result(trial, text, device, seconds) for trial in trials]


def failed_result(
    trial: Trial, error: str, device: str, seconds: float | None = None
) -> Result:
    """What is stored of a trial that did not come to its end."""
    return Result(
        trial=trial, error=error, seconds=seconds, device=device, **circumstances()
    )


def _result(fitted: FittedTrial, curves: Curves | None) -> Result:
    model, tested = fitted.model, fitted.accuracy("test_mask")
    best = model.history_[model.best_step_ - 1]
    device = model.model_.device
    hardware = platform.machine()
    if device.type == "cuda":
        hardware = torch.cuda.get_device_name(device)
    parameters = model.get_params(deep=False)
    for name in ("backbone", "device", "random_state"):
        del parameters[name]
    return Result(
        trial=fitted.trial,
        test_accuracy=None if tested is None else round(tested, _DIGITS),
        val_accuracy=round(best.val_accuracy, _DIGITS),
        val_loss=round(best.val_loss, _DIGITS),
        test=_stored(fitted.scores("test_mask")),
        val=_stored(fitted.scores("val_mask")),
        best_step=model.best_step_,
        outer_iterations=len(model.history_),
        new_edges=int(model.new_edge_index_.shape[1]),
        seconds=round(fitted.seconds, 3),
        peak_memory_bytes=fitted.peak_memory_bytes,
        together=fitted.together,
        all_parameters=parameters,
        edges=_edge_outcome(fitted),
        curves=curves,
        choice=_stored_choice(model),
        evasion=_evasion(fitted),
        device=f"{device.type} ({hardware})",
        **circumstances(),
    )


def _stored_choice(model: GraphClassifier) -> StoredChoice | None:
    """What an automatic fit chose, in few words; ``None`` where nothing was chosen."""
    if not isinstance(model, Auto):
        return None
    decision = model.decision_
    return {
        "method": decision.chosen.candidate,
        "backbone": decision.parameters["backbone"],
        "width": decision.parameters.get("hidden_channels"),
        "preparation": decision.chosen.preparation,
        "epochs": decision.chosen.epochs,
        "shift": round(decision.shift, _DIGITS),
        "reason": decision.chosen.reason,
    }


def _stored(values: Mapping[str, float | None]) -> Scores | None:
    """The metrics that there are, to as many digits as are stored."""
    known = {name: v for name, v in values.items() if v is not None}
    rounded = {name: round(value, _DIGITS) for name, value in known.items()}
    return cast(Scores, rounded) or None


def _evasion(fitted: FittedTrial) -> dict[str, AttackOutcome] | None:
    if fitted.trial.evasion is None:
        return None
    # Attacks are loaded by those who ask for them.
    from gsebo.experiments.evasion import evade

    protocol = lookup("evasion", fitted.trial.evasion, EVASIONS)
    compared = fitted.trial.method == "vanilla"
    return evade(fitted.model, fitted.data, protocol, fitted.trial.seed, compared)


def _record(columns: Columns, data: Graph, record: StepRecord, logits: Tensor) -> None:
    """Write down a step, from outside: only here are test labels seen during a fit."""
    predicted = logits.detach().argmax(dim=-1).cpu()
    tested = accuracy(predicted, data, "test_mask")
    figures: dict[str, Any] = {**vars(record), "test_accuracy": tested}
    with _RECORDING:
        for name in Curves.__annotations__:
            columns.setdefault(name, []).append(round(figures[name], _DIGITS))


def _edge_outcome(fitted: FittedTrial) -> list[EdgeGroups] | None:
    """Strength / start by group, of each layer, or once if all share the strengths.

    All labels are read: this describes a fit after its end.
    """
    trial, model = fitted.trial, fitted.model
    # Labels must be true, and a search shall hold nothing that test nodes know.
    if is_halved(trial.split) or noise_parts(trial.noise)[0] == LABELS:
        return None
    if not model.model_.learned:
        return None
    added = visible_noise(fitted.data, edges_appended(trial.noise))
    edges, labels = model.graph_.edge_index.cpu(), model.graph_.y.cpu()
    first, second = labels[edges[0]], labels[edges[1]]
    known = (first >= 0) & (second >= 0) & (edges[0] != edges[1])
    false = torch.arange(edges.shape[1]) >= edges.shape[1] - 2 * added
    groups: dict[GroupName, Tensor] = {
        "within": known & ~false & (first == second),
        "between": known & ~false & (first != second),
        "false": known & false,
    }
    start = model.initial_strength_.double()
    return [
        {
            name: _group(row.double()[members], start[members])
            for name, members in groups.items()
            if bool(members.any())
        }
        for row in model.strength_.reshape(-1, edges.shape[1])
    ]


def visible_noise(data: Graph, noise: int) -> int:
    """How many of the false edges, at the graph's end in both directions, a fit saw."""
    if not has_unseen(data):
        return noise
    false = data.edge_index[:, data.num_edges - 2 * noise :]
    return int((~data.unseen_mask[false]).all(0).sum()) // 2


def _group(strength: Tensor, start: Tensor) -> GroupOutcome:
    some = start > 0
    ratio = strength[some] / start[some]
    bars = torch.bucketize(ratio, torch.tensor(BINS, dtype=torch.float64), right=True)
    # Ratios are never negative, so that none lies before the first of the bins.
    histogram = torch.bincount(bars - 1, minlength=len(BINS)).tolist()
    return {
        "count": int(strength.numel()),
        "mean": round(float(ratio.mean()), 6) if ratio.numel() else None,
        "zero": int((strength <= 0).sum()),
        "histogram": histogram,
    }


# --- what a figure was computed with -------------------------------------------------


def reset_peak_memory() -> None:
    """Forget earlier peaks, where the system can."""
    gc.collect()
    # A worker that was forked may look at CUDA as little as possible: it cannot use it.
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.reset_peak_memory_stats()
    try:
        # What was freed before, but is still held, would count for the next.
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    except (AttributeError, OSError):
        # No glibc, not on Linux, or not allowed: the peak is that of the process.
        return


def peak_memory_bytes(device: torch.device) -> int:
    """Most memory used at once, by the GPU if it did the work, else by the process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text("ascii").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    # Not on every system.
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts kilobytes, macOS bytes.
    return peak if sys.platform == "darwin" else 1024 * peak


def circumstances() -> dict[str, Any]:
    """What a stored result says of the process that computed it."""
    # What the libraries compute with may be less than the processor has.
    code = reproducibility()
    used = ", ".join(f"{name} {code[name]}" for name in ("mkl", "aten", "numba"))
    return {
        "processor": processor(),
        "instructions": used,
        "commit": _source_commit(),
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Of this library and of those that decide what a fit computes."""
    return {
        "gsebo": __version__,
        "torch": torch.__version__,
        "torch_geometric": version("torch_geometric"),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }


@cache
def _source_commit() -> str | None:
    """Commit of the source, ``-dirty`` if changed since; ``None`` if no checkout."""
    # Else a package that is installed inside some other project would have its commit.
    if _git("ls-files", "--error-unmatch", "version.py") is None:
        return None
    return _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def _git(*words: str) -> str | None:
    """What a command of git says about the source; ``None`` if it fails."""
    # Inside a hook git would be told of another checkout.
    own = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=Path(__file__).parents[1],
            env=own,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10.0,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("ascii", "replace").strip()
