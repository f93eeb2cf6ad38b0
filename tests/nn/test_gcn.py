import numpy as np
import pytest
import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from gsebo.data import load
from gsebo.nn.gcn import GCN
from gsebo.sparse import make_features

from .examples import KINDS, SIZES, Example, assert_equal, example, run, spread


def pyg_twin(model: GCN) -> torch.nn.Module:
    """PyG's GCN with the weights of ``model``."""
    first, last = model.layers[0].weight, model.layers[-1].weight
    twin = torch_geometric.nn.GCN(
        first.shape[0], first.shape[1], len(model.layers), last.shape[1]
    ).to(first.dtype)
    with torch.no_grad():
        for conv, layer in zip(twin.convs, model.layers, strict=True):
            conv.lin.weight.copy_(layer.weight.T)
            conv.bias.copy_(layer.bias)
    return twin


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_layers", [2, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_equals_pyg(kind: str, num_layers: int, sparse: bool) -> None:
    given = example(kind)
    model = spread(GCN(*SIZES, num_layers=num_layers))
    features = given.sparse_x if sparse else given.x
    assert_equal(
        run(model, given, features), pyg_twin(model)(given.x, given.edge_index)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_initial_strength_is_the_norm_of_pyg(kind: str) -> None:
    """In the same order too: edges, then loops."""
    given = example(kind)
    edges, weight = gcn_norm(
        given.edge_index, num_nodes=given.num_nodes, dtype=torch.float64
    )
    pattern = given.pattern(self_loops=True)
    assert_equal(spread(GCN(*SIZES)).initial_strength(pattern), weight)
    source, target = edges
    assert torch.equal(pattern.column_of_entry, source)
    assert torch.equal(pattern.row_of_entry, target)


def test_strengths_are_the_weights_of_the_sum() -> None:
    given = example("directed")
    model = spread(GCN(*SIZES, num_layers=1))
    pattern = given.pattern(self_loops=True)
    strengths = torch.rand(pattern.num_entries, dtype=torch.float64)
    matrix = torch.zeros(given.num_nodes, given.num_nodes, dtype=torch.float64)
    matrix[pattern.row_of_entry, pattern.column_of_entry] = strengths
    layer = model.layers[0]
    assert_equal(
        run(model, given, given.x, strengths=strengths),
        matrix @ given.x @ layer.weight + layer.bias,
    )


def test_all_strengths_zero_leave_the_bias() -> None:
    given: Example = example("undirected")
    model = spread(GCN(*SIZES))
    zeros = torch.zeros(given.pattern(True).num_entries, dtype=torch.float64)
    out = run(model, given, given.x, strengths=zeros)
    assert torch.equal(out, model.layers[-1].bias.expand_as(out))


def test_equals_pyg_on_cora() -> None:
    data = load("cora", normalize=False)
    torch.manual_seed(0)
    model = GCN(data.x.shape[1], 16, 7)
    dense: Tensor = data.x.to_dense() if data.x.layout != torch.strided else data.x
    given = Example(data.edge_index, dense, data.y)
    features = make_features(data.x, torch.float32, "cpu")
    assert not isinstance(features, Tensor)
    ours = run(model, given, features)
    theirs = pyg_twin(model)(dense, data.edge_index)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert np.isfinite(ours.detach().numpy()).all()
