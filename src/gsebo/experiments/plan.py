"""Everything that a recipe asks for, as far as it is known already."""

from dataclasses import dataclass

from gsebo.experiments.expand import Cell, Planned, block_trials, places
from gsebo.experiments.recipe import Recipe, require_few_trials
from gsebo.experiments.trial import Trial
from gsebo.experiments.tuning import Choice, Tuning


@dataclass(frozen=True)
class Plan:
    """What a recipe asks for.

    Attributes:
        trials: All trials that are known already, in the recipe's order.
        choices: What was chosen on validation, by the cell without noise, with
            the block's label as its setting.
        first: Trials of searches that have to be run before the rest is known.
        hopeless: Places without a choice, because every candidate failed; in words.
    """

    trials: tuple[Planned, ...]
    choices: dict[Cell, Choice]
    first: tuple[Planned, ...]
    hopeless: tuple[str, ...] = ()

    def cells(self) -> dict[Cell, list[Trial]]:
        """The trials of each cell, in the recipe's order."""
        found: dict[Cell, list[Trial]] = {}
        for planned in self.trials:
            found.setdefault(planned.cell, []).append(planned.trial)
        return found


def make_plan(recipe: Recipe, tuning: Tuning, *, seeds: int | None = None) -> Plan:
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
    choices: dict[Cell, Choice] = {}
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
    return Plan(
        trials=tuple(trials.values()),
        choices=choices,
        first=tuple(first.values()),
        hopeless=tuple(hopeless),
    )
