import pytest
import torch
from torch import Tensor
from torch.nn.functional import elu
from torch_geometric.nn import GATConv

from gsebo.nn.gat import GAT
from gsebo.sparse import Noise

from .examples import KINDS, SIZES, assert_equal, example, run, spread


def pyg_output(model: GAT, x: Tensor, edge_index: Tensor) -> Tensor:
    """PyG's layers with the weights of ``model``, stacked as the paper does."""
    for number, layer in enumerate(model.layers):
        conv = GATConv(
            layer.weight.shape[0],
            layer.attention.shape[1],
            heads=layer.heads,
            concat=layer.concat,
        ).double()
        with torch.no_grad():
            conv.lin.weight.copy_(layer.weight.T)
            conv.att_dst.copy_(layer.attention[None, ..., 0])
            conv.att_src.copy_(layer.attention[None, ..., 1])
            conv.bias.copy_(layer.bias)
        x = conv(elu(x) if number else x, edge_index)
    return x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("num_layers", "heads", "output_heads"), [(2, 8, 1), (3, 2, 1), (2, 3, 4)]
)
def test_equals_pyg(
    kind: str, sparse: bool, num_layers: int, heads: int, output_heads: int
) -> None:
    given = example(kind)
    model = spread(
        GAT(*SIZES, num_layers=num_layers, heads=heads, output_heads=output_heads)
    )
    features = given.sparse_x if sparse else given.x
    assert_equal(
        run(model, given, features), pyg_output(model, given.x, given.edge_index)
    )


def test_defaults_are_eight_heads_and_one_at_the_output() -> None:
    first, last = GAT(*SIZES).layers
    assert (first.heads, first.concat) == (8, True)
    assert (last.heads, last.concat) == (1, False)
    assert last.weight.shape == (8 * SIZES[1], SIZES[2])


def test_strength_multiplies_attention_after_the_softmax() -> None:
    given = example("directed")
    model = spread(GAT(*SIZES, num_layers=1, output_heads=2))
    bias = model.layers[0].bias
    pattern = given.pattern(self_loops=True)
    half = torch.full((pattern.num_entries,), 0.5, dtype=torch.float64)
    full = run(model, given, given.x) - bias
    assert_equal(run(model, given, given.x, strengths=half) - bias, full / 2)


def test_attention_has_dropout_of_its_own() -> None:
    """With constant features only the attention can differ between steps."""
    given = example("undirected")
    model = spread(GAT(*SIZES, num_layers=1))
    model.dropout = 0.0
    assert model.layers[0].dropout == 0.5
    outputs = [run(model, given, given.x, noise=Noise(0, step)) for step in range(2)]
    assert not torch.allclose(*outputs)
    mean = torch.stack(
        [run(model, given, given.x, noise=Noise(0, step)) for step in range(600)]
    ).mean(0)
    quiet = run(model, given, given.x)
    torch.testing.assert_close(mean, quiet, rtol=0, atol=0.1)
