"""Recipes to trials, and what searches on validation nodes chose for them."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from statistics import mean
from typing import Any, final

from gsebo.data import DATASETS, NoiseSpec
from gsebo.errors import InvalidInput
from gsebo.experiments.detection import TRIED
from gsebo.experiments.recipe import (
    ExperimentRecipe,
    TrialBlock,
    load_recipe,
    require_few_trials,
)
from gsebo.experiments.result import Result, Trial, full_split_name
from gsebo.methods.presets import preset_parameters
from gsebo.names import lookup, own_name, unknown_name

_NOT_PARAMETERS = ("backbone", "device", "random_state")


@dataclass(frozen=True)
class Cell:
    """A place in a table: the trials in it differ by their seeds alone.

    Attributes:
        method: Name of the method.
        row: Name of the backbone, as the recipe says it.
        dataset: Name of the graph.
        noise: A number of false edges, or ``"KIND:LEVEL"``.
        setting: The block's label and the varied parameters in words.
        labels: Whose labels teach: its parameter of this name.
        consistent: Whether nodes without labels teach as well.
    """

    method: str
    row: str
    dataset: str
    noise: NoiseSpec = 0
    setting: str = ""
    labels: str = "all"
    consistent: bool = False


@dataclass(frozen=True)
class Candidate:
    """What a search may choose.

    Attributes:
        backbone: Name of a network.
        parameters: Those that the search varies, with their values.
    """

    backbone: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Planned:
    """A trial, the cell that it is for, and what was varied to get it.

    Attributes:
        cell: Its place in a table.
        trial: What is fitted.
        candidate: The network and the values that it stands for.
    """

    cell: Cell
    trial: Trial
    candidate: Candidate


# --- trials of a block ---------------------------------------------------------------


def trial_parameters(
    method: str,
    backbone: str,
    dataset: str,
    *,
    preset: str | None,
    wanted: dict[str, Any],
    welcome: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Put parameters together, and drop what equals the constructor's defaults.

    The method has to take what is wanted; what is welcome is used if it takes it.
    """
    defaults = default_parameters(method)
    if unknown := set(wanted) - set(defaults):
        raise InvalidInput(
            unknown_name(f"parameter of {method}", min(unknown), defaults)
        )
    start: dict[str, Any] = {}
    if preset is not None:
        start = preset_parameters(preset, backbone, method=method, dataset=dataset)
    merged = {**start, **(welcome or {})}
    merged = {name: value for name, value in merged.items() if name in defaults}
    for name, value in wanted.items():
        if isinstance(value, dict) and isinstance(merged.get(name), dict):
            value = {**merged[name], **value}
        merged[name] = value
    return {
        name: value
        for name, value in sorted(merged.items())
        if value != defaults[name] or type(value) is not type(defaults[name])
    }


@cache
def default_parameters(method: str) -> Mapping[str, Any]:
    """Every parameter of a method but network, device and seed, by the constructor."""
    defaults = lookup("method", method, TRIED).defaults
    return {name: v for name, v in defaults.items() if name not in _NOT_PARAMETERS}


def places(block: TrialBlock) -> Iterator[tuple[str, str, str]]:
    """Every method, row and dataset that go together."""
    methods = [own_name("method", name, TRIED) for name in block.methods]
    datasets = [own_name("dataset", name, DATASETS) for name in block.datasets]
    for method, row, dataset in product(methods, block.backbones, datasets):
        supported = TRIED[method].backbones
        if not supported or row in supported:
            yield method, row, dataset


