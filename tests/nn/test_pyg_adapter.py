"""The adapter: identities, purity, second order, and what it refuses."""

import gc

import pytest
import torch
import torch_geometric.nn as pyg
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy, dropout

from gsebo.errors import InvalidInput
from gsebo.nn import GCN, PyGBackbone, make_backbone
from gsebo.nn.pyg import adapter as pyg_adapter
from gsebo.sparse import Noise, Pattern, make_features

NODES, CLASSES = 6, 3
EDGES = torch.tensor([[4, 0, 1, 2, 5, 3, 0, 2, 4], [1, 2, 0, 1, 4, 5, 3, 0, 3]])
LABELS = torch.arange(NODES) % CLASSES
NOISE = Noise(seed=3, step=7)


@pytest.fixture(autouse=True)
def double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def x():
    return torch.randn(NODES, 4, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def pattern():
    return pattern_of(EDGES)


def pattern_of(edges):
    source, target = torch.cat([edges, torch.arange(NODES).expand(2, -1)], dim=1)
    return Pattern.from_positions(target, source, NODES)


def some_strengths(*shape):
    return torch.rand(*shape, EDGES.shape[1] + NODES) + 0.5


class Handwritten(nn.Module):
    """What users write: functional dropout, two kinds of layers, tied weights."""

    def __init__(self):
        super().__init__()
        self.first = pyg.SAGEConv(4, 4)
        self.second = pyg.GraphConv(4, CLASSES)
        self.second.lin_root.weight = self.second.lin_rel.weight

    def forward(self, x, edge_index):
        x = dropout(x, 0.5, training=self.training)
        x = torch.tanh(self.first(x, edge_index))
        x = dropout(x, 0.5, training=self.training)
        return self.second(x, edge_index)


def build(spec, **options):
    return make_backbone(
        spec,
        in_channels=4,
        hidden_channels=5,
        out_channels=CLASSES,
        num_layers=2,
        dropout=0.4,
        options=options,
    )


def weights_of(backbone):
    return {
        name: weight.detach().clone().requires_grad_()
        for name, weight in backbone.named_parameters()
    }


def test_strengths_of_one_are_the_model_itself(x, pattern):
    model = pyg.GAT(4, 6, 2, CLASSES, heads=2).eval()
    backbone = PyGBackbone(model)
    plain = model(x, EDGES)
    assert torch.equal(backbone(x, pattern), plain)
    assert torch.equal(backbone(x, pattern, backbone.initial_strength(pattern)), plain)


def test_zeros_are_the_model_without_edges(x, pattern):
    model = pyg.GIN(4, 6, 2, CLASSES).eval()
    zeros = torch.zeros(pattern.num_entries)
    out = PyGBackbone(model)(x, pattern, zeros)
    torch.testing.assert_close(out, model(x, EDGES[:, :0]))


def test_gated_gcn_of_pyg_is_our_gcn(x, pattern):
    theirs = PyGBackbone(pyg.GCN(4, 5, 2, CLASSES))
    ours = GCN(4, 5, CLASSES, num_layers=2)
    with torch.no_grad():
        for layer, conv in zip(ours.layers, theirs.module.convs, strict=True):
            layer.weight.copy_(conv.lin.weight.T)
            layer.bias.copy_(conv.bias.normal_())
    for shape in ((), (2,)):
        gate = some_strengths(*shape).requires_grad_()
        outs = (
            theirs(x, pattern, gate),
            ours(x, pattern, ours.initial_strength(pattern) * gate),
        )
        torch.testing.assert_close(*outs)
        gradients = [
            torch.autograd.grad(cross_entropy(out, LABELS), gate)[0] for out in outs
        ]
        torch.testing.assert_close(*gradients)


def test_permuting_nodes_permutes_the_logits(x, pattern):
    backbone = build("GATv2")
    place = torch.randperm(NODES)  # node k moves to place[k]
    moved_x = torch.empty_like(x)
    moved_x[place] = x
    strengths = some_strengths()
    moved_strengths = strengths.clone()
    num_edges = EDGES.shape[1]
    moved_strengths[num_edges + place] = strengths[num_edges:]
    out = backbone(moved_x, pattern_of(place[EDGES]), moved_strengths)
    torch.testing.assert_close(out[place], backbone(x, pattern, strengths))


def test_sparse_features_equal_dense_ones(x, pattern):
    x = x * (torch.rand_like(x) < 0.2)
    backbone = build("GIN")
    sparse = make_features(x, torch.float64, "cpu")
    assert not isinstance(sparse, torch.Tensor)
    assert torch.equal(backbone(sparse, pattern), backbone(x, pattern))


def test_caches_live_as_long_as_what_they_were_made_from(x):
    pattern = pattern_of(EDGES)
    build("GIN")(x, pattern)
    before = len(pyg_adapter._edge_indices)
    del pattern
    gc.collect()
    assert len(pyg_adapter._edge_indices) < before


@pytest.mark.parametrize(
    "spec",
    [
        *("pyg:GCN", "pyg:GAT", "GATv2", "GIN", "TransformerConv", "GraphSAGE"),
        *("EdgeConv", "ResGatedGraphConv", Handwritten),
    ],
)
def test_gradient_through_a_training_step(spec, x, pattern):
    backbone = build(spec)
    backbone.prepare(x, pattern, CLASSES)
    weights = weights_of(backbone)

    def trained_loss(strengths):
        logits = functional_call(backbone, weights, (x, pattern, strengths, NOISE))
        gradients = torch.autograd.grad(
            cross_entropy(logits, LABELS), list(weights.values()), create_graph=True
        )
        after = {
            name: weight - 0.5 * gradient
            for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
        }
        logits = functional_call(backbone, after, (x, pattern, strengths, None))
        return cross_entropy(logits, LABELS.flip(0))

    assert torch.autograd.gradcheck(trained_loss, some_strengths().requires_grad_())


@pytest.mark.parametrize("spec", ["pyg:GAT", Handwritten])
def test_a_call_is_a_pure_function_of_its_arguments(spec, x, pattern):
    backbone = build(spec)
    weights = weights_of(backbone)
    strengths = some_strengths()

    def call(noise):
        return functional_call(backbone, weights, (x, pattern, strengths, noise))

    training, evaluation = call(NOISE), call(None)
    torch.manual_seed(99)
    state = torch.get_rng_state()
    assert not torch.equal(call(Noise(seed=3, step=8)), training)
    assert not torch.equal(call(Noise(seed=4, step=7)), training)
    assert torch.equal(call(None), evaluation)
    assert torch.equal(call(NOISE), training)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_module_is_copied():
    model = Handwritten()
    backbone = PyGBackbone(model)
    with torch.no_grad():
        model.first.lin_l.weight.zero_()
    assert backbone.module.first.lin_l.weight.abs().sum() > 0


def test_norms_use_the_whole_graph_in_training_and_evaluation(x, pattern):
    model = pyg.GIN(4, 6, 2, CLASSES, norm="batch_norm")
    backbone = PyGBackbone(model)
    backbone.prepare(x, pattern, CLASSES)
    assert not any("running" in name for name, _ in backbone.named_buffers())
    assert any("running" in name for name, _ in model.named_buffers())
    # The model itself uses the statistics of the graph while it trains.
    torch.testing.assert_close(backbone(x, pattern), model.train()(x, EDGES))
    torch.testing.assert_close(
        backbone(x, pattern, None, NOISE), backbone(x, pattern, None, None)
    )


def test_lazy_weights_are_initialised_from_the_callers_seed(x, pattern):
    backbones = []
    for _ in range(2):
        torch.manual_seed(5)
        backbone = PyGBackbone(pyg.GraphSAGE(-1, 6, 2, CLASSES))
        backbone.prepare(x, pattern, CLASSES)
        backbones.append(backbone)
    one, two = (list(backbone.parameters()) for backbone in backbones)
    assert one[0].shape == (6, 4)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_preparing_draws_nothing_otherwise(x, pattern):
    backbone = build(Handwritten)
    state = torch.get_rng_state()
    backbone.prepare(x, pattern, CLASSES)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(weight.grad is None for weight in backbone.parameters())


@pytest.mark.parametrize(
    ("spec", "number"), [("GIN", 2), ("TAGConv", 6), ("ChebConv", 4)]
)
def test_preparing_counts_the_propagations(spec, number, x, pattern):
    backbone = build(spec, **({"K": 3} if spec == "ChebConv" else {}))
    backbone.prepare(x, pattern, CLASSES)
    assert backbone.num_propagations == number
    strengths = some_strengths(number)
    assert backbone(x, pattern, strengths, NOISE).shape == (NODES, CLASSES)


class Wrapped(nn.Module):
    """A GCN layer, and something before or after it."""

    def __init__(self, before=lambda edges: edges, after=lambda out: out):
        super().__init__()
        self.conv = pyg.GCNConv(4, CLASSES)
        self.before, self.after = before, after

    def forward(self, x, edge_index):
        return self.after(self.conv(x, self.before(edge_index)))


class FirstOrderOnly(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient.clone()


class Counting(nn.Module):
    """Remembers how often it was called."""

    def __init__(self):
        super().__init__()
        self.conv, self.calls = pyg.GCNConv(4, CLASSES), 0

    def forward(self, x, edge_index):
        self.calls += 1
        return self.calls * self.conv(x, edge_index)


def to_adj(edges):
    values = torch.ones(edges.shape[1])
    return torch.sparse_coo_tensor(edges.flip(0), values, (NODES, NODES))


REFUSED = {
    "classes": (lambda: Wrapped(after=lambda o: o[:, 1:]), r"shape \[6, 2\], expected"),
    "nodes": (lambda: Wrapped(after=lambda o: o[1:]), r"shape \[5, 3\], expected"),
    "tuple": (lambda: Wrapped(after=lambda o: (o, o)), "returned a tuple"),
    "adj_t": (lambda: Wrapped(before=to_adj), "fused aggregation loses the gradient"),
    "cannot be called": (
        lambda: pyg.SignedGCN(4, CLASSES, 2),
        r"SignedGCN .* could not be called as module\(x, edge_index\) .*neg_edge_index",
    ),
    "once": (lambda: Wrapped(after=FirstOrderOnly.apply), "once_differentiable"),
    "not at all": (lambda: Wrapped(after=lambda o: o.detach()), "twice"),
    "not finite": (lambda: Wrapped(after=lambda o: (o - o).sqrt()), "not finite"),
    "stateful": (Counting, r"Counting \(GCNConv\) cannot be replayed"),
    "only in evaluation": (lambda: pyg.PMLP(4, 5, CLASSES, 2), "PMLP sent no message"),
    "no weights": (pyg.LGConv, "no weights to train"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_what_cannot_be_trained_is_refused(case, x, pattern):
    make, message = REFUSED[case]
    classes = x.shape[1] if case == "no weights" else CLASSES
    with pytest.raises(InvalidInput, match=message):
        PyGBackbone(make()).prepare(x, pattern, classes)


def test_cached_layers_are_refused():
    model = pyg.Sequential("x, e", [(pyg.SGConv(4, 3, cached=True), "x, e -> x")])
    with pytest.raises(InvalidInput, match=r"layer module_0 .* cached=True"):
        PyGBackbone(model)


def test_models_without_messages_are_refused():
    with pytest.raises(InvalidInput, match=r"Linear holds no .*MessagePassing layer"):
        PyGBackbone(nn.Linear(4, 3))


def test_patterns_without_self_loops_are_refused(x):
    with pytest.raises(InvalidInput, match="one self-loop per node"):
        build("GIN")(x, Pattern.from_positions(EDGES[1], EDGES[0], NODES))
