"""First and second derivatives of every operator against finite differences."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from gsebo.sparse import (
    edge_softmax,
    reference_kernels,
    row_expand,
    row_sum,
    sddmm,
    spmm,
)

from .patterns import Positions, awkward, normal, positions

pytestmark = pytest.mark.compiles

PAIRS = [
    ((), ()),
    ((2,), ()),
    ((), (2,)),
    ((2,), (2,)),
    ((1,), (2,)),
    ((2, 1), (1, 2)),
]


def check(function, *inputs: Tensor) -> None:
    inputs = tuple(each.clone().requires_grad_() for each in inputs)
    assert gradcheck(function, inputs)
    assert gradgradcheck(function, inputs)


@pytest.mark.parametrize(("left", "right"), PAIRS)
@pytest.mark.usefixtures("kernels")
def test_products(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    pattern = awkward().pattern
    check(lambda v, x: spmm(pattern, v, x), normal(*left, 7), normal(*right, 5, 2))
    check(lambda a, b: sddmm(pattern, a, b), normal(*left, 4, 2), normal(*right, 5, 2))


@pytest.mark.parametrize("lead", [(), (2,), (1, 2)])
@pytest.mark.usefixtures("kernels")
def test_row_operators(lead: tuple[int, ...]) -> None:
    pattern = awkward().pattern
    # A linear map has no second derivative: the product makes one.
    check(lambda v: row_sum(pattern, v) ** 2, normal(*lead, 7))
    check(lambda x: row_expand(pattern, x) ** 2, normal(*lead, 4))
    check(lambda s: edge_softmax(pattern, s), normal(*lead, 7))


@settings(deadline=None, max_examples=10)
@given(given=positions(max_size=4, max_entries=6), seed=st.integers(0, 99))
def test_random_patterns(given: Positions, seed: int) -> None:
    pattern = given.pattern
    if pattern.num_entries == 0:
        return
    values = normal(pattern.num_entries, seed=seed)
    x = normal(given.num_columns, 2, seed=seed + 1)
    check(lambda v, x: spmm(pattern, edge_softmax(pattern, v), x), values, x)


@pytest.mark.usefixtures("kernels")
def test_constant_operands_receive_nothing() -> None:
    pattern = awkward().pattern
    values, x = normal(7).requires_grad_(), normal(5, 2)
    (gradient,) = torch.autograd.grad(spmm(pattern, values, x).sum(), values)
    torch.testing.assert_close(gradient, x.sum(-1)[pattern.column_of_entry])
    assert x.grad is None
    assert not spmm(pattern, values.detach(), x).requires_grad


def test_kernels_agree_on_second_order() -> None:
    """Gradient of a gradient of attention, both kernels, all leaves."""
    pattern = awkward().pattern

    def second_order() -> tuple[Tensor, ...]:
        leaves = [normal(3, 7), normal(5, 2), normal(3, 7, seed=1)]
        scores, x, strength = (each.requires_grad_() for each in leaves)
        out = spmm(pattern, edge_softmax(pattern, scores) * strength, x)
        first = torch.autograd.grad((out**2).sum(), x, create_graph=True)[0]
        return torch.autograd.grad((first**2).sum(), (scores, x, strength))

    ours = second_order()
    with reference_kernels():
        expected = second_order()
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other)
