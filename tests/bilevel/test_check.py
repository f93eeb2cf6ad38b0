import math

import pytest
import torch

from gsebo.bilevel import (
    FirstOrder,
    HypergradientCheck,
    Reverse,
    adam,
    check_problem,
    sgd,
)
from gsebo.errors import InvalidInput

from .toys import Net, Quadratic


def test_reports_each_direction_and_is_repeatable() -> None:
    problem = Net()
    arguments = (problem, adam(0.05), *problem.start(), 4)
    one = check_problem(*arguments, directions=5, seed=3, step=11)
    two = check_problem(*arguments, directions=5, seed=3, step=11)
    assert one.analytic.shape == one.numeric.shape == (5,)
    assert torch.equal(one.numeric, two.numeric)
    assert torch.equal(one.analytic, two.analytic)
    assert one.relative_error < 1e-7
    other = check_problem(*arguments, directions=5, seed=3)
    assert not torch.equal(one.numeric, other.numeric)


def test_finds_a_wrong_hypergradient() -> None:
    problem = Net()
    arguments = (problem, adam(0.05), *problem.start(), 4)
    check = check_problem(*arguments, hypergradient=FirstOrder())
    assert check.relative_error > 1e-2
    with pytest.raises(InvalidInput, match="differs from finite differences"):
        check.raise_if_worse_than(1e-3)


def test_finds_a_loss_that_is_first_order_only() -> None:
    problem = Quadratic.make()
    loss = problem.inner_loss

    class Cut(torch.autograd.Function):
        @staticmethod
        def forward(context, w, z, mixed):
            context.save_for_backward(z, mixed)
            return w @ mixed @ z

        @staticmethod
        def backward(context, slope):
            z, mixed = context.saved_tensors
            return slope * (mixed @ z.detach()), None, None

    def cut(weights: dict, outer: dict, step: int) -> torch.Tensor:
        fixed = {"z": torch.zeros(3, dtype=torch.float64)}
        rest = loss(weights, fixed, step)
        return rest - Cut.apply(weights["w"], outer["z"], problem.mixed)

    problem.inner_loss = cut
    check = check_problem(problem, sgd(0.1), *problem.start(), 4)
    assert check.relative_error > 0.1


def test_says_that_it_needs_float64() -> None:
    problem = Net(torch.float32)
    with pytest.raises(InvalidInput, match=r"float32; .* torch\.float64"):
        check_problem(problem, adam(0.05), *problem.start(), 2)


def test_not_a_number_never_passes() -> None:
    check = HypergradientCheck(torch.ones(1), torch.ones(1), math.nan)
    with pytest.raises(InvalidInput):
        check.raise_if_worse_than(1e9)


def test_nothing_to_learn_is_no_error() -> None:
    problem = Quadratic.make()
    problem.mixed = problem.mixed * 0
    check = check_problem(
        problem, sgd(0.1), *problem.start(), 2, hypergradient=Reverse(False)
    )
    assert check.relative_error == 0
