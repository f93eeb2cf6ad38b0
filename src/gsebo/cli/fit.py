"""``gsebo fit``: train one method on one graph."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from typer import Option

from gsebo.cli.options import (
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
from gsebo.cli.output import messages, print_json
from gsebo.cli.plan import Plan
from gsebo.errors import InvalidInput

if TYPE_CHECKING:
    from gsebo.cli.disk_inference import Outputs
    from gsebo.cli.experiment import Experiment, Trial
    from gsebo.methods import GraphClassifier
    from gsebo.training import Checkpoint


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
    from gsebo.data.folder import is_graph_folder
    from gsebo.training.distributed import quiet_other_ranks

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
    plan: Plan, method: str, outputs: "Outputs", place: _Place | None, json: bool
) -> None:
    from gsebo.cli.fit_folder import fit_folder, print_folder_fit
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
    from gsebo.training.distributed import launched

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
    from gsebo.cli.choice_table import print_choice
    from gsebo.cli.result_tables import print_fit

    print_choice(result)
    print_fit(result, trial.model)
    _say_if_the_graph_was_kept(trial.model)


def _say_if_the_graph_was_kept(model: "GraphClassifier") -> None:
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
    experiment: "Experiment", method: str, plan: Plan, quiet: bool
) -> tuple["Trial", list[dict[str, Any]]]:
    """Fit one method with every seed; return the last fit and the facts of all."""
    from gsebo.cli.progress import FitProgress

    with FitProgress(quiet=quiet) as progress:
        trials = experiment.run_all(method, plan.all_seeds, progress)
    return trials[-1], [facts_of(trial) for trial in trials]


def facts_of(trial: "Trial") -> dict[str, Any]:
    """What is reported of one fit, its choice among it if the method makes one."""
    from gsebo.cli.choice_table import choice_facts

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


def _run_and_save(experiment: "Experiment", plan: Plan, place: _Place) -> "Trial":
    from gsebo.cli.progress import FitProgress
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


def _save(experiment: "Experiment", trial: "Trial", out: Path) -> None:
    trial.model.save(out, dataset=experiment.graph.remember(trial.data, out))


def _remove_empty(folders: list[Path]) -> None:
    """Leave no trace of a fit that was refused after its folders were made."""
    for folder in folders:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _say_how_to_resume(checkpoint: "Checkpoint") -> None:
    if checkpoint.path.is_file():
        messages.note(f"Interrupted; --resume goes on from {checkpoint.path}.")