def block_trials(
    block: TrialBlock,
    method: str,
    row: str,
    dataset: str,
    seeds: int,
    taken: Candidate | None = None,
) -> Iterator[Planned]:
    """The trials of one method, row and dataset, with what a search chose for them."""
    networks = [taken.backbone] if taken else block.variants.get(row, [row])
    tuned = taken.parameters if taken else {}
    wanted, welcome = dict(block.set), tuned
    if block.tuned_into is not None:
        wanted, welcome = {block.tuned_into: tuned, **wanted}, {}
    variations = [
        dict(zip(block.vary, values, strict=True))
        for values in product(*block.vary.values())
    ]
    for backbone, noise, varied in product(networks, block.noise, variations):
        parameters = trial_parameters(
            method,
            backbone,
            dataset,
            preset=block.preset,
            wanted={**wanted, **varied},
            welcome=welcome,
        )
        network = {"backbone": backbone} if row in block.variants else {}
        words = (block.label, setting_in_words(network | varied))
        setting = ", ".join(filter(None, words))
        labels = parameters.get("labels", "all")
        consistent = parameters.get("consistency", 0) > 0
        cell = Cell(method, row, dataset, noise, setting, labels, consistent)
        for seed in range(seeds):
            trial = Trial(
                method=method,
                backbone=backbone,
                dataset=dataset,
                split=full_split_name(dataset, block.split),
                seed=seed,
                noise=noise,
                parameters=parameters,
                curves=block.curves,
                evasion=block.evasion,
            )
            yield Planned(cell, trial, Candidate(backbone, varied))


def setting_in_words(parameters: dict[str, Any]) -> str:
    """Say what parameters are.

    >>> setting_in_words({"inner_steps": 20, "select_by": "loss"})
    'inner_steps = 20, select_by = loss'
    """
    return ", ".join(
        f"{name} = {value if isinstance(value, str) else json.dumps(value)}"
        for name, value in parameters.items()
    )


# --- searches ------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoredCandidate:
    """One candidate of a search and how it did."""

    candidate: Candidate
    # Mean score on the nodes that the search tests on; NaN if there was no choice.
    score: float
    seeds: int  # Over how many fits.


@dataclass(frozen=True)
class SearchChoice:
    """What a search says about one method, row and dataset.

    Attributes:
        tried: Candidates in the search's order; none if all failed.
        missing: Trials that have to be run before a choice can be made.
        unscored: Number of trials that were stored without the metric that was to
            choose.
    """

    tried: tuple[ScoredCandidate, ...]
    missing: tuple[Planned, ...]
    unscored: int = 0

    @property
    def taken(self) -> Candidate:
        """The best on average; of equals the first."""
        return max(self.tried, key=lambda one: one.score).candidate


@final
class Tuning:
    """Searches, read from stored results, which are given by the keys of their trials.

    A search scores each candidate by its mean over seeds, of accuracy or of the metric
    of the recipe that asks; one that failed with any seed is out. Its recipe tests on
    validation nodes (``split = "halves"``), so that no choice can see a test label.

    Args:
        results: Everything that is stored, by the keys of the trials.
    """

    def __init__(self, results: Mapping[str, Result]) -> None:
        self._results = results
        self._searches: dict[str, ExperimentRecipe] = {}

    def choice(
        self,
        search: str,
        method: str,
        row: str,
        dataset: str,
        metric: str = "accuracy",
    ) -> SearchChoice:
        """Choose by a recipe what it found for a method, or say what is missing."""
        candidates: dict[str, list[Planned]] = {}
        for one in self._planned(search, method, row, dataset):
            candidates.setdefault(one.trial.without_seed, []).append(one)
        if len(candidates) == 1:
            # Nothing to choose from, nothing to run.
            ((only, *_),) = candidates.values()
            return SearchChoice((ScoredCandidate(only.candidate, math.nan, 0),), ())
        missing = [
            one
            for planned in candidates.values()
            for one in planned
            if one.trial.key not in self._results
        ]
        if missing:
            return SearchChoice((), tuple(missing))
        stored = [
            self._results[one.trial.key]
            for planned in candidates.values()
            for one in planned
        ]
        unscored = sum(one.ok and one.score(metric) is None for one in stored)
        if unscored:
            # The best of those that happen to have it need not be the best.
            return SearchChoice((), (), unscored)
        found = (self._tried(planned, metric) for planned in candidates.values())
        return SearchChoice(tuple(filter(None, found)), ())

    def _tried(self, planned: list[Planned], metric: str) -> ScoredCandidate | None:
        """Score the trials of one candidate; ``None`` if any of them failed."""
        scores = [self._results[one.trial.key].score(metric) for one in planned]
        known = [score for score in scores if score is not None]
        if len(known) < len(scores):
            return None
        return ScoredCandidate(planned[0].candidate, mean(known), len(known))

    def _planned(
        self, search: str, method: str, row: str, dataset: str
    ) -> list[Planned]:
        """The trials of a search for one place."""
        recipe = self._searches.get(search) or load_recipe(search)
        self._searches[search] = recipe
        tuned = any(block.tuned_by is not None for block in recipe.blocks)
        if tuned or not recipe.is_search:
            raise InvalidInput(
                f"the recipe {search!r} is used to tune; expected a search, with split "
                "'halves' in all blocks, which sees no test nodes."
            )
        found: list[Planned] = []
        for block in recipe.blocks:
            if (method, row, dataset) in places(block):
                seeds = block.seeds or recipe.seeds
                found += block_trials(block, method, row, dataset, seeds)
        if not found:
            raise InvalidInput(
                f"the search {search!r} has no trials of {method} on {row} and "
                f"{dataset}."
            )
        return found


