from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gsebo.report import Summary, paired_p_value

# Accuracies come in steps, so that many differences are equal.
accuracy = st.integers(0, 1000).map(lambda steps: steps / 10)
pairs = st.lists(st.tuples(accuracy, accuracy), min_size=2, max_size=8)


def by_seed(values: list[float]) -> dict[int, float]:
    return dict(enumerate(values))


def p_value(pairs: list[tuple[float, float]]) -> float:
    ours, others = zip(*pairs, strict=True)
    p = paired_p_value(by_seed(list(ours)), by_seed(list(others)))
    assert p is not None
    return p


@given(st.lists(accuracy, min_size=2))
def test_summary_is_mean_and_unbiased_deviation(values: list[float]) -> None:
    found = Summary.of(by_seed(values))
    assert found is not None and found.count == len(values)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.std == pytest.approx(np.std(values, ddof=1), abs=1e-9)


def test_summary_of_one_and_of_none() -> None:
    assert Summary.of({3: 81.5}) == Summary(81.5, 0.0, 1)
    assert Summary.of({}) is None


@given(pairs)
def test_the_test_is_that_of_scipy(pairs: list[tuple[float, float]]) -> None:
    ours, others = np.array(pairs).T
    reference = stats.permutation_test(
        (ours, others),
        lambda a, b, axis: np.mean(a - b, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert p_value(pairs) == pytest.approx(reference.pvalue)


@given(pairs)
def test_the_test_counts_all_signs(pairs: list[tuple[float, float]]) -> None:
    differences = [round(10 * (a - b)) for a, b in pairs]
    sums = [
        abs(sum(sign * d for sign, d in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    share = sum(one >= abs(sum(differences)) for one in sums) / len(sums)
    assert p_value(pairs) == pytest.approx(share)


@given(pairs, st.randoms())
def test_neither_sides_nor_order_matter(
    pairs: list[tuple[float, float]], random: np.random.Generator
) -> None:
    shuffled = pairs.copy()
    random.shuffle(shuffled)
    assert p_value([(b, a) for a, b in pairs]) == p_value(pairs)
    assert p_value(shuffled) == p_value(pairs)


@given(st.lists(accuracy, min_size=2, max_size=20))
def test_equal_runs_do_not_differ(values: list[float]) -> None:
    assert paired_p_value(by_seed(values), by_seed(values)) == 1.0


def test_only_seeds_of_both_count() -> None:
    ours = {0: 1.0, 1: 2.0, 2: 5.0, 7: 90.0}
    others = {0: 0.5, 1: 1.0, 2: 1.0, 8: 3.0}
    assert paired_p_value(ours, others) == 2 / 2**3
    assert paired_p_value({0: 1.0, 1: 2.0}, {1: 5.0, 2: 6.0}) is None
    assert paired_p_value({}, {}) is None


@pytest.mark.parametrize("shift", [0.0, 0.2, 0.6])
def test_many_seeds_are_drawn_instead_of_counted(shift: float) -> None:
    numbers = np.random.default_rng(1).normal(shift, 1.0, 17)
    signs = np.array(list(product((1, -1), repeat=17)))
    exact = np.mean(np.abs(signs @ numbers) >= abs(numbers.sum()) - 1e-9)
    drawn = paired_p_value(by_seed(list(numbers)), dict.fromkeys(range(17), 0.0))
    assert drawn == pytest.approx(exact, abs=0.01)
