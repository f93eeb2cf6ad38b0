"""``gsebo fit``: train one method on one graph."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Option

from gsebo.cli.disk_inference import Outputs, inferred
from gsebo.cli.edge_changes import summarise
from gsebo.cli.settings import Plan, parameters_of, read_settings
from gsebo.cli.ui.options import (
    Backbone,
    BatchesPerStep,
    BatchSize,
    DataDir,
    Dataset,
    Device,
    Json,
    Memory,
    Noise,
    Normalize,
    Predictions,
    Preset,
    Quiet,
    Sampler,
    Seed,
    Seeds,
    Settings,
    Split,
    Strengths,
)
from gsebo.cli.ui.output import messages, percent, print_json, print_table, print_text
from gsebo.cli.ui.progress import FitProgress
from gsebo.data.formats.folder import GraphFolder
from gsebo.distributed import launched
from gsebo.errors import InvalidInput
from gsebo.experiments.versions import reset_peak_memory, versions
from gsebo.lookup import own_name
from gsebo.methods import METHODS, Auto, GraphClassifier
from gsebo.methods.folder_fit import on_folders
from gsebo.training import Checkpoint

if TYPE_CHECKING:
    from gsebo.cli.experiment import Experiment, Trial


def choice_facts(model: GraphClassifier) -> dict[str, Any]:
    """What ``--json`` adds for a method that chooses; nothing for others."""
    if not isinstance(model, Auto):
        return {}
    return {
        "choice": {
            "chosen": model.chosen_,
            "preparation": model.preparation_,
            "epochs": model.epochs_,
            "parameters": model.chosen_parameters_,
            "structure": _structure(model),
            "tried": model.choice_,
        }
    }


def print_choice(result: dict[str, Any]) -> None:
    """Print what was tried and one sentence on what was chosen.

    Args:
        result: As in the JSON form; without a choice nothing is printed.
    """
    runs = result.get("runs", [])
    if "choice" not in result:
        return
    if len(runs) > 1:
        counts = Counter(run["choice"]["chosen"] for run in runs)
        times = ", ".join(f"{name} {count}" for name, count in counts.most_common())
        print_text(f"Chosen in {len(runs)} runs: {times}.")
        return
    choice = result["choice"]
    print_table(
        "Candidates on labelled nodes that were held out",
        (
            "candidate",
            "features",
            ">epochs",
            ">accuracy",
            ">log-loss",
            ">folds",
            ">seconds",
        ),
        (_row(record) for record in choice["tried"]),
    )
    chosen = next(record for record in choice["tried"] if record["chosen"])
    print_text(f"Chose {chosen['candidate']} because {chosen['reason']}.")
    print_text(f"Structure: {_in_words(choice['structure'])}.")


def _row(record: dict[str, Any]) -> tuple[object, ...]:
    loss = record["log_loss"]
    return (
        record["candidate"],
        record["preparation"],
        record["epochs"],
        percent(record["accuracy"]),
        None if loss is None else f"{loss:.3f}",
        len(record["fold_accuracy"]),
        f"{record['seconds']:.1f}",
    )


def _structure(model: GraphClassifier) -> dict[str, Any] | None:
    """Shares of the edges that changed, the mean over layers, and how many are new."""
    changes = summarise(model, top=0)
    if not changes.learned:
        return None
    total = changes.num_edges * len(changes.layers)
    weakened = sum(layer.weakened.count for layer in changes.layers)
    strengthened = sum(layer.strengthened.count for layer in changes.layers)
    return {
        "weakened_share": weakened / total,
        "strengthened_share": strengthened / total,
        "new_edges": model.new_edge_index_.shape[1],
    }


def _in_words(structure: dict[str, Any] | None) -> str:
    if structure is None:
        return "as given, no edge was changed"
    return (
        f"{percent(structure['weakened_share'])} of the edges are weaker, "
        f"{percent(structure['strengthened_share'])} stronger, "
        f"{structure['new_edges']} are new"
    )


def _refuse_options(plan: Plan) -> None:
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


def fit_folder(
    plan: Plan,
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
    estimator = METHODS[name].estimator
    settings = read_settings(plan.settings, [estimator])
    model = estimator(**parameters_of(plan, name, settings), random_state=plan.seed)
    if on_folders(model) is None:
        raise InvalidInput(
            f"{name} without a batch size given for the graph folder {plan.dataset}; "
            "expected --batch-size and one of the methods gsebo and amortised."
        )
    reset_peak_memory()
    begun = time.perf_counter()
    with FitProgress(quiet=messages.quiet) as progress:
        watcher = progress.watch(f"{name}, seed {plan.seed}", model.get_params())
        model.fit(folder, checkpoint=checkpoint, watcher=watcher)
    seconds = time.perf_counter() - begun
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


def print_folder_fit(result: dict[str, Any]) -> None:
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


def fit(
    dataset: Dataset,
    method: Annotated[
        str, Option(help="A name of [bold]gsebo list methods[/bold].")
    ] = "gsebo",
    backbone: Backbone = None,
    preset: Preset = None,
    settings: Settings = None,
    batch_size: BatchSize = None,
    sampler: Sampler = None,
    batches_per_step: BatchesPerStep = None,
    seed: Seed = 0,
    seeds: Seeds = None,
    split: Split = None,
    noise: Noise = "0",
    data_dir: DataDir = None,
    normalize: Normalize = None,
    device: Device = "auto",
    out: Annotated[
        Path | None, Option(help="Folder to save the model in, and checkpoints before.")
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="Go on from the checkpoint in --out.")
    ] = False,
    predictions: Predictions = None,
    strengths: Strengths = None,
    memory: Memory = "1G",
    checkpoint_seconds: Annotated[float, Option(min=0.0, hidden=True)] = 10.0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a method on a graph and say how well it did and what it changed.

    Accuracies in JSON are fractions, and num_edges counts both directions of
    an undirected edge.
    """
    messages.quiet = quiet
    _check_folder(out, resume, seeds)
    from gsebo.cli.settings import short_settings
    from gsebo.data import noise_spec

    short = short_settings(
        batch_size=batch_size, sampler=sampler, batches_per_step=batches_per_step
    )
    plan = Plan(
        dataset=dataset,
        backbone=backbone,
        preset=preset,
        settings=(*(settings or ()), *short),
        seed=seed,
        seeds=seeds,
        split=split,
        noise=noise_spec(noise, "--noise"),
        data_dir=data_dir,
        normalize=normalize,
        device=device,
    )
    from gsebo.cli.disk_inference import Outputs, read_bytes
    from gsebo.data.formats.folder import is_graph_folder
    from gsebo.distributed import quiet_other_ranks

    with quiet_other_ranks() as is_first:
        messages.quiet = quiet or not is_first
        place = _Place(out, resume, checkpoint_seconds, is_first) if out else None
        if is_graph_folder(dataset):
            outputs = Outputs(predictions, strengths, read_bytes(memory))
            _fit_folder_and_print(plan, method, outputs, place, json)
        else:
            _refuse_outputs(predictions, strengths)
            _fit_and_print(plan, method, place, json)


