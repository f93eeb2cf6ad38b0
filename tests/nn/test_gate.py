"""The gate against messages recognised by their two nodes, not by their position."""

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric import EdgeIndex

from gsebo.errors import InvalidInput
from gsebo.nn import gated

NODES = 6
# Neither sorted nor symmetric, and every node has a neighbor.
EDGES = torch.tensor([[4, 0, 1, 2, 5, 3, 0, 2, 4], [1, 2, 0, 1, 4, 5, 3, 0, 3]])
NUM_EDGES = EDGES.shape[1]
ENTRIES = torch.cat([EDGES, torch.arange(NODES).expand(2, -1)], dim=1)
DEGREES = torch.bincount(torch.bincount(EDGES[1]))

LAYERS = {
    "AGNNConv": lambda: pyg.AGNNConv(),
    "APPNP": lambda: pyg.APPNP(2, 0.1),
    "ARMAConv": lambda: pyg.ARMAConv(4, 3, num_stacks=2, num_layers=2),
    "CGConv": lambda: pyg.CGConv(4),
    "ChebConv": lambda: pyg.ChebConv(4, 3, K=3),
    "ClusterGCNConv": lambda: pyg.ClusterGCNConv(4, 3),
    "EGConv": lambda: pyg.EGConv(4, 3, num_heads=1),
    "EdgeConv": lambda: pyg.EdgeConv(nn.Linear(8, 3)),
    "FAConv": lambda: pyg.FAConv(4),
    "FeaStConv": lambda: pyg.FeaStConv(4, 3, heads=2),
    "FiLMConv": lambda: pyg.FiLMConv(4, 3, act=None),
    "GATConv": lambda: pyg.GATConv(4, 3, heads=2),
    "GATv2Conv": lambda: pyg.GATv2Conv(4, 3, heads=2),
    "GCNConv": lambda: pyg.GCNConv(4, 3),
    "GCN2Conv": lambda: pyg.GCN2Conv(4, alpha=0.1),
    "GENConv": lambda: pyg.GENConv(4, 3),
    "GINConv": lambda: pyg.GINConv(nn.Linear(4, 3)),
    "GatedGraphConv": lambda: pyg.GatedGraphConv(4, 2),
    "GeneralConv": lambda: pyg.GeneralConv(4, 3),
    "GraphConv": lambda: pyg.GraphConv(4, 3),
    "LEConv": lambda: pyg.LEConv(4, 3),
    "LGConv": lambda: pyg.LGConv(),
    "MFConv": lambda: pyg.MFConv(4, 3),
    "MixHopConv": lambda: pyg.MixHopConv(4, 3),
    "PNAConv": lambda: pyg.PNAConv(4, 3, ["mean", "max"], ["identity"], DEGREES),
    "ResGatedGraphConv": lambda: pyg.ResGatedGraphConv(4, 3),
    "SAGEConv": lambda: pyg.SAGEConv(4, 3),
    "SGConv": lambda: pyg.SGConv(4, 3, K=2),
    "SSGConv": lambda: pyg.SSGConv(4, 3, alpha=0.1, K=2),
    "SimpleConv": lambda: pyg.SimpleConv(combine_root="self_loop"),
    "SuperGATConv": lambda: pyg.SuperGATConv(4, 3, heads=2),
    "TAGConv": lambda: pyg.TAGConv(4, 3),
    "TransformerConv": lambda: pyg.TransformerConv(4, 3, heads=2),
    "GCN decomposed": lambda: pyg.GCNConv(4, 3, decomposed_layers=2),
}
DECOMPOSED = "GCN decomposed"


@pytest.fixture
def x():
    return torch.randn(NODES, 4, generator=torch.Generator().manual_seed(1)).double()


def build(name):
    torch.manual_seed(0)
    return LAYERS[name]().double().eval()


def call(layer, x):
    if isinstance(layer, pyg.FAConv | pyg.GCN2Conv):  # also see the first features
        return layer(x, x, EDGES)
    return layer(x, EDGES)


