"""Mean, spread, and whether a difference could be chance."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from statistics import mean, stdev

import numpy as np

_EXACT_UP_TO = 16
_DRAWS = 100_000


@dataclass(frozen=True)
class Summary:
    """Some accuracies in percent.

    Attributes:
        mean: Their mean.
        std: Their standard deviation (ddof = 1), 0 for one.
        count: How many.
    """

    mean: float
    std: float
    count: int

    @classmethod
    def of(cls, values: Mapping[int, float]) -> "Summary | None":
        """Of accuracies by seed, or ``None`` of none."""
        if not values:
            return None
        numbers = list(values.values())
        spread = stdev(numbers) if len(numbers) > 1 else 0.0
        return cls(mean(numbers), spread, len(numbers))


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
    if len(seeds) <= _EXACT_UP_TO:
        signs = np.array(list(product((1, -1), repeat=len(seeds))))
    else:
        signs = np.random.default_rng(0).choice((1, -1), (_DRAWS, len(seeds)))
    observed = abs(differences.sum())
    # Sums of the same numbers in another order may differ in the last digit.
    as_large = int((np.abs(signs @ differences) >= observed - 1e-9).sum())
    if len(seeds) <= _EXACT_UP_TO:
        return as_large / len(signs)
    # What was observed is one of the draws, so that none is impossible.
    return (as_large + 1) / (len(signs) + 1)
