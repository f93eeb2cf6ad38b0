"""Learning rates that change and gradients that are clipped, against torch."""

import math

import pytest
import torch

from gsebo.bilevel import OPTIMIZERS, clipped, make_optimizer, scheduled, sgd
from gsebo.bilevel.optimizers import Transition, pull_back
from gsebo.errors import InvalidInput

from .toys import random

TORCH = {
    "sgd": torch.optim.SGD,
    "momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
    "adam": torch.optim.Adam,
}
RATE, LOWEST, STEPS = 0.02, 1e-5, 40


def cosine(count: int) -> float:
    low = LOWEST / RATE
    return low + (1 - low) * (1 + math.cos(math.pi * count / STEPS)) / 2


def loss(weights: dict) -> torch.Tensor:
    return (weights["a"].cos() * 3).sum() + (weights["a"][0] * weights["b"]).sum() ** 2


def tree(dtype: torch.dtype = torch.float64) -> dict:
    return {"a": random(3, 2, seed=0, dtype=dtype), "b": random(2, seed=1, dtype=dtype)}


def gradients_at(weights: dict) -> dict:
    leaves = {k: v.detach().requires_grad_() for k, v in weights.items()}
    found = torch.autograd.grad(loss(leaves), list(leaves.values()))
    return dict(zip(leaves, found, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("max_norm", [0.5, None])
def test_equals_torch_step_for_step(name, max_norm, dtype) -> None:
    ours = tree(dtype)
    theirs = {k: v.clone().requires_grad_() for k, v in ours.items()}
    reference = TORCH[name](list(theirs.values()), lr=RATE)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(reference, STEPS, LOWEST)
    optimizer = scheduled(make_optimizer(name, RATE), cosine)
    if max_norm is not None:
        optimizer = clipped(optimizer, max_norm)
    state = optimizer.init(ours)
    epsilon = 16 * torch.finfo(dtype).eps
    for _ in range(STEPS):
        reference.zero_grad()
        loss(theirs).backward()
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(list(theirs.values()), max_norm)
        reference.step()
        falling.step()
        ours, state = optimizer.update(gradients_at(ours), state, ours)
        for key in ours:
            torch.testing.assert_close(
                ours[key], theirs[key].detach(), rtol=epsilon, atol=epsilon
            )
    assert state.count == STEPS


def test_nothing_changes_where_there_is_nothing_to_do() -> None:
    weights = tree()
    plain = make_optimizer("adam", RATE)
    wrapped = clipped(scheduled(plain, lambda count: 1.0), 1e6)
    state = plain.init(weights)
    one, _ = plain.update(gradients_at(weights), state, weights)
    other, _ = wrapped.update(gradients_at(weights), wrapped.init(weights), weights)
    assert all(torch.equal(one[key], other[key]) for key in weights)


def test_the_norm_is_that_of_all_gradients_together() -> None:
    weights = {"a": torch.zeros(1), "b": torch.zeros(1)}
    optimizer = clipped(sgd(1.0), 1.0)
    gradients = {"a": torch.tensor([3.0]), "b": torch.tensor([-4.0])}
    moved, _ = optimizer.update(gradients, optimizer.init(weights), weights)
    torch.testing.assert_close(
        torch.cat(list(moved.values())), torch.tensor([-0.6, 0.8])
    )


def test_derivatives_of_a_wrapped_step() -> None:
    """Against finite differences; a gradient of zero gives no NaN."""
    optimizer = scheduled(clipped(make_optimizer("adam", RATE), 0.7), lambda count: 0.3)
    gradients = {"w": random(4, seed=3)}
    weights, cotangent = {"w": random(4, seed=4)}, {"w": random(4, seed=5)}
    state = optimizer.init(weights)

    def moved(gradient: torch.Tensor) -> torch.Tensor:
        after, _ = optimizer.update({"w": gradient}, state, weights)
        return after["w"] @ cotangent["w"]

    def pulled(gradients: dict) -> torch.Tensor:
        _, after = optimizer.update(gradients, state, weights)
        transition = Transition(gradients, state, weights, after)
        return pull_back(optimizer, transition, cotangent, {}).gradients["w"]

    step = 1e-6
    differences = torch.stack(
        [
            (moved(gradients["w"] + each) - moved(gradients["w"] - each)) / (2 * step)
            for each in step * torch.eye(4, dtype=torch.float64)
        ]
    )
    torch.testing.assert_close(pulled(gradients), differences, rtol=1e-5, atol=1e-10)
    assert pulled({"w": torch.zeros(4, dtype=torch.float64)}).isfinite().all()


@pytest.mark.parametrize(
    "max_norm", [0.0, -1.0, math.nan, math.inf, "small", None, True]
)
def test_refuses_a_bad_norm(max_norm: object) -> None:
    with pytest.raises(InvalidInput, match=r"max_norm=.*expected a finite number"):
        clipped(sgd(0.1), max_norm)
