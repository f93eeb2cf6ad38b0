import math

import pytest
import torch

from gsebo.bilevel import OPTIMIZERS, adam, make_optimizer, momentum, sgd
from gsebo.bilevel.optimizers import Transition, pull_back
from gsebo.errors import InvalidInput

from .toys import assert_trees_close, random

TORCH = {
    "sgd": torch.optim.SGD,
    "momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
    "adam": torch.optim.Adam,
}


def steep(weights: dict) -> torch.Tensor:
    return (weights["a"].cos() * 3).sum() + (weights["a"][0] * weights["b"]).pow(
        2
    ).sum()


def small_tree(dtype: torch.dtype = torch.float64) -> dict:
    return {"a": random(3, 2, seed=0, dtype=dtype), "b": random(2, seed=1, dtype=dtype)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_equals_torch_step_for_step(name: str, dtype: torch.dtype) -> None:
    ours = small_tree(dtype)
    theirs = {k: v.clone().requires_grad_() for k, v in ours.items()}
    reference = TORCH[name](list(theirs.values()), lr=0.02)
    optimizer = make_optimizer(name, 0.02)
    state = optimizer.init(ours)
    for _ in range(50):
        reference.zero_grad()
        steep(theirs).backward()
        reference.step()
        leaves = {k: v.requires_grad_() for k, v in ours.items()}
        found = torch.autograd.grad(steep(leaves), list(leaves.values()))
        with torch.no_grad():
            gradients = dict(zip(leaves, found, strict=True))
            ours, state = optimizer.update(gradients, state, leaves)
        # Bit-close: a few units in the last place, also after 50 steps.
        for key in ours:
            epsilon = 8 * torch.finfo(dtype).eps
            torch.testing.assert_close(
                ours[key], theirs[key].detach(), rtol=epsilon, atol=epsilon
            )
    assert state.count == 50


@pytest.mark.parametrize("count", [0, 7])
@pytest.mark.parametrize("with_slots", [True, False])
@pytest.mark.parametrize("make", [sgd, momentum, adam])
def test_pullback_equals_autograd(make, with_slots: bool, count: int) -> None:
    optimizer = make(0.03)
    weights, gradients = small_tree(), {k: v * 2 + 1 for k, v in small_tree().items()}
    state = optimizer.init(weights)
    for k in range(count):
        weights, state = optimizer.update(
            {n: g / (k + 1) for n, g in gradients.items()}, state, weights
        )
    _, after = optimizer.update(gradients, state, weights)
    transition = Transition(gradients, state, weights, after)
    cotangent = {n: random(*w.shape, seed=5) for n, w in weights.items()}
    slots = {n: random(*s.shape, seed=6) for n, s in after.slots.items() if with_slots}
    ours = pull_back(optimizer, transition, cotangent, slots)
    oracle = pull_back(optimizer._replace(pullback=None), transition, cotangent, slots)
    for left, right in zip(ours, oracle, strict=True):
        assert_trees_close(
            dict(sorted(left.items())), dict(sorted(right.items())), 1e-12
        )


@pytest.mark.parametrize("pull", ["hand-written", "autograd"])
def test_adam_derivative_is_finite_where_no_gradient_came(pull: str) -> None:
    optimizer = adam(0.1)
    weights, gradients = {"w": torch.ones(3)}, {"w": torch.tensor([0.0, 1.0, 1e-30])}
    state = optimizer.init(weights)
    _, after = optimizer.update(gradients, state, weights)
    assert after.slots["square/w"][0] == 0
    transition = Transition(gradients, state, weights, after)
    if pull == "autograd":
        optimizer = optimizer._replace(pullback=None)
    found = pull_back(optimizer, transition, {"w": torch.ones(3)}, {})
    # d w / d g = -lr / (1 - b1) (1 - b1) / eps where the second moment is zero. Where
    # no gradient ever came at all, that has nowhere to go, and is left out by hand.
    idle = 0.0 if pull == "hand-written" else -0.1 / 1e-8
    torch.testing.assert_close(
        found.gradients["w"][[0, 2]], torch.tensor([idle, -0.1 / 1e-8])
    )
    assert all(leaf.isfinite().all() for tree in found for leaf in tree.values())


def test_adam_keeps_nan() -> None:
    optimizer = adam(0.1)
    weights, gradients = {"w": torch.ones(2)}, {"w": torch.tensor([math.nan, 1.0])}
    moved, after = optimizer.update(gradients, optimizer.init(weights), weights)
    transition = Transition(gradients, optimizer.init(weights), weights, after)
    for pull in (optimizer, optimizer._replace(pullback=None)):
        found = pull_back(pull, transition, {"w": torch.ones(2)}, {}).gradients["w"]
        assert found.isnan().tolist() == [True, False]
    assert moved["w"].isnan().tolist() == [True, False]


@pytest.mark.parametrize("lr", [-0.1, math.nan, math.inf, "fast", None])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_refuses_a_bad_learning_rate(name: str, lr: object) -> None:
    with pytest.raises(
        InvalidInput, match=r"learning rate .* expected a finite number"
    ):
        make_optimizer(name, lr)


def test_refuses_other_bad_settings() -> None:
    with pytest.raises(InvalidInput, match="unknown optimizer 'adan', did you mean"):
        make_optimizer("adan", 0.1)
    with pytest.raises(InvalidInput, match="beta=1"):
        momentum(0.1, beta=1)
    with pytest.raises(InvalidInput, match=r"eps=0.*eps > 0"):
        adam(0.1, eps=0)
