"""How many edges are kept, which, and that all have the same chance."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo.graph import Topology
from gsebo.graph.topology import CanonicalGraph
from gsebo.methods.baselines.dropedge import EdgeDrop
from gsebo.sparse import Noise

from .graphs import examples, graph, graphs

SITE = 1000


def laid_out(given: CanonicalGraph, self_loops: bool = True) -> Topology:
    return Topology.of(given, self_loops=self_loops, device="cpu")


def ring(num_nodes: int) -> Topology:
    """A cycle, both directions: as many pairs as nodes."""
    nodes = torch.arange(num_nodes)
    after = (nodes + 1) % num_nodes
    edges = torch.stack([torch.cat([nodes, after]), torch.cat([after, nodes])])
    return laid_out(graph(edges, num_nodes))


def pairs_of(edge_index: torch.Tensor) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in edge_index.T.tolist()}


@examples
@given(graphs(), st.floats(0, 0.999), st.integers(0, 10**6), st.booleans())
def test_pairs_stay_or_go_together_and_their_number_is_exact(
    given: CanonicalGraph, rate: float, step: int, self_loops: bool
) -> None:
    where = laid_out(given, self_loops)
    drop = EdgeDrop(where, rate, directed=False)
    kept = drop.kept_entries(Noise(3, step), SITE)
    edges, loops = kept[: where.num_edges], kept[where.num_edges :]
    left = pairs_of(given.edge_index[:, edges])
    gone = pairs_of(given.edge_index[:, ~edges])
    assert not left & gone
    assert drop.num_pairs == len(left | gone)
    assert len(left) == drop.num_kept == int((1 - rate) * drop.num_pairs + 1e-9)
    assert loops.all()
    assert kept.numel() == where.num_entries


@examples
@given(graphs(), st.floats(0, 0.999), st.integers(0, 10**6))
def test_single_edges_are_counted_if_directed(
    given: CanonicalGraph, rate: float, step: int
) -> None:
    where = laid_out(given)
    kept = EdgeDrop(where, rate, directed=True).kept_entries(Noise(3, step), SITE)
    expected = int((1 - rate) * where.num_edges + 1e-9)
    assert int(kept[: where.num_edges].sum()) == expected
    assert kept[where.num_edges :].all()


@pytest.mark.parametrize("tenths", range(10))
def test_a_decimal_share_is_not_lost_to_rounding(tenths: int) -> None:
    drop = EdgeDrop(ring(10), tenths / 10, directed=False)
    assert drop.num_kept == 10 - tenths


def test_a_draw_is_a_function_of_seed_step_and_site() -> None:
    drop = EdgeDrop(ring(40), 0.5, directed=False)
    first = drop.kept_entries(Noise(1, 2), SITE)
    assert torch.equal(first, drop.kept_entries(Noise(1, 2), SITE))
    for noise, site in ((Noise(2, 2), SITE), (Noise(1, 3), SITE), (Noise(1, 2), 1001)):
        assert not torch.equal(first, drop.kept_entries(noise, site))


@pytest.mark.parametrize("directed", [False, True])
def test_every_edge_is_as_likely_as_every_other(directed: bool) -> None:
    where, draws = ring(20), 600
    drop = EdgeDrop(where, 0.3, directed=directed)
    total = torch.zeros(where.num_edges)
    for step in range(draws):
        total += drop.kept_entries(Noise(0, step), SITE)[: where.num_edges]
    # Five standard deviations of a share of 0.7.
    assert ((total / draws - 0.7).abs() < 5 * (0.21 / draws) ** 0.5).all()
