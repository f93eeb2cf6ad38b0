"""A logistic regression that only lowers scores, and scores by whoever did not see."""

import numpy as np
import pytest
from scipy.special import expit

from gsebo.suspects.pairs import Numbers
from gsebo.suspects.scoring import (
    MonotoneLogistic,
    crossed_scores,
    folds,
    weigh_given_values,
)

PENALTY = 0.03


def drawn(seed: int, wrong_way: bool = False) -> tuple[Numbers, Numbers]:
    """Rows of three columns, of which planted ones are lower in the first two."""
    rng = np.random.default_rng(seed)
    planted = (rng.random(400) < 0.2).astype(float)
    columns = rng.normal(size=(400, 3)) * [1.0, 50.0, 0.01] + [0.0, 7.0, -3.0]
    columns[:, :2] -= planted[:, None] * [1.0, 30.0]
    if wrong_way:
        columns[:, 2] += 0.02 * planted
    return columns, planted


def slopes_of_loss(
    model: MonotoneLogistic, columns: Numbers, planted: Numbers
) -> Numbers:
    """Gradient of the balanced, penalised loss, by finite differences of its text."""
    rows = (columns - columns.mean(0)) / columns.std(0)
    share = planted.mean()
    weight = np.where(planted == 1, 0.5 / share, 0.5 / (1 - share)) / len(rows)

    def loss(found: Numbers) -> float:
        scores = rows @ found[:-1] + found[-1]
        right = np.where(planted == 1, expit(scores), expit(-scores))
        return float(-weight @ np.log(right) + PENALTY * (found[:-1] ** 2).sum())

    level = model.score(columns)[0] - model.parts(columns)[0].sum()
    at = np.append(model.coefficients, level)
    step = 1e-5 * np.eye(len(at))
    return np.array([(loss(at + one) - loss(at - one)) / 2e-5 for one in step])


@pytest.mark.parametrize("wrong_way", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_best_of_those_that_only_lower(seed: int, wrong_way: bool) -> None:
    columns, planted = drawn(seed, wrong_way)
    model = MonotoneLogistic().fit(columns, planted)
    slopes = slopes_of_loss(model, columns, planted)
    assert (model.coefficients <= 0).all()
    assert (model.coefficients[:2] < -0.1).all()
    # At the limit the loss would fall on the other side of it; elsewhere it is flat.
    at_limit = np.append(model.coefficients == 0, False)
    assert (slopes[at_limit] <= 1e-4).all()
    assert np.abs(slopes[~at_limit]).max() < 1e-4
    if wrong_way:
        assert model.coefficients[2] == 0


def test_rows_with_more_of_anything_are_less_suspicious() -> None:
    columns, planted = drawn(0, wrong_way=True)
    model = MonotoneLogistic().fit(columns, planted)
    for column in range(3):
        more = columns.copy()
        more[:, column] += 1.0
        assert (model.score(more) <= model.score(columns)).all()


def test_units_and_constant_columns_make_no_difference() -> None:
    columns, planted = drawn(1)
    plain = MonotoneLogistic().fit(columns, planted).score(columns)
    other = columns * [1000.0, 0.1, 3.0] + [5.0, -2.0, 100.0]
    constant = np.full((len(columns), 1), 0.1)
    wider = np.concatenate([other, constant], axis=1)
    model = MonotoneLogistic().fit(wider, planted)
    assert model.coefficients[3] == 0
    np.testing.assert_allclose(model.score(wider), plain, atol=1e-3)
    # Even where it is not constant later on.
    wider[:, 3] = 10.0
    np.testing.assert_allclose(model.score(wider), plain, atol=1e-3)


def evidence_of(columns: Numbers) -> dict[str, Numbers]:
    return {f"column {number}": column for number, column in enumerate(columns.T)}


def crossed(columns: Numbers, planted: Numbers) -> tuple[Numbers, dict[str, Numbers]]:
    return crossed_scores(evidence_of(columns), planted, np.random.default_rng(5))


def test_no_row_has_a_say_in_the_scores_of_its_fold() -> None:
    columns, planted = drawn(2)
    fold = folds(planted, np.random.default_rng(5))
    before, _ = crossed(columns, planted)
    one, twin = np.flatnonzero(fold == 3)[[0, 7]]
    changed = columns.copy()
    changed[one] = columns[twin]
    after, _ = crossed(changed, planted)
    others = (fold == 3) & (np.arange(len(fold)) != one)
    assert (after[others] == before[others]).all()
    assert after[one] == pytest.approx(before[twin], abs=1e-12)
    assert (after[fold != 3] != before[fold != 3]).any()


def test_scores_are_what_columns_add_and_a_level_of_each_fold() -> None:
    columns, planted = drawn(3)
    scores, parts = crossed(columns, planted)
    fold = folds(planted, np.random.default_rng(5))
    rest = scores - np.sum(list(parts.values()), axis=0)
    for number in np.unique(fold):
        assert np.ptp(rest[fold == number]) < 1e-9
    assert parts.keys() == evidence_of(columns).keys()
    assert scores[planted == 1].mean() > scores[planted == 0].mean() + 0.5


def test_folds_are_even_among_both_kinds() -> None:
    planted = np.repeat([0.0, 1.0], [103, 12])
    fold = folds(planted, np.random.default_rng(0))
    for kind in (0, 1):
        sizes = np.bincount(fold[planted == kind], minlength=5)
        assert sizes.min() >= 1 and np.ptp(sizes) <= 1


def given_weights(seed: int, tells: bool) -> tuple[Numbers, Numbers]:
    rng = np.random.default_rng(seed)
    wrong = rng.random(500) < 0.2
    values = rng.normal(size=500) - 1.0 * wrong * tells
    likely = np.clip(0.6 * wrong + 0.1 + 0.1 * rng.normal(size=500), 0, 1)
    return values, likely


@pytest.mark.parametrize("seed", range(3))
def test_given_values_count_where_they_tell(seed: int) -> None:
    values, likely = given_weights(seed, tells=True)
    rng = np.random.default_rng(seed)
    scores = [(rng.normal(size=500), rng.normal(size=80)) for _ in range(2)]
    changed, added = weigh_given_values({"edge_weight": values}, likely, scores, 0)
    part = added["edge_weight"]
    # Wrong ones weigh less here: what weighs less becomes more suspicious.
    assert np.corrcoef(part, values)[0, 1] == pytest.approx(-1)
    for (given, planted), (before, unplanted) in zip(changed, scores, strict=True):
        np.testing.assert_allclose(given, before + part)
        assert planted.mean() > unplanted.mean()


@pytest.mark.parametrize("seed", range(5))
def test_given_values_that_tell_nothing_add_nothing(seed: int) -> None:
    values, likely = given_weights(seed, tells=False)
    scores = [(np.zeros(500), np.zeros(80))]
    changed, added = weigh_given_values({"edge_weight": values}, likely, scores, 0)
    assert not added["edge_weight"].any()
    assert not changed[0][0].any() and not changed[0][1].any()


def test_where_nothing_is_wrong_values_mean_nothing() -> None:
    values, _ = given_weights(0, tells=True)
    scores = [(np.zeros(500), np.zeros(80))]
    changed, added = weigh_given_values({"a": values}, np.zeros(500), scores, 0)
    assert changed == scores and not added["a"].any()
