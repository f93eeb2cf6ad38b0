"""Recipes: which fits make a table or figure, as data in TOML files."""

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Annotated, TypeVar, cast

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from gsebo.data import DATASETS, noise_spec
from gsebo.errors import InvalidInput, escaped
from gsebo.experiments.detection import DETECTORS, TRIED
from gsebo.experiments.protocols import EVASIONS
from gsebo.files import Count, Key, Name, Record, Text, Value, read_bytes, toml_as
from gsebo.metrics import METRICS, MetricName
from gsebo.names import own_name

_FOLDER = Path(__file__).parent / "recipes"
_LONGEST = 2**16
_LONGEST_NAME = 200
_MOST_TRIALS = 100_000

_Kind = TypeVar("_Kind")
_Some = Annotated[list[_Kind], Meta(min_length=1)]


class TrialBlock(Record, frozen=True, kw_only=True):
    """Fits that share everything but what is listed: the product of all lists.

    Attributes:
        methods: Names of methods.
        backbones: Names of networks, or of rows with ``variants``.
        datasets: Names of graphs.
        preset: What the parameters start from.
        set: Further parameters.
        vary: Lists of values, by the names of the parameters that take them.
        variants: Networks that are tried for the row of a backbone; where a row is not
            named, the network of its name alone.
        noise: Numbers of false edges, or ``"KIND:LEVEL"`` of other noise.
        split: Of all datasets instead of their own; ``"halves"`` leaves out the test
            nodes and tests on half of the validation nodes.
        seeds: If their number differs from the recipe's.
        curves: Whether every step is recorded.
        evasion: How fitted models are attacked, by name.
        label: Sets cells apart from others of the same method and place.
        tuned_by: Name of a recipe, or its path, seen from the folder of the recipe that
            this block is in. Of what it tried for a method, row and dataset, the
            network and the varied parameters with the best mean score are taken, by the
            metric of this recipe.
        tuned_as: The method whose choice it is, if not the own one.
        tuned_into: The parameter that takes the choice as a dictionary, if not those of
            these names.
    """

    methods: _Some[Name]
    backbones: _Some[Name]
    datasets: _Some[Name]
    preset: Name | None = None
    set: dict[Key, Value] = msgspec.field(default_factory=dict)
    vary: dict[Key, _Some[Value]] = msgspec.field(default_factory=dict)
    variants: dict[Name, _Some[Name]] = msgspec.field(default_factory=dict)
    noise: _Some[int | Name] = msgspec.field(default_factory=lambda: [0])
    split: Name | None = None
    seeds: Count | None = None
    curves: bool = False
    evasion: Name | None = None
    label: Key = ""
    tuned_by: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    tuned_as: Name | None = None
    tuned_into: Name | None = None


class AbsentCells(Record, frozen=True, kw_only=True):
    """Fits that a recipe leaves out, and why: said where their figures would stand."""

    methods: _Some[Name]
    datasets: _Some[Name]
    reason: Text


class DeclaredControl(Record, frozen=True, kw_only=True):
    """What methods that learn from the validation labels too are tested against.

    It has as many labels itself; all other methods are tested against vanilla.
    """

    method: Name
    setting: Key = ""  # The label of its block and what is varied there, in words.
    # Its row, and that of vanilla, if all rows are compared with one of them.
    backbone: Name | None = None


