"""The vanilla propagation of a graph whose edges have weights, against PyG."""

import pytest
import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from gsebo.graph import Graph, Topology
from gsebo.graph.topology import canonicalise
from gsebo.nn import make_backbone
from gsebo.nn.base import Backbone
from gsebo.nn.gat import GAT
from gsebo.nn.gcn import GCN
from gsebo.nn.pyg.adapter import PyGBackbone
from gsebo.nn.sage import SAGE

from .examples import CLASSES, FEATURES, KINDS, SIZES, Example, assert_equal, example
from .test_gcn import pyg_twin


def weighted(given: Example, *, loops: bool, seed: int = 0) -> Topology:
    """The graph with random weights, above and below one, one of them zero."""
    generator = torch.Generator().manual_seed(seed)
    weight = 3 * torch.rand(given.edge_index.shape[1], generator=generator)
    weight = weight.double()
    weight[1] = 0
    data = Graph(
        edge_index=given.edge_index, num_nodes=given.num_nodes, edge_weight=weight
    )
    return Topology.of(canonicalise(data), self_loops=loops, device="cpu")


def start_of(network: Backbone, topology: Topology) -> Tensor:
    return network.initial_strength(topology.pattern, weights=topology.weights)


def dense(topology: Topology, values: Tensor) -> Tensor:
    matrix = torch.zeros(topology.num_nodes, topology.num_nodes, dtype=torch.float64)
    matrix[topology.pattern.row_of_entry, topology.pattern.column_of_entry] = values
    return matrix


@pytest.mark.parametrize("kind", KINDS)
def test_gcn_equals_pyg_with_edge_weight(kind: str) -> None:
    given = example(kind)
    topology = weighted(given, loops=True)
    model = GCN(*SIZES).double().eval()
    _, norm = gcn_norm(
        given.edge_index,
        topology.graph.weight,
        num_nodes=given.num_nodes,
        dtype=torch.float64,
    )
    start = start_of(model, topology)
    assert_equal(start, norm)
    expected = pyg_twin(model).eval()(
        given.x, given.edge_index, edge_weight=topology.graph.weight
    )
    assert_equal(model(given.x, topology.pattern, start), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["sage", "sage-gcn", "jk-sage"])
def test_a_mean_is_weighted(kind: str, name: str) -> None:
    names = ("in_channels", "hidden_channels", "out_channels")
    sizes = dict(zip(names, SIZES, strict=True))
    model = make_backbone(name, **sizes, num_layers=2, dropout=0.0).double()
    topology = weighted(example(kind), loops=model.self_loops)
    assert topology.weights is not None
    matrix = dense(topology, topology.weights)
    sums = matrix.sum(1, keepdim=True)
    mean = matrix / torch.where(sums == 0, 1, sums)
    assert_equal(dense(topology, start_of(model, topology)), mean)


def test_the_mean_does_not_depend_on_the_unit_of_the_weights() -> None:
    model = SAGE(*SIZES).double()
    topology = weighted(example("directed"), loops=False)
    assert topology.weights is not None
    once = model.initial_strength(topology.pattern, weights=topology.weights)
    twice = model.initial_strength(topology.pattern, weights=2 * topology.weights)
    assert_equal(once, twice)


def test_attention_is_multiplied_by_the_weights() -> None:
    """As PyG's attention would be, had each message been so much longer."""
    given = example("directed")
    topology = weighted(given, loops=True)
    model = GAT(*SIZES, heads=2).double()
    start = start_of(model, topology)
    assert topology.weights is not None
    assert_equal(start, topology.weights)
    by_weight = model(given.x, topology.pattern, start)
    by_one = model(given.x, topology.pattern)
    assert not torch.allclose(by_weight, by_one)


class OneLayer(torch.nn.Module):
    def __init__(self, conv: torch.nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv(x, edge_index)
        return out


def test_messages_of_pyg_models_are_multiplied_once() -> None:
    """Where PyG does not normalise, that is what its own edge_weight does."""
    given = example("directed")
    topology = weighted(given, loops=True)
    conv = torch_geometric.nn.GraphConv(FEATURES, CLASSES).double()
    model = PyGBackbone(OneLayer(conv))
    found = model(given.x, topology.pattern, start_of(model, topology))
    expected = conv(given.x, given.edge_index, topology.graph.weight)
    assert_equal(found, expected)


def test_pyg_models_that_normalise_do_so_by_the_number_of_edges() -> None:
    given = example("undirected")
    topology = weighted(given, loops=True)
    conv = GCNConv(FEATURES, CLASSES).double()
    model = PyGBackbone(OneLayer(conv))
    found = model(given.x, topology.pattern, start_of(model, topology))
    _, norm = gcn_norm(given.edge_index, num_nodes=given.num_nodes, dtype=torch.float64)
    assert topology.weights is not None
    matrix = dense(topology, norm * topology.weights)
    assert_equal(found, matrix @ given.x @ conv.lin.weight.T + conv.bias)
