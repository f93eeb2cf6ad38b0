"""``gsebo compare``: several methods on one graph, side by side."""

from typing import Annotated

from typer import Option

from gsebo.cli.settings import FitOptions
from gsebo.cli.ui.options import (
    Backbone,
    DataDir,
    Dataset,
    Device,
    Json,
    Noise,
    Normalize,
    Preset,
    Quiet,
    Seed,
    Seeds,
    Settings,
    Split,
)
from gsebo.cli.ui.output import messages, print_json
from gsebo.data import noise_spec
from gsebo.errors import InvalidInput
from gsebo.lookup import normalise
from gsebo.methods import METHODS


def compare(
    dataset: Dataset,
    methods: Annotated[
        str,
        Option(
            help="Names, separated by commas, or all; the first is the reference, with "
            "all it is vanilla."
        ),
    ] = "vanilla,gsebo",
    backbone: Backbone = None,
    preset: Preset = None,
    settings: Settings = None,
    seed: Seed = 0,
    seeds: Seeds = None,
    split: Split = None,
    noise: Noise = "0",
    data_dir: DataDir = None,
    normalize: Normalize = None,
    device: Device = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train several methods on the same graph with the same seeds.

    A parameter of --set goes to those methods that have it.
    """
    messages.quiet = quiet
    names = _method_names(methods, backbone)
    options = FitOptions(
        dataset=dataset,
        backbone=backbone,
        preset=preset,
        settings=tuple(settings or ()),
        seed=seed,
        seeds=seeds or 1,
        split=split,
        noise=noise_spec(noise, "--noise"),
        data_dir=data_dir,
        normalize=normalize,
        device=device,
    )
    options.check_names(names)
    # Only now what needs torch: until here a slip is told at once.
    from gsebo.cli.experiment import Experiment
    from gsebo.cli.ui.result_tables import print_comparison

    experiment = Experiment(options, names)
    results = []
    for method in experiment.methods:
        fitted, runs = experiment.run_all(method)
        results.append(experiment.summary(method, fitted, runs))
    reference = results[0]["test_accuracy"]
    for result in results:
        own = result["test_accuracy"]
        result["difference"] = None if None in (own, reference) else own - reference
    if json:
        print_json(
            {
                "dataset": experiment.graph.name,
                "backbone": results[0]["backbone"],
                "seeds": options.all_seeds,
                "results": results,
            }
        )
        return
    print_comparison(results)


def _method_names(methods: str, backbone: str | None) -> list[str]:
    names = [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise InvalidInput(
            f"--methods {methods!r} given; expected names separated by commas."
        )
    if names != ["all"]:
        return names
    fitting = [
        name
        for name, info in METHODS.items()
        if backbone is None
        or not info.backbones
        or normalise(backbone) in info.backbones
    ]
    if missing := [name for name in METHODS if name not in fitting]:
        messages.note(f"Without {', '.join(missing)}: not for {backbone}.")
    return ["vanilla", *(name for name in fitting if name != "vanilla")]