@dataclass(frozen=True, kw_only=True)
class ExperimentRecipe:
    """The fits of a table or figure.

    Attributes:
        name: Of its file, and of the file of its results.
        title: Heading of its tables.
        about: What stands below it.
        seeds: Number of seeds of each cell, from 0 on.
        shows_edges: Whether it is about what became of the edges.
        parts: Recipes that belong to it, and are run after it.
        control: With equal labels, where it has such a one.
        blocks: Fits, as lists whose products are taken.
        metric: What is shown, and what its searches choose by.
        metrics: The same for single datasets, by their names.
        by_labels: Whether methods stand in a table by the labels that they learn from.
        absent: Cells that are left out, and why.
    """

    name: str
    title: str
    about: str
    seeds: int
    shows_edges: bool
    parts: tuple[str, ...]
    control: DeclaredControl | None
    blocks: tuple[TrialBlock, ...]
    metric: MetricName = "accuracy"
    metrics: Mapping[str, MetricName] = field(default_factory=dict)
    by_labels: bool = False
    absent: tuple[AbsentCells, ...] = ()

    def __post_init__(self) -> None:
        asked = {self.metric, *self.metrics.values()} - {"accuracy"}
        if asked and (self.ranks_edges or self.evasion is not None):
            raise InvalidInput(
                f"metric {min(asked)} given for the recipe {escaped(self.name)}, whose "
                "trials rank or attack; expected none, for they are not scored by it."
            )
        if any(METRICS[metric].is_binary for metric in asked):
            for dataset in self.datasets:
                self._require_classes(dataset)

    def _require_classes(self, dataset: str) -> None:
        metric, classes = self.metric_of(dataset), DATASETS[dataset].num_classes
        if METRICS[metric].is_binary and classes != 2:
            raise InvalidInput(
                f"metric {metric} given for {dataset}, a graph of {classes} classes, "
                f"by the recipe {escaped(self.name)}; expected one for any number of "
                "classes, such as accuracy."
            )

    @property
    def datasets(self) -> tuple[str, ...]:
        """Every dataset, by its own name, once."""
        given = (name for block in self.blocks for name in block.datasets)
        names = (own_name("dataset", name, DATASETS) for name in given)
        return tuple(dict.fromkeys(names))

    def metric_of(self, dataset: str) -> MetricName:
        """What the trials of a dataset are scored by."""
        return self.metrics.get(dataset, self.metric)

    def scored_by(self, metric: str) -> "ExperimentRecipe":
        """The same with another metric for all datasets.

        Raises:
            InvalidInput: There is no such metric, or it does not fit some dataset.
        """
        name = cast(MetricName, own_name("metric", metric, METRICS))
        return dataclasses.replace(self, metric=name, metrics={})

    @property
    def ranks_edges(self) -> bool:
        """Whether its trials rank edges instead of predicting classes."""
        return any(method in DETECTORS for one in self.blocks for method in one.methods)

    @property
    def evasion(self) -> str | None:
        """How fitted models are attacked, in all trials or in none."""
        return self.blocks[0].evasion

    @property
    def is_search(self) -> bool:
        """Whether it tests on validation nodes and sees no test node."""
        return all(block.split == "halves" for block in self.blocks)


