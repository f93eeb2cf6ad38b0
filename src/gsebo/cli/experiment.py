"""What ``fit`` and ``compare`` do: fits of one graph, and what is shown of them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any, final

from msgspec import structs
from torch import Tensor

from gsebo.cli.fit import FitOptions, ModelPlace
from gsebo.cli.graph_options import with_features
from gsebo.cli.inspect import ModelEdges, unchanged_everywhere
from gsebo.cli.output import (
    ProgressBar,
    messages,
    percent,
    print_json,
    print_table,
    print_text,
    progress_bar,
)
from gsebo.data import DATASETS, GENERATED, noise_in_words, save_npz
from gsebo.data.datasets.registry import is_graph_path, is_table, is_tables_folder
from gsebo.distributed import launched
from gsebo.errors import InvalidInput
from gsebo.experiments.fit import FittedTrial, fit_trials, require_metric, versions
from gsebo.experiments.result import Trial, same_graph_for_all_seeds
from gsebo.graph.graph import Graph
from gsebo.methods import GSEBO, METHODS, Auto, GraphClassifier
from gsebo.methods.watching import expected_steps, step_in_words
from gsebo.metrics import METRICS, Metric
from gsebo.names import normalise, own_name
from gsebo.training import Checkpoint, StepRecord, Watcher

_MASKS = ("train_mask", "val_mask", "test_mask")
_RANDOM = "random:10/20/70"


def fit_and_print(
    options: FitOptions, method: str, place: ModelPlace, json: bool
) -> None:
    """Fit a method on a graph, save the model where asked for, print the outcome."""
    experiment = Experiment(options, [method])
    with checkpointed(place) as checkpoint:
        fits = experiment.run(method, checkpoint)
    fitted = fits[-1]
    if checkpoint is not None and place.is_first:
        dataset = experiment.remember(fitted.data, checkpoint.path.parent)
        save_fitted(fitted.model, checkpoint, dataset)
    result = experiment.summary(method, fits)
    if (launch := launched()) is not None:
        result["processes"] = launch.size
    if json:
        print_json(result)
        return
    _print_choice(result)
    _print_fit(result, fitted.model, options.shown)
    model = fitted.model
    if isinstance(model, GSEBO) and hasattr(model, "strength_"):
        # A fit that left every edge as it was should not look as if it had failed.
        start = model.initial_strength_.expand_as(model.strength_)
        if model.outer_step == "trust" and bool((model.strength_ == start).all()):
            messages.note(
                "No strength was changed: on the nodes that decide, the graph as it "
                "was given did better than what was learned."
            )


def compare_and_print(options: FitOptions, methods: list[str], json: bool) -> None:
    """Fit several methods on a graph, and print how they differ from the first."""
    experiment = Experiment(options, methods)
    results = [
        experiment.summary(method, experiment.run(method))
        for method in experiment.methods
    ]
    reference = results[0]["test"][options.shown]
    for result in results:
        own = result["test"][options.shown]
        result["difference"] = None if None in (own, reference) else own - reference
    if json:
        head = {"dataset": experiment.name, "backbone": results[0]["backbone"]}
        head["metric"] = options.shown
        print_json({**head, "seeds": options.all_seeds, "results": results})
        return
    _print_comparison(results, options.shown)


@final
class Experiment:
    """Everything that was asked for, checked as far as possible without fitting."""

    def __init__(self, options: FitOptions, methods: list[str]) -> None:
        self._options = options
        names = (own_name("method", name, METHODS) for name in methods)
        self.methods = list(dict.fromkeys(names))
        # Wrong values are told before a graph is loaded.
        self._parameters = options.parameters(self.methods)
        estimators = [
            METHODS[name].make(**{"random_state": options.seed, **parameters})
            for name, parameters in self._parameters.items()
        ]
        for estimator in estimators:
            estimator.check_parameters()
        dataset = options.dataset
        # Before split and noise.
        self._loaded = options.load_graph(
            dataset, data_dir=options.data_dir, normalize=options.normalize
        )
        for estimator in estimators:
            # Before the first of several is fitted.
            estimator.require_readable(self._loaded)
        registered = normalise(dataset) in {**DATASETS, **GENERATED}
        self._is_file = is_graph_path(dataset) or not registered
        self.name = dataset if self._is_file else normalise(dataset)
        self._split = options.split or self._default_split()

    def _default_split(self) -> str:
        if self.name in DATASETS:
            return DATASETS[self.name].default_split
        if any(mask in self._loaded for mask in _MASKS):
            return "file"
        if "train_masks" in self._loaded:
            messages.note("The graph came with several splits; using file:0.")
            return "file:0"
        messages.note(
            f"The graph came without masks; using the split {_RANDOM}, by the seed."
        )
        return _RANDOM

    def remember(self, data: Graph, folder: Path) -> str:
        """Return where ``predict`` finds the graph of the fit again.

        A graph that is not what its name or path stands for (other masks, edges or
        features) is stored beside the model.
        """
        options = self._options
        changed = options.noise_level or options.normalize is not None
        # How columns were called is not remembered, and a table may grow.
        tables = is_table(self.name) or is_tables_folder(self.name)
        if self._split == "file" and not changed and not tables:
            return str(Path(self.name).resolve()) if self._is_file else self.name
        path = folder.resolve() / "graph.npz"
        save_npz(data, path, overwrite=True)
        return str(path)

    @cached_property
    def _with_features(self) -> Graph:
        return with_features(self._loaded)

    def run(
        self, method: str, checkpoint: Checkpoint | None = None
    ) -> list[FittedTrial]:
        """Fit one method with every seed, at once if all have the same graph."""
        options, parameters = self._options, dict(self._parameters[method])
        first = Trial(
            method=method,
            backbone=parameters.pop("backbone"),
            dataset=options.dataset,
            split=self._split,
            seed=options.seed,
            noise=options.noise_level,
            parameters=parameters,
        )
        trials = [structs.replace(first, seed=seed) for seed in options.all_seeds]
        together = len(trials) > 1 and same_graph_for_all_seeds(first)
        groups = [trials] if together else [[trial] for trial in trials]
        fits: list[FittedTrial] = []
        needed = METHODS[method].make(**self._parameters[method]).reads_features()
        loaded = self._with_features if needed else self._loaded
        with progress_bar(quiet=messages.quiet) as bar:
            for group in groups:
                label = f"{method}, seed {group[0].seed}"
                if together:
                    label = f"{method}, seeds {group[0].seed} to {group[-1].seed}"
                fits += fit_trials(
                    group,
                    device=options.device,
                    loaded=loaded,
                    checkpoint=checkpoint,
                    watch=partial(self._watch, bar, label),
                )
        return fits

    def _watch(
        self, bar: ProgressBar, label: str, model: GraphClassifier, data: Graph
    ) -> Watcher:
        # What cannot be shown in the end is said before the fit.
        require_metric(self._options.shown, data)
        return step_watcher(bar, label, model, data)

    def summary(self, method: str, fits: list[FittedTrial]) -> dict[str, Any]:
        """The object that ``--json`` prints for one method: means if asked for."""
        fitted, runs = fits[-1], [_facts(one) for one in fits]
        parameters = fitted.model.get_params(deep=False)
        del parameters["random_state"]
        result: dict[str, Any] = {
            "dataset": self.name,
            "method": method,
            "backbone": parameters["backbone"],
            **runs[0],
            "peak_memory_bytes": max(run["peak_memory_bytes"] for run in runs),
            "device": str(fitted.model.model_.device),
            "split": self._split,
            "noise": self._options.noise_level,
            "preset": self._options.preset,
            "parameters": parameters,
            "num_nodes": int(fitted.data.num_nodes),
            "num_edges": int(fitted.data.num_edges),
            "metric": self._options.shown,
            "versions": versions(),
        }
        if (types := fitted.data.types) is not None:
            result["node_types"] = list(types.node_types)
            result["edge_types"] = [list(each) for each in types.edge_types]
        if self._options.seeds is not None:
            result |= _statistics(runs)
        return result


def _facts(fitted: FittedTrial) -> dict[str, Any]:
    """What is reported of one fit, its choice among it if the method makes one."""
    model = fitted.model
    facts: dict[str, Any] = {
        "seed": model.seed_,
        "test_accuracy": fitted.accuracy("test_mask"),
        "val_accuracy": fitted.accuracy("val_mask"),
        "test": fitted.scores("test_mask"),
        "val": fitted.scores("val_mask"),
        "outer_iterations": len(model.history_),
        "best_step": model.best_step_,
        "seconds": fitted.seconds,
        "peak_memory_bytes": fitted.peak_memory_bytes,
    }
    if isinstance(model, Auto):
        facts["choice"] = {
            "chosen": model.chosen_,
            "preparation": model.preparation_,
            "epochs": model.epochs_,
            "parameters": model.chosen_parameters_,
            "structure": _structure_facts(model),
            "tried": model.choice_,
        }
    return facts


def _structure_facts(model: GraphClassifier) -> dict[str, Any] | None:
    """Shares of the edges that changed, the mean over layers, and how many are new."""
    changes = ModelEdges.of(model).summary(top=0)
    if not changes["learned"]:
        return None
    total = changes["num_edges"] * len(changes["layers"])
    weakened, strengthened = (
        sum(layer[group]["count"] for layer in changes["layers"])
        for group in ("weakened", "strengthened")
    )
    return {
        "weakened_share": weakened / total,
        "strengthened_share": strengthened / total,
        "new_edges": model.new_edge_index_.shape[1],
    }


def _statistics(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard deviation (ddof = 1) over the runs."""
    result: dict[str, Any] = {}
    for key in ("test_accuracy", "val_accuracy"):
        found = _mean_and_spread([run[key] for run in runs])
        result[key], result[f"{key}_std"] = found
    for key in ("test", "val"):
        for name in METRICS:
            found = _mean_and_spread([run[key][name] for run in runs])
            for part, value in zip((key, f"{key}_std"), found, strict=True):
                result.setdefault(part, {})[name] = value
    result["seconds"] = sum(run["seconds"] for run in runs)
    return {**result, "runs": runs}


