"""Clusters: every node in one, and all edges between those of a batch."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gsebo.errors import InvalidInput
from gsebo.graph.arrays import GraphArrays
from gsebo.loader import Batch, ClusterSampler
from gsebo.loader.cluster import partition_graph
from gsebo.loader.kernels import CSRRows, induced_rows

from .graphs import cora, examples, graphs, random_graph, same, seeds_of, targets


@examples
@given(graphs(), st.randoms(use_true_random=False))
def test_induced_rows_against_every_edge(arrays: GraphArrays, random) -> None:
    chosen = [node for node in range(arrays.num_nodes) if random.random() < 0.5]
    found = induced_rows(
        CSRRows.of(arrays.indptr, arrays.source), np.array(chosen, int)
    )
    pairs = list(zip(targets(arrays).tolist(), arrays.source.tolist(), strict=True))
    inside = [k for k, (i, j) in enumerate(pairs) if i in chosen and j in chosen]
    assert found.positions.tolist() == inside
    assert [chosen[j] for j in found.columns] == [pairs[k][1] for k in inside]
    into = [sum(pairs[k][0] == node for k in inside) for node in chosen]
    assert found.counts.tolist() == into


def test_a_batch_is_the_union_of_its_clusters() -> None:
    arrays, nodes = cora(), np.flatnonzero(cora().train)
    sampler = ClusterSampler(num_parts=40, clusters_per_batch=3)
    bound = sampler.bind(arrays, num_layers=2, batch_size=1, seed=5)
    partition = bound.partition
    assert partition.dtype == np.int32 and len(partition) == arrays.num_nodes
    batch = bound.batch(nodes, 1)
    clusters = np.unique(partition[batch.nodes])
    assert len(clusters) == 3
    inside = np.isin(partition, clusters)
    assert np.array_equal(batch.nodes, np.flatnonzero(inside))
    both = inside[arrays.source] & inside[targets(arrays)]
    assert np.array_equal(batch.edges, np.flatnonzero(both))
    assert np.array_equal(seeds_of(batch), nodes[inside[nodes]])


def test_epochs_go_through_all_clusters_that_hold_a_node() -> None:
    arrays, nodes = cora(), np.flatnonzero(cora().train)[:60]
    sampler = ClusterSampler(num_parts=80, clusters_per_batch=4)
    bound = sampler.bind(arrays, num_layers=2, batch_size=1, seed=5)
    clusters = np.unique(bound.partition[nodes])
    assert 4 < len(clusters) < 60
    pieces = -(-len(clusters) // 4)
    orders = set()
    for epoch in range(3):
        numbers = range(epoch * pieces, (epoch + 1) * pieces)
        batches = [bound.batch(nodes, number) for number in numbers]
        held = [np.unique(bound.partition[batch.nodes]) for batch in batches]
        assert sorted(np.concatenate(held)) == clusters.tolist()
        seeds = np.concatenate([seeds_of(batch) for batch in batches])
        assert np.array_equal(np.sort(seeds), nodes)
        orders.add(tuple(np.concatenate(held).tolist()))
    assert len(orders) == 3


def test_a_cover_takes_clusters_in_order() -> None:
    arrays, nodes = cora(), np.flatnonzero(cora().test)
    sampler = ClusterSampler(num_parts=30, clusters_per_batch=4)
    bound = sampler.bind(arrays, num_layers=2, batch_size=1, seed=5)
    held = [np.unique(bound.partition[batch.nodes]) for batch in bound.cover(nodes)]
    expected = np.unique(bound.partition[nodes])
    assert np.array_equal(np.concatenate(held), expected)
    assert [len(each) for each in held] == [4] * 7 + [2]


@pytest.mark.parametrize("size", [200, 1000])
def test_a_batch_has_about_as_many_nodes_as_asked_for(size: int) -> None:
    arrays, nodes = cora(), np.arange(cora().num_nodes)
    bound = ClusterSampler().bind(arrays, num_layers=2, batch_size=size, seed=5)
    numbers = range(arrays.num_nodes // size)
    sizes = [len(bound.batch(nodes, number).nodes) for number in numbers]
    assert 0.85 * size < min(sizes) and max(sizes) < 1.15 * size


@pytest.mark.parametrize(
    "sampler", [ClusterSampler(), ClusterSampler(4), ClusterSampler(3, 5)]
)
def test_few_clusters_are_the_whole_graph(sampler, monkeypatch) -> None:
    # METIS is not asked then.
    monkeypatch.setitem(sys.modules, "pymetis", None)
    arrays, nodes = cora(), np.flatnonzero(cora().train)
    bound = sampler.bind(arrays, num_layers=2, batch_size=arrays.num_nodes, seed=0)
    full = Batch.full(arrays, nodes)
    assert same(bound.batch(nodes, 0), full) and same(bound.batch(nodes, 9), full)
    (cover,) = bound.cover(nodes)
    assert same(cover, full)
    assert np.array_equal(bound.partition, np.zeros(arrays.num_nodes))


@pytest.mark.parametrize("parts", [2, 8, 60, 500])
def test_parts_are_filled_evenly_and_the_same_each_time(parts: int) -> None:
    arrays = cora()
    found = partition_graph(arrays, parts)
    partition_graph(random_graph(200, 900), 5)
    assert np.array_equal(found, partition_graph(arrays, parts))
    sizes = np.bincount(found, minlength=parts)
    assert sizes.min() > 0 and sizes.max() <= 1.5 * arrays.num_nodes / parts


def test_most_edges_stay_inside_parts() -> None:
    arrays = cora()
    found = partition_graph(arrays, 20)
    assert (found[arrays.source] == found[targets(arrays)]).mean() > 0.8


def test_a_graph_too_large_for_memory_is_refused() -> None:
    # One number, told to be there often: nothing of it is ever read.
    source = np.broadcast_to(np.int32(0), 2**28 + 1)
    arrays = GraphArrays(np.array([0, 0, len(source)]), source, np.ones((2, 1)))
    with pytest.raises(InvalidInput, match="neighbor sampler"):
        partition_graph(arrays, 2)


def test_without_pymetis_it_says_how_to_get_it(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pymetis", None)
    sampler = ClusterSampler(9, clusters_per_batch=2)
    bound = sampler.bind(cora(), num_layers=2, batch_size=9, seed=0)
    with pytest.raises(InvalidInput, match=r"pip install 'gsebo\[large\]'"):
        bound.batch(np.arange(3), 0)


def test_numbers_that_cannot_be_used_are_named() -> None:
    with pytest.raises(InvalidInput, match="num_parts is 0"):
        ClusterSampler(0)
    with pytest.raises(InvalidInput, match="clusters_per_batch is 0"):
        ClusterSampler(clusters_per_batch=0)
    with pytest.raises(InvalidInput, match="at most 2708"):
        ClusterSampler(3000).bind(cora(), num_layers=2, batch_size=9, seed=0)
