import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cosine_similarity

from gsebo.methods.baselines.idgl import (
    above,
    dirichlet_energy,
    disconnection,
    relative_change,
    row_normalised,
    weighted_cosine,
)

from .graphs import examples

seeds = st.integers(0, 999)
sizes = st.integers(1, 6)


def normal(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def symmetric(nodes: int, seed: int) -> Tensor:
    drawn = normal(nodes, nodes, seed=seed).abs()
    return drawn + drawn.T


@examples
@given(sizes, sizes, st.integers(1, 3), seeds)
def test_the_similarity_is_the_mean_of_weighted_cosines(
    nodes: int, channels: int, heads: int, seed: int
) -> None:
    x, w = normal(nodes, channels, seed=seed), normal(heads, channels, seed=seed + 1)
    seen = x * w.unsqueeze(1)
    each = cosine_similarity(seen.unsqueeze(2), seen.unsqueeze(1), dim=-1)
    torch.testing.assert_close(weighted_cosine(x, w), each.mean(0))


def test_a_row_of_zeros_is_similar_to_nothing_and_has_a_gradient() -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0]], requires_grad=True)
    similarity = weighted_cosine(x, torch.ones(2, 2))
    assert torch.allclose(similarity, torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    (gradient,) = torch.autograd.grad(similarity.sum(), x)
    assert gradient.isfinite().all()


def test_only_what_exceeds_epsilon_is_kept() -> None:
    given = torch.tensor([-0.5, 0.0, 0.3, 0.31, 1.0])
    assert above(given, 0.3).tolist() == pytest.approx([0, 0, 0, 0.31, 1])
    assert above(given, 0.0).tolist() == pytest.approx([0, 0, 0.3, 0.31, 1])


@examples
@given(sizes, seeds)
def test_rows_sum_to_one_unless_they_are_zero(nodes: int, seed: int) -> None:
    weights = normal(nodes, nodes, seed=seed).abs()
    weights[0] = 0
    total = row_normalised(weights).sum(-1)
    torch.testing.assert_close(total[1:], torch.ones(nodes - 1, dtype=torch.float64))
    assert float(total[0]) == 0


@examples
@given(sizes, sizes, seeds)
def test_the_energy_is_the_trace_with_the_laplacian(
    nodes: int, channels: int, seed: int
) -> None:
    weights, x = symmetric(nodes, seed), normal(nodes, channels, seed=seed + 1)
    laplacian = weights.sum(-1).diag() - weights
    energy = dirichlet_energy(weights, x @ x.T)
    torch.testing.assert_close(energy, torch.trace(x.T @ laplacian @ x))
    apart = (x.unsqueeze(0) - x.unsqueeze(1)).square().sum(-1)
    torch.testing.assert_close(energy, (weights * apart).sum() / 2)


def test_a_lonely_node_is_expensive() -> None:
    weights = torch.tensor([[1.0, 1.0], [1.0, 3.0]])
    expected = -(torch.tensor([2.0, 4.0]).log().mean())
    torch.testing.assert_close(disconnection(weights), expected)
    assert float(disconnection(torch.zeros(2, 2))) == pytest.approx(27.63, abs=0.01)


def test_change_is_measured_in_squares_of_the_first() -> None:
    first = torch.full((2, 2), 2.0)
    assert relative_change(first, first - 1, first) == pytest.approx(4 / 16)
    assert relative_change(first, first, torch.zeros(2, 2)) == 0


@pytest.mark.parametrize("epsilon", [0.0, 0.2])
def test_gradients_are_those_of_finite_differences(epsilon: float) -> None:
    x, w = normal(4, 3, seed=1).abs(), normal(2, 3, seed=2)
    gram = normal(4, 4, seed=3)

    def learned(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        similarity = above(weighted_cosine(x, w), epsilon)
        return (
            row_normalised(similarity),
            dirichlet_energy(similarity, gram + gram.T),
            disconnection(similarity),
        )

    assert torch.autograd.gradcheck(learned, (x.requires_grad_(), w.requires_grad_()))
