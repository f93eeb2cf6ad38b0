"""Where a recipe stands, what is to be run next, and which of it is wanted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from gsebo.data import DATASETS
from gsebo.errors import InvalidInput
from gsebo.experiments.detection import TRIED
from gsebo.experiments.plan import Planned, RecipePlan, Tuning, make_plan
from gsebo.experiments.recipe import (
    ExperimentRecipe,
    TrialBlock,
    load_recipe,
    require_few_trials,
)
from gsebo.experiments.result import Result, Trial
from gsebo.names import own_name


@dataclass(frozen=True)
class Selection:
    """Trials that have one of the wanted values of each key that ``--only`` names."""

    wanted: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        parts = (f"{key}={','.join(sorted(v))}" for key, v in self.wanted.items())
        return " ".join(parts)

    def narrowed(self, recipe: ExperimentRecipe) -> ExperimentRecipe:
        """Leave out of a recipe what cannot be wanted, so that no search is needed.

        Which network is in a row may depend on a search: more rows than are wanted
        may be left.
        """
        blocks = []
        for block in recipe.blocks:
            kept = {
                field: [one for one, names in found.items() if self._has(key, *names)]
                for (field, key), found in _named_lists(block).items()
            }
            if all(kept.values()):
                blocks.append(structs.replace(block, **kept))
        return replace(recipe, blocks=tuple(blocks))

    def matches(self, planned: Planned) -> bool:
        """Whether a trial is wanted."""
        trial, row = planned.trial, planned.cell.row
        return (
            self._has("method", trial.method)
            and self._has("backbone", row, trial.backbone)
            and self._has("dataset", trial.dataset)
            and self._has("noise", str(trial.noise))
            and self._has("seed", str(trial.seed))
        )

    def _has(self, key: str, *values: str) -> bool:
        return key not in self.wanted or not self.wanted[key].isdisjoint(values)


def select(
    recipe: ExperimentRecipe, texts: Iterable[str], seeds: int | None = None
) -> Selection:
    """Read what is wanted of a recipe: ``KEY=VALUE`` or ``KEY=VALUE,VALUE`` each.

    Args:
        recipe: What is asked for.
        texts: What ``--only`` was given.
        seeds: Instead of the recipe's own number.
    """
    require_few_trials(recipe, seeds)
    known = _values(recipe, seeds)
    wanted: dict[str, frozenset[str]] = {}
    for text in texts:
        name, _, values = text.partition("=")
        names = [one.strip() for one in values.split(",") if one.strip()]
        if not names:
            raise InvalidInput(
                f"--only {text} given; expected KEY=VALUE, such as method=gsebo."
            )
        key = own_name("key of --only", name, known)
        kind = f"{key} of the recipe {recipe.name}"
        found = {own_name(kind, one, known[key]) for one in names}
        wanted[key] = wanted.get(key, frozenset()) | found
    return Selection(wanted)


def _values(recipe: ExperimentRecipe, seeds: int | None) -> dict[str, dict[str, None]]:
    """Everything that a recipe has, by the key that it is asked for with."""
    keys = ("method", "backbone", "dataset", "noise", "seed")
    known: dict[str, dict[str, None]] = {key: {} for key in keys}
    for block in recipe.blocks:
        known["backbone"] |= dict.fromkeys(block.backbones)
        for (_, key), found in _named_lists(block).items():
            known[key] |= dict.fromkeys(n for names in found.values() for n in names)
        number = seeds or block.seeds or recipe.seeds
        known["seed"] |= dict.fromkeys(map(str, range(number)))
    return known


def _named_lists(block: TrialBlock) -> dict[tuple[str, str], dict[Any, list[str]]]:
    """What the lists of a block have, each with its names under a key of ``--only``.

    In a row may be any network that is tried for it, by the search if there is one.
    """
    tried = load_recipe(block.tuned_by).blocks if block.tuned_by else (block,)
    networks = {
        row: sorted({name for one in tried for name in one.variants.get(row, [row])})
        for row in block.backbones
    }
    return {
        ("methods", "method"): {
            name: [own_name("method", name, TRIED)] for name in block.methods
        },
        ("backbones", "backbone"): {row: [row, *networks[row]] for row in networks},
        ("datasets", "dataset"): {
            name: [own_name("dataset", name, DATASETS)] for name in block.datasets
        },
        ("noise", "noise"): {noise: [str(noise)] for noise in block.noise},
    }


@dataclass(frozen=True)
class Stage:
    """Trials of one recipe that can be run in any order.

    Attributes:
        recipe: That was asked for, or a search that it waits for.
        planned: All trials, those with a result included.
        results: What is known, by the key of the trial.
    """

    recipe: ExperimentRecipe
    planned: tuple[Planned, ...]
    results: Mapping[str, Result]

    @property
    def missing(self) -> list[Trial]:
        """What is to be run, each trial once."""
        found = {one.trial.key: one.trial for one in self.planned}
        return [trial for key, trial in found.items() if key not in self.results]


@dataclass(frozen=True)
class Survey:
    """What is known of a recipe at some moment."""

    planned: int  # Number of its trials that are known already.
    stored: int  # Number of those that came to their end.
    failed: tuple[Result, ...]
    # Number of trials without a result, as far as they are known: those of a search
    # that is to be run first count, those that depend on it do not.
    missing: int
    hopeless: tuple[str, ...]  # As the plan says it.
    stage: Stage  # What comes next.


def make_survey(
    recipe: ExperimentRecipe,
    results: Mapping[str, Result],
    *,
    seeds: int | None = None,
    selection: Selection | None = None,
) -> Survey:
    """See which trials of a recipe, or of what is wanted of it, have a result.

    Args:
        recipe: What is asked for.
        results: What is known, by the keys of the trials.
        seeds: Instead of the recipe's own number.
        selection: What is wanted, if not everything.
    """
    selection = selection or Selection()
    wanted = selection.narrowed(recipe)
    plan = make_plan(wanted, Tuning(results), seeds=seeds)
    own = Stage(recipe, tuple(filter(selection.matches, plan.trials)), results)
    if not own.planned and not plan.first and not plan.hopeless:
        raise InvalidInput(
            f"--only {selection} given; expected what some trial of {recipe.name} has."
        )
    keys = {one.trial.key for one in own.planned}
    found = [results[key] for key in keys if key in results]
    return Survey(
        planned=len(keys),
        stored=sum(result.ok for result in found),
        failed=tuple(result for result in found if not result.ok),
        missing=len(own.missing) + len(plan.first),
        hopeless=plan.hopeless,
        stage=_search_stage(wanted, plan, results) or own,
    )


def _search_stage(
    recipe: ExperimentRecipe, plan: RecipePlan, results: Mapping[str, Result]
) -> Stage | None:
    """The trials of the first search that has to be run before the recipe."""
    names = dict.fromkeys(block.tuned_by for block in recipe.blocks if block.tuned_by)
    for name in names if plan.first else ():
        search = load_recipe(name)
        # Told by what it is to choose by.
        asked = {one: recipe.metric_of(one) for one in recipe.datasets}
        search = replace(search, metrics={**search.metrics, **asked})
        own = {one.trial.key for one in make_plan(search, Tuning(results)).trials}
        needed = tuple(one for one in plan.first if one.trial.key in own)
        if needed:
            return Stage(search, needed, results)
    return None
