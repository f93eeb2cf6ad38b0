"""Fits of one plan: which estimator, on which graph, with which outcome."""

import time
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, final

import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.cli.settings import Plan, parameters_of, read_settings
from gsebo.cli.ui.output import messages
from gsebo.cli.ui.progress import FitProgress
from gsebo.data import (
    DATASETS,
    GENERATED,
    apply_noise,
    apply_split,
    load,
    save_npz,
    validate,
)
from gsebo.experiments.trial import fitted_graph, predicted_classes
from gsebo.experiments.versions import peak_memory_bytes, reset_peak_memory, versions
from gsebo.lookup import normalise, own_name
from gsebo.methods import METHODS, GraphClassifier
from gsebo.training import Checkpoint

_MASKS = ("train_mask", "val_mask", "test_mask")
_RANDOM = "random:10/20/70"


@final
class GraphInput:
    """A graph by name or path, and which of its nodes are for what.

    Attributes:
        name: Registered name, or the path as given.
        split: Name of the split that is used.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._data = load(
            plan.dataset, data_dir=plan.data_dir, normalize=plan.normalize
        )
        registered = normalise(plan.dataset) in {**DATASETS, **GENERATED}
        path = Path(plan.dataset)
        self._is_file = path.suffix == ".npz" or path.is_file() or not registered
        self.name = plan.dataset if self._is_file else normalise(plan.dataset)
        self.split = plan.split or self._default_split()

    def for_seed(self, seed: int) -> Data:
        """Return the graph of the run with this seed."""
        data = apply_split(self._data, self.split, seed)
        if self._plan.noise:
            # Noise takes for granted that edges name existing nodes, and the like.
            validate(data, features_needed=False)
            data = apply_noise(data, self._plan.noise, seed=seed)
        return data

    def is_same_for(self, seeds: list[int]) -> bool:
        """Whether neither the split nor the noise depends on the seed."""
        if self._plan.noise:
            return False
        first, *others = (self.for_seed(seed) for seed in seeds)
        masks = [mask for mask in _MASKS if mask in first]
        return all(
            torch.equal(first[mask], other[mask]) for other in others for mask in masks
        )

    def remember(self, data: Data, folder: Path) -> str:
        """Return where ``predict`` finds the graph of the fit again.

        A graph that is not what its name or path stands for (other masks, edges or
        features) is stored beside the model.
        """
        plan = self._plan
        as_it_is = self.split == "file" and not plan.noise and plan.normalize is None
        if as_it_is:
            return str(Path(self.name).resolve()) if self._is_file else self.name
        path = folder.resolve() / "graph.npz"
        save_npz(data, path)
        return str(path)

    def _default_split(self) -> str:
        if self.name in DATASETS:
            return DATASETS[self.name].default_split
        if any(mask in self._data for mask in _MASKS):
            return "file"
        if "train_masks" in self._data:
            messages.note("The graph came with several splits; using file:0.")
            return "file:0"
        messages.note(
            f"The graph came without masks; using the split {_RANDOM}, by the seed."
        )
        return _RANDOM


@dataclass(frozen=True, eq=False)
class Trial:
    """One fit.

    Attributes:
        model: The fitted estimator.
        data: The graph, with the nodes that the fit did not see if there are any.
        facts: What is reported of it.
    """

    model: GraphClassifier
    data: Data
    facts: dict[str, Any]


@final
class Experiment:
    """Everything that was asked for, checked as far as possible without fitting.

    Args:
        plan: The options.
        methods: Names of the methods.

    Attributes:
        graph: The graph of all fits.
    """

    def __init__(self, plan: Plan, methods: list[str]) -> None:
        self._plan = plan
        names = [own_name("method", name, METHODS) for name in methods]
        self._estimators = {name: METHODS[name].estimator for name in names}
        self.methods = list(self._estimators)
        settings = read_settings(plan.settings, list(self._estimators.values()))
        # Wrong values are told before a graph is loaded.
        self._parameters = {
            name: parameters_of(plan, name, settings) for name in self.methods
        }
        self.graph = GraphInput(plan)

    def run(
        self,
        method: str,
        seed: int,
        progress: FitProgress,
        checkpoint: Checkpoint | None = None,
    ) -> Trial:
        """Fit one method with one seed."""
        (trial,) = self._fit(method, [seed], progress, checkpoint)
        return trial

    def run_all(
        self, method: str, seeds: list[int], progress: FitProgress
    ) -> list[Trial]:
        """Fit one method with every seed, at once if all have the same graph."""
        if self.graph.is_same_for(seeds):
            return self._fit(method, seeds, progress)
        return [self.run(method, seed, progress) for seed in seeds]

    def _fit(
        self,
        method: str,
        seeds: list[int],
        progress: FitProgress,
        checkpoint: Checkpoint | None = None,
    ) -> list[Trial]:
        data = self.graph.for_seed(seeds[0])
        visible = fitted_graph(data)
        reset_peak_memory()
        parameters = self._parameters[method]
        model = self._estimators[method](**parameters, random_state=seeds[0])
        # The bar reads the parameters before the fit does.
        model.check_parameters()
        label = f"{method}, seed {seeds[0]}"
        if len(seeds) > 1:
            label = f"{method}, seeds {seeds[0]} to {seeds[-1]}"
        watcher = progress.watch(label, model.get_params(deep=False))
        begun = time.perf_counter()
        model.fit(visible, replicas=len(seeds), checkpoint=checkpoint, watcher=watcher)
        wall = time.perf_counter() - begun
        peak = peak_memory_bytes(model.model_.strengths.device)
        return [
            Trial(replica, data, _facts(replica, data, wall, peak, len(seeds)))
            for replica in model.replicas_
        ]

    def summary(self, method: str, trial: Trial, runs: list[dict[str, Any]]) -> Any:
        """The object that ``--json`` prints for one method.

        Args:
            method: Name of the method.
            trial: One of its fits, for what is the same in all.
            runs: The facts of every fit; their mean is reported if there are several.
        """
        parameters = trial.model.get_params(deep=False)
        del parameters["random_state"]
        device = trial.model.model_.strengths.device
        result: dict[str, Any] = {
            "dataset": self.graph.name,
            "method": method,
            "backbone": parameters["backbone"],
            **runs[0],
            "peak_memory_bytes": max(run["peak_memory_bytes"] for run in runs),
            "device": str(device),
            "split": self.graph.split,
            "noise": self._plan.noise,
            "preset": self._plan.preset,
            "parameters": parameters,
            "num_nodes": int(trial.data.num_nodes),
            "num_edges": int(trial.data.num_edges),
            "versions": versions(),
        }
        if self._plan.seeds is not None:
            result |= _statistics(runs)
        return result


def _facts(
    model: GraphClassifier, data: Data, wall: float, peak: int, together: int
) -> dict[str, Any]:
    """What is reported of one fit out of some that were made together."""
    predicted = predicted_classes(model, data)
    # The history of a resumed fit includes what was done before.
    seconds = max(wall, model.history_[-1].seconds)
    return {
        "seed": model.seed_,
        "test_accuracy": _accuracy(predicted, data, "test_mask"),
        "val_accuracy": _accuracy(predicted, data, "val_mask"),
        "outer_iterations": len(model.history_),
        "best_step": model.best_step_,
        "seconds": seconds / together,
        "peak_memory_bytes": peak,
    }


def _accuracy(predicted: Tensor, data: Data, mask: str) -> float | None:
    """Accuracy over the nodes of a mask whose label is known, if there are any."""
    if mask not in data or data[mask] is None:
        return None
    known = data[mask] & (data.y >= 0)
    if not bool(known.any()):
        return None
    return float((predicted[known] == data.y[known]).double().mean())


def _statistics(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation (ddof = 1) over the runs."""
    result: dict[str, Any] = {}
    for key in ("test_accuracy", "val_accuracy"):
        values = [run[key] for run in runs]
        unknown = None in values
        result[key] = None if unknown else mean(values)
        spread = stdev(values) if len(values) > 1 and not unknown else 0.0
        result[f"{key}_std"] = None if unknown else spread
    result["seconds"] = sum(run["seconds"] for run in runs)
    return {**result, "runs": runs}
