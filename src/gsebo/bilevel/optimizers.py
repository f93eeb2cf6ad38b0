"""Inner optimisers, and what changes their steps."""

import math
from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

from gsebo.bilevel.optimizer import (
    Cotangents,
    Optimizer,
    State,
    Transition,
    checked_rate,
)
from gsebo.bilevel.tree import Tree
from gsebo.errors import InvalidInput


def sgd(lr: float) -> Optimizer:
    """Plain gradient descent, ``W_t = W_{t-1} - lr g_t``.

    Args:
        lr: learning rate, finite and not negative.
    """
    rate = checked_rate(lr)

    def init(weights: Tree) -> State:
        return State(0, {})

    def update(gradients: Tree, state: State, weights: Tree) -> tuple[Tree, State]:
        moved = {
            name: torch.add(weight, gradients[name], alpha=-rate)
            for name, weight in weights.items()
        }
        return moved, State(state.count + 1, state.slots)

    def pullback(transition: Transition, weights: Tree, slots: Tree) -> Cotangents:
        return Cotangents({k: a * -rate for k, a in weights.items()}, {}, weights)

    return Optimizer(init, update, pullback)


def momentum(lr: float, beta: float = 0.9) -> Optimizer:
    """Heavy ball, ``M_t = beta M_{t-1} + g_t`` and ``W_t = W_{t-1} - lr M_t``.

    Args:
        lr: learning rate, finite and not negative.
        beta: how much of the last direction is kept, in [0, 1).
    """
    rate = checked_rate(lr)
    if not 0 <= beta < 1:
        raise InvalidInput(f"momentum beta={beta!r} given; expected a number in [0, 1)")

    def init(weights: Tree) -> State:
        return State(0, {name: torch.zeros_like(w) for name, w in weights.items()})

    def update(gradients: Tree, state: State, weights: Tree) -> tuple[Tree, State]:
        slots = {
            name: torch.add(gradient, state.slots[name], alpha=beta)
            for name, gradient in gradients.items()
        }
        moved = {
            name: torch.add(weight, slots[name], alpha=-rate)
            for name, weight in weights.items()
        }
        return moved, State(state.count + 1, slots)

    def pullback(transition: Transition, weights: Tree, slots: Tree) -> Cotangents:
        total = dict(slots)
        for name, a in weights.items():
            m = slots.get(name)
            total[name] = a * -rate if m is None else torch.add(m, a, alpha=-rate)
        return Cotangents(total, {k: m * beta for k, m in total.items()}, weights)

    return Optimizer(init, update, pullback)


# As torch.nn.utils.clip_grad_norm_ has it, so that a norm of zero divides nothing.
_ROUNDING = 1e-6


def scheduled(optimizer: Optimizer, factor: Callable[[int], float]) -> Optimizer:
    """Multiply what each update adds to the weights by ``factor(count)``.

    For an optimiser whose moments do not read the learning rate, which are all of ours,
    this is the learning rate times the factor.

    Args:
        optimizer: Makes the updates.
        factor: From the number of updates before this one, 0 at first.

    >>> from gsebo.bilevel import sgd
    >>> halving = scheduled(sgd(1.0), lambda count: 0.5**count)
    >>> weights = {"w": torch.tensor(4.0)}
    >>> state = halving.init(weights)
    >>> for _ in range(2):
    ...     weights, state = halving.update({"w": torch.tensor(1.0)}, state, weights)
    >>> float(weights["w"])
    2.5
    """

    def update(gradients: Tree, state: State, weights: Tree) -> tuple[Tree, State]:
        moved, after = optimizer.update(gradients, state, weights)
        share = factor(state.count)
        scaled = {
            name: torch.lerp(weight, moved[name], share)
            for name, weight in weights.items()
        }
        return scaled, after

    return Optimizer(optimizer.init, update)


def clipped(optimizer: Optimizer, max_norm: float) -> Optimizer:
    """Shrink the gradients, all by one factor, to a norm of at most ``max_norm``.

    Args:
        optimizer: Makes the updates.
        max_norm: Largest norm of all gradients together, positive and finite.
    """
    number = isinstance(max_norm, Real) and not isinstance(max_norm, bool)
    if not number or not math.isfinite(max_norm) or max_norm <= 0:
        raise InvalidInput(
            f"max_norm={max_norm!r} given; expected a finite number above 0."
        )

    def update(gradients: Tree, state: State, weights: Tree) -> tuple[Tree, State]:
        shrink = (max_norm / (_norm(gradients) + _ROUNDING)).clamp(max=1.0)
        small = {name: leaf * shrink for name, leaf in gradients.items()}
        return optimizer.update(small, state, weights)

    return Optimizer(optimizer.init, update)


def _norm(tree: Tree) -> Tensor:
    """Euclidean norm of all the numbers of a tree that is not empty."""
    each = [torch.linalg.vector_norm(leaf) for leaf in tree.values()]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(each))
    return norm
