"""The vanilla propagation of a weighted graph, for every backbone."""

import pytest
import torch
from torch.autograd import gradcheck

from gsebo.graph import Topology
from gsebo.nn import make_backbone
from gsebo.sparse import CompletePattern

NODES = 6
LOOPED = ["gcn", "gat", "sage-gcn", "jk", "jk-sage", "appnp", "gcnii", "grand"]
SIZES = {"in_channels": 3, "hidden_channels": 4, "out_channels": 2, "num_layers": 2}


def topology(loops: bool) -> Topology:
    edges = torch.tensor([[0, 1, 1, 2, 3, 0, 4], [1, 0, 2, 1, 0, 3, 0]])
    return Topology.from_edges(edges, NODES, self_loops=loops, device="cpu")


def build(name: str, **options: object) -> torch.nn.Module:
    network = make_backbone(name, **SIZES, dropout=0.0, options=options)
    return network.double()


@pytest.mark.parametrize("name", [*LOOPED, "sage", "mlp"])
def test_weights_of_one_are_the_vanilla_graph(name: str) -> None:
    network = build(name)
    pattern = topology(network.self_loops).pattern
    ones = torch.ones(pattern.num_entries, dtype=torch.float64)
    torch.testing.assert_close(
        network.normalise(pattern, ones), network.initial_strength(pattern)
    )


@pytest.mark.parametrize("name", ["gcn", "sage", "sage-gcn", "jk", "jk-sage"])
def test_a_weight_of_zero_is_an_edge_that_is_not_there(name: str) -> None:
    network = build(name)
    whole = topology(network.self_loops)
    weights = torch.ones(whole.num_entries, dtype=torch.float64)
    weights[[0, 3]] = 0
    kept = weights[: whole.num_edges] > 0
    fewer = Topology.from_edges(
        whole.graph.edge_index[:, kept],
        NODES,
        self_loops=network.self_loops,
        device="cpu",
    )
    x = torch.randn(NODES, 3, dtype=torch.float64)
    found = network(x, whole.pattern, network.normalise(whole.pattern, weights))
    torch.testing.assert_close(found, network(x, fewer.pattern))


@pytest.mark.parametrize("name", ["gcn", "sage", "jk"])
def test_it_can_be_differentiated_where_a_row_is_empty(name: str) -> None:
    network = build(name)
    pattern = topology(False).pattern
    weights = torch.rand(pattern.num_entries, dtype=torch.float64) + 0.5
    assert 0 in pattern.row_counts
    gradcheck(lambda w: network.normalise(pattern, w), weights.requires_grad_())


@pytest.mark.parametrize("name", LOOPED)
def test_a_dense_graph_gives_the_same(name: str) -> None:
    network = build(name)
    sparse = topology(True)
    pattern = CompletePattern(NODES, "cpu")
    weights = torch.zeros(NODES, NODES, dtype=torch.float64)
    weights[sparse.pattern.row_of_entry, sparse.pattern.column_of_entry] = 1
    if name == "gat":
        network = build(name, renormalise=True)
    x = torch.randn(NODES, 3, dtype=torch.float64)
    strengths = network.normalise(pattern, weights.flatten())
    torch.testing.assert_close(
        network(x, pattern, strengths), network(x, sparse.pattern)
    )


def test_renormalised_attention_without_an_edge_is_attention_without_it() -> None:
    network = build("gat", renormalise=True)
    whole = topology(True)
    weights = torch.ones(whole.num_entries, dtype=torch.float64)
    weights[2] = 0
    kept = weights[: whole.num_edges] > 0
    fewer = Topology.from_edges(
        whole.graph.edge_index[:, kept], NODES, self_loops=True, device="cpu"
    )
    x = torch.randn(NODES, 3, dtype=torch.float64)
    torch.testing.assert_close(
        network(x, whole.pattern, weights), network(x, fewer.pattern)
    )


@pytest.mark.parametrize("name", [*LOOPED, "sage"])
def test_strengths_may_be_a_function_of_each_layers_input(name: str) -> None:
    network = build(name, **{"hops": 2} if name in ("appnp", "grand") else {})
    pattern = topology(network.self_loops).pattern
    x = torch.randn(NODES, 3, dtype=torch.float64)
    seen: list[tuple[int, int]] = []

    def strengths(layer: int, h: torch.Tensor) -> torch.Tensor:
        seen.append((layer, h.shape[1]))
        return network.initial_strength(pattern) / (layer + 1)

    fixed = torch.stack([network.initial_strength(pattern) / n for n in (1, 2)])
    torch.testing.assert_close(
        network(x, pattern, strengths), network(x, pattern, fixed)
    )
    assert [layer for layer, _ in seen] == [0, 1]
    assert seen[0][1] == 3
