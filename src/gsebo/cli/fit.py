"""``gsebo fit``: train one method on one graph."""

from pathlib import Path
from typing import Annotated

from typer import Option

from gsebo.cli.settings import FitOptions, ModelPlace, short_settings
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
from gsebo.cli.ui.output import messages
from gsebo.data import noise_spec
from gsebo.errors import InvalidInput


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
    short = short_settings(
        batch_size=batch_size, sampler=sampler, batches_per_step=batches_per_step
    )
    options = FitOptions(
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
    options.check_names([method])
    # Only now what needs torch: until here a slip is told at once.
    from gsebo.data import is_graph_folder
    from gsebo.distributed import quiet_other_ranks

    with quiet_other_ranks() as is_first:
        messages.quiet = quiet or not is_first
        place = (
            None
            if out is None
            else ModelPlace(out, resume, checkpoint_seconds, is_first)
        )
        if is_graph_folder(dataset) and options.parameter(method, "batch_size"):
            from gsebo.cli import disk_inference as on_disk

            outputs = on_disk.Outputs(
                predictions, strengths, on_disk.memory_in_bytes(memory)
            )
            on_disk.fit_folder_and_print(options, method, outputs, place, json)
        else:
            _refuse_outputs(predictions, strengths)
            from gsebo.cli.experiment import fit_and_print

            fit_and_print(options, method, place, json)


def _check_folder(out: Path | None, resume: bool, seeds: int | None) -> None:
    if resume and out is None:
        raise InvalidInput(
            "--resume given without --out; expected the folder as --out."
        )
    if out is not None and seeds is not None and seeds > 1:
        raise InvalidInput(
            f"--out given with --seeds {seeds}; expected one seed for one model."
        )


def _refuse_outputs(*paths: Path | None) -> None:
    for path in paths:
        if path is not None:
            raise InvalidInput(
                f"{path} given for a fit in memory; expected a graph folder and "
                "--batch-size, or --out, and gsebo predict or gsebo inspect."
            )
