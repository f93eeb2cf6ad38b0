import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo.graph import Topology
from gsebo.graph.topology import CanonicalGraph

from .graphs import EDGES, NUM_NODES, examples, graph, graphs


@examples
@given(graphs(), st.booleans())
def test_entries_are_the_edges_then_the_loops(
    given: CanonicalGraph, self_loops: bool
) -> None:
    topology = Topology.of(given, self_loops=self_loops, device="cpu")
    source, target = given.edge_index
    nodes = torch.arange(given.num_nodes if self_loops else 0)
    assert torch.equal(topology.pattern.row_of_entry, torch.cat([target, nodes]))
    assert torch.equal(topology.pattern.column_of_entry, torch.cat([source, nodes]))
    assert topology.num_edges == given.num_edges
    assert topology.num_loops == nodes.numel()
    assert topology.num_nodes == given.num_nodes
    assert topology.num_entries == given.num_edges + nodes.numel()
    assert torch.equal(topology.reverse_edge, given.reverse_edge)


@examples
@given(graphs())
def test_reverse_edges_point_back(given: CanonicalGraph) -> None:
    topology = Topology.of(given, self_loops=True, device="cpu")
    reverse, pattern = topology.reverse_edge, topology.pattern
    both = (reverse >= 0).nonzero().squeeze(-1)
    assert torch.equal(
        pattern.row_of_entry[both], pattern.column_of_entry[reverse[both]]
    )
    assert torch.equal(
        pattern.column_of_entry[both], pattern.row_of_entry[reverse[both]]
    )
    assert torch.equal(reverse[reverse[both]], both)


@pytest.mark.parametrize("kind", EDGES)
def test_whether_a_graph_is_undirected_shows_in_the_reverse_edges(kind: str) -> None:
    topology = Topology.of(
        graph(EDGES[kind], NUM_NODES), self_loops=False, device="cpu"
    )
    alone = int((topology.reverse_edge < 0).sum())
    assert alone == (2 if kind == "directed" else 0)