class _Place(NamedTuple):
    """Where the model goes; only the first of several processes writes it."""

    out: Path
    resume: bool
    checkpoint_seconds: float
    is_first: bool


def _refuse_outputs(*paths: Path | None) -> None:
    for path in paths:
        if path is not None:
            raise InvalidInput(
                f"{path} given for a graph that is no graph folder; expected --out, "
                "and gsebo predict or gsebo inspect."
            )


def _fit_folder_and_print(
    plan: Plan, method: str, outputs: Outputs, place: _Place | None, json: bool
) -> None:
    from gsebo.training import Checkpoint

    out = checkpoint = None
    if place is not None:
        out = place.out if place.is_first else None
        checkpoint = Checkpoint(
            place.out, every_seconds=place.checkpoint_seconds, resume=place.resume
        )
    result = fit_folder(plan, method, outputs, out, checkpoint)
    if checkpoint is not None and out is not None:
        checkpoint.remove()
    if result is None:
        return
    if json:
        print_json(result)
        return
    print_folder_fit(result)


def _fit_and_print(plan: Plan, method: str, place: _Place | None, json: bool) -> None:
    from gsebo.cli.experiment import Experiment
    from gsebo.distributed import launched

    experiment = Experiment(plan, [method])
    if place is None:
        trial, runs = run_all(experiment, experiment.methods[0], plan, messages.quiet)
    else:
        trial = _run_and_save(experiment, plan, place)
        runs = [facts_of(trial)]
    result = experiment.summary(experiment.methods[0], trial, runs)
    if (launch := launched()) is not None:
        result["processes"] = launch.size
    if json:
        print_json(result)
        return
    from gsebo.cli.ui.result_tables import print_fit

    print_choice(result)
    print_fit(result, trial.model)
    _say_if_the_graph_was_kept(trial.model)


