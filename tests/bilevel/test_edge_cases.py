"""Engines on losses that ignore a variable, diverge, or are not losses at all."""

import pytest
import torch

from gsebo.bilevel import (
    HYPERGRADIENTS,
    OPTIMIZERS,
    FirstOrder,
    Reverse,
    Unrolled,
    adam,
    check_problem,
    make_hypergradient,
    make_optimizer,
    sgd,
)
from gsebo.errors import InvalidInput

from .toys import Quadratic, random

ENGINES = list(HYPERGRADIENTS)


class Detached:
    """Weight "idle" and outer "idle" are in no loss; "linear" has a constant slope."""

    def inner_loss(self, weights: dict, outer: dict, step: int) -> torch.Tensor:
        moving = (weights["w"] - outer["z"]).square().sum()
        return moving + 3 * weights["linear"].sum()

    def outer_loss(self, weights: dict, outer: dict) -> torch.Tensor:
        return weights["w"].sum() ** 2 + weights["linear"].sum() + weights["idle"].sum()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("engine", [Reverse(), Unrolled(), FirstOrder()])
def test_what_a_loss_does_not_use_has_zero_gradient(engine, optimizer: str) -> None:
    weights = {name: random(2, seed=1) for name in ("w", "linear", "idle")}
    outer = {"z": random(2, seed=2), "idle": random(4, seed=3)}
    problem, update = Detached(), make_optimizer(optimizer, 0.1)
    gradient, moved, _ = engine(problem, update, weights, outer, 3)
    assert gradient["z"].isfinite().all()
    assert gradient["z"].any() == (engine != FirstOrder())
    assert not gradient["idle"].any() and gradient["idle"].shape == (4,)
    assert torch.equal(moved["idle"], weights["idle"])
    if engine != FirstOrder():
        check_problem(
            problem, update, weights, outer, 3, hypergradient=engine
        ).raise_if_worse_than(1e-6)


class Decayed:
    """Weight "idle" is zero and in no loss but the weight decay's: a dead unit."""

    def inner_loss(self, weights: dict, outer: dict, step: int) -> torch.Tensor:
        moving = (weights["w"] - outer["z"]).square().sum()
        return moving + sum(2.5e-4 * w.square().sum() for w in weights.values())

    def outer_loss(self, weights: dict, outer: dict) -> torch.Tensor:
        return weights["w"].sum() ** 2 + weights["idle"].sum()


def test_a_weight_that_never_moves_cannot_overflow() -> None:
    """Its derivative by its own gradient is rate / eps, in each of many steps."""
    outer = {"z": random(2, seed=2).float()}
    weights = {"w": random(2, seed=1).float(), "idle": torch.zeros(2)}
    gradient, moved, _ = Reverse()(Decayed(), adam(0.01), weights, outer, 60)
    assert not moved["idle"].any()
    double = {name: tree.double() for name, tree in weights.items()}
    exact, *_ = Unrolled()(
        Decayed(), adam(0.01), double, {"z": outer["z"].double()}, 60
    )
    torch.testing.assert_close(gradient["z"].double(), exact["z"], rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", ENGINES)
def test_losses_that_depend_on_nothing(name: str) -> None:
    problem = Quadratic.make()
    problem.inner_loss = lambda weights, outer, step: torch.zeros(())
    problem.outer_loss = lambda weights, outer: torch.ones(())
    weights, outer = problem.start()
    engine = make_hypergradient(name, direct_term=True)
    gradient, moved, loss = engine(problem, adam(0.1), weights, outer, 2)
    assert not gradient["z"].any() and loss == 1
    assert torch.equal(moved["w"], weights["w"])


@pytest.mark.parametrize("name", ENGINES)
def test_diverged_training_is_returned_as_it_is(name: str) -> None:
    problem = Quadratic.make()
    problem.hessian = problem.hessian * 1e200
    engine = make_hypergradient(name, direct_term=True)
    gradient, weights, loss = engine(problem, sgd(1.0), *problem.start(), 4)
    assert not weights["w"].isfinite().any() and not loss.isfinite()
    if name != "first_order":
        assert not gradient["z"].isfinite().all()


@pytest.mark.parametrize("name", ENGINES)
def test_refuses_no_steps_and_vector_losses(name: str) -> None:
    problem = Quadratic.make()
    engine = make_hypergradient(name, direct_term=True)
    with pytest.raises(InvalidInput, match="0 inner steps given; expected at least 1"):
        engine(problem, sgd(0.1), *problem.start(), 0)
    problem.inner_loss = lambda weights, outer, step: weights["w"]
    with pytest.raises(InvalidInput, match=r"shape \[5\]; expected a scalar"):
        engine(problem, sgd(0.1), *problem.start(), 2)