# --- trials of a recipe --------------------------------------------------------------


@dataclass(frozen=True)
class RecipePlan:
    """What a recipe asks for.

    Attributes:
        trials: All that are known already, in the recipe's order.
        choices: Made on validation nodes, by the cell without noise, with the block's
            label as its setting.
        first: Trials of searches that are run before the rest is known.
        hopeless: Where every candidate of a search failed, or was not measured by what
            chooses.
    """

    trials: tuple[Planned, ...]
    choices: dict[Cell, SearchChoice]
    first: tuple[Planned, ...]
    hopeless: tuple[str, ...] = ()

    def cells(self) -> dict[Cell, list[Trial]]:
        """The trials of each cell, in the recipe's order."""
        found: dict[Cell, list[Trial]] = {}
        for planned in self.trials:
            found.setdefault(planned.cell, []).append(planned.trial)
        return found


def make_plan(
    recipe: ExperimentRecipe, tuning: Tuning, *, seeds: int | None = None
) -> RecipePlan:
    """Write out all trials of a recipe; a search keeps its own number of seeds.

    Args:
        recipe: What is asked for.
        tuning: What searches found so far.
        seeds: Instead of the recipe's own number.
    """
    require_few_trials(recipe, seeds)
    trials: dict[tuple[Cell, str], Planned] = {}
    choices: dict[Cell, SearchChoice] = {}
    first: dict[str, Planned] = {}
    hopeless: list[str] = []
    for block in recipe.blocks:
        number = (block.seeds or recipe.seeds) if seeds is None else seeds
        for method, row, dataset in places(block):
            taken = None
            if block.tuned_by is not None:
                metric = recipe.metric_of(dataset)
                choice = tuning.choice(
                    block.tuned_by, block.tuned_as or method, row, dataset, metric
                )
                if choice.missing:
                    first |= {one.trial.key: one for one in choice.missing}
                    continue
                if not choice.tried:
                    where = f"{method} on {row} and {dataset}"
                    why = f"every candidate of the search {block.tuned_by} for {where}"
                    why += " failed."
                    if choice.unscored:
                        why = f"{choice.unscored} trials of the search {block.tuned_by}"
                        why += f" for {where} were stored without {metric}."
                    hopeless.append(why)
                    continue
                choices[Cell(method, row, dataset, setting=block.label)] = choice
                taken = choice.taken
            for one in block_trials(block, method, row, dataset, number, taken):
                trials.setdefault((one.cell, one.trial.key), one)
    return RecipePlan(
        tuple(trials.values()), choices, tuple(first.values()), tuple(hopeless)
    )
