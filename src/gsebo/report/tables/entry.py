"""What is known about each cell of a recipe: the one source of every figure shown."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean

import numpy as np

from gsebo.experiments import Candidate, Cell
from gsebo.experiments.plan import block_trials, places
from gsebo.metrics import METRICS
from gsebo.report.evidence import Evidence, Summary
from gsebo.report.names import published_figure

SIGNIFICANT = 0.05
"""Differences with a smaller p-value are marked."""

_REFERENCE = "vanilla"
_EXACT_UP_TO = 16
_DRAWS = 100_000


@dataclass(frozen=True)
class Entry:
    """The figures of one cell: means over its fits, scores times 100."""

    cell: Cell
    # Those that were fitted, mostly one.
    networks: tuple[str, ...]
    # Mean that is published, and its standard deviation where that is, too.
    paper: tuple[float, float | None] | None
    ours: Summary | None
    # Of vanilla in the same place, if that is another cell, and of the paired test.
    vanilla: Summary | None
    p_vanilla: float | None
    # On the nodes that chose the step.
    val_accuracy: float | None
    best_step: float | None
    seconds: float | None
    # The largest of all fits.
    peak_memory_bytes: int | None
    metric: str = "accuracy"  # What ours and vanilla are.

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, in points."""
        if self.ours is None or self.paper is None:
            return None
        return self.ours.mean - self.paper[0]

    @property
    def gain(self) -> float | None:
        """By how many percent of vanilla's score it is better, if that is a share."""
        if self.ours is None or self.vanilla is None or self.vanilla.mean == 0:
            return None
        if not METRICS[self.metric].in_percent:
            return None
        return 100 * (self.ours.mean / self.vanilla.mean - 1)

    @property
    def significant(self) -> bool:
        """Whether the difference from vanilla is unlikely to be chance."""
        return self.p_vanilla is not None and self.p_vanilla < SIGNIFICANT


def entries(evidence: Evidence) -> dict[Cell, Entry]:
    """The figures of every cell, in the recipe's order, stored or not."""
    trials = evidence.plan.cells()
    found: dict[Cell, Entry] = {}
    for cell in _cells(evidence):
        results = evidence.results.get(cell, {}).values()
        scores, metric = evidence.scores(cell), evidence.recipe.metric_of(cell.dataset)
        others: dict[int, float] = {}
        if cell.method != _REFERENCE and not evidence.recipe.is_search:
            # Vanilla in the same place, with the same setting if there is one.
            same = replace(cell, method=_REFERENCE)
            reference = same if same in trials else replace(same, setting="")
            others = evidence.scores(reference)
        place = (cell.row, cell.method, cell.dataset)
        printed = None
        if metric == "accuracy":
            # Nothing else is published.
            printed = published_figure(evidence.recipe.name, *place)
        peaks = (one.peak_memory_bytes for one in results)
        found[cell] = Entry(
            cell,
            tuple(dict.fromkeys(trial.backbone for trial in trials.get(cell, ()))),
            paper=None if cell.noise else printed,
            ours=Summary.of(scores),
            vanilla=Summary.of(others),
            p_vanilla=paired_p_value(scores, others),
            val_accuracy=_mean((one.val_accuracy for one in results), 100),
            best_step=_mean(one.best_step for one in results),
            seconds=_mean(one.seconds for one in results),
            peak_memory_bytes=max((b for b in peaks if b is not None), default=None),
            metric=metric,
        )
    return found


def _cells(evidence: Evidence) -> Iterator[Cell]:
    """Every cell of the recipe, those too that wait for the choice of a search."""
    for block in evidence.recipe.blocks:
        for method, row, dataset in places(block):
            taken = None
            if block.tuned_by is not None:
                place = Cell(method, row, dataset, setting=block.label)
                choice = evidence.plan.choices.get(place)
                taken = choice.taken if choice else Candidate(row, {})
            for planned in block_trials(block, method, row, dataset, 1, taken):
                yield planned.cell


def _mean(values: Iterable[float | None], factor: int = 1) -> float | None:
    known = [one for one in values if one is not None]
    return factor * mean(known) if known else None


def paired_p_value(
    ours: Mapping[int, float], others: Mapping[int, float]
) -> float | None:
    """Probability of a mean difference as large, if signs were tossed for each seed.

    The paired permutation test, two-sided: exact up to 16 seeds, beyond by 100000
    draws. ``None`` where fewer than two seeds are in both.
    """
    seeds = sorted(ours.keys() & others.keys())
    if len(seeds) < 2:
        return None
    differences = np.array([ours[seed] - others[seed] for seed in seeds])
    exact = len(seeds) <= _EXACT_UP_TO
    if exact:
        signs = np.array(list(product((1, -1), repeat=len(seeds))))
    else:
        signs = np.random.default_rng(0).choice((1, -1), (_DRAWS, len(seeds)))
    observed = abs(differences.sum())
    # Sums of the same numbers in another order may differ in the last digit.
    as_large = int((np.abs(signs @ differences) >= observed - 1e-9).sum())
    # What was observed is one of the draws, so that none is impossible.
    return as_large / len(signs) if exact else (as_large + 1) / (len(signs) + 1)
