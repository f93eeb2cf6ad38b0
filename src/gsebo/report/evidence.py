"""The stored results behind a table or figure."""

from dataclasses import dataclass

from gsebo.experiments import Cell, Plan, Recipe, Result, Store, Tuning, make_plan


@dataclass(frozen=True)
class Evidence:
    """What is stored for a recipe.

    Attributes:
        recipe: The recipe.
        plan: Its trials, and what was chosen on validation.
        results: Finished trials of each cell by their seeds; a cell may have none.
        failed: Trials that failed.
        missing: Number of trials that are not stored, searches included.
    """

    recipe: Recipe
    plan: Plan
    results: dict[Cell, dict[int, Result]]
    failed: tuple[Result, ...]
    missing: int

    def accuracies(self, cell: Cell) -> dict[int, float]:
        """Test accuracy in percent by seed; empty where nothing is stored."""
        return {
            seed: 100 * result.test_accuracy
            for seed, result in self.results.get(cell, {}).items()
            if result.test_accuracy is not None
        }


def gather(recipe: Recipe, store: Store, *, seeds: int | None = None) -> Evidence:
    """Collect what is stored for a recipe.

    Args:
        recipe: The recipe.
        store: Where the results are.
        seeds: Number of seeds of each cell instead of the recipe's own.
    """
    stored = store.results()
    plan = make_plan(recipe, Tuning(stored), seeds=seeds)
    results: dict[Cell, dict[int, Result]] = {}
    failed: dict[str, Result] = {}
    missing = {planned.trial.key for planned in plan.first}
    for planned in plan.trials:
        found = results.setdefault(planned.cell, {})
        result = stored.get(planned.trial.key)
        if result is None:
            missing.add(planned.trial.key)
        elif result.ok:
            found[planned.trial.seed] = result
        else:
            failed[result.key] = result
    return Evidence(recipe, plan, results, tuple(failed.values()), len(missing))
