import pytest
import torch
import torch_geometric.nn
from torch import Tensor
from torch_geometric.nn import JumpingKnowledge
from torch_geometric.utils import add_self_loops

from gsebo.errors import InvalidInput
from gsebo.nn.jk import JKNet, LayerAttention

from .examples import KINDS, SIZES, assert_equal, example, run, spread

PYG_MODE = {"concat": "cat", "max": "max", "lstm": "lstm"}


def pyg_output(model: JKNet, x: Tensor, edge_index: Tensor) -> Tensor:
    """PyG's model with the weights of ``model``."""
    inputs, hidden = model.layers[0].weight.shape
    gcn = model.convolution == "gcn"
    build = torch_geometric.nn.GCN if gcn else torch_geometric.nn.GraphSAGE
    mean = model.convolution == "sage-mean"
    options = {} if gcn else {"root_weight": mean}
    twin = build(
        inputs,
        hidden,
        len(model.layers),
        model.weight.shape[1],
        jk=PYG_MODE[model.mode],
        **options,
    ).double()
    with torch.no_grad():
        for conv, layer in zip(twin.convs, model.layers, strict=True):
            linear = conv.lin if gcn else conv.lin_l
            bias = conv.bias if gcn else conv.lin_l.bias
            linear.weight.copy_(layer.weight.T)
            bias.copy_(layer.bias)
            if mean:
                conv.lin_r.weight.copy_(layer.self_weight.T)
        twin.lin.weight.copy_(model.weight.T)
        twin.lin.bias.copy_(model.bias)
        if model.attention is not None:
            twin.jk.lstm.load_state_dict(model.attention.lstm.state_dict())
            twin.jk.att.load_state_dict(model.attention.score.state_dict())
    if model.convolution == "sage":
        edge_index, _ = add_self_loops(edge_index, num_nodes=x.shape[0])
    return twin(x, edge_index)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", PYG_MODE)
@pytest.mark.parametrize("convolution", ["gcn", "sage", "sage-mean"])
@pytest.mark.parametrize("num_layers", [2, 3])
@pytest.mark.parametrize("sparse", [False, True])
def test_equals_pyg(
    kind: str, mode: str, convolution: str, num_layers: int, sparse: bool
) -> None:
    given = example(kind)
    model = spread(
        JKNet(*SIZES, num_layers=num_layers, mode=mode, convolution=convolution)
    )
    features = given.sparse_x if sparse else given.x
    assert_equal(
        run(model, given, features), pyg_output(model, given.x, given.edge_index)
    )


@pytest.mark.parametrize(("channels", "layers"), [(6, 3), (5, 3), (1, 2), (4, 1)])
def test_layer_attention_equals_the_fused_lstm(channels: int, layers: int) -> None:
    torch.manual_seed(0)
    attention = LayerAttention(channels, layers * channels // 2).double()
    stack = torch.randn(9, layers, channels, dtype=torch.float64)
    share = attention(stack)
    states, _ = attention.lstm(stack)
    assert_equal(share, attention.score(states).squeeze(-1).softmax(-1))
    assert_equal(share.sum(-1), torch.ones(9, dtype=torch.float64))

    twin = JumpingKnowledge("lstm", channels, layers).double()
    twin.lstm.load_state_dict(attention.lstm.state_dict())
    twin.att.load_state_dict(attention.score.state_dict())
    joined = (stack * share.unsqueeze(-1)).sum(1)
    assert_equal(joined, twin(list(stack.unbind(1))))


def test_layer_attention_has_second_derivatives() -> None:
    torch.manual_seed(0)
    attention = LayerAttention(2, 2).double()
    stack = torch.randn(2, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(attention, stack)
    assert torch.autograd.gradgradcheck(attention, stack)


@pytest.mark.parametrize("option", ["mode", "convolution"])
def test_unknown_choices(option: str) -> None:
    with pytest.raises(InvalidInput, match=f"{option} is 'sum', expected"):
        JKNet(*SIZES, **{option: "sum"})
