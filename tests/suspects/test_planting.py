"""Planted edges are none of the graph's, and lie where edges lie."""

import numpy as np
import pytest

from gsebo.errors import InvalidInput
from gsebo.suspects.pairs import Ints, keys_of_ends
from gsebo.suspects.rounds import plant


def skewed_pairs(size: int = 200, count: int = 600, seed: int = 0) -> Ints:
    """Pairs of which some nodes have many more than others."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, size + 1) ** 0.7
    drawn = rng.choice(size, (8 * count, 2), p=weights / weights.sum())
    drawn = drawn[drawn[:, 0] != drawn[:, 1]]
    _, first = np.unique(keys_of_ends(drawn, size), return_index=True)
    return drawn[np.sort(first)[:count]]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("by_class", [False, True])
def test_what_is_planted_is_new(seed: int, by_class: bool) -> None:
    pairs = skewed_pairs()
    classes = np.arange(200) % 3 if by_class else None
    found = plant(pairs, 200, 300, np.random.default_rng(seed), classes)
    assert found.shape == (300, 2)
    assert (found[:, 0] < found[:, 1]).all()
    keys = keys_of_ends(found, 200)
    assert len(np.unique(keys)) == 300
    assert not np.isin(keys, keys_of_ends(pairs, 200)).any()
    if classes is not None:
        assert (classes[found[:, 0]] != classes[found[:, 1]]).all()


def test_a_seed_decides_all() -> None:
    pairs = skewed_pairs()
    once, again, other = (
        plant(pairs, 200, 50, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert (once == again).all()
    assert (once != other).any()


def test_ends_are_as_often_at_each_degree_as_given_ones() -> None:
    pairs = skewed_pairs(2000, 6000)
    degree = np.bincount(pairs.ravel(), minlength=2000)
    found = plant(pairs, 2000, 3000, np.random.default_rng(0))
    given, planted = (degree[each.ravel()] for each in (pairs, found))
    assert given.max() > 10 * np.median(degree[degree > 0])
    # A few of the largest hubs are missed, whose pairs are often joined already.
    for level in (0.1, 0.25, 0.5, 0.75, 0.9):
        limit = np.quantile(given, level)
        assert (planted <= limit).mean() == pytest.approx(
            (given <= limit).mean(), abs=0.04
        )


def test_nodes_without_edges_get_none() -> None:
    pairs = skewed_pairs()
    found = plant(pairs, 1000, 200, np.random.default_rng(0))
    assert set(found.ravel().tolist()) <= set(pairs.ravel().tolist())


def test_a_graph_that_is_too_dense_is_refused() -> None:
    every = np.stack(np.triu_indices(12, 1), axis=1)
    with pytest.raises(
        InvalidInput,
        match=r"^only 1 of 5 false edges .* 12 nodes with 65 edges; expected .*\.$",
    ):
        plant(every[1:], 12, 5, np.random.default_rng(0))
    of_one_class = np.zeros(200, int)
    with pytest.raises(InvalidInput, match="only 0 of 5"):
        plant(skewed_pairs(), 200, 5, np.random.default_rng(0), of_one_class)
