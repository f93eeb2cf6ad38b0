"""What an inner optimiser is: pure functions, so that training can be differentiated.

One inner step is ``(W_t, S_t) = update(g_t, S_{t-1}, W_{t-1})`` with the gradient
``g_t = grad_W L(W_{t-1}, Z, t)``. Weight decay belongs to the inner loss.
"""

import math
from collections.abc import Callable
from numbers import Real
from typing import NamedTuple

import torch

from gsebo.bilevel.problem import vjp
from gsebo.bilevel.tree import Tree, require_grad
from gsebo.errors import InvalidInput


class State(NamedTuple):
    """What an optimiser remembers: how often it stepped, and its slots (moments)."""

    count: int  # type: ignore[assignment]  # nobody needs tuple.count here
    slots: Tree


class Transition(NamedTuple):
    """One update that has happened: its arguments, and the state it returned."""

    gradients: Tree
    state: State
    weights: Tree
    new_state: State


class Cotangents(NamedTuple):
    """Derivatives with respect to one update's arguments; a missing name is zero."""

    gradients: Tree
    slots: Tree
    weights: Tree


Init = Callable[[Tree], State]
Update = Callable[[Tree, State, Tree], tuple[Tree, State]]
Pullback = Callable[[Transition, Tree, Tree], Cotangents]


class Optimizer(NamedTuple):
    """A pure inner optimiser.

    Attributes:
        init: weights -> the state before the first step.
        update: (gradients, state, weights) -> (new weights, new state), all new
            tensors, made of operations that autograd can differentiate.
        pullback: (transition, cotangent of the new weights, cotangent of the new slots)
            -> cotangents of the arguments of ``update``. Only for speed: without it,
            autograd differentiates ``update``.
    """

    init: Init
    update: Update
    pullback: Pullback | None = None


def pull_back(
    optimizer: Optimizer, transition: Transition, weights: Tree, slots: Tree
) -> Cotangents:
    """Pull the cotangents of the new weights and slots back through one update."""
    if optimizer.pullback is not None:
        return optimizer.pullback(transition, weights, slots)
    return autograd_pullback(optimizer.update, transition, weights, slots)


def autograd_pullback(
    update: Update, transition: Transition, weights: Tree, slots: Tree
) -> Cotangents:
    """Run the update again with recording on, and let autograd pull back."""
    old_gradients = require_grad(transition.gradients)
    old_slots = require_grad(transition.state.slots)
    old_weights = require_grad(transition.weights)
    with torch.enable_grad():
        state = State(transition.state.count, old_slots)
        new_weights, new_state = update(old_gradients, state, old_weights)
    # One dictionary, so that the graph is walked once; prefixes keep names apart.
    outputs = _prefixed(new_weights, new_state.slots)
    cotangents = _prefixed(weights, slots)
    return Cotangents(*vjp(outputs, cotangents, old_gradients, old_slots, old_weights))


def _prefixed(weights: Tree, slots: Tree) -> Tree:
    named = {"weight/" + name: leaf for name, leaf in weights.items()}
    return named | {"slot/" + name: leaf for name, leaf in slots.items()}


def checked_rate(learning_rate: float) -> float:
    """Return the learning rate if it is a finite number that is not negative."""
    valid = isinstance(learning_rate, Real) and math.isfinite(learning_rate)
    if not valid or learning_rate < 0:
        raise InvalidInput(
            f"learning rate {learning_rate!r} given; expected a finite number >= 0."
        )
    return float(learning_rate)
