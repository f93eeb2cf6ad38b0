import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gsebo.bilevel import Implicit, Reverse, adam, sgd
from gsebo.bilevel.implicit import conjugate_gradient, largest_eigenvalue, neumann
from gsebo.errors import InvalidInput

from .toys import Quadratic, Ridge, assert_trees_close, random


@given(log_penalty=st.floats(-2, 2), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=10)
def test_ridge_penalty_has_its_closed_form(log_penalty: float, seed: int) -> None:
    problem = Ridge.make(seed)
    outer = {"log_penalty": torch.tensor(log_penalty, dtype=torch.float64)}
    minimum, expected = problem.minimum(outer["log_penalty"])
    engine = Implicit(tolerance=1e-14)
    gradient, _, _ = engine(problem, sgd(0.01), {"w": minimum}, outer, 1)
    assert_trees_close(gradient, {"log_penalty": expected}, 1e-9)


@pytest.mark.parametrize("direct_term", [True, False])
@pytest.mark.parametrize("solver", ["cg", "neumann"])
def test_becomes_reverse_as_training_converges(solver: str, direct_term: bool) -> None:
    problem = Quadratic.make()
    weights, outer = problem.start()
    engine = Implicit(direct_term, solver=solver, iterations=400, tolerance=1e-13)
    errors = []
    for steps in (2, 10, 300):
        arguments = (problem, sgd(0.3), weights, outer, steps)
        exact, ours = Reverse(direct_term)(*arguments)[0], engine(*arguments)[0]
        errors.append(float((exact["z"] - ours["z"]).norm()))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-10


def test_several_leaves_and_unused_ones() -> None:
    problem = Quadratic.make()
    whole, outer = problem.start()

    class Halves:
        def inner_loss(self, weights: dict, outer: dict, step: int) -> torch.Tensor:
            joined = {"w": torch.cat([weights["left"], weights["right"]])}
            return problem.inner_loss(joined, outer, step)

        def outer_loss(self, weights: dict, outer: dict) -> torch.Tensor:
            joined = {"w": torch.cat([weights["left"], weights["right"]])}
            return problem.outer_loss(joined, outer)

    halves = {"left": whole["w"][:2], "right": whole["w"][2:], "idle": torch.ones(1)}
    halves["idle"] = halves["idle"].double()
    outer = outer | {"idle": torch.ones(3).double()}
    engine = Implicit(damping=0.1)
    ours = engine(Halves(), sgd(0.1), halves, outer, 5)[0]
    expected = engine(problem, sgd(0.1), whole, outer, 5)[0]
    assert_trees_close(ours, expected)
    assert not ours["idle"].any()


def test_evaluates_at_the_last_step_number() -> None:
    problem, seen = Quadratic.make(), []
    loss = problem.inner_loss

    def watched(weights: dict, outer: dict, step: int) -> torch.Tensor:
        seen.append(step)
        return loss(weights, outer, step)

    problem.inner_loss = watched
    Implicit()(problem, adam(0.1), *problem.start(), 3)
    assert seen == [0, 1, 2, 2]


@given(size=st.integers(1, 12), seed=st.integers(0, 999))
@settings(deadline=None, max_examples=30)
def test_both_solvers_solve(size: int, seed: int) -> None:
    matrix = Quadratic.make(size, seed).hessian
    b = random(size, seed=seed + 5)
    exact = torch.linalg.solve(matrix, b)
    limits = {"iterations": 500, "tolerance": 1e-13}
    for solver in (conjugate_gradient, neumann):
        torch.testing.assert_close(solver(matrix.mv, b, **limits), exact)
    found = neumann(matrix.mv, b, step_size=0.1, iterations=3, tolerance=0)
    step = torch.eye(size, dtype=b.dtype) - 0.1 * matrix
    series = sum(torch.linalg.matrix_power(step, k) @ b * 0.1 for k in range(4))
    torch.testing.assert_close(found, series)


def test_power_iterations_find_the_largest_eigenvalue() -> None:
    matrix = torch.diag(torch.tensor([1.0, -7.0, 3.0]))
    assert math.isclose(largest_eigenvalue(matrix.mv, torch.ones(3)), 7, rel_tol=1e-3)
    assert largest_eigenvalue(torch.zeros(3, 3).mv, torch.ones(3)) == 1


def test_conjugate_gradient_stops_at_non_positive_curvature() -> None:
    matrix = torch.diag(torch.tensor([2.0, -1.0]))
    limits = {"iterations": 9, "tolerance": 1e-6}
    negative = (-matrix.abs()).mv
    assert not conjugate_gradient(negative, torch.ones(2), **limits).any()
    found = conjugate_gradient(matrix.mv, torch.tensor([1.0, 0.5]), **limits)
    assert found.isfinite().all() and found.any()
    assert not conjugate_gradient(matrix.mv, torch.zeros(2), **limits).any()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("solver", [conjugate_gradient, neumann])
def test_solvers_keep_what_is_not_finite(solver, bad: float) -> None:
    b = torch.tensor([1.0, bad])
    found = solver(torch.eye(2).mv, b, iterations=3, tolerance=1e-6)
    assert not found.isfinite().all()


@pytest.mark.parametrize(
    "setting",
    [
        {"solver": "lu"},
        {"iterations": 0},
        {"damping": -1.0},
        {"tolerance": math.nan},
        {"step_size": 0.0},
    ],
)
def test_refuses_bad_settings(setting: dict) -> None:
    with pytest.raises(InvalidInput, match=next(iter(setting))):
        Implicit(**setting)
