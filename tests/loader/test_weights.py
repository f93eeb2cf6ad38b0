"""Batches of a graph whose edges have weights."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo.graph import Topology
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.chunks import chunks, weight_sums
from gsebo.graph.topology import CanonicalGraph
from gsebo.loader import Batch, NeighborSampler
from gsebo.loader.batch import Subgraph
from gsebo.nn import make_backbone
from gsebo.nn.base import Backbone

from .graphs import examples, graphs, random_graph, targets

NETWORKS = pytest.mark.parametrize("name", ["gcn", "sage", "sage-gcn", "gat"])


def weighted(arrays: GraphArrays, seed: int = 0) -> GraphArrays:
    generator = np.random.default_rng(seed)
    nothing = np.zeros(arrays.num_nodes, bool)
    return replace(
        arrays,
        edge_weight=3 * generator.random(arrays.num_edges),
        y=np.zeros(arrays.num_nodes, np.int64),
        train=nothing,
        val=nothing,
    )


def network(name: str) -> Backbone:
    sizes = {"in_channels": 2, "hidden_channels": 4, "out_channels": 2}
    return make_backbone(name, **sizes, num_layers=2, dropout=0.0)


def whole(arrays: GraphArrays, backbone: Backbone) -> Topology:
    source = torch.from_numpy(arrays.source.astype(np.int64))
    ends = torch.stack([source, torch.from_numpy(targets(arrays))])
    weight = torch.from_numpy(arrays.edge_weight)
    graph = CanonicalGraph(
        arrays.num_nodes, ends, torch.arange(arrays.num_edges), weight
    )
    return Topology.of(graph, self_loops=backbone.self_loops, device="cpu")


@pytest.mark.exact
@NETWORKS
@examples
@given(graphs(), st.integers(1, 20))
def test_chunks_know_what_rows_weigh(name: str, arrays: GraphArrays, size: int) -> None:
    arrays, backbone = weighted(arrays), network(name)
    topology = whole(arrays, backbone)
    start = backbone.initial_strength(topology.pattern, weights=topology.weights)
    loops = backbone.self_loops
    for chunk in chunks(arrays, self_loops=loops, edges_per_chunk=size):
        pattern, here = chunk.topology.pattern, chunk.topology.num_edges
        found = backbone.initial_strength(
            pattern, chunk.sums_of_rows, chunk.topology.weights
        )
        assert torch.equal(found[:here], start[chunk.edges])


@NETWORKS
@pytest.mark.parametrize("fanout", [1, 3, -1])
def test_a_batch_starts_at_the_strengths_of_the_whole_graph(
    name: str, fanout: int
) -> None:
    arrays, backbone = weighted(random_graph(60, 400)), network(name)
    topology = whole(arrays, backbone)
    start = backbone.initial_strength(topology.pattern, weights=topology.weights)
    sampler = NeighborSampler(fanout).bind(arrays, num_layers=2, batch_size=5, seed=0)
    batch = sampler.batch(np.arange(40), 0)
    part = Subgraph.of(batch, arrays, backbone, torch.device("cpu"))
    torch.testing.assert_close(part.start, start[part.entries])
    # Nothing learned of any edge: whatever is drawn, no row has another sum.
    assert part.graph.weights is not None
    given = part.graph.weights.float()
    torch.testing.assert_close(
        part.normalise(part.graph.pattern, given), part.start * part.message_scale
    )


@NETWORKS
def test_rows_that_are_at_hand_are_summed_as_they_are(name: str) -> None:
    arrays, backbone = weighted(random_graph(30, 120)), network(name)
    batch = Batch.full(arrays, np.arange(5))
    part = Subgraph.of(batch, arrays, backbone, torch.device("cpu"))
    pattern = part.graph.pattern
    learned = torch.rand(pattern.num_entries)
    assert torch.equal(
        part.normalise(pattern, learned), backbone.normalise(pattern, learned)
    )


def test_sums_are_found_once_and_only_where_there_are_weights() -> None:
    arrays = random_graph(20, 60)
    assert weight_sums(arrays, self_loops=True) is None
    arrays = weighted(arrays)
    found = weight_sums(arrays, self_loops=False)
    assert found is weight_sums(arrays, self_loops=False)
    expected = np.bincount(targets(arrays), arrays.edge_weight, minlength=20)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
