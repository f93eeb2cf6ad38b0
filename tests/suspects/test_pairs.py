"""Edges as pairs, and what is told of a pair as if its own edge were not there."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo import Graph
from gsebo.suspects.pairs import (
    Ints,
    JoinedPairs,
    NodeFeatures,
    Numbers,
    Pairs,
    edges_of_ends,
    keys_of_ends,
)

NODES = 8
ends = st.integers(0, NODES - 1)
edge_lists = st.lists(st.tuples(ends, ends), min_size=1, max_size=40)


def graph_of(edges: list[tuple[int, int]]) -> Graph:
    return Graph(edge_index=torch.tensor(edges).T, num_nodes=NODES)


@given(edge_lists)
def test_pairs_are_distinct_and_as_first_mentioned(
    edges: list[tuple[int, int]],
) -> None:
    pairs = Pairs.of(graph_of(edges))
    expected: dict[frozenset[int], tuple[int, int]] = {}
    for one, other in edges:
        if one != other:
            expected.setdefault(frozenset((one, other)), (one, other))
    assert [tuple(pair) for pair in pairs.given.tolist()] == list(expected.values())
    assert (pairs.ends == np.sort(pairs.given, axis=1)).all()
    assert len(pairs) == len(expected)


@given(edge_lists)
def test_values_go_back_to_the_edges_of_the_user(edges: list[tuple[int, int]]) -> None:
    pairs = Pairs.of(graph_of(edges))
    found = pairs.to_edges(np.arange(len(pairs), dtype=float), -7.0)
    assert len(found) == len(edges)
    for (one, other), value in zip(edges, found.tolist(), strict=True):
        if one == other:
            assert value == -7.0
        else:
            assert set(pairs.ends[int(value)].tolist()) == {one, other}


@given(edge_lists)
def test_both_directions_are_one_pair(edges: list[tuple[int, int]]) -> None:
    once = Pairs.of(graph_of(edges))
    doubled = [*edges, *((other, one) for one, other in edges)]
    twice = Pairs.of(graph_of(doubled))
    assert (twice.given == once.given).all()
    assert (twice.pair_of_edge == np.tile(once.pair_of_edge, 2)).all()


def test_a_key_is_that_of_no_other_pair() -> None:
    every = np.array([(one, other) for one in range(NODES) for other in range(one)])
    keys = keys_of_ends(every, NODES)
    assert len(set(keys.tolist())) == len(every)
    assert (keys == keys_of_ends(every[:, ::-1], NODES)).all()
    both = edges_of_ends(every)
    assert both.shape == (2, 2 * len(every))
    assert set(map(tuple, both.T.tolist())) == {
        (one, other) for one in range(NODES) for other in range(NODES) if one != other
    }


def cosine(one: Numbers, other: Numbers) -> float:
    length = np.linalg.norm(one) * np.linalg.norm(other)
    return float(one @ other / length) if length > 1e-9 else 0.0


def weighed_by_hand(x: Numbers, sparse: bool) -> Numbers:
    """Features as a reader of the documentation would weigh them, of unit length."""
    if sparse:
        present = (x != 0).astype(float)
        weighed = present * np.log((len(x) + 1) / (present.sum(0) + 1))
    else:
        spread = x.std(0)
        weighed = np.where(spread > 0, x - x.mean(0), 0) / np.where(
            spread > 0, spread, 1
        )
    length = np.linalg.norm(weighed, axis=1, keepdims=True)
    return np.where(length > 0, weighed / np.where(length > 0, length, 1), 0)


def told_by_hand(
    pairs: Ints, asked: Ints, x: Numbers, sparse: bool, size: int
) -> dict[str, list[float]]:
    """Take each pair's own edge out of a dense matrix and look again."""
    weighed = weighed_by_hand(x, sparse)
    found: dict[str, list[float]] = {}
    for one, other in asked.tolist():
        adjacency = np.zeros((size, size))
        adjacency[tuple(pairs.T)] = adjacency[tuple(pairs[:, ::-1].T)] = 1
        adjacency[one, other] = adjacency[other, one] = 0
        around = adjacency @ weighed
        sides = (
            cosine(weighed[one], around[other]),
            cosine(weighed[other], around[one]),
        )
        common = np.flatnonzero(adjacency[one] * adjacency[other])
        each = {
            "cosine": cosine(x[one], x[other]),
            "rarity": float(weighed[one] @ weighed[other]),
            "one_neighborhood": max(sides),
            "other_neighborhood": min(sides),
            "neighborhoods": cosine(around[one], around[other]),
            "common": float(np.log1p(len(common))),
            "allocation": float((1 / adjacency[common].sum(1)).sum()),
        }
        for name, value in each.items():
            found.setdefault(name, []).append(value)
    return found


def some_pairs(rng: np.random.Generator, size: int, count: int) -> tuple[Ints, Ints]:
    """Pairs that are joined, and as many others; the last nodes have no neighbors."""
    every = np.stack(np.triu_indices(size, 1), axis=1)
    order = rng.permutation(np.flatnonzero(every[:, 1] < size - 2))
    # A leaf, whose one neighbor is all that it has.
    joined = np.concatenate([every[order[:count]], [[0, size - 2]]])
    return joined, np.concatenate([every[order[count : 2 * count]], [[0, size - 1]]])


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_evidence_leaves_the_own_edge_out(sparse: bool, seed: int) -> None:
    rng, size = np.random.default_rng(seed), 16
    x = rng.normal(size=(size, 12)) * 10.0 ** rng.integers(-3, 4, 12)
    if sparse:
        x = (rng.random((size, 30)) < 0.15) * rng.random((size, 30)).round(2)
    else:
        # A constant column says nothing of anybody.
        x[:, 4] = 3.5
    # A node of which nothing is known.
    x[5] = 0
    x = x.astype(np.float32).astype(np.float64)
    pairs, others = some_pairs(rng, size, 30)
    features = NodeFeatures(torch.from_numpy(x))
    graph = JoinedPairs(pairs, size, features)
    for asked, joined in ((pairs, True), (others, False)):
        found = graph.evidence(asked, joined=joined)
        expected = told_by_hand(pairs, asked, x, sparse, size)
        assert found.keys() == expected.keys()
        for name, column in found.items():
            assert np.isfinite(column).all()
            np.testing.assert_allclose(
                column, expected[name], rtol=0, atol=2e-6, err_msg=name
            )


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_and_dense_storage_say_the_same() -> None:
    rng, size = np.random.default_rng(0), 16
    dense = torch.from_numpy((rng.random((size, 30)) < 0.1).astype(np.float32))
    pairs, _ = some_pairs(rng, size, 30)
    told = [
        JoinedPairs(pairs, size, NodeFeatures(x)).evidence(pairs, joined=True)
        for x in (dense, dense.to_sparse_csr())
    ]
    for name in told[0]:
        assert (told[0][name] == told[1][name]).all()


def test_a_graph_without_features_has_its_structure() -> None:
    pairs, others = some_pairs(np.random.default_rng(0), 16, 30)
    graph = JoinedPairs(pairs, 16, None)
    found = graph.evidence(others, joined=False)
    assert set(found) == {"common", "allocation"}
    assert found["common"].shape == (len(others),)


def test_the_order_of_the_ends_says_nothing() -> None:
    rng = np.random.default_rng(1)
    pairs, _ = some_pairs(rng, 16, 30)
    features = NodeFeatures(torch.from_numpy(rng.normal(size=(16, 5))))
    graph = JoinedPairs(pairs, 16, features)
    one = graph.evidence(pairs, joined=True)
    other = graph.evidence(pairs[:, ::-1], joined=True)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], atol=1e-12)