def by_nodes(layer, x, table):
    """The output when the message from j to i is multiplied by ``table[i, j]``."""
    where = []

    def note(layer, inputs):
        where.append(inputs[0])

    def multiply(layer, inputs, message):
        source, target = where[-1]
        shape = [1] * message.dim()
        shape[layer.node_dim] = -1
        return message * table[target, source].view(shape)

    handles = [
        layer.register_propagate_forward_pre_hook(note),
        layer.register_message_forward_hook(multiply),
    ]
    out = call(layer, x)
    for handle in handles:
        handle.remove()
    return out


@pytest.mark.parametrize("name", LAYERS)
def test_each_message_gets_the_strength_of_its_own_edge(name, x):
    layer = build(name)
    strengths = torch.rand(ENTRIES.shape[1], dtype=torch.double)
    table = torch.full((NODES, NODES), torch.nan, dtype=torch.double)
    table[ENTRIES[1], ENTRIES[0]] = strengths
    with gated(layer, strengths, EDGES, NODES):
        out = call(layer, x)
    torch.testing.assert_close(out, by_nodes(layer, x, table))


@pytest.mark.parametrize("name", LAYERS)
def test_strengths_of_one_change_nothing(name, x):
    layer = build(name)
    plain = call(layer, x)
    ones = torch.ones(ENTRIES.shape[1], dtype=torch.double)
    with gated(layer, ones, EDGES, NODES):
        assert torch.equal(call(layer, x), plain)
    assert torch.equal(call(layer, x), plain)


@pytest.mark.parametrize("name", LAYERS)
def test_the_output_of_a_node_depends_on_its_own_entries_only(name, x):
    layer = build(name)
    strengths = torch.rand(ENTRIES.shape[1], dtype=torch.double, requires_grad=True)
    with gated(layer, strengths, EDGES, NODES) as gate:
        out = call(layer, x)
    if gate.num_propagations > 1:  # reaches further than the own entries
        (gradient,) = torch.autograd.grad(out.square().sum(), strengths)
        assert (gradient[:NUM_EDGES] != 0).all()
        return
    for node in range(NODES):
        (gradient,) = torch.autograd.grad(out[node].sum(), strengths, retain_graph=True)
        mine = ENTRIES[1] == node
        assert (gradient[~mine] == 0).all()
        assert (gradient[:NUM_EDGES][mine[:NUM_EDGES]] != 0).any()


def test_a_strength_of_zero_drops_the_message(x):
    conv = build("GINConv")
    for edge in range(NUM_EDGES):
        strengths = torch.ones(NUM_EDGES, dtype=torch.double)
        strengths[edge] = 0
        keep = torch.arange(NUM_EDGES) != edge
        with gated(conv, strengths, EDGES, NODES):
            out = conv(x, EDGES)
        torch.testing.assert_close(out, conv(x, EDGES[:, keep]))


def test_zeros_leave_no_messages(x):
    conv = build("SAGEConv")
    with gated(conv, torch.zeros(NUM_EDGES, dtype=torch.double), EDGES, NODES):
        out = conv(x, EDGES)
    torch.testing.assert_close(out, conv(x, EDGES[:, :0]))


def test_rows_follow_the_order_of_propagations(x):
    torch.manual_seed(0)
    model = pyg.GCN(4, 3, 2, 2).double()
    strengths = torch.rand(2, ENTRIES.shape[1], dtype=torch.double)
    with gated(model, strengths, EDGES, NODES) as gate:
        out = model(x, EDGES)
    assert gate.num_propagations == 2
    first, second = model.convs
    with gated(first, strengths[0], EDGES, NODES):
        h = first(x, EDGES).relu()
    with gated(second, strengths[1], EDGES, NODES):
        torch.testing.assert_close(second(h, EDGES), out)


def test_a_decomposed_propagation_counts_once(x):
    conv = build(DECOMPOSED)
    strengths = torch.rand(1, ENTRIES.shape[1], dtype=torch.double)
    with gated(conv, strengths, EDGES, NODES) as gate:
        conv(x, EDGES)
    assert gate.num_propagations == 1


class Sender(pyg.MessagePassing):
    """Sends what it is told to."""

    def __init__(self, alter=lambda message: message, edges=lambda edges: edges):
        super().__init__()
        self.alter, self.edges = alter, edges

    def forward(self, x, edge_index):
        return self.propagate(self.edges(edge_index), x=x)

    def message(self, x_j):
        return self.alter(x_j)


