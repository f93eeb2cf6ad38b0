"""Gradient descent with and without momentum, as ``torch.optim.SGD`` does them."""

import torch

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
