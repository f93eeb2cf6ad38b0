"""Random propagation is its dense formula, and leaves out whole nodes of a step."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from gsebo.nn import GRAND, make_backbone
from gsebo.sparse import Noise, Pattern

from .examples import CLASSES, KINDS, SIZES, Example, assert_equal, example, run, spread

# A step that leaves out some of the nodes, and not others.
STEP = Noise(3, 7)


def made(**options: float) -> GRAND:
    torch.manual_seed(0)
    model = spread(GRAND(*SIZES, **options))
    assert isinstance(model, GRAND)
    return model


def uneven(pattern: Pattern) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.rand(pattern.num_entries, generator=generator, dtype=torch.float64)


def matrix(pattern: Pattern, strengths: Tensor) -> Tensor:
    dense = torch.zeros(pattern.num_rows, pattern.num_columns, dtype=strengths.dtype)
    dense[pattern.row_of_entry, pattern.column_of_entry] = strengths
    return dense


def by_hand(model: GRAND, x: Tensor, each: list[Tensor]) -> Tensor:
    """The formula, with one matrix for each hop."""
    product, total = torch.eye(len(x), dtype=x.dtype), torch.eye(len(x), dtype=x.dtype)
    for dense in each:
        product = dense @ product
        total = total + product
    weight = model.weight
    if model.feature_gates:
        weight = torch.diag(model.gates[:, 0]) @ weight
    h = total @ x @ weight / (len(each) + 1) + model.bias
    for layer in model.layers:
        h = torch.relu(h) @ layer.weight + layer.bias
    return h


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("gates", [False, True])
def test_it_is_the_mean_of_the_powers_of_the_propagation(
    kind: str, sparse: bool, hops: int, layers: int, gates: bool
) -> None:
    given = example(kind)
    model = made(hops=hops, num_layers=layers, feature_gates=gates)
    pattern = given.pattern(self_loops=True)
    features = given.sparse_x if sparse else given.x
    start = matrix(pattern, model.initial_strength(pattern))
    assert_equal(run(model, given, features), by_hand(model, given.x, [start] * hops))
    strengths = uneven(pattern)
    found = run(model, given, features, strengths=strengths)
    dense = matrix(pattern, strengths)
    assert_equal(found, by_hand(model, given.x, [dense] * hops))
    per_hop = torch.stack([strengths / (number + 1) for number in range(hops)])
    found = run(model, given, features, strengths=per_hop)
    dense_per_hop = [matrix(pattern, each) for each in per_hop]
    assert_equal(found, by_hand(model, given.x, dense_per_hop))


def test_gates_of_one_change_nothing_and_a_closed_one_hides_its_feature() -> None:
    """They begin at one, with the draws of a network that has none."""
    given = example("undirected")
    torch.manual_seed(0)
    plain = GRAND(*SIZES).double()
    torch.manual_seed(0)
    gated = GRAND(*SIZES, feature_gates=True).double()
    assert torch.equal(gated.gates, torch.ones(SIZES[0], 1, dtype=torch.float64))
    for noise in (None, STEP):
        assert torch.equal(
            run(plain, given, given.x, noise=noise),
            run(gated, given, given.x, noise=noise),
        )
    with torch.no_grad():
        gated.gates[1] = 0
    blind = given.x.clone()
    blind[:, 1] = 0
    assert_equal(run(gated, given, given.x), run(plain, given, blind))


def test_strengths_are_those_of_a_convolution() -> None:
    """So that a graph that was learned with one serves the other."""
    given, model = example("undirected"), made()
    other = make_backbone(
        "gcn",
        in_channels=SIZES[0],
        hidden_channels=6,
        out_channels=CLASSES,
        num_layers=2,
        dropout=0.5,
    ).double()
    assert model.self_loops == other.self_loops
    pattern = given.pattern(self_loops=True)
    one, same = (each.initial_strength(pattern) for each in (model, other))
    assert torch.equal(one, same)
    assert (model.hops, model.node_dropout, model.num_propagations) == (8, 0.5, 8)


# --- noise ---------------------------------------------------------------------------


def left_out(model: GRAND, given: Example, noise: Noise) -> Tensor:
    """Nodes whose features make no difference in a step, ``[nodes]``."""
    x = given.x.clone().requires_grad_()
    with torch.enable_grad():
        run(model, given, x, noise=noise).square().sum().backward()
    assert x.grad is not None
    return (x.grad == 0).all(dim=1)


@pytest.mark.parametrize("sparse", [False, True])
def test_whole_nodes_are_left_out(sparse: bool) -> None:
    given = example("undirected")
    model = made(hops=2, dropout=0.0, node_dropout=0.5)
    gone = left_out(model, given, STEP)
    assert bool(gone.any()) and not bool(gone.all())

    def scores(x: Tensor) -> Tensor:
        graph = Example(given.edge_index, x, given.y)
        return run(model, graph, graph.sparse_x if sparse else x, noise=STEP)

    before = scores(given.x)
    for node in range(given.num_nodes):
        changed = given.x.clone()
        changed[node] = 3 * changed[node] + (changed[node] != 0)
        says_something = bool(given.x[node].any())
        same = torch.equal(scores(changed), before)
        assert same == (bool(gone[node]) or not says_something)


@pytest.mark.parametrize("rate", [0.25, 0.5])
def test_who_stays_counts_for_those_who_do_not(rate: float) -> None:
    """What is expected of a sum is what there is without noise."""
    given = example("undirected")
    model = made(hops=2, dropout=0.0, node_dropout=rate)
    drawn = torch.stack([left_out(model, given, Noise(1, step)) for step in range(200)])
    for step, gone in enumerate(drawn[:5]):
        scaled = given.x * ~gone[:, None] / (1 - rate)
        found = run(model, given, given.x, noise=Noise(1, step))
        assert_equal(found, run(model, given, scaled))
    error = (rate * (1 - rate) / drawn.numel()) ** 0.5
    assert abs(float(drawn.double().mean()) - rate) < 5 * error


def test_nodes_are_drawn_by_seed_and_step() -> None:
    given, model = example("directed"), made(hops=2, dropout=0.0)
    drawn = left_out(model, given, STEP)
    assert torch.equal(drawn, left_out(model, given, STEP))
    for other in (Noise(STEP.seed, STEP.step + 1), Noise(STEP.seed + 1, STEP.step)):
        assert not torch.equal(drawn, left_out(model, given, other))


def test_without_noise_there_is_no_dropout() -> None:
    given = example("directed")
    noisy = made(hops=2, dropout=0.5, node_dropout=0.5)
    calm = made(hops=2, dropout=0.0, node_dropout=0.0)
    calm.load_state_dict(noisy.state_dict())
    expected = run(calm, given, given.x)
    assert torch.equal(run(noisy, given, given.x), expected)
    assert torch.equal(run(calm, given, given.x, noise=STEP), expected)
    assert not torch.allclose(run(noisy, given, given.x, noise=STEP), expected)


# --- derivatives ---------------------------------------------------------------------


@pytest.mark.parametrize("per_hop", [False, True])
def test_derivatives_equal_finite_differences(per_hop: bool) -> None:
    given = example("directed", num_nodes=8, num_edges=9)
    model = made(hops=2, dropout=0.3, node_dropout=0.3)
    pattern, names = given.pattern(self_loops=True), list(model.state_dict())
    start = uneven(pattern)
    strengths = start.expand(2, -1).clone() if per_hop else start
    weights = [each.detach().requires_grad_() for each in model.parameters()]

    def loss(strengths: Tensor, *weights: Tensor) -> Tensor:
        inputs = (given.x, pattern, strengths, STEP)
        named = dict(zip(names, weights, strict=True))
        return cross_entropy(functional_call(model, named, inputs), given.y)

    assert gradcheck(loss, (strengths.requires_grad_(), *weights))
