"""Trials to results: the only place that fits something for a table or figure."""

import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, final

import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.data import edges_appended, noise_parts
from gsebo.data.noise_kinds import LABELS
from gsebo.errors import escaped
from gsebo.experiments.edge_outcome import EdgeGroups, edge_outcome
from gsebo.experiments.inductive import (
    fitted_graph,
    predicted_classes,
    visible_noise,
)
from gsebo.experiments.memory import peak_memory_bytes, reset_peak_memory
from gsebo.experiments.result import Curves, Result
from gsebo.experiments.trial import Trial
from gsebo.experiments.trial_graph import is_halved, trial_graph
from gsebo.experiments.versions import circumstances, device_name
from gsebo.lookup import lookup
from gsebo.methods import METHODS, GraphClassifier
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
    first = trials[0]
    data = trial_graph(first, data_dir)
    model = lookup("method", first.method, METHODS).estimator(
        backbone=first.backbone,
        device=device,
        random_state=first.seed,
        **first.parameters,
    )
    curves = _Curves(data) if first.curves else None
    if curves and len(trials) > 1:
        raise ValueError("curves are recorded for one trial at a time")
    visible = fitted_graph(data)
    if curves and visible is not data:
        raise ValueError("curves are recorded of nodes that the fit sees")
    reset_peak_memory()
    begun = time.perf_counter()
    model.fit(visible, replicas=len(trials), watcher=curves)
    seconds = (time.perf_counter() - begun) / len(trials)
    peak = peak_memory_bytes(model.model_.strengths.device)
    return [
        _result(trial, replica, data, seconds, peak, len(trials), curves)
        for trial, replica in zip(trials, model.replicas_, strict=True)
    ]


def _result(
    trial: Trial,
    model: GraphClassifier,
    data: Data,
    seconds: float,
    peak: int,
    together: int,
    curves: "_Curves | None",
) -> Result:
    best = model.history_[model.best_step_ - 1]
    parameters = model.get_params(deep=False)
    for name in ("backbone", "device", "random_state"):
        del parameters[name]
    return Result(
        trial=trial,
        test_accuracy=_accuracy(predicted_classes(model, data), data),
        val_accuracy=round(best.val_accuracy, _DIGITS),
        val_loss=round(best.val_loss, _DIGITS),
        best_step=model.best_step_,
        outer_iterations=len(model.history_),
        new_edges=int(model.new_edge_index_.shape[1]),
        seconds=round(seconds, 3),
        peak_memory_bytes=peak,
        together=together,
        all_parameters=parameters,
        edges=_edges(trial, model, data),
        curves=curves.columns() if curves else None,
        device=device_name(model.model_.strengths.device),
        **circumstances(),
    )


def _edges(trial: Trial, model: GraphClassifier, data: Data) -> list[EdgeGroups] | None:
    # It is told by all labels, which must be true, and a search shall hold nothing
    # that test nodes know.
    if is_halved(trial.split) or noise_parts(trial.noise)[0] == LABELS:
        return None
    return edge_outcome(model, visible_noise(data, edges_appended(trial.noise)))


@final
class _Curves:
    """Watches a fit from outside: only here are test labels seen step by step."""

    def __init__(self, data: Data) -> None:
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
        figures["test_accuracy"] = _accuracy(predicted, self._data)
        with self._lock:
            for name, value in figures.items():
                self._columns[name].append(round(value, _DIGITS))

    def columns(self) -> Curves:
        """Figures of every step, by name."""
        return cast(Curves, dict(self._columns))


def _accuracy(predicted: Tensor, data: Data) -> float:
    chosen = data.test_mask.cpu()
    right = predicted[chosen] == data.y.cpu()[chosen]
    return round(float(right.to(torch.float64).mean()), _DIGITS)
