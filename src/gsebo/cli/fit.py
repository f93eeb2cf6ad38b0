"""``gsebo fit`` and ``gsebo compare``: their options, of which nothing needs torch."""

import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union

from typer import Argument, Option

from gsebo.cli.graph_options import GraphOptions, with_options
from gsebo.cli.options import (
    DataDir,
    Force,
    Json,
    Memory,
    MetricOption,
    Normalize,
    Quiet,
    Seed,
    Strengths,
    require_new,
)
from gsebo.cli.output import messages
from gsebo.data import noise_spec
from gsebo.data.datasets.registry import require_known_graph
from gsebo.errors import InvalidInput
from gsebo.methods import METHODS
from gsebo.methods.presets import presets
from gsebo.metrics import METRICS
from gsebo.names import normalise, own_name, unknown_name


@dataclass
class FitOptions(GraphOptions):
    """What both commands take."""

    dataset: Annotated[
        str,
        Argument(
            metavar="DATASET",
            help="A registered name ([bold]gsebo list datasets[/bold]), an edge list "
            "(CSV, TSV or Parquet), an .npz file, a folder with a table for each type "
            "of nodes and each relation, or a graph folder ([bold]gsebo data "
            "convert[/bold]).",
        ),
    ]
    backbone: Annotated[
        str | None,
        Option(
            help="The network: gcn, gat, sage, ..., or any of PyG's, by name. By "
            "default the method's own, which mostly is gcn."
        ),
    ] = None
    preset: Annotated[
        str | None, Option(help="A named set of parameters, such as paper.")
    ] = None
    settings: Annotated[
        list[str] | None,
        Option(
            "--set",
            metavar="NAME=VALUE",
            help="A parameter of the method, such as inner_steps=20 or "
            "backbone_options.heads=4. Repeatable.",
        ),
    ] = None
    seed: Seed = 0
    seeds: Annotated[
        int | None,
        Option(
            min=1, help="Number of runs, with seeds SEED, SEED + 1, ...: mean and std."
        ),
    ] = None
    split: Annotated[
        str | None,
        Option(
            help="file, file:3, file:seed, planetoid, ratio:10/20/70, random:10/20/70, "
            "or unseen:20:NAME to hide 20 % of the test nodes from the fit. By default "
            "the masks that came with the graph, or random."
        ),
    ] = None
    noise: Annotated[
        str,
        Option(
            metavar="COUNT|KIND:LEVEL",
            help="Add so many edges between classes, or other noise: random:COUNT "
            "edges, or percentages: removed:30 (edges), features:30, labels:30, "
            "prbcd:30 (edges changed by an attack on the test nodes).",
        ),
    ] = "0"
    data_dir: DataDir = None
    normalize: Normalize = None
    device: Annotated[str, Option(help="auto, cpu or cuda.")] = "auto"
    metric: MetricOption = None

    def __post_init__(self) -> None:
        self.shown = own_name("metric", self.metric or "accuracy", METRICS)
        no_noise = self.noise == "0"
        self.noise_level = 0 if no_noise else noise_spec(self.noise, "--noise")

    @property
    def all_seeds(self) -> list[int]:
        """Every seed to run."""
        return list(range(self.seed, self.seed + (self.seeds or 1)))

    def check_names(self, methods: Sequence[str]) -> None:
        """Raise for a graph, method or preset that does not exist."""
        require_known_graph(self.dataset)
        self.check_tables(self.dataset)
        for method in methods:
            own_name("method", method, METHODS)
        if self.preset is not None:
            own_name("preset", self.preset, presets())

    def parameters(self, methods: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The parameters of each of some methods, its network among them."""
        estimators = {name: METHODS[name].estimator for name in methods}
        settings = read_settings(self.settings or (), list(estimators.values()))
        found = {}
        for name, estimator in estimators.items():
            given = parameters_from(settings, estimator)
            if estimator.chooses and self.metric is not None:
                given = {"select_by": self.shown, **given}
            backbone = self.backbone or METHODS[name].defaults["backbone"]
            if self.preset is not None:
                from gsebo.experiments.plan import trial_parameters

                given = trial_parameters(
                    name, backbone, self.dataset, preset=self.preset, wanted=given
                )
            found[name] = {**given, "backbone": backbone}
        return found


class ModelPlace(NamedTuple):
    """Where the model goes, if anywhere; only the first of several processes writes."""

    out: Path | None
    resume: bool
    checkpoint_seconds: float
    is_first: bool


@with_options
def fit(
    method: Annotated[
        str, Option(help="A name of [bold]gsebo list methods[/bold].")
    ] = "gsebo",
    *,
    options: FitOptions,
    batch_size: Annotated[
        int | None,
        Option(
            min=1,
            help="Train on batches of the graph of this size instead of the whole "
            "graph. Short for --set batch_size=N.",
        ),
    ] = None,
    sampler: Annotated[
        str | None,
        Option(help="How batches are drawn: neighbor or cluster. Short for --set."),
    ] = None,
    batches_per_step: Annotated[
        int | None,
        Option(
            min=1, help="Batches of one step, which processes share. Short for --set."
        ),
    ] = None,
    out: Annotated[
        Path | None, Option(help="Folder to save the model in, and checkpoints before.")
    ] = None,
    resume: Annotated[
        bool, Option("--resume", help="Go on from the checkpoint in --out.")
    ] = False,
    predictions: Annotated[
        Path | None,
        Option(
            help="Of a graph folder: write the class of every node to this .npy or "
            ".parquet file."
        ),
    ] = None,
    strengths: Strengths = None,
    memory: Memory = "1G",
    checkpoint_seconds: Annotated[float, Option(min=0.0, hidden=True)] = 10.0,
    force: Force = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a method on a graph and say how well it did and what it changed.

    Scores in JSON are fractions but for neg_log_loss, and num_edges counts both
    directions of an undirected edge.
    """
    messages.quiet = quiet
    _check_folder(out, resume, options.seeds)
    if out is not None and not force:
        _refuse_to_replace(out, resume)
    require_new(predictions, strengths, force=force)
    short = {"batch_size": batch_size, "sampler": sampler}
    short["batches_per_step"] = batches_per_step
    given = [f"{name}={value}" for name, value in short.items() if value is not None]
    options.settings = [*(options.settings or ()), *given]
    options.check_names([method])
    # Only now what needs torch: until here a slip is told at once.
    from gsebo.data import is_graph_folder
    from gsebo.distributed import quiet_other_ranks

    with quiet_other_ranks() as is_first:
        messages.quiet = quiet or not is_first
        place = ModelPlace(out, resume, checkpoint_seconds, is_first)
        name = own_name("method", method, METHODS)
        on_disk = is_graph_folder(options.dataset)
        if on_disk and options.parameters([name])[name].get("batch_size"):
            from gsebo.cli import folders

            outputs = folders.Outputs.read(predictions, strengths, memory)
            folders.fit_and_print_folder(options, name, outputs, place, json)
            return
        for path in (predictions, strengths):
            if path is not None:
                raise InvalidInput(
                    f"{path} given for a fit in memory; expected a graph folder and "
                    "--batch-size, or --out, and gsebo predict or gsebo inspect."
                )
        from gsebo.cli import experiment

        experiment.fit_and_print(options, name, place, json)


def _check_folder(out: Path | None, resume: bool, seeds: int | None) -> None:
    if resume and out is None:
        raise InvalidInput(
            "--resume given without --out; expected the folder as --out."
        )
    if out is not None and seeds is not None and seeds > 1:
        raise InvalidInput(
            f"--out given with --seeds {seeds}; expected one seed for one model."
        )


# What a model is written as, and the graph of its fit.
_WRITTEN = ("model.json", "model.safetensors", "own.npy", "graph.npz")


def _refuse_to_replace(out: Path, resume: bool) -> None:
    """Raise, before anything is computed, if a model or a begun fit would be lost."""
    try:
        begun = any(out.glob("checkpoint*"))
        found = next((name for name in _WRITTEN if (out / name).exists()), None)
    except (OSError, ValueError):
        # Nothing can be written there, which is said soon.
        return
    if begun and not resume:
        raise InvalidInput(
            f"a fit was begun in {out}; expected --resume to go on with it, --force to "
            "begin anew, or another --out."
        )
    if found is not None and not begun:
        anew = "fit anew and replace it" if resume else "replace it"
        raise InvalidInput(
            f"{out / found} is there already; expected another --out, or --force to "
            f"{anew}."
        )


@with_options
def compare(
    methods: Annotated[
        str,
        Option(
            help="Names, separated by commas, or all; the first is the reference, with "
            "all it is vanilla."
        ),
    ] = "vanilla,gsebo",
    *,
    options: FitOptions,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train several methods on the same graph with the same seeds.

    A parameter of --set goes to those methods that have it.
    """
    messages.quiet = quiet
    names = _method_names(methods, options.backbone)
    options.seeds = options.seeds or 1
    options.check_names(names)
    # Only now what needs torch: until here a slip is told at once.
    from gsebo.cli.experiment import compare_and_print

    compare_and_print(options, names, json)


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


# --- text to parameters of a method, by the type of each -----------------------------

# These have options of their own, whose values are also reported.
_OWN_OPTION = {"backbone": "--backbone", "device": "--device", "random_state": "--seed"}


class Setting(NamedTuple):
    """One ``--set``: ``name=text`` or ``name.option=text``."""

    name: str
    option: str | None
    text: str

    def __str__(self) -> str:
        inside = f".{self.option}" if self.option else ""
        return f"--set {self.name}{inside}={self.text}"


def read_settings(items: Iterable[str], estimators: Sequence[type]) -> list[Setting]:
    """Split each ``name=value`` and check that some of the estimators take it."""
    known = {name: kind for each in estimators for name, kind in _hints(each).items()}
    settings = [_split(item) for item in items]
    for setting in settings:
        if setting.name in _OWN_OPTION:
            option = _OWN_OPTION[setting.name]
            raise InvalidInput(f"{setting} given; expected it as {option}.")
        if setting.name not in known:
            free = {n: kind for n, kind in known.items() if n not in _OWN_OPTION}
            sentence = unknown_name("parameter", setting.name, free)
            raise InvalidInput(sentence, about="parameter")
    return settings


def parameters_from(settings: Iterable[Setting], estimator: type) -> dict[str, Any]:
    """Read the values of those settings that the estimator takes."""
    hints = _hints(estimator)
    parameters: dict[str, Any] = {}
    for setting in settings:
        if setting.name not in hints:
            continue
        kinds = _plain_kinds(hints[setting.name])
        if setting.option is None:
            parameters[setting.name] = _read(setting, kinds)
        elif dict in kinds:
            value = _read(setting, set(_READERS))
            others = parameters.get(setting.name) or {}
            parameters[setting.name] = {**others, setting.option: value}
        else:
            raise InvalidInput(f"{setting} given; expected {setting.name}=VALUE.")
    return parameters


def _split(item: str) -> Setting:
    path, equals, text = item.partition("=")
    name, dot, option = path.strip().partition(".")
    name, option, text = name.replace("-", "_"), option.strip(), text.strip()
    if not equals or not name or not text or bool(dot) != bool(option):
        raise InvalidInput(
            f"--set {item} given; expected --set NAME=VALUE, such as inner_steps=20 or "
            "backbone_options.heads=4."
        )
    return Setting(name, option or None, text)


def _hints(estimator: type) -> dict[str, Any]:
    hints = typing.get_type_hints(estimator.__init__)  # type: ignore[misc]
    hints.pop("return", None)
    return hints


def _plain_kinds(annotation: Any) -> set[type]:
    """Flatten unions and literals to the classes inside them."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, UnionType):
        return {kind for part in parts for kind in _plain_kinds(part)}
    if origin is Literal:
        return {type(value) for value in parts}
    return {origin or annotation}


def _one_of(values: dict[str, Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text.lower() not in values:
            raise ValueError
        return values[text.lower()]

    return read


# In this order: a text is read as the first kind that fits.
_READERS: dict[type, tuple[Callable[[str], Any], str]] = {
    NoneType: (_one_of({"none": None}), "none"),
    bool: (_one_of({"true": True, "false": False}), "true or false"),
    int: (int, "an integer"),
    float: (float, "a number"),
    str: (str, "a text"),
}


def _read(setting: Setting, kinds: set[type]) -> Any:
    expected = []
    for kind, (read, words) in _READERS.items():
        if kind not in kinds:
            continue
        try:
            return read(setting.text)
        except ValueError:
            expected.append(words)
    if dict in kinds:
        expected.append(f"{setting.name}.NAME=VALUE")
    raise InvalidInput(f"{setting} given; expected {' or '.join(reversed(expected))}.")