def _mean_and_spread(values: list[float | None]) -> tuple[float | None, float | None]:
    """Both are unknown where one of the values is."""
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None, None
    return mean(known), stdev(known) if len(known) > 1 else 0.0


# --- while a fit runs ----------------------------------------------------------------


@contextmanager
def checkpointed(place: ModelPlace) -> Iterator[Checkpoint | None]:
    """Save progress where a model is to be saved; say how to go on if interrupted."""
    if place.out is None:
        yield None
        return
    checkpoint = Checkpoint(
        place.out, every_seconds=place.checkpoint_seconds, resume=place.resume
    )
    if place.resume and not checkpoint.path.is_file():
        messages.note(f"There is no checkpoint in {place.out}; starting anew.")
    missing = [one for one in (place.out, *place.out.parents) if not one.exists()]
    try:
        yield checkpoint
    except InvalidInput:
        # Leave no trace of a fit that was refused after its folders were made.
        for folder in missing if place.is_first else ():
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        raise
    except KeyboardInterrupt:
        if checkpoint.path.is_file():
            messages.note(f"Interrupted; --resume goes on from {checkpoint.path}.")
        raise


def save_fitted(model: GraphClassifier, checkpoint: Checkpoint, dataset: str) -> None:
    """Write a model in the place of its checkpoint."""
    out = checkpoint.path.parent
    # What may not be replaced was refused before the fit.
    model.save(out, dataset=dataset, overwrite=True)
    checkpoint.remove()
    messages.note(f"The model is in {out}.")


