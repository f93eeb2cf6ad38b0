"""From what is told of pairs to how suspicious each is, learned from planted edges.

Planted edges are known to be wrong, the given ones mostly right. A logistic regression
tells them apart; whatever speaks for an edge may only lower its score. That keeps it
from learning how planted edges were drawn: wrong edges of other origin have other
degrees and other company, but they too join nodes that have little in common.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import numpy as np
from scipy.optimize import minimize

from gsebo.suspects.pairs import Ints, Numbers

# Of the mean loss: strong enough that columns which say the same share their weight.
_PENALTY = 0.03
_FOLDS = 5
# Standard deviations by which a difference has to exceed chance.
_SURE = 3.0


@final
class MonotoneLogistic:
    """A balanced logistic regression none of whose columns may raise the score.

    Attributes:
        coefficients: Of the standardised columns, none above zero, ``[columns]``.
    """

    def fit(self, columns: Numbers, planted: Numbers) -> MonotoneLogistic:
        """Learn from rows of which some are planted (1) and some not (0)."""
        self._mean = columns.mean(0)
        spread = columns.std(0)
        self._spread = np.where(spread > 1e-9, spread, np.inf)
        rows = self._scaled(columns)
        share = planted.mean()
        weight = np.where(planted == 1, 0.5 / share, 0.5 / (1 - share)) / len(rows)

        def loss(found: Numbers) -> tuple[float, Numbers]:
            slopes, level = found[:-1], found[-1]
            scores = rows @ slopes + level
            each = np.logaddexp(0, scores) - planted * scores
            error = weight * (1 / (1 + np.exp(-scores)) - planted)
            gradient = np.append(rows.T @ error + 2 * _PENALTY * slopes, error.sum())
            return float(weight @ each + _PENALTY * slopes @ slopes), gradient

        limits = [(None, 0.0)] * rows.shape[1] + [(None, None)]
        start = np.zeros(rows.shape[1] + 1)
        best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits)
        self.coefficients, self._level = best.x[:-1], best.x[-1]
        return self

    def score(self, columns: Numbers) -> Numbers:
        """Log-odds that each row is planted, ``[rows]``."""
        found: Numbers = self._scaled(columns) @ self.coefficients + self._level
        return found

    def parts(self, columns: Numbers) -> Numbers:
        """What each column adds to the score of each row, ``[rows, columns]``."""
        found: Numbers = self._scaled(columns) * self.coefficients
        return found

    def _scaled(self, columns: Numbers) -> Numbers:
        scaled: Numbers = (columns - self._mean) / self._spread
        return scaled


def crossed_scores(
    evidence: Mapping[str, Numbers], planted: Numbers, rng: np.random.Generator
) -> tuple[Numbers, dict[str, Numbers]]:
    """Score of each row by a model that did not see it, and what each column adds."""
    columns = np.stack(list(evidence.values()), axis=1)
    fold = folds(planted, rng)
    scores, parts = np.empty(len(columns)), np.empty_like(columns)
    for number in range(_FOLDS):
        here = fold == number
        model = MonotoneLogistic().fit(columns[~here], planted[~here])
        scores[here], parts[here] = (
            model.score(columns[here]),
            model.parts(columns[here]),
        )
    return scores, dict(zip(evidence, parts.T, strict=True))


def folds(planted: Numbers, rng: np.random.Generator) -> Ints:
    """Deal planted rows and the others evenly into folds, ``[rows]``."""
    fold = np.empty(len(planted), np.int64)
    for kind in (0, 1):
        rows = rng.permutation(np.flatnonzero(planted == kind))
        fold[rows] = np.arange(len(rows)) % _FOLDS
    return fold


def weigh_given_values(
    values: Mapping[str, Numbers],
    wrong: Numbers,
    scores: Sequence[tuple[Numbers, Numbers]],
    seed: int,
) -> tuple[list[tuple[Numbers, Numbers]], dict[str, Numbers]]:
    """Add what the user gave of edges, such as weights, to the scores of all rounds.

    No planted edge could teach what a weight means: where likely wrong edges have other
    values than likely right ones, that is added, and planted edges get the values of
    likely wrong ones. Also returns what each column has added.

    Args:
        values: What is given of each edge, ``[edges]``, by name.
        wrong: How likely each is wrong without them.
        scores: Of each round, those of the given and of the planted edges.
        seed: Decides which values planted edges get.
    """
    names, rng = list(values), np.random.default_rng([seed, 2**31])
    columns = np.stack([values[name] for name in names], axis=1)
    spread = columns.std(0)
    rows = (columns - columns.mean(0)) / spread
    total, of_wrong = len(rows), wrong.sum()
    # Means of both kinds, and whether they differ by more than chance.
    if min(of_wrong, total - of_wrong) < 1:
        return list(scores), dict.fromkeys(names, np.zeros(total))
    share = wrong / of_wrong, (1 - wrong) / (total - of_wrong)
    apart = share[0] @ rows - share[1] @ rows
    chance = np.sqrt((share[0] ** 2).sum() + (share[1] ** 2).sum())
    # With one spread for both kinds, the log-odds are linear in the column.
    slope = np.where(np.abs(apart) > _SURE * chance, apart, 0.0)
    parts = rows * slope
    added = parts.sum(1)
    changed = []
    for given, planted in scores:
        drawn = rng.choice(total, len(planted), p=share[0])
        changed.append((given + added, planted + added[drawn]))
    return changed, dict(zip(names, parts.T, strict=True))
