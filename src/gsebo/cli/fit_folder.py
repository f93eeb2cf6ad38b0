"""``gsebo fit`` on a graph folder: trained on batches, never read as a whole."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from gsebo.cli.disk_inference import Outputs, inferred
from gsebo.cli.method_parameters import parameters_of
from gsebo.cli.output import messages, percent, print_table
from gsebo.cli.plan import Plan
from gsebo.cli.progress import FitProgress
from gsebo.cli.settings import read_settings
from gsebo.data.folder import GraphFolder
from gsebo.errors import InvalidInput
from gsebo.experiments.memory import reset_peak_memory
from gsebo.experiments.versions import versions
from gsebo.lookup import own_name
from gsebo.methods import METHODS
from gsebo.methods.folder_fit import on_folders
from gsebo.training import Checkpoint
from gsebo.training.distributed import launched


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
