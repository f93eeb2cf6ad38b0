import pytest
import torch
from torch import Tensor
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import add_self_loops

from gsebo.errors import InvalidInput
from gsebo.nn.sage import SAGE

from .examples import KINDS, SIZES, assert_equal, example, run, spread


def pyg_output(model: SAGE, x: Tensor, edge_index: Tensor) -> Tensor:
    """PyG's layers with the weights of ``model``."""
    if model.self_loops:
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.shape[0])
    for number, layer in enumerate(model.layers):
        root = layer.self_weight is not None
        conv = SAGEConv(*layer.weight.shape, aggr="mean", root_weight=root).double()
        with torch.no_grad():
            conv.lin_l.weight.copy_(layer.weight.T)
            conv.lin_l.bias.copy_(layer.bias)
            if root:
                conv.lin_r.weight.copy_(layer.self_weight.T)
        x = conv(x.relu() if number else x, edge_index)
    return x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("num_layers", [2, 3])
@pytest.mark.parametrize("aggregator", ["mean", "gcn"])
@pytest.mark.parametrize("sparse", [False, True])
def test_equals_pyg(kind: str, num_layers: int, aggregator: str, sparse: bool) -> None:
    given = example(kind)
    model = spread(SAGE(*SIZES, num_layers=num_layers, aggregator=aggregator))
    features = given.sparse_x if sparse else given.x
    assert_equal(
        run(model, given, features), pyg_output(model, given.x, given.edge_index)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_initial_strengths_of_a_row_sum_to_one(kind: str) -> None:
    given = example(kind)
    for aggregator in ("mean", "gcn"):
        model = spread(SAGE(*SIZES, aggregator=aggregator))
        pattern = given.pattern(model.self_loops)
        start = model.initial_strength(pattern)
        sums = torch.zeros(given.num_nodes, dtype=torch.float64)
        sums.index_add_(0, pattern.row_of_entry, start)
        assert_equal(sums, (pattern.row_counts > 0).double())


def test_mean_without_propagation_is_an_mlp_of_the_node() -> None:
    given = example("undirected")
    model = spread(SAGE(*SIZES))
    zeros = torch.zeros(given.pattern(False).num_entries, dtype=torch.float64)
    first, last = model.layers
    hidden = (given.x @ first.self_weight + first.bias).relu()
    assert_equal(
        run(model, given, given.x, strengths=zeros),
        hidden @ last.self_weight + last.bias,
    )


def test_only_the_gcn_aggregator_counts_the_node_among_its_neighbors() -> None:
    assert SAGE(*SIZES, aggregator="gcn").self_loops
    assert not SAGE(*SIZES, aggregator="mean").self_loops


def test_unknown_aggregator() -> None:
    with pytest.raises(InvalidInput, match="'max', expected 'mean' or 'gcn'"):
        SAGE(*SIZES, aggregator="max")
