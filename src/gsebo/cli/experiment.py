"""Fits of one plan: which estimator, on which graph, with which outcome."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any, final

from msgspec import structs

from gsebo.cli.settings import FitOptions, ModelPlace, parameters_of, read_settings
from gsebo.cli.ui.output import messages, print_json
from gsebo.cli.ui.progress import FitProgress
from gsebo.cli.ui.result_tables import choice_facts, print_choice, print_fit
from gsebo.data import DATASETS, GENERATED, load, save_npz
from gsebo.data.datasets.registry import is_graph_path
from gsebo.distributed import launched
from gsebo.errors import InvalidInput
from gsebo.experiments.fit import FittedTrial, fit_trials
from gsebo.experiments.trial import Trial, same_graph_for_all_seeds
from gsebo.experiments.versions import versions
from gsebo.graph.graph import Graph
from gsebo.lookup import normalise, own_name
from gsebo.methods import GSEBO, METHODS, GraphClassifier
from gsebo.training import Checkpoint

_MASKS = ("train_mask", "val_mask", "test_mask")
_RANDOM = "random:10/20/70"


@final
class GraphInput:
    """A graph by name or path, and which of its nodes are for what.

    Attributes:
        loaded: As it was loaded, before split and noise.
        name: Registered name, or the path as given.
        split: Name of the split that is used.
    """

    def __init__(self, plan: FitOptions) -> None:
        self._plan = plan
        self.loaded = load(
            plan.dataset, data_dir=plan.data_dir, normalize=plan.normalize
        )
        registered = normalise(plan.dataset) in {**DATASETS, **GENERATED}
        self._is_file = is_graph_path(plan.dataset) or not registered
        self.name = plan.dataset if self._is_file else normalise(plan.dataset)
        self.split = plan.split or self._default_split()

    def remember(self, data: Graph, folder: Path) -> str:
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
        if any(mask in self.loaded for mask in _MASKS):
            return "file"
        if "train_masks" in self.loaded:
            messages.note("The graph came with several splits; using file:0.")
            return "file:0"
        messages.note(
            f"The graph came without masks; using the split {_RANDOM}, by the seed."
        )
        return _RANDOM


@final
class Experiment:
    """Everything that was asked for, checked as far as possible without fitting.

    Args:
        plan: The options.
        methods: Names of the methods.

    Attributes:
        graph: The graph of all fits.
    """

    def __init__(self, plan: FitOptions, methods: list[str]) -> None:
        self._plan = plan
        names = (own_name("method", name, METHODS) for name in methods)
        self.methods = list(dict.fromkeys(names))
        estimators = [METHODS[name].estimator for name in self.methods]
        settings = read_settings(plan.settings, estimators)
        # Wrong values are told before a graph is loaded.
        self._parameters = {
            name: parameters_of(plan, name, settings) for name in self.methods
        }
        self.graph = GraphInput(plan)

    def run(
        self,
        method: str,
        seeds: list[int],
        progress: FitProgress,
        checkpoint: Checkpoint | None = None,
    ) -> list[FittedTrial]:
        """Fit one method with every seed, at once if all have the same graph."""
        parameters = dict(self._parameters[method])
        first = Trial(
            method=method,
            backbone=parameters.pop("backbone"),
            dataset=self._plan.dataset,
            split=self.graph.split,
            seed=seeds[0],
            noise=self._plan.noise,
            parameters=parameters,
        )
        trials = [structs.replace(first, seed=seed) for seed in seeds]
        together = len(seeds) > 1 and same_graph_for_all_seeds(first)
        return [
            fitted
            for some in ([trials] if together else [[trial] for trial in trials])
            for fitted in self._fit(some, progress, checkpoint)
        ]

    def run_all(self, method: str) -> tuple[FittedTrial, list[dict[str, Any]]]:
        """Fit one method with every seed; return the last fit and the facts of all."""
        with FitProgress(quiet=messages.quiet) as progress:
            fitted = self.run(method, self._plan.all_seeds, progress)
        return fitted[-1], [facts_of(one) for one in fitted]

    def _fit(
        self,
        trials: list[Trial],
        progress: FitProgress,
        checkpoint: Checkpoint | None,
    ) -> list[FittedTrial]:
        label = f"{trials[0].method}, seed {trials[0].seed}"
        if len(trials) > 1:
            first, last = trials[0], trials[-1]
            label = f"{first.method}, seeds {first.seed} to {last.seed}"
        return fit_trials(
            trials,
            device=self._plan.device,
            loaded=self.graph.loaded,
            checkpoint=checkpoint,
            watch=lambda model, _: progress.watch(label, model.get_params(deep=False)),
        )

    def summary(
        self, method: str, fitted: FittedTrial, runs: list[dict[str, Any]]
    ) -> Any:
        """The object that ``--json`` prints for one method.

        Args:
            method: Name of the method.
            fitted: One of its fits, for what is the same in all.
            runs: The facts of every fit; their mean is reported if there are several.
        """
        parameters = fitted.model.get_params(deep=False)
        del parameters["random_state"]
        device = fitted.model.model_.strengths.device
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
            "num_nodes": int(fitted.data.num_nodes),
            "num_edges": int(fitted.data.num_edges),
            "versions": versions(),
        }
        if self._plan.seeds is not None:
            result |= _statistics(runs)
        return result


def facts_of(fitted: FittedTrial) -> dict[str, Any]:
    """What is reported of one fit, its choice among it if the method makes one."""
    return {
        "seed": fitted.model.seed_,
        "test_accuracy": fitted.accuracy("test_mask"),
        "val_accuracy": fitted.accuracy("val_mask"),
        "outer_iterations": len(fitted.model.history_),
        "best_step": fitted.model.best_step_,
        "seconds": fitted.seconds,
        "peak_memory_bytes": fitted.peak_memory_bytes,
        **choice_facts(fitted.model),
    }


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


def fit_and_print(
    plan: FitOptions, method: str, place: ModelPlace | None, json: bool
) -> None:
    """Fit a method on a graph, save the model where asked for, and print the outcome.

    Args:
        plan: The options.
        method: Name of the method.
        place: Where the model goes, if it is to be saved.
        json: Whether to print JSON.
    """
    experiment = Experiment(plan, [method])
    if place is None:
        fitted, runs = experiment.run_all(experiment.methods[0])
    else:
        fitted = _run_and_save(experiment, plan, place)
        runs = [facts_of(fitted)]
    result = experiment.summary(experiment.methods[0], fitted, runs)
    if (launch := launched()) is not None:
        result["processes"] = launch.size
    if json:
        print_json(result)
        return
    print_choice(result)
    print_fit(result, fitted.model)
    _say_if_the_graph_was_kept(fitted.model)


def _say_if_the_graph_was_kept(model: GraphClassifier) -> None:
    """A fit that left every edge as it was should not look as if it had failed."""
    if isinstance(model, GSEBO) and hasattr(model, "strength_"):
        start = model.initial_strength_.expand_as(model.strength_)
        if model.outer_step == "trust" and bool((model.strength_ == start).all()):
            messages.note(
                "No strength was changed: on the nodes that decide, the graph as it "
                "was given did better than what was learned."
            )


def _run_and_save(
    experiment: Experiment, plan: FitOptions, place: ModelPlace
) -> FittedTrial:
    out, resume, every_seconds, is_first = place
    checkpoint = Checkpoint(out, every_seconds=every_seconds, resume=resume)
    if resume and not checkpoint.path.is_file():
        messages.note(f"There is no checkpoint in {out}; starting anew.")
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        with FitProgress(quiet=messages.quiet) as progress:
            (fitted,) = experiment.run(
                experiment.methods[0], [plan.seed], progress, checkpoint
            )
    except InvalidInput:
        if is_first:
            _remove_empty(missing)
        raise
    except KeyboardInterrupt:
        _say_how_to_resume(checkpoint)
        raise
    if is_first:
        fitted.model.save(out, dataset=experiment.graph.remember(fitted.data, out))
        checkpoint.remove()
        messages.note(f"The model is in {out}.")
    return fitted


def _remove_empty(folders: list[Path]) -> None:
    """Leave no trace of a fit that was refused after its folders were made."""
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _say_how_to_resume(checkpoint: Checkpoint) -> None:
    if checkpoint.path.is_file():
        messages.note(f"Interrupted; --resume goes on from {checkpoint.path}.")