class Silent(pyg.MessagePassing):
    def forward(self, x, edge_index):
        return x


class Fused(pyg.MessagePassing):
    def propagate(self, edge_index, x):
        return torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)


def sparse(edges):
    return torch.sparse_coo_tensor(
        edges.flip(0), torch.ones(edges.shape[1]).double(), (NODES, NODES)
    )


REFUSED = {
    "order": (Sender(edges=lambda e: e.flip(1)), r"Sender sent 9 .* another order"),
    "reversed": (Sender(edges=lambda e: e.flip(0)), "along other edges"),
    "count": (Sender(edges=lambda e: e[:, 1:]), r"sent 8 .* expected 9 .* or 15 "),
    "tuple": (Sender(alter=lambda m: (m, m)), "sent a tuple, expected one tensor"),
    "vector": (Sender(alter=lambda m: m[:, 0]), r"shape \[9\], which have no axis -2"),
    "fewer": (Sender(alter=lambda m: m[:-1]), "sent 8 messages, expected 9"),
    "sparse": (Sender(edges=sparse), "fused aggregation loses the gradient"),
    "edge index": (
        Sender(edges=lambda e: EdgeIndex(e, sparse_size=(NODES, NODES))),
        "EdgeIndex whose fused aggregation loses the gradient",
    ),
    "silent": (Silent(), "Silent was called but sent no message"),
    "own propagate": (Fused(), "Fused was called but sent no message"),
    "flow": (pyg.SimpleConv(flow="target_to_source"), "has flow='target_to_source'"),
    "no layer": (nn.Bilinear(4, 4, 4), "sent no message that could be gated"),
    "inside": (
        pyg.Sequential(
            "x, e", [(pyg.SimpleConv(), "x, e -> x"), (Silent(), "x, e -> x")]
        ),
        r"layer module_1 \(Silent\) was called",
    ),
    "both directions": (pyg.DirGNNConv(pyg.SAGEConv(4, 3)), "along other edges"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_what_cannot_be_matched_is_refused(case, x):
    module, message = REFUSED[case]
    module = module.double()
    strengths = torch.ones(ENTRIES.shape[1], dtype=torch.double)
    with (
        pytest.raises(InvalidInput, match=message),
        gated(module, strengths, EDGES, NODES),
    ):
        if isinstance(module, nn.Bilinear):
            module(x, x)
        else:
            module(x, EDGES)
    assert_no_hooks(module)


def test_edges_that_hold_self_loops_are_refused(x):
    edges = torch.cat([torch.tensor([[2], [2]]), EDGES], dim=1)
    conv = build("GCNConv")
    strengths = torch.ones(edges.shape[1] + NODES, dtype=torch.double)
    with (
        pytest.raises(InvalidInput, match="expected 10"),
        gated(conv, strengths, edges, NODES),
    ):
        conv(x, edges)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 15), "propagation 2 of the model"),
        ((3, 15), "made 2 propagations, and there are strengths for 3"),
        ((9,), "sent 15 messages, self-loops included"),
        ((12,), r"shape \[12\], expected"),
        ((1, 1, 15), r"shape \[1, 1, 15\], expected"),
    ],
)
def test_strengths_that_do_not_fit_are_refused(shape, message, x):
    model = pyg.GCN(4, 3, 2, 2).double()
    with (
        pytest.raises(InvalidInput, match=message),
        gated(model, torch.ones(shape).double(), EDGES, NODES),
    ):
        model(x, EDGES)
    assert_no_hooks(model)


def test_hooks_go_when_the_block_fails(x):
    model = pyg.GCN(4, 3, 2, 2).double()
    strengths = torch.ones(15).double()
    with pytest.raises(KeyError), gated(model, strengths, EDGES, NODES):
        raise KeyError
    assert_no_hooks(model)


def assert_no_hooks(module):
    for layer in module.modules():
        assert not layer._forward_hooks
        if isinstance(layer, pyg.MessagePassing):
            assert not layer._message_forward_hooks
            assert not layer._propagate_forward_pre_hooks