def step_watcher(
    bar: ProgressBar, label: str, model: GraphClassifier, graph: object
) -> Watcher:
    """What shows the steps of a fit that is about to begin."""
    parameters = model.get_params(deep=False)
    total = expected_steps(parameters)
    bar.report(label, 0, total)

    def watch(record: StepRecord, logits: Tensor) -> None:
        # With a first step taken, the input was good.
        messages.release()
        bar.report(label, record.step, total, step_in_words(record, parameters))

    return watch


# --- tables --------------------------------------------------------------------------


def _print_fit(result: dict[str, Any], model: GraphClassifier, metric: str) -> None:
    """Print the outcome of one method, and what its last fit did to the edges."""
    runs = result.get("runs", [])
    several = len(runs) > 1
    if several:
        _print_runs(runs, metric)
    title = METRICS[metric].title
    rows: list[tuple[str, object]] = [
        (f"test {title}", _with_spread(result, "test", metric)),
        (f"validation {title}", _with_spread(result, "val", metric)),
        ("seconds", f"{result['seconds']:.1f}"),
    ]
    if not several:
        best = f"{result['best_step']} of {result['outer_iterations']}"
        rows += [("best step", best), ("structure", _structure_in_words(model))]
    nodes, edges = f"{result['num_nodes']} nodes", f"{result['num_edges']} edges"
    if "node_types" in result:
        nodes += f" of {len(result['node_types'])} types"
        edges += f" of {len(result['edge_types'])} relations"
    rows += [
        ("graph", f"{nodes}, {edges}"),
        ("split", result["split"]),
        ("device", result["device"]),
    ]
    noise = f", {noise_in_words(result['noise'])}" if result["noise"] else ""
    seeds = f"{len(runs)} seeds" if several else f"seed {result['seed']}"
    what = f"{result['method']} on {result['dataset']}, {result['backbone']}"
    print_table(f"{what}, {seeds}{noise}", ("", ""), rows)


