import pytest
import torch
import torch_geometric.nn

from gsebo.nn.mlp import MLP

from .examples import CLASSES, FEATURES, Example, assert_equal, example, run, spread


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_equals_pyg(num_layers: int, sparse: bool) -> None:
    given = example("directed")
    model = spread(MLP(FEATURES, 6, CLASSES, num_layers=num_layers))
    sizes = [FEATURES, *[6] * (num_layers - 1), CLASSES]
    twin = torch_geometric.nn.MLP(sizes, norm=None).double().eval()
    with torch.no_grad():
        weights = zip(twin.lins, model.weights, model.biases, strict=True)
        for linear, weight, bias in weights:
            linear.weight.copy_(weight.T)
            linear.bias.copy_(bias)
    features = given.sparse_x if sparse else given.x
    assert_equal(run(model, given, features), twin(given.x))


def test_edges_and_strengths_have_no_effect() -> None:
    given = example("undirected")
    model = spread(MLP(FEATURES, 6, CLASSES))
    out = run(model, given, given.x)
    lonely = Example(given.edge_index[:, :0], given.x, given.y)
    assert torch.equal(out, run(model, lonely, given.x))
    strengths = torch.rand(given.edge_index.shape[1], dtype=torch.float64)
    assert torch.equal(out, run(model, given, given.x, strengths=strengths))
