"""What is stated of a list is what is true of it, where that is known."""

import numpy as np
import pytest

from gsebo.suspects.calibration import Calibration
from gsebo.suspects.reasons import summary

EDGES, PLANTED = 4000, 400
SEEDS = range(8)
# Mean and spread of right edges where planted ones are standard normal.
SHAPES = [(-4.24, 1.82), (-3.5, 1.5)]


def drawn(
    share: float, seed: int, shape: tuple[float, float] = SHAPES[0], rounds: int = 2
) -> tuple[Calibration, np.ndarray]:
    """Two normal distributions, and which edges of the ranked list are wrong."""
    rng = np.random.default_rng(seed)
    wrong = rng.random(EDGES) < share
    each = rng.normal(size=EDGES)
    given = np.where(wrong, each, shape[0] + shape[1] * each)
    scores = [(given, rng.normal(size=PLANTED)) for _ in range(rounds)]
    return Calibration.of(scores), wrong[np.argsort(-given)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [0.05, 0.1, 0.3])
def test_the_stated_precision_is_that_of_the_list(
    share: float, shape: tuple[float, float]
) -> None:
    errors, inside = [], []
    for seed in SEEDS:
        found, wrong = drawn(share, seed, shape)
        for first in (50, 100, 500):
            stated, low, high = found.of_first(first)
            errors.append(abs(stated - wrong[:first].mean()))
            inside.append(low <= wrong[:first].mean() <= high)
    assert np.mean(np.array(errors) < 0.1) >= 0.7
    assert np.mean(inside) >= 0.7


@pytest.mark.parametrize("seed", SEEDS)
def test_the_share_of_wrong_edges_is_told(seed: int) -> None:
    shares = [drawn(share, seed)[0].share for share in (0.0, 0.1, 0.3)]
    assert shares[0] < 0.02
    assert 0.08 < shares[1] < 0.16
    assert 0.25 < shares[2] < 0.42


@pytest.mark.parametrize("seed", SEEDS)
def test_of_a_clean_graph_nothing_is_said_to_be_wrong(seed: int) -> None:
    found, _ = drawn(0.0, seed, (-4.0, 1.5))
    assert found.share < 0.01 and found.number[0] < 0.01 * EDGES
    sentences = summary(found, "what features")
    assert sentences[0].startswith("Nothing looks wrong:")
    # One number is enough where there is nothing to look for.
    assert len(sentences) <= 3


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_probabilities_fall_and_lie_within_their_limits(
    seed: int, share: float
) -> None:
    found, _ = drawn(share, seed)
    for each in (found.probability, found.low, found.high):
        assert each.shape == (EDGES,)
        assert (np.diff(each) <= 1e-12).all()
        assert each.min() >= 0 and each.max() <= 1
    assert found.low.mean() <= found.probability.mean() <= found.high.mean()
    mean, low, high = found.number
    assert low <= mean <= high
    for first in (1, 10, 100, 1000, EDGES):
        stated, least, most = found.of_first(first)
        assert 0 <= least <= stated <= most <= 1


def test_units_of_scores_say_nothing() -> None:
    rng = np.random.default_rng(0)
    given = np.where(rng.random(EDGES) < 0.1, 0.0, -4.0) + rng.normal(size=EDGES)
    planted = rng.normal(size=PLANTED)
    one, other = (
        Calibration.of([(change(given), change(planted))])
        for change in (lambda each: each, lambda each: np.exp(each / 2) - 7)
    )
    assert one.share == pytest.approx(other.share, rel=1e-6)
    assert one.found == other.found
    np.testing.assert_allclose(one.probability, other.probability, atol=1e-6)


def test_the_area_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(1)
    # With ties.
    given, planted = rng.integers(0, 9, 500) * 1.0, rng.integers(3, 12, 70) * 1.0
    is_planted = np.repeat([0, 1], [500, 70])
    expected = roc_auc_score(is_planted, np.concatenate([given, planted]))
    assert Calibration.of([(given, planted)]).found == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
def test_scores_that_tell_nothing_are_said_to(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = Calibration.of([(rng.normal(size=EDGES), rng.normal(size=PLANTED))])
    assert found.found == pytest.approx(0.5, abs=0.05)
    (sentence,) = summary(found, "what the graph around both ends")
    assert "hardly told from the given ones" in sentence
    assert f"{found.found:.2f}" in sentence
    assert "what the graph around both ends says too little" in sentence


def test_scores_that_are_all_equal_do_no_harm() -> None:
    found = Calibration.of([(np.zeros(50), np.zeros(5))])
    assert found.found == 0.5
    assert np.isfinite(found.probability).all()


def test_the_summary_counts_what_it_states() -> None:
    found, wrong = drawn(0.1, 0)
    sentences = summary(found, "what features")
    assert f"Of {EDGES:,} edges {found.number[0]:,.0f} are expected" in sentences[0]
    assert f"area under ROC {found.found:.2f}" in sentences[0]
    for first, sentence in zip((10, 50, 100, 500, 1000), sentences[1:], strict=True):
        count = found.of_first(first)[0] * first
        assert sentence.startswith(f"Of the first {first:,}, {count:.0f} ± ")
    assert wrong[:10].mean() > 0.8
