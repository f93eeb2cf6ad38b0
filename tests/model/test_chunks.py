"""Chunks hold all edges into their targets, and nothing of the graph is left out."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo.graph import Topology
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.chunks import chunks, edges_within
from gsebo.sparse import Pattern

from .cases import examples, graphs, whole


def assert_same(found: Pattern, expected: Pattern) -> None:
    for name in ("indptr", "columns", "entries", "row_of_entry", "column_of_entry"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == other.dtype
        assert torch.equal(one, other), name


@examples
@given(arrays=graphs(), limit=st.integers(1, 30), self_loops=st.booleans())
def test_chunks_are_the_graph(
    arrays: GraphArrays, limit: int, self_loops: bool
) -> None:
    next_node = next_edge = 0
    source, target = whole(arrays, False).graph.edge_index
    for chunk in chunks(arrays, self_loops=self_loops, edges_per_chunk=limit):
        assert (chunk.begin, chunk.edges.start) == (next_node, next_edge)
        next_node, next_edge = chunk.end, chunk.edges.stop
        size = chunk.end - chunk.begin
        if size > 1:
            assert size + next_edge - chunk.edges.start <= limit
        targets = torch.arange(chunk.begin, chunk.end)
        assert torch.equal(chunk.nodes[chunk.own], targets)
        both = torch.cat([source[chunk.edges], targets])
        assert torch.equal(chunk.nodes, both.unique())
        graph = chunk.topology.graph
        ends = chunk.nodes[graph.edge_index]
        assert torch.equal(ends[0], source[chunk.edges])
        assert torch.equal(ends[1], target[chunk.edges])
        degree = torch.from_numpy(np.diff(arrays.indptr))[chunk.nodes]
        assert torch.equal(chunk.degree, degree)
        assert torch.equal(chunk.num_entries_of_rows, degree + self_loops)
        again = Topology.of(graph, self_loops=self_loops, device="cpu").pattern
        assert_same(chunk.topology.pattern, again)
        assert_same(chunk.topology.pattern.T, again.T)
    assert (next_node, next_edge) == (arrays.num_nodes, arrays.num_edges)


def test_chunks_are_as_large_as_they_may_be() -> None:
    """A ring: each target takes two places, one for itself and one for its edge."""
    size = 10
    source = (np.arange(size) + 1) % size
    ring = GraphArrays(np.arange(size + 1), source, np.ones((size, 1)))
    found = list(chunks(ring, self_loops=True, edges_per_chunk=7))
    assert [chunk.end - chunk.begin for chunk in found] == [3, 3, 3, 1]


def test_a_hub_is_a_chunk_of_its_own() -> None:
    """All others send to node 3."""
    indptr = np.array([0, 0, 0, 0, 7, 7, 7, 7, 7])
    source = np.array([0, 1, 2, 4, 5, 6, 7])
    star = GraphArrays(indptr, source, np.ones((8, 1)))
    found = list(chunks(star, self_loops=False, edges_per_chunk=4))
    assert [(one.begin, one.end) for one in found] == [(0, 3), (3, 4), (4, 8)]


@pytest.mark.parametrize(("memory", "expected"), [(1, 1), (10**15, 2**18)])
def test_edges_of_a_chunk_are_at_least_one_and_not_too_many(
    memory: int, expected: int
) -> None:
    assert edges_within(memory, 100) == expected
