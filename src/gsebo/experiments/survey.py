"""Where a recipe stands, and what is to be run next."""

from collections.abc import Mapping
from dataclasses import dataclass

from gsebo.errors import InvalidInput
from gsebo.experiments.expand import Cell, Planned, block_trials, places
from gsebo.experiments.recipe import ExperimentRecipe, load_recipe, require_few_trials
from gsebo.experiments.result import Result
from gsebo.experiments.selection import Selection
from gsebo.experiments.trial import Trial
from gsebo.experiments.tuning import SearchChoice, Tuning


@dataclass(frozen=True)
class RecipePlan:
    """What a recipe asks for.

    Attributes:
        trials: All trials that are known already, in the recipe's order.
        choices: What was chosen on validation, by the cell without noise, with
            the block's label as its setting.
        first: Trials of searches that have to be run before the rest is known.
        hopeless: Places without a choice, because every candidate failed; in words.
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
    """Write out all trials of a recipe.

    Args:
        recipe: The recipe.
        tuning: Answers what a search chose.
        seeds: Number of seeds instead of the recipe's own; a search keeps its own.

    Raises:
        InvalidInput: A name is unknown, or there are too many trials.
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
                choice = tuning.choice(
                    block.tuned_by, block.tuned_as or method, row, dataset
                )
                if choice.missing:
                    first |= {one.trial.key: one for one in choice.missing}
                    continue
                if not choice.tried:
                    where = f"{method} on {row} and {dataset}"
                    search = f"every candidate of the search {block.tuned_by}"
                    hopeless.append(f"{search} for {where} failed.")
                    continue
                choices[Cell(method, row, dataset, setting=block.label)] = choice
                taken = choice.taken
            for one in block_trials(block, method, row, dataset, number, taken):
                trials.setdefault((one.cell, one.trial.key), one)
    return RecipePlan(
        trials=tuple(trials.values()),
        choices=choices,
        first=tuple(first.values()),
        hopeless=tuple(hopeless),
    )


@dataclass(frozen=True)
class Stage:
    """Trials of one recipe that can be run in any order.

    Attributes:
        recipe: Whose trials they are: the recipe that was asked for, or a search that
            it waits for.
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
    """What is known of a recipe at some moment.

    Attributes:
        planned: Number of its trials that are known already.
        stored: Number of those that came to their end.
        failed: Those that failed.
        missing: Number of trials without a result, as far as they are known: those of
            a search that is to be run first count, those that depend on it do not.
        hopeless: What cannot be run because every candidate of a search failed.
        stage: What comes next.
    """

    planned: int
    stored: int
    failed: tuple[Result, ...]
    missing: int
    hopeless: tuple[str, ...]
    stage: Stage


def make_survey(
    recipe: ExperimentRecipe,
    results: Mapping[str, Result],
    *,
    seeds: int | None = None,
    selection: Selection | None = None,
) -> Survey:
    """Look at what is there.

    Args:
        recipe: The recipe.
        results: What is known, by the key of the trial.
        seeds: Number of seeds instead of the recipe's own.
        selection: What is wanted of the recipe, if not everything.

    Raises:
        InvalidInput: The recipe has nothing that is wanted.
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
        own = {one.trial.key for one in make_plan(search, Tuning(results)).trials}
        needed = tuple(one for one in plan.first if one.trial.key in own)
        if needed:
            return Stage(search, needed, results)
    return None
