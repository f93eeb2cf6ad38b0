import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gsebo.graph import Topology
from gsebo.graph.topology import CanonicalGraph
from gsebo.methods.baselines.ptdnet import top_singular_values
from gsebo.sparse import Pattern

from .graphs import graphs

MANY = 300


def dense(pattern: Pattern, values: Tensor) -> Tensor:
    matrix = values.new_zeros(pattern.num_rows, pattern.num_columns)
    matrix[pattern.row_of_entry, pattern.column_of_entry] = values
    return matrix


def random_matrix(
    size: int = 30, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Pattern, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(size, size, generator=generator) < 0.2
    rows, columns = chosen.nonzero().T
    values = torch.rand(len(rows), generator=generator, dtype=torch.float64)
    return Pattern.from_positions(rows, columns, size), values.to(dtype)


def test_they_are_the_largest_of_a_dense_decomposition() -> None:
    pattern, values = random_matrix()
    found = top_singular_values(pattern, values, count=4, iterations=MANY)
    expected = torch.linalg.svdvals(dense(pattern, values))[:4]
    assert torch.allclose(found, expected, rtol=1e-9)


def test_the_default_number_of_steps_does_for_the_first() -> None:
    pattern, values = random_matrix(dtype=torch.float32)
    found = top_singular_values(pattern, values)
    expected = torch.linalg.svdvals(dense(pattern, values))[:1]
    assert torch.allclose(found, expected, rtol=1e-5)


@settings(deadline=None, max_examples=12)
@given(graphs(max_nodes=4), st.integers(0, 2**20))
def test_on_any_matrix_they_stay_below_the_true_ones(
    graph: CanonicalGraph, seed: int
) -> None:
    """Equal or degenerate ones included; count beyond the rank gives zeros."""
    pattern = Topology.of(graph, self_loops=False, device="cpu").pattern
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(graph.num_edges, generator=generator, dtype=torch.float64)
    values = (drawn - 0.3).clamp(min=0).requires_grad_()
    count = graph.num_nodes
    # Two that are nearly equal take their time to part, and until they have, their sum
    # may be above the true one: 60 iterations were too few for some matrices.
    found = top_singular_values(pattern, values, count, iterations=400)
    expected = torch.linalg.svdvals(dense(pattern, values.detach()))
    assert torch.allclose(found[:1], expected[:1], rtol=0.02)
    assert float(found.detach().sum()) <= float(expected.sum()) + 1e-6
    (slope,) = torch.autograd.grad(found.sum(), values)
    # The product of two unit vectors, for each singular value.
    assert float(slope.abs().sum()) <= count * max(len(slope), 1)
    assert bool(slope.isfinite().all())


def test_the_derivative_is_that_of_finite_differences() -> None:
    pattern, values = random_matrix(12, seed=3)
    weights = torch.tensor([1.0, 0.7, -0.4], dtype=torch.float64)

    def value(entries: Tensor) -> Tensor:
        return top_singular_values(pattern, entries, 3, iterations=MANY) @ weights

    (slope,) = torch.autograd.grad(value(values.requires_grad_()), values)
    with torch.no_grad():
        for direction in torch.eye(len(values), dtype=values.dtype)[::5] * 1e-5:
            change = value(values + direction) - value(values - direction)
            assert float(slope @ direction) == pytest.approx(
                float(change) / 2, abs=1e-12
            )
    # And of the textbook: the outer product of the two singular vectors.
    u, _, v = torch.linalg.svd(dense(pattern, values.detach()))
    expected = sum(weights[k] * u[:, k, None] * v[k] for k in range(3))
    at_entries = expected[pattern.row_of_entry, pattern.column_of_entry]
    assert torch.allclose(slope, at_entries, atol=1e-6)


def test_several_matrices_at_once_are_each_alone() -> None:
    pattern, values = random_matrix()
    several = torch.stack([values, values.flip(0), 0 * values])
    together = top_singular_values(pattern, several, 2)
    alone = [top_singular_values(pattern, one, 2) for one in several]
    assert torch.allclose(together, torch.stack(alone), rtol=1e-9)
    assert together[2].tolist() == [0, 0]


def test_nothing_is_wider_than_the_entries() -> None:
    """A dense 40000 x 40000 matrix would take 6 GB."""
    nodes = torch.arange(40_000)
    pattern = Pattern.from_positions(nodes, nodes.roll(1), len(nodes))
    found = top_singular_values(pattern, torch.full((len(nodes),), 0.5))
    assert float(found) == pytest.approx(0.5, rel=1e-4)
