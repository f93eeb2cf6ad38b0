"""Proximal operators against what defines them, and against dense decompositions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import softshrink

from gsebo.methods.baselines.prognn import shrink_singular_values

from .graphs import examples

SEEDS = st.integers(0, 2**20)
AMOUNTS = st.floats(0, 3)


def random_symmetric(seed: int, size: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(size, size, dtype=torch.float64, generator=generator)
    return matrix + matrix.T


def nuclear(matrix: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(matrix, "nuc")


@examples
@given(seed=SEEDS, amount=AMOUNTS)
def test_nothing_near_a_proximal_point_is_better(seed: int, amount: float) -> None:
    matrix, direction = random_symmetric(seed), random_symmetric(seed + 1)
    penalties = {shrink_singular_values: nuclear, softshrink: lambda x: x.abs()}
    for prox, penalty in penalties.items():
        nearest = prox(matrix, amount)

        def objective(at: Tensor, penalty=penalty) -> float:
            distance = (at - matrix).square().sum() / 2
            return float(distance + amount * penalty(at).sum())

        least = objective(nearest)
        for far in (1e-3, 0.1, 1.0):
            for other in (nearest + far * direction, nearest - far * direction):
                assert objective(other) >= least - 1e-9


@examples
@given(seed=SEEDS, amount=AMOUNTS)
def test_eigenvalues_do_the_work_of_singular_values(seed: int, amount: float) -> None:
    matrix = random_symmetric(seed)
    left, values, right = torch.linalg.svd(matrix)
    expected = left @ torch.diag((values - amount).clamp(min=0)) @ right
    found = shrink_singular_values(matrix, amount)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    assert torch.equal(found, found.T)


def test_shrinking_far_enough_leaves_nothing() -> None:
    matrix = random_symmetric(0)
    largest = float(torch.linalg.matrix_norm(matrix, 2))
    torch.testing.assert_close(
        shrink_singular_values(matrix, largest + 1e-9), torch.zeros_like(matrix)
    )
    assert not softshrink(matrix, float(matrix.abs().max())).any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_handed_on(bad: float) -> None:
    matrix = random_symmetric(0)
    matrix[1, 2] = matrix[2, 1] = bad
    assert not bool(shrink_singular_values(matrix, 0.1).isfinite().all())
