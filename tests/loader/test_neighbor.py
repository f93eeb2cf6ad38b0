"""Neighborhoods: exact where all edges are taken, right on average where not."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.graph.arrays import GraphArrays
from gsebo.loader import Batch, NeighborSampler
from gsebo.loader.kernels import CSRRows, sample_rows
from gsebo.nn.gcn import GCN
from gsebo.sparse import Noise, Pattern

from .evenness import chance_of
from .graphs import (
    cora,
    examples,
    graph_of,
    graphs_and_nodes,
    random_graph,
    same,
    seeds_of,
    targets,
)


def reached(arrays: GraphArrays, nodes: set[int], hops: int) -> list[set[int]]:
    """The nodes within 0, 1, ... hops against the edges."""
    found = [nodes]
    for _ in range(hops):
        rows = (range(*arrays.indptr[node : node + 2]) for node in found[-1])
        sources = {int(arrays.source[edge]) for row in rows for edge in row}
        found.append(found[-1] | sources)
    return found


@examples
@given(graphs_and_nodes(), st.integers(0, 3), st.integers(1, 30))
def test_with_all_edges_it_is_the_neighborhood(given, hops, size) -> None:
    arrays, nodes = given
    bound = NeighborSampler(-1).bind(arrays, num_layers=hops, batch_size=size, seed=1)
    batch = bound.batch(nodes, 2)
    within = reached(arrays, set(seeds_of(batch).tolist()), hops)
    assert batch.nodes.tolist() == sorted(within[-1])
    receiving = within[-2] if hops else set()
    into = np.isin(targets(arrays), list(receiving))
    assert np.array_equal(batch.edges, np.flatnonzero(into))
    assert (batch.scale == 1).all()


def logits(model: GCN, batch: Batch, features: Tensor) -> Tensor:
    """A network on a batch, with the degrees of the whole graph."""
    loops = torch.arange(len(batch.nodes))
    source, target = torch.cat([batch.edge_index, loops.expand(2, -1)], 1)
    pattern = Pattern.from_positions(target, source, len(batch.nodes))
    root = (batch.degree + 1).double().rsqrt()
    strength = torch.cat([batch.scale.double(), torch.ones(len(loops))])
    strength = strength * root[source] * root[target]
    return model(features, pattern, strength)[batch.seeds]


def test_with_all_edges_a_network_says_the_same_as_on_the_whole_graph() -> None:
    arrays, nodes = cora(), np.flatnonzero(cora().test)
    torch.manual_seed(0)
    model = GCN(arrays.num_features, 8, 7, num_layers=2, dropout=0.0).double()
    everything = np.arange(arrays.num_nodes)
    features = arrays.features(everything).to_dense().double()
    whole = logits(model, Batch.full(arrays, everything), features)
    bound = NeighborSampler(-1).bind(arrays, num_layers=2, batch_size=64, seed=1)
    for number in (0, 5, 15, 16):
        batch = bound.batch(nodes, number)
        assert len(batch.nodes) < arrays.num_nodes
        found = logits(model, batch, features[batch.nodes])
        torch.testing.assert_close(found, whole[seeds_of(batch)])


@examples
@given(graphs_and_nodes(), st.tuples(st.integers(1, 5), st.integers(1, 5)))
def test_each_node_receives_what_its_hop_allows(given, num_neighbors) -> None:
    arrays, nodes = given
    bound = NeighborSampler(num_neighbors).bind(
        arrays, num_layers=2, batch_size=4, seed=1
    )
    batch = bound.batch(nodes, 3)
    source, target = batch.edge_index.numpy()
    into = np.bincount(target, minlength=len(batch.nodes))
    is_seed = np.zeros(len(batch.nodes), bool)
    is_seed[batch.seeds] = True
    is_first = np.zeros_like(is_seed)
    is_first[source[is_seed[target]]] = True
    allowed = np.where(
        is_seed, num_neighbors[0], np.where(is_first, num_neighbors[1], 0)
    )
    assert np.array_equal(into, np.minimum(batch.degree.numpy(), allowed))
    # Nothing is there without a reason: a seed, or the source of an edge.
    assert set(source.tolist()) | set(batch.seeds.tolist()) == set(range(len(into)))


def test_epochs_go_through_all_nodes() -> None:
    arrays, nodes = cora(), np.flatnonzero(cora().train)
    bound = NeighborSampler(3).bind(arrays, num_layers=2, batch_size=50, seed=1)
    for epoch in (0, 1, 4):
        batches = [bound.batch(nodes, 3 * epoch + piece) for piece in range(3)]
        assert [len(batch.seeds) for batch in batches] == [50, 50, 40]
        found = np.concatenate([seeds_of(batch) for batch in batches])
        assert np.array_equal(np.sort(found), nodes)


def test_a_large_batch_is_around_all_nodes_in_order() -> None:
    arrays, nodes = cora(), np.flatnonzero(cora().train)
    bound = NeighborSampler(2).bind(arrays, num_layers=2, batch_size=140, seed=1)
    first, second = (bound.batch(nodes[::-1], number) for number in (0, 1))
    assert np.array_equal(seeds_of(first), nodes)
    assert np.array_equal(seeds_of(second), nodes)
    assert not same(first, second)


def test_a_cover_takes_nodes_in_order_and_draws_of_its_own() -> None:
    arrays, nodes = cora(), np.flatnonzero(cora().train)
    bound = NeighborSampler(2).bind(arrays, num_layers=2, batch_size=140, seed=1)
    (whole,) = bound.cover(nodes)
    assert not torch.equal(whole.edges, bound.batch(nodes, 0).edges)
    bound = NeighborSampler(2).bind(arrays, num_layers=2, batch_size=30, seed=1)
    found = np.concatenate([seeds_of(batch) for batch in bound.cover(nodes[::-1])])
    assert np.array_equal(found, nodes)


def star(leaves: int, centres: int) -> CSRRows:
    pairs = {
        (centre, centres + leaf) for centre in range(centres) for leaf in range(leaves)
    }
    arrays = graph_of(pairs, centres + leaves)
    return CSRRows.of(arrays.indptr, arrays.source)


@pytest.mark.parametrize(("degree", "count"), [(6, 1), (6, 2), (7, 3), (5, 4)])
def test_all_choices_are_equally_likely_over_nodes(degree: int, count: int) -> None:
    rows, centres = star(degree, 3000), np.arange(3000)
    counts = np.full(3000, count)
    edges, source = sample_rows(rows, centres, counts, Noise(0, 1), 0)
    assert np.array_equal(rows.columns[edges], source)
    chosen = (edges - np.repeat(rows.indptr[centres], count)).reshape(-1, count)
    assert (np.diff(chosen) > 0).all()
    _, times = np.unique(chosen, axis=0, return_counts=True)
    assert len(times) == np.prod([(degree - k) / (k + 1) for k in range(count)])
    assert chance_of(times) > 1e-3


def test_choices_are_equally_likely_over_numbers_and_independent_of_a_neighbor() -> (
    None
):
    rows, both = star(5, 2), np.arange(2)
    drawn = [
        sample_rows(rows, both, np.ones(2, int), Noise(7, number), 0)[0]
        for number in range(4000)
    ]
    first, second = np.array(drawn).T
    joint = np.bincount(first * 5 + second - 5, minlength=25)
    assert chance_of(joint) > 1e-3
    following = np.bincount(first[:-1] * 5 + first[1:], minlength=25)
    assert chance_of(following) > 1e-3


def test_hubs_are_drawn_from_over_their_whole_row() -> None:
    degree, count = 3_000_000, 2000
    hub = CSRRows.of(np.array([0, degree]), np.arange(degree, dtype=np.int32))
    edges, _ = sample_rows(hub, np.array([0]), np.array([count]), Noise(3, 4), 0)
    assert (np.diff(edges) > 0).all()
    tenth = np.bincount(edges * 10 // degree, minlength=10)
    assert chance_of(tenth) > 1e-3


def test_scaled_sums_are_right_on_average() -> None:
    arrays = random_graph(60, 900)
    value = np.random.default_rng(1).normal(size=arrays.num_edges)
    target, nodes = targets(arrays), np.arange(arrays.num_nodes)
    whole = np.bincount(target, value, minlength=60)
    bound = NeighborSampler(4).bind(arrays, num_layers=1, batch_size=60, seed=2)
    sums = []
    for number in range(1000):
        batch = bound.batch(nodes, number)
        edges = batch.edges.numpy()
        weighted = batch.scale.numpy() * value[edges]
        sums.append(np.bincount(target[edges], weighted, minlength=60))
    error = np.std(sums, 0, ddof=1) / np.sqrt(len(sums))
    is_drawn = np.diff(arrays.indptr) > 4
    assert is_drawn.sum() > 30
    off = (np.mean(sums, 0) - whole)[is_drawn] / error[is_drawn]
    assert np.abs(off).max() < 4 and 0.6 < off.std() < 1.4
    for found in sums:
        np.testing.assert_allclose(found[~is_drawn], whole[~is_drawn])


@pytest.mark.parametrize("num_neighbors", [0, -2, (), (3, 0)])
def test_a_fanout_that_draws_nothing_is_refused(num_neighbors) -> None:
    with pytest.raises(InvalidInput, match="num_neighbors"):
        NeighborSampler(num_neighbors)


def test_there_is_one_fanout_for_each_layer() -> None:
    with pytest.raises(InvalidInput, match="has 2 numbers; expected 3"):
        NeighborSampler((5, 5)).bind(cora(), num_layers=3, batch_size=9, seed=0)
