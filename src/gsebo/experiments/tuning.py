"""What a search on validation nodes chose."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import mean
from typing import final

from gsebo.errors import InvalidInput
from gsebo.experiments.expand import Candidate, Planned, block_trials, places
from gsebo.experiments.recipe import ExperimentRecipe, load_recipe
from gsebo.experiments.result import Result


@dataclass(frozen=True)
class ScoredCandidate:
    """One candidate of a search and how it did.

    Attributes:
        candidate: What was tried.
        score: Mean accuracy on the nodes that the search tests on; not a number where
            there was nothing to choose.
        seeds: Over how many fits.
    """

    candidate: Candidate
    score: float
    seeds: int


@dataclass(frozen=True)
class SearchChoice:
    """What a search says about one method, row and dataset.

    Attributes:
        tried: All candidates with a score, in the order of the search; none if all
            failed.
        missing: Trials that have to be run before a choice can be made.
    """

    tried: tuple[ScoredCandidate, ...]
    missing: tuple[Planned, ...]

    @property
    def taken(self) -> Candidate:
        """The best on average; of equals the first."""
        return max(self.tried, key=lambda one: one.score).candidate


@final
class Tuning:
    """Searches, read from stored results.

    A search scores each candidate by its mean accuracy over seeds; one that failed
    with any seed is out. Its recipe tests on validation nodes (``split = "halves"``),
    so that no choice can see a test label.

    Args:
        results: What is stored, by the key of the trial.
    """

    def __init__(self, results: Mapping[str, Result]) -> None:
        self._results = results
        self._searches: dict[str, ExperimentRecipe] = {}

    def choice(self, search: str, method: str, row: str, dataset: str) -> SearchChoice:
        """Choose, or say what is missing.

        Args:
            search: Name of the recipe of the search.
            method: The method that the search fitted.
            row: Name of the backbone's row.
            dataset: Name of the dataset.

        Raises:
            InvalidInput: The search has no such trials, or could see test labels.
        """
        planned = self._planned(search, method, row, dataset)
        if len({one.trial.without_seed for one in planned}) == 1:
            # Nothing to choose from, nothing to run.
            return SearchChoice(
                (ScoredCandidate(planned[0].candidate, math.nan, 0),), ()
            )
        missing = [one for one in planned if one.trial.key not in self._results]
        if missing:
            return SearchChoice((), tuple(missing))
        candidates: dict[str, list[Planned]] = {}
        for one in planned:
            candidates.setdefault(one.trial.without_seed, []).append(one)
        tried = tuple(filter(None, map(self._tried, candidates.values())))
        return SearchChoice(tried, ())

    def _tried(self, planned: list[Planned]) -> ScoredCandidate | None:
        """Score the trials of one candidate; ``None`` if any of them failed."""
        scores = [self._results[one.trial.key].test_accuracy for one in planned]
        known = [score for score in scores if score is not None]
        if len(known) < len(scores):
            return None
        return ScoredCandidate(planned[0].candidate, mean(known), len(known))

    def _planned(
        self, search: str, method: str, row: str, dataset: str
    ) -> list[Planned]:
        """The trials of a search for one place."""
        if search not in self._searches:
            self._searches[search] = _load_search(search)
        recipe = self._searches[search]
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


def _load_search(name: str) -> ExperimentRecipe:
    recipe = load_recipe(name)
    tuned = any(block.tuned_by is not None for block in recipe.blocks)
    if tuned or not recipe.is_search:
        raise InvalidInput(
            f"the recipe {name!r} is used to tune; expected a search, with split "
            "'halves' in all blocks, which sees no test nodes."
        )
    return recipe
