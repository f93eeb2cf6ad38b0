"""How many of the most suspicious edges are wrong, by where planted ones end up.

Let t be the share of planted edges that score above some score. Of wrong edges about
the same share does, of right ones a much smaller one,

    N(t) = Phi(a + b Phi^-1(t)),

a straight line on normal paper, as that of two normal distributions is. What of the
given edges exceeds N is what is wrong. Where right edges have much in common with
planted ones already in their bulk, N(0.98), they also have in their tail:

    a = max(-2.33, -1.45 + 0.9 Phi^-1(N(0.98))),   b = 0.55.

These numbers are those of right edges of clean citation graphs and of such with false
edges (docs/guides/suspects.md has the list); nothing about a graph alone could tell
them, for a right edge that looks like chance is not to be told from a wrong one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import ndtr, ndtri

from gsebo.suspects.pairs import Numbers

_LEVEL, _BULK_LEVEL, _BULK_SLOPE, _SLOPE = -2.33, -1.45, 0.9, 0.55
# How far the level of a graph may be from that, on either side, as a guess.
_LEVEL_SPREAD = 0.15
_BULK, _MIDDLE = 0.98, 0.5
# Of wrong edges of other origin so many score above the same share of planted ones.
_WRONG_IN_BULK, _WRONG_IN_MIDDLE = 0.96, 0.42
_MOST_WRONG = 0.9
_STEPS = 200
# Below this area, and above this share of right edges, nothing is counted.
_TOLD_APART, _MOST_RIGHT = 0.7, 0.1
# One and a half standard deviations on either side: nine cases of ten.
_DEVIATIONS = 1.6

Scores = Sequence[tuple[Numbers, Numbers]]
"""Of each round, the scores of the given and of the planted edges."""


@final
@dataclass(frozen=True, eq=False)
class Calibration:
    """What the scores of given and planted edges say together.

    Attributes:
        share: Of the given edges that are wrong.
        probability: That an edge is wrong, by its rank, ``[edges]``, descending.
        low: The same if more of the right edges look like chance than is usual.
        high: If fewer do.
        found: How likely a planted edge scores above a given one: the area under ROC.
        right: Share of right edges that is taken to score above half of the planted.
    """

    share: float
    probability: Numbers
    low: Numbers
    high: Numbers
    found: float
    right: float

    @classmethod
    def of(cls, scores: Scores) -> Calibration:
        """Compare the scores of some rounds."""
        share, level, probability = _by_rank(scores, 0.0)
        _, _, low = _by_rank(scores, _LEVEL_SPREAD)
        _, _, high = _by_rank(scores, -_LEVEL_SPREAD)
        area = float(np.mean([_area(*one) for one in scores]))
        return cls(share, probability, low, high, area, float(ndtr(level)))

    @property
    def tells(self) -> bool:
        """Whether wrong edges can be counted at all.

        Not where planted edges are hardly told from given ones, nor where so many right
        edges score as high as planted ones that no excess could be seen.
        """
        return not self.is_hardly_told and self.right <= _MOST_RIGHT

    @property
    def is_hardly_told(self) -> bool:
        """Whether planted edges look like given ones."""
        return self.found < _TOLD_APART

    def of_first(self, count: int) -> tuple[float, float, float]:
        """Share of the first edges that is expected to be wrong, and its limits."""
        mean, low, high = (
            float(each[:count].mean())
            for each in (self.probability, self.low, self.high)
        )
        # Even if the share were known, so many edges are wrong or not by chance.
        chance = _DEVIATIONS * np.sqrt(mean * (1 - mean) / count)
        return mean, max(low - chance, 0.0), min(high + chance, 1.0)

    @property
    def number(self) -> tuple[float, float, float]:
        """How many edges are expected to be wrong in all, and its limits."""
        parts = (self.probability, self.low, self.high)
        mean, low, high = (float(each.sum()) for each in parts)
        return mean, low, high


def _by_rank(scores: Scores, shift: float) -> tuple[float, float, Numbers]:
    """Share of wrong edges, the level of right ones, and the probability of each rank.

    Right edges that look like chance are more by ``shift`` than is usual.
    """
    bulk, middle = (
        float(np.mean([_above(*one, share) for one in scores]))
        for share in (_BULK, _MIDDLE)
    )
    wrong, level = 0.0, _LEVEL
    for _ in range(_STEPS):
        right = np.clip((bulk - _WRONG_IN_BULK * wrong) / (1 - wrong), 1e-4, 0.98)
        level = max(_LEVEL, _BULK_LEVEL + _BULK_SLOPE * float(ndtri(right))) + shift
        excess = middle - (1 - wrong) * float(ndtr(level))
        wrong += (float(np.clip(excess / _WRONG_IN_MIDDLE, 0, _MOST_WRONG)) - wrong) / 2
    count = len(scores[0][0])
    rank = np.arange(1, count + 1)
    share = np.mean([_planted_above(*one) for one in scores], axis=0)
    finest = 0.5 / sum(len(planted) for _, planted in scores)
    place = ndtri(np.clip(share, finest, 1 - finest))
    right = count * (1 - wrong) * ndtr(level + _SLOPE * place)
    # No more than there are in all, wherever the two lines cross.
    expected = np.minimum(np.maximum(rank - right, 0), count * wrong)
    each = np.diff(expected, prepend=0.0)
    # Loaded here: fits read this file too, and have no use for a second of imports.
    from sklearn.isotonic import IsotonicRegression

    falling = IsotonicRegression(increasing=False).fit_transform(rank, each)
    return wrong, level, np.clip(falling, 0, 1)


def _above(given: Numbers, planted: Numbers, share: float) -> float:
    """Share of the given scores above that which so many of the planted exceed."""
    return float((given > np.quantile(planted, 1 - share)).mean())


def _planted_above(given: Numbers, planted: Numbers) -> Numbers:
    """Share of the planted scores at or above each given one, the highest first."""
    ordered = np.sort(given)[::-1]
    below = np.searchsorted(np.sort(planted), ordered, side="left")
    return 1 - below / len(planted)


def _area(given: Numbers, planted: Numbers) -> float:
    """How likely a planted score is above a given one; equal ones count half."""
    ordered = np.sort(given)
    low, high = (np.searchsorted(ordered, planted, side) for side in ("left", "right"))
    return float((low + high).mean() / (2 * len(given)))