def _say_if_the_graph_was_kept(model: GraphClassifier) -> None:
    """A fit that left every edge as it was should not look as if it had failed."""
    from gsebo.methods import GSEBO

    if isinstance(model, GSEBO) and hasattr(model, "strength_"):
        start = model.initial_strength_.expand_as(model.strength_)
        if model.outer_step == "trust" and bool((model.strength_ == start).all()):
            messages.note(
                "No strength was changed: on the nodes that decide, the graph as it "
                "was given did better than what was learned."
            )


def run_all(
    experiment: Experiment, method: str, plan: Plan, quiet: bool
) -> tuple[Trial, list[dict[str, Any]]]:
    """Fit one method with every seed; return the last fit and the facts of all."""
    from gsebo.cli.ui.progress import FitProgress

    with FitProgress(quiet=quiet) as progress:
        trials = experiment.run_all(method, plan.all_seeds, progress)
    return trials[-1], [facts_of(trial) for trial in trials]


def facts_of(trial: Trial) -> dict[str, Any]:
    """What is reported of one fit, its choice among it if the method makes one."""
    return {**trial.facts, **choice_facts(trial.model)}


def _check_folder(out: Path | None, resume: bool, seeds: int | None) -> None:
    if resume and out is None:
        raise InvalidInput(
            "--resume given without --out; expected the folder as --out."
        )
    if out is not None and seeds is not None and seeds > 1:
        raise InvalidInput(
            f"--out given with --seeds {seeds}; expected one seed for one model."
        )


def _run_and_save(experiment: Experiment, plan: Plan, place: _Place) -> Trial:
    from gsebo.cli.ui.progress import FitProgress
    from gsebo.training import Checkpoint

    out, resume, every_seconds, is_first = place
    checkpoint = Checkpoint(out, every_seconds=every_seconds, resume=resume)
    if resume and not checkpoint.path.is_file():
        messages.note(f"There is no checkpoint in {out}; starting anew.")
    missing = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        with FitProgress(quiet=messages.quiet) as progress:
            trial = experiment.run(
                experiment.methods[0], plan.seed, progress, checkpoint
            )
    except InvalidInput:
        if is_first:
            _remove_empty(missing)
        raise
    except KeyboardInterrupt:
        _say_how_to_resume(checkpoint)
        raise
    if is_first:
        _save(experiment, trial, out)
        checkpoint.remove()
        messages.note(f"The model is in {out}.")
    return trial


def _save(experiment: Experiment, trial: Trial, out: Path) -> None:
    trial.model.save(out, dataset=experiment.graph.remember(trial.data, out))


def _remove_empty(folders: list[Path]) -> None:
    """Leave no trace of a fit that was refused after its folders were made."""
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _say_how_to_resume(checkpoint: Checkpoint) -> None:
    if checkpoint.path.is_file():
        messages.note(f"Interrupted; --resume goes on from {checkpoint.path}.")