def recipe_names() -> list[str]:
    """Names of the recipes that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_recipe(name_or_path: str, *, metric: str | None = None) -> ExperimentRecipe:
    """Read a recipe by its name, or one of the user's own by its path.

    Args:
        name_or_path: A name of ``recipe_names()``, or a path that ends with ``.toml``.
        metric: Name of a score that takes the place of its own for all datasets.
    """
    if name_or_path.endswith(".toml"):
        path = Path(name_or_path)
    else:
        known = {name: _FOLDER / f"{name}.toml" for name in recipe_names()}
        path = known[own_name("recipe", name_or_path, known)]
    recipe = read_recipe(read_bytes(path, "a recipe", _LONGEST), path)
    return recipe if metric is None else recipe.scored_by(metric)


def read_recipe(text: bytes, path: Path) -> ExperimentRecipe:
    """Read TOML that is from a file, which names the recipe."""
    if len(os.fsencode(path.stem)) > _LONGEST_NAME:
        raise InvalidInput(
            f"{escaped(str(path))} given; expected a name of {_LONGEST_NAME} bytes at "
            "most, for the file of its results has it too."
        )
    content = toml_as(_RecipeFile, text, str(path), "a recipe")
    known = dict.fromkeys(recipe_names())
    parts = tuple(own_name("recipe", one, known) for one in content.parts)
    if len(set(parts)) < len(parts) or path.stem in parts:
        raise InvalidInput(
            f"parts of {escaped(str(path))} are {', '.join(parts)}; expected each of "
            "them once, and not the recipe itself."
        )
    recipe = ExperimentRecipe(
        name=path.stem,
        title=content.title,
        about=content.about,
        seeds=content.seeds,
        shows_edges=content.shows_edges,
        parts=parts,
        control=content.control and _checked_control(content.control, path),
        blocks=tuple(
            _in_one_form(f"[[trials]] number {number} of {path.name}", path, block)
            for number, block in enumerate(content.trials, 1)
        ),
        metric=content.metric,
        metrics={
            own_name("dataset", name, DATASETS): metric
            for name, metric in content.metrics.items()
        },
        by_labels=content.by_labels,
        absent=tuple(map(_checked_absent, content.absent)),
    )
    if len({block.evasion for block in recipe.blocks}) > 1:
        raise InvalidInput(
            f"evasion in some of the trials of {escaped(str(path))} given; expected "
            "the same in all of them, for they are shown together."
        )
    require_few_trials(recipe)
    return recipe


def require_few_trials(recipe: ExperimentRecipe, seeds: int | None = None) -> None:
    """Raise if nobody could wait for all trials of a recipe, or even list them."""
    number = 0
    for block in recipe.blocks:
        networks = sum(len(block.variants.get(row, [row])) for row in block.backbones)
        places = len(block.methods) * networks * len(block.datasets) * len(block.noise)
        varied = prod(len(values) for values in block.vary.values())
        number += places * varied * (seeds or block.seeds or recipe.seeds)
    if number > _MOST_TRIALS:
        raise InvalidInput(
            f"the recipe {escaped(recipe.name)} has {number:,} trials; expected "
            f"{_MOST_TRIALS:,} at most."
        )


class _RecipeFile(Record, frozen=True, kw_only=True):
    title: Annotated[str, Meta(min_length=1, max_length=300)]
    about: Text = ""
    seeds: Count = 10
    shows_edges: bool = False
    parts: list[Name] = msgspec.field(default_factory=list)
    control: DeclaredControl | None = None
    metric: MetricName = "accuracy"
    metrics: dict[Name, MetricName] = msgspec.field(default_factory=dict)
    by_labels: bool = False
    # At most one for each letter that leads to its reason.
    absent: Annotated[list[AbsentCells], Meta(max_length=26)] = msgspec.field(
        default_factory=list
    )
    trials: _Some[TrialBlock]


def _checked_control(control: DeclaredControl, path: Path) -> DeclaredControl:
    """Raise unless it learns from as many labels as what is compared with it."""
    method = own_name("method", control.method, TRIED)
    if not TRIED[method].learns_from_val:
        able = ", ".join(name for name, info in TRIED.items() if info.learns_from_val)
        raise InvalidInput(
            f"control of {escaped(str(path))} is {method}, which does not learn from "
            f"validation labels; expected a method that does: {able}."
        )
    return replace(control, method=method)


def _checked_absent(cells: AbsentCells) -> AbsentCells:
    return replace(
        cells,
        methods=[own_name("method", name, TRIED) for name in cells.methods],
        datasets=[own_name("dataset", name, DATASETS) for name in cells.datasets],
    )


def _in_one_form(where: str, path: Path, block: TrialBlock) -> TrialBlock:
    """Spell noise in one way, and a search's path from the working directory."""
    what = escaped(f"noise of {where}")
    search = block.tuned_by
    if search is not None and search.endswith(".toml"):
        search = str(path.parent / search)
    noise = [noise_spec(one, what) for one in block.noise]
    evasion = block.evasion and own_name("evasion", block.evasion, EVASIONS)
    return replace(block, noise=noise, tuned_by=search, evasion=evasion)