def _print_runs(runs: list[dict[str, Any]], metric: str) -> None:
    print_table(
        "Runs" if metric == "accuracy" else f"Runs, {METRICS[metric].title}",
        (">seed", ">test", ">validation", ">best step", ">steps", ">seconds"),
        (
            (
                run["seed"],
                _with_spread(run, "test", metric),
                _with_spread(run, "val", metric),
                run["best_step"],
                run["outer_iterations"],
                f"{run['seconds']:.1f}",
            )
            for run in runs
        ),
    )


def _structure_in_words(model: GraphClassifier) -> str:
    """Say in one line what the fit did to the edges."""
    changes = ModelEdges.of(model).summary(top=0)
    if not changes["learned"]:
        return "not learned: every edge counts as at the start"
    added = model.new_edge_index_.shape[1]
    if unchanged_everywhere(changes) and not added:
        return "no edge changed: the best step came before the first change"
    parts = [f"{added} edges added"] if added else []
    for layer in changes["layers"]:
        prefix = "" if layer["layer"] is None else f"layer {layer['layer']}: "
        parts.append(
            f"{prefix}{layer['weakened']['count']} edges weakened, "
            f"{layer['strengthened']['count']} strengthened, "
            f"{layer['unchanged']['count']} as before"
        )
    return "; ".join(parts)


def _print_comparison(results: list[dict[str, Any]], metric: str) -> None:
    first = results[0]
    number = len(first["runs"])
    seeds = f"{number} seed" + ("s" if number > 1 else "")
    difference = f">difference to {first['method']}"
    columns = ("method", "backbone", ">test", ">validation", ">seconds per run")
    measured = "" if metric == "accuracy" else f", {METRICS[metric].title}"
    print_table(
        f"{first['dataset']}, {seeds}, split {first['split']}{measured}",
        (*columns, ">peak memory", difference),
        (
            (
                result["method"],
                result["backbone"],
                _with_spread(result, "test", metric),
                _with_spread(result, "val", metric),
                f"{result['seconds'] / number:.1f}",
                f"{result['peak_memory_bytes'] / 1e6:.0f} MB",
                None
                if result is first or result["difference"] is None
                else _signed(result["difference"], metric),
            )
            for result in results
        ),
    )


def _with_spread(result: dict[str, Any], key: str, metric: str) -> str | None:
    value, how = result[key][metric], METRICS[metric]
    if value is None or len(result.get("runs", [])) < 2:
        return _written(how, value)
    return how.with_spread(value, result[f"{key}_std"][metric])


def _written(metric: Metric, value: float | None) -> str | None:
    return None if value is None else metric.written(value)


def _signed(difference: float, metric: str) -> str:
    if METRICS[metric].in_percent:
        return f"{100 * difference:+.1f}"
    return f"{difference:+.3f}"


def _print_choice(result: dict[str, Any]) -> None:
    """Print what was tried and one sentence on what was chosen, if anything was."""
    runs = result.get("runs", [])
    if "choice" not in result:
        return
    if len(runs) > 1:
        counts = Counter(run["choice"]["chosen"] for run in runs)
        times = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        print_text(f"Chosen in {len(runs)} runs: {times}.")
        return
    tried, structure = result["choice"]["tried"], result["choice"]["structure"]
    columns = ("candidate", "features", ">epochs", ">accuracy", ">log-loss", ">folds")
    # What decided, if it was another metric.
    by = METRICS.get(result["parameters"]["select_by"], METRICS["accuracy"])
    decided = any(record["score"] is not None for record in tried)
    print_table(
        "Candidates on labelled nodes that were held out",
        (*columns, *((f">{by.title}",) if decided else ()), ">seconds"),
        (
            (
                record["candidate"],
                record["preparation"],
                record["epochs"],
                percent(record["accuracy"]),
                None if record["log_loss"] is None else f"{record['log_loss']:.3f}",
                len(record["fold_accuracy"]),
                *((_written(by, record["score"]),) if decided else ()),
                f"{record['seconds']:.1f}",
            )
            for record in tried
        ),
    )
    chosen = next(record for record in tried if record["chosen"])
    print_text(f"Chose {chosen['candidate']} because {chosen['reason']}.")
    words = "as given, no edge was changed"
    if structure is not None:
        words = (
            f"{percent(structure['weakened_share'])} of the edges are weaker, "
            f"{percent(structure['strengthened_share'])} stronger, "
            f"{structure['new_edges']} are new"
        )
    print_text(f"Structure: {words}.")
