"""The network that votes: what bounds its neighbors, and its derivatives."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.nn.biweight import BiweightNet, biweight
from gsebo.sparse import Pattern
from tests.nn.examples import CLASSES, FEATURES, SIZES, Example, example


@pytest.fixture
def net() -> BiweightNet:
    torch.manual_seed(3)
    return BiweightNet(*SIZES, hops=3).double().eval()


@pytest.fixture
def graph() -> Example:
    return example("undirected")


def spread_out(net: BiweightNet, times: float) -> BiweightNet:
    """The same network, whose features say something surer."""
    with torch.no_grad():
        net.mlp.weights[-1].mul_(times)
    return net


def alone(net: BiweightNet, x: Tensor) -> Tensor:
    none = Pattern.from_positions(*torch.empty(2, 0, dtype=torch.int64), len(x))
    return net.mlp(x, none).softmax(-1)


def dense_votes(
    net: BiweightNet, pattern: Pattern, strength: Tensor, p: Tensor
) -> Tensor:
    """The formula of the module with matrices of all pairs."""
    matrix = p.new_zeros(len(p), len(p))
    matrix[pattern.row_of_entry, pattern.column_of_entry] = strength
    f = p
    for _ in range(net.hops):
        apart = torch.cdist(f, f, compute_mode="donot_use_mm_for_euclid_dist")
        heard = matrix * (1 - (apart / net.scale) ** 2).clamp(min=0) ** 2
        total = net.anchor + heard.sum(1, keepdim=True)
        f = (net.anchor * p + heard @ f) / total
    return f


def test_equals_the_dense_formula(net: BiweightNet, graph: Example) -> None:
    pattern = graph.pattern(self_loops=True)
    strength = torch.rand(pattern.num_entries, dtype=torch.float64)
    found = spread_out(net, 30)(graph.x, pattern, strength).softmax(-1)
    expected = dense_votes(net, pattern, strength, alone(net, graph.x))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@given(
    scale=st.floats(0.2, 2),
    first=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    second=st.lists(st.floats(0, 1), min_size=3, max_size=3),
)
def test_biweight_of_two(scale: float, first: list[float], second: list[float]) -> None:
    f = torch.tensor([first, second], dtype=torch.float64)
    pattern = Pattern.from_positions(torch.tensor([0]), torch.tensor([1]), 2)
    apart = math.dist(first, second)
    expected = max(0.0, 1 - (apart / scale) ** 2) ** 2
    assert float(biweight(pattern, f, scale)) == pytest.approx(expected, abs=1e-9)


def test_who_differs_too_much_is_not_heard(net: BiweightNet, graph: Example) -> None:
    """An edge between nodes far apart changes no bit of what is predicted."""
    net = spread_out(net, 200)
    net.hops = 1
    pattern = graph.pattern(self_loops=True)
    strength = torch.full((pattern.num_entries,), 0.2, dtype=torch.float64)
    heard = biweight(pattern, alone(net, graph.x), net.scale)
    assert bool((heard == 0).any()) and bool((heard > 0).any())
    without = strength.masked_fill(heard == 0, 0)
    assert torch.equal(net(graph.x, pattern, strength), net(graph.x, pattern, without))


def test_neighbors_move_a_node_no_farther_than_the_anchor_allows(
    net: BiweightNet, graph: Example
) -> None:
    """Votes sum to one at most: own features keep λ / (λ + 1) of what they say."""
    net = spread_out(net, 30)
    pattern, share = graph.pattern(self_loops=True), net.anchor / (net.anchor + 1)
    found = net(graph.x, pattern).softmax(-1)
    assert bool((found >= share * alone(net, graph.x) - 1e-5).all())


def test_without_neighbors_features_decide(net: BiweightNet, graph: Example) -> None:
    pattern = graph.pattern(self_loops=True)
    nothing = torch.zeros(pattern.num_entries, dtype=torch.float64)
    found = net(graph.x, pattern, nothing).softmax(-1)
    torch.testing.assert_close(found, alone(net, graph.x), atol=1e-5, rtol=0)


def test_second_derivatives(net: BiweightNet, graph: Example) -> None:
    net = spread_out(net, 10)
    pattern = graph.pattern(self_loops=True)
    strength = net.initial_strength(pattern).requires_grad_()
    weight = net.mlp.weights[-1]

    def loss(strength: Tensor, weight: Tensor) -> Tensor:
        named = {"mlp.weights.1": weight}
        inputs = graph.x, pattern, strength
        found = torch.func.functional_call(net, named, inputs)
        return torch.nn.functional.cross_entropy(found, graph.y)

    inputs = strength, weight.detach().clone().requires_grad_()
    assert torch.autograd.gradcheck(loss, inputs)
    assert torch.autograd.gradgradcheck(loss, inputs, atol=1e-4)


@pytest.mark.parametrize("options", [{"scale": 0.0}, {"anchor": -1}, {"hops": 0}])
def test_refuses_options(options: dict[str, float]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        BiweightNet(FEATURES, 4, CLASSES, **options)
