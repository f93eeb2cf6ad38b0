"""Residual connections, normalisation and input projection of layered backbones."""

import inspect
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import batch_norm, elu, layer_norm
from torch_geometric.nn import BatchNorm, GATConv, GCNConv, LayerNorm, Linear, SAGEConv

from gsebo.nn import GAT, GCN, SAGE, JKNet
from gsebo.nn.base import FeatureNorm, LayeredBackbone
from gsebo.sparse import Noise

from .examples import KINDS, SIZES, Example, assert_equal, example, run, spread

OPTIONS = {"residual": True, "norm": "layer", "input_projection": True}
NETWORKS: dict[str, Any] = {"gcn": GCN, "gat": GAT, "sage": SAGE, "jk": JKNet}
every_network = pytest.mark.parametrize("name", NETWORKS)


def make(name: str, **options: Any) -> LayeredBackbone:
    torch.manual_seed(5)
    sizes = {"num_layers": 3, "heads": 2} if name == "gat" else {"num_layers": 3}
    model = spread(NETWORKS[name](*SIZES, **sizes, **options))
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "norms" in key:
                weight.add_(0.3 * torch.randn_like(weight))
    assert isinstance(model, LayeredBackbone)
    return model


def pyg_convolution(name: str, layer: Any) -> torch.nn.Module:
    """The convolution of PyG with the weights of a layer of ours."""
    width = layer.weight.shape
    conv: Any
    if name == "gat":
        heads, channels, _ = layer.attention.shape
        conv = GATConv(width[0], channels, heads=heads, concat=layer.concat)
        weights = {
            "att_dst": layer.attention[None, ..., 0],
            "att_src": layer.attention[None, ..., 1],
            "lin.weight": layer.weight.T,
        }
    elif name == "sage":
        conv = SAGEConv(*width)
        weights = {"lin_l.weight": layer.weight.T, "lin_r.weight": layer.self_weight.T}
        weights["lin_l.bias"] = layer.bias
        conv.double().load_state_dict(weights)
        return conv
    else:
        conv, weights = GCNConv(*width), {"lin.weight": layer.weight.T}
    conv.double().load_state_dict({**weights, "bias": layer.bias})
    return conv


def by_pyg(model: LayeredBackbone, name: str, given: Example) -> Tensor:
    """The arrangement that is written down, made of modules of PyG."""
    activation = elu if name == "gat" else torch.relu
    h, outputs = given.x, list[Tensor]()
    if model.input_projection:
        linear = Linear(*model.projection.weight.shape).double()
        linear.load_state_dict(turned(model.projection))
        h = activation(linear(h))
    for number, layer in enumerate(model.layers):
        out = pyg_convolution(name, layer)(h, given.edge_index)
        if model.residual:
            out = out + h @ model.residuals[number]
        if model.norm != "none" and number < len(model.norms):
            weights = model.norms[number].state_dict()
            if model.norm == "layer":
                norm = LayerNorm(out.shape[1], mode="node").double()
                norm.load_state_dict(weights)
            else:
                norm = BatchNorm(out.shape[1]).double().train()
                norm.module.load_state_dict(weights, strict=False)
            out = norm(out)
        outputs.append(out)
        h = activation(out)
    if isinstance(model, JKNet):
        hidden = [torch.relu(each) for each in outputs]
        return torch.cat(hidden, dim=-1) @ model.weight + model.bias
    if not model.input_projection:
        return outputs[-1]
    linear = Linear(*model.classifier.weight.shape).double()
    linear.load_state_dict(turned(model.classifier))
    return linear(h)


def turned(linear: Any) -> dict[str, Tensor]:
    return {"weight": linear.weight.T, "bias": linear.bias}


@every_network
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [{}, {"residual": True}, {"norm": "layer"}, OPTIONS, OPTIONS | {"norm": "batch"}],
    ids=["none", "residual", "norm", "all", "batch norm"],
)
def test_equals_pyg(name: str, kind: str, options: dict[str, Any]) -> None:
    given, model = example(kind), make(name, **options)
    assert_equal(run(model, given, given.x), by_pyg(model, name, given))


@every_network
def test_without_options_nothing_is_there(name: str) -> None:
    """Same weights by the same names, and as many drawn numbers."""
    plain = make(name)
    states = []
    for options in ({}, {"norm": "none", "residual": False}):
        model = make(name, **options)
        states.append(torch.get_rng_state())
        assert list(model.state_dict()) == list(plain.state_dict())
    assert torch.equal(*states)
    strong = make(name, **OPTIONS)
    new = {key.split(".")[0] for key in strong.state_dict()}
    new -= {key.split(".")[0] for key in plain.state_dict()}
    read_out = set() if name == "jk" else {"classifier"}
    assert new == {"residuals", "norms", "projection"} | read_out


@every_network
def test_dropout_is_before_every_map(name: str) -> None:
    """With constant numbers everywhere, all that changes between steps is dropout."""
    given = example("undirected")
    model = make(name, input_projection=True, input_dropout=False)
    quiet = run(model, given, given.x)
    one, other = (run(model, given, given.x, noise=Noise(0, step)) for step in (0, 1))
    assert not torch.allclose(one, other) and not torch.allclose(one, quiet)
    model.dropout = 0.0
    for layer in model.layers:
        layer.dropout = 0.0
    assert torch.equal(run(model, given, given.x, noise=Noise(0, 0)), quiet)


def test_a_read_out_has_dropout_of_its_own() -> None:
    model = make("gcn", input_projection=True)
    outputs = [torch.randn(5, SIZES[1], dtype=torch.float64)]
    noisy = model.read_out(outputs, Noise(0, 0))
    assert not torch.allclose(noisy, model.read_out(outputs))


@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 9),
    scale=st.sampled_from([0.0, 1e-4, 1.0, 1e4]),
    seed=st.integers(0, 99),
)
@settings(deadline=None)
def test_norms_are_those_of_torch(
    rows: int, columns: int, scale: float, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    for kind in ("layer", "batch"):
        norm = FeatureNorm(columns, kind).double()
        with torch.no_grad():
            norm.weight.uniform_(0.5, 1.5, generator=generator)
            norm.bias.normal_(generator=generator)
        vectors = norm.weight, norm.bias
        if kind == "layer":
            expected = layer_norm(x, (columns,), *vectors)
        elif rows > 1:
            expected = batch_norm(x, None, None, *vectors, training=True)
        else:
            # A node alone is its own mean, which torch refuses.
            expected = norm.bias.expand(rows, columns)
        torch.testing.assert_close(norm(x), expected, rtol=1e-8, atol=1e-8)


def test_options_are_those_of_every_layered_network() -> None:
    for make_one in NETWORKS.values():
        assert OPTIONS.keys() <= inspect.signature(make_one).parameters.keys()
