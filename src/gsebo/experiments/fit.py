"""One trial, fitted and measured: for the command line and for workers alike."""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from gsebo.data import apply_noise, apply_split, load, validate, visible_part
from gsebo.data.formats.folder import GraphFolder
from gsebo.data.splits import has_unseen
from gsebo.errors import InputWarning
from gsebo.experiments.result import BINS, EdgeGroups, GroupName, GroupOutcome
from gsebo.experiments.trial import Trial
from gsebo.experiments.versions import peak_memory_bytes, reset_peak_memory
from gsebo.graph.graph import Graph
from gsebo.lookup import lookup
from gsebo.methods import METHODS, GraphClassifier
from gsebo.training import Checkpoint, Watcher


@final
@dataclass(frozen=True, eq=False)
class FittedTrial:
    """A trial, the estimator that it became, and what the fit took.

    Attributes:
        trial: What was asked for.
        model: The fitted estimator.
        data: The graph, with the nodes that the fit did not see if there are any.
        seconds: For the fit; of fits made together, the share of each.
        peak_memory_bytes: Of the process or the GPU, of all fits made together.
        together: Number of fits made at once.
    """

    trial: Trial
    model: GraphClassifier
    data: Graph
    seconds: float
    peak_memory_bytes: int
    together: int

    @cached_property
    def predicted(self) -> Tensor:
        """Class of every node, ``[nodes]``."""
        return predicted_classes(self.model, self.data)

    def accuracy(self, mask: str) -> float | None:
        """Accuracy over the nodes of a mask whose label is known, if there are any."""
        return accuracy(self.predicted, self.data, mask)


def fit_trials(
    trials: Sequence[Trial],
    *,
    device: str,
    loaded: Graph | None = None,
    data_dir: Path | None = None,
    checkpoint: Checkpoint | None = None,
    watch: Callable[[GraphClassifier, Graph], Watcher | None] | None = None,
) -> list[FittedTrial]:
    """Fit a trial, or several at once.

    Args:
        trials: One, or several that differ by their seeds alone, which count up, and
            have the same graph.
        device: ``"cpu"``, ``"cuda"`` or ``"auto"``.
        loaded: The graph as it was before split and noise; else it is loaded.
        data_dir: Where to look for datasets first.
        checkpoint: Where to save progress, of one trial.
        watch: Makes what is called after each outer step, from the estimator before
            the fit and from the whole graph.
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
    peak = peak_memory_bytes(model.model_.strengths.device)
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
    model: GraphClassifier, graph: Graph | GraphFolder, **options: Any
) -> float:
    """Fit, and return how many seconds that took; forget earlier peaks of memory.

    Args:
        model: The estimator.
        graph: In memory or on disk.
        options: Further arguments of ``fit``.
    """
    reset_peak_memory()
    begun = time.perf_counter()
    model.fit(graph, **options)
    return time.perf_counter() - begun


def trial_graph(
    trial: Trial, data_dir: Path | None = None, loaded: Graph | None = None
) -> Graph:
    """The graph of a trial, split, and with noise where the trial has some.

    Args:
        trial: Says which.
        data_dir: Where to look for datasets first.
        loaded: The graph as it was before; else it is loaded.
    """
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


def predicted_classes(model: GraphClassifier, data: Graph) -> Tensor:
    """Class of every node of the whole graph, ``[nodes]``.

    Args:
        model: Fitted on :func:`fitted_graph`.
        data: The whole graph.
    """
    if not has_unseen(data):
        return model.transduction_
    with warnings.catch_warnings():
        # That new edges get the vanilla weight is what is measured here.
        warnings.simplefilter("ignore", InputWarning)
        return model.predict(data)


def visible_noise(data: Graph, noise: int) -> int:
    """How many of the false edges the fit saw.

    Args:
        data: The whole graph.
        noise: How many false edges were added, in both directions, at its end.
    """
    if not has_unseen(data):
        return noise
    false = data.edge_index[:, data.num_edges - 2 * noise :]
    return int((~data.unseen_mask[false]).all(0).sum()) // 2


def accuracy(predicted: Tensor, data: Graph, mask: str) -> float | None:
    """Accuracy over the nodes of a mask whose label is known, if there are any.

    Args:
        predicted: Class of every node, ``[nodes]``.
        data: The graph.
        mask: Name of the mask.
    """
    if mask not in data or data[mask] is None:
        return None
    labels = data.y.cpu()
    known = data[mask].cpu() & (labels >= 0)
    if not bool(known.any()):
        return None
    return float((predicted[known] == labels[known]).double().mean())


def edge_outcome(model: GraphClassifier, added: int) -> list[EdgeGroups] | None:
    """Summarise strength / start by group; ``None`` where no structure was learned.

    All labels are read: this describes a fit after its end.

    Args:
        model: A fitted estimator.
        added: How many edges noise has added, in both directions, at the end of the
            graph's edges.

    Returns:
        For each layer, or once if all share the strengths, the groups ``within``,
        ``between`` (two classes, added edges apart) and ``false``.
    """
    if not model.model_.learned:
        return None
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
