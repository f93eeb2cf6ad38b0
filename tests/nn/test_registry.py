"""Backbones from names, classes and instances."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn

from gsebo.errors import InvalidInput
from gsebo.nn import BACKBONES, GCN, SAGE, JKNet, PyGBackbone, make_backbone
from gsebo.sparse import Noise, Pattern

NODES = 5
EDGES = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
SIZES = {
    "in_channels": 4,
    "hidden_channels": 6,
    "out_channels": 3,
    "num_layers": 2,
    "dropout": 0.5,
}


def build(spec, **options):
    return make_backbone(spec, **SIZES, options=options)


def convs(backbone):
    layers = backbone.module.modules()
    return [layer for layer in layers if isinstance(layer, pyg.MessagePassing)]


@pytest.mark.parametrize("name", BACKBONES)
def test_our_backbones_run(name):
    # Eight divides by the number of heads, which some need.
    backbone = make_backbone(name, **{**SIZES, "hidden_channels": 8})
    edges = EDGES
    if backbone.self_loops:
        edges = torch.cat([EDGES, torch.arange(NODES).expand(2, -1)], dim=1)
    pattern = Pattern.from_positions(edges[1], edges[0], NODES)
    x = torch.randn(NODES, 4)
    backbone.prepare(x, pattern, 3)
    out = backbone(x, pattern, backbone.initial_strength(pattern), Noise(0, 0))
    assert out.shape == (NODES, 3)
    info = BACKBONES[name]
    assert info.description and info.paper and "\n" not in info.description


def test_names_mean_what_they_say():
    assert isinstance(build("GCN"), GCN)
    assert not build("sage").self_loops
    assert build("sage_gcn").self_loops
    assert build("jk").convolution == "gcn"
    assert build("jk-sage", mode="max").convolution == "sage"
    assert build("gat", heads=3).layers[0].heads == 3


@pytest.mark.parametrize(
    ("spec", "layer", "widths"),
    [
        ("GIN", pyg.GINConv, None),
        ("GraphSAGE", pyg.SAGEConv, [(4, 6), (6, 3)]),
        ("pyg:GCN", pyg.GCNConv, [(4, 6), (6, 3)]),
        ("GATv2Conv", pyg.GATv2Conv, [(4, 6), (6, 3)]),
        ("gatv2", pyg.GATv2Conv, [(4, 6), (6, 3)]),
        ("TransformerConv", pyg.TransformerConv, [(4, 6), (6, 3)]),
        ("GINConv", pyg.GINConv, None),
        (pyg.GraphConv, pyg.GraphConv, [(4, 6), (6, 3)]),
        (pyg.GraphSAGE, pyg.SAGEConv, [(4, 6), (6, 3)]),
    ],
)
def test_models_and_layers_of_pyg(spec, layer, widths):
    backbone = build(spec)
    assert isinstance(backbone, PyGBackbone)
    assert [type(conv) for conv in convs(backbone)] == [layer] * 2
    if widths:
        found = [(conv.in_channels, conv.out_channels) for conv in convs(backbone)]
        assert found == widths


def test_heads_are_concatenated_until_the_last_layer():
    first, last = convs(build("GATv2", heads=2))
    assert (first.concat, last.in_channels, last.concat) == (True, 12, False)
    assert convs(build("GATv2", heads=2, concat=False))[1].in_channels == 6


def test_a_class_gets_the_sizes_it_takes():
    class Net(nn.Module):
        def __init__(self, in_channels, out_channels, *, flavour="plain"):
            super().__init__()
            self.conv, self.flavour = pyg.SAGEConv(in_channels, out_channels), flavour

    backbone = build(Net, flavour="sweet")
    assert backbone.module.flavour == "sweet"
    with pytest.raises(InvalidInput, match="option 'taste', its options are: flavour"):
        build(Net, taste=1)


class Plain(pyg.MessagePassing):
    """A layer with no ``reset_parameters`` of its own."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 3)


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Plain(), pyg.GCNConv(3, 3)])


@pytest.mark.parametrize("make", [Holder, Plain, lambda: pyg.GCN(4, 5, 2, 3)])
def test_the_seed_decides_the_weights_of_an_instance(make):
    model = make()
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        weights = build(model).parameters()
        drawn.append([weight for weight in weights if weight.dim() > 1])
    for same, again, other in zip(*drawn, strict=True):
        assert torch.equal(same, again)
        assert not torch.equal(same, other)


def test_backbones_as_classes_and_instances():
    assert isinstance(build(SAGE, aggregator="gcn"), SAGE)
    ours = JKNet(4, 6, 3)
    copy = build(ours)
    assert copy is not ours
    assert torch.equal(copy.weight, ours.weight)


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        ("sage-gc", {}, "unknown backbone 'sage-gc', did you mean 'sage-gcn'"),
        ("GraphSAG", {}, "did you mean 'GraphSAGE'"),
        ("GATv3", {}, "did you mean"),
        (
            "gcn",
            {"heads": 2},
            "GCN does not take option 'heads', its options are: input_dropout, ",
        ),
        ("gat", {"head": 2}, "'head', its options are: .*heads, output_heads"),
        ("gcn", {"norm": "group"}, "norm is 'group', expected 'none', 'layer' or"),
        ("sage", {"residual": 1}, "residual=1 given; expected true or false"),
        ("gat", {"input_projection": True, "output_heads": 2}, "output_heads=2 given"),
        ("appnp", {"alpha": 1.0}, "alpha=1.0 given; expected 0 <= alpha < 1"),
        ("appnp", {"hops": 0}, "hops=0 given; expected an integer >= 1"),
        ("grand", {"hops": 0}, "hops=0 given; expected an integer >= 1"),
        ("grand", {"node_dropout": 1}, "=1 given; expected 0 <= node_dropout < 1"),
        ("grand", {"feature_gates": 1}, "feature_gates=1 given; expected true or"),
        ("gcnii", {"theta": -1}, "theta=-1 given; expected 1e-06 <= theta"),
        ("sage-gcn", {"aggregator": "mean"}, "SAGE does not take option 'aggregator'"),
        ("jk", {"mode": "sum"}, "mode is 'sum'"),
        ("ChebConv", {}, "ChebConv needs K"),
        ("pyg:PNA", {}, "PNA could not be built: .*'deg'"),
        ("GINConv", {"depth": 3}, "could not be built: .*depth"),
        ("pyg:APPNP", {}, "APPNP takes no in_channels and out_channels"),
        ("pyg:MLP", {}, "no torch_geometric.nn.MessagePassing"),
        ("gcn", {"dropout": 0.1}, "does not take option 'dropout'"),
        (pyg.GCN(4, 5, 2, 3), {"heads": 2}, "built already, expected none"),
        (JKNet(4, 6, 3), {"mode": "max"}, "built already, expected none"),
        (PyGBackbone, {}, "PyGBackbone needs module"),
    ],
)
def test_what_cannot_be_built_says_why(spec, options, message):
    with pytest.raises(InvalidInput, match=message):
        build(spec, **options)


@pytest.mark.parametrize(
    "wrong",
    [{"hidden_channels": 0}, {"num_layers": 0}, {"dropout": 1.0}, {"dropout": -0.1}],
)
def test_sizes_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidInput, match="expected"):
        make_backbone("gcn", **{**SIZES, **wrong})
