"""Pairs that should be joined: edges that were taken out come back first."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import gsebo
from gsebo import Graph, generate_graph, missing_edges
from gsebo.data.noise.kinds import remove_edges
from gsebo.errors import InvalidInput
from gsebo.suspects.missing import MissingEdges
from suspects.graphs import few_labels, noisy_graph

SEEDS = (0, 1, 2)


def whole_graph(seed: int) -> Graph:
    graph = generate_graph(
        300,
        num_classes=3,
        num_features=16,
        average_degree=8.0,
        homophily=0.95,
        seed=seed,
    )
    del graph["y"]
    return graph


def some_removed(seed: int) -> Graph:
    return remove_edges(whole_graph(seed), 15, seed)


@pytest.fixture(scope="module")
def found() -> dict[int, MissingEdges]:
    return {
        seed: missing_edges(some_removed(seed), count=10**6, device="cpu")
        for seed in SEEDS
    }


def pairs_of(ends: Any) -> list[frozenset[int]]:
    return [frozenset(pair) for pair in ends.T.tolist()]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_taken_out_comes_first(
    found: dict[int, MissingEdges], seed: int
) -> None:
    table, ends, _ = found[seed]
    whole = set(pairs_of(whole_graph(seed).edge_index))
    was_edge = np.array([pair in whole for pair in pairs_of(ends)])
    assert roc_auc_score(was_edge, table["score"]) > 0.6
    assert was_edge[:50].mean() > 3 * was_edge.mean()


@pytest.mark.parametrize("seed", SEEDS)
def test_each_pair_is_listed_once_and_is_no_edge(
    found: dict[int, MissingEdges], seed: int
) -> None:
    table, ends, sentences = found[seed]
    pairs = pairs_of(ends)
    assert len(set(pairs)) == len(pairs) == len(table)
    assert all(len(pair) == 2 for pair in pairs)
    assert set(pairs).isdisjoint(pairs_of(some_removed(seed).edge_index))
    assert table["score"].is_monotonic_decreasing
    assert table["probability"].is_monotonic_decreasing
    assert table["probability"].between(0, 1).all()
    assert table["reason"].str.endswith(".").all()
    assert (table["source"] == ends[0]).all() and (table["target"] == ends[1]).all()
    assert sentences[0].startswith("Of ") and sentences[0].endswith(".")


def test_fewer_rows_are_the_first(found: dict[int, MissingEdges]) -> None:
    short = missing_edges(some_removed(0), count=7, device="cpu")
    assert short.table.equals(found[0].table.head(7))
    assert (short.ends == found[0].ends[:, :7]).all()


def test_names_and_few_labels() -> None:
    graph = few_labels(noisy_graph())
    graph.node_id = np.array([f"n{node}" for node in range(graph.num_nodes)])
    fresh = graph.clone()
    table, ends, _ = missing_edges(graph, count=20, device="cpu")
    assert table["source"].tolist() == [f"n{node}" for node in ends[0]]
    assert table["agreement"].between(0, 1).all()
    hidden = graph.clone()
    hidden.y = torch.where(graph.train_mask, graph.y, 10**6)
    assert missing_edges(hidden, count=20, device="cpu").table.equals(table)
    assert graph.keys() == fresh.keys() and torch.equal(graph.y, fresh.y)


def test_edges_are_enough() -> None:
    graph = Graph(edge_index=some_removed(0).edge_index)
    table = missing_edges(graph, count=20, device="cpu").table
    assert "cosine" not in table and (table["common_neighbors"] > 0).all()


@pytest.mark.parametrize("settings", [{"count": 0}, {"count": "5"}, {"device": "x"}])
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(settings))):
        missing_edges(some_removed(0), **settings)


@pytest.mark.parametrize("seed", [-1, None, "a", 1.5, 2**70])
def test_a_seed_is_a_number_of_its_size(seed: Any) -> None:
    with pytest.raises(InvalidInput, match="random_state"):
        missing_edges(some_removed(0), random_state=seed)


def test_a_graph_that_is_too_small_is_refused() -> None:
    path = torch.stack([torch.arange(99), torch.arange(1, 100)])
    with pytest.raises(
        InvalidInput, match="joins 99 pairs of nodes; expected at least"
    ):
        gsebo.missing_edges(Graph(edge_index=path))


@pytest.mark.parametrize("seed", range(20))
def test_where_hidden_edges_are_hardly_found_again_nothing_is_learned(
    seed: int,
) -> None:
    edges = np.random.default_rng(seed).integers(0, 400, (2, 130))
    graph = Graph(edge_index=torch.from_numpy(edges), num_nodes=400)
    # All but a few have no hidden edge among their candidates, others one or two.
    try:
        table = missing_edges(graph, device="cpu").table
    except InvalidInput as told:
        assert "hidden edges" in str(told) and "expected at least 2" in str(told)
    else:
        assert np.isfinite(table["score"]).all()
