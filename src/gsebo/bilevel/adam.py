"""Adam (Kingma and Ba, 2015), differentiable, step for step ``torch.optim.Adam``."""

import math
from typing import NamedTuple

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


class _Scales(NamedTuple):
    """The plain numbers of one step: both are bias corrections that depend on t."""

    step_size: float
    root: float


def adam(
    lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
) -> Optimizer:
    """Adam without weight decay.

        M_t = b1 M_{t-1} + (1 - b1) g_t
        V_t = b2 V_{t-1} + (1 - b2) g_t^2
        W_t = W_{t-1} - s M_t / (sqrt(V_t) / c + eps)

    with ``s = lr / (1 - b1^t)`` and ``c = sqrt(1 - b2^t)``. Where ``V_t = 0`` the
    derivative of the root is taken as 0: every gradient so far was 0 there, so
    ``M_t = 0`` as well, and the factor ``M_t`` in front of that derivative removes it.

    Args:
        lr: learning rate, finite and not negative.
        betas: decay of the first and of the second moment, each in [0, 1).
        eps: added to the root, positive.
    """
    rate = checked_rate(lr)
    first, second = betas
    if not (0 <= first < 1 and 0 <= second < 1 and eps > 0):
        raise InvalidInput(
            f"Adam betas={betas!r}, eps={eps!r} given; "
            "expected both betas in [0, 1) and eps > 0."
        )

    def scales(count: int) -> _Scales:
        return _Scales(rate / (1 - first**count), math.sqrt(1 - second**count))

    def init(weights: Tree) -> State:
        slots = {}
        for name, weight in weights.items():
            slots["mean/" + name] = torch.zeros_like(weight)
            slots["square/" + name] = torch.zeros_like(weight)
        return State(0, slots)

    def update(gradients: Tree, state: State, weights: Tree) -> tuple[Tree, State]:
        count = state.count + 1
        step_size, root = scales(count)
        moved: Tree = {}
        slots: Tree = {}
        for name, weight in weights.items():
            gradient = gradients[name]
            mean = torch.lerp(state.slots["mean/" + name], gradient, 1 - first)
            square = (state.slots["square/" + name] * second).addcmul_(
                gradient, gradient, value=1 - second
            )
            divisor = (_root(square) / root).add_(eps)
            moved[name] = torch.addcdiv(weight, mean, divisor, value=-step_size)
            slots["mean/" + name] = mean
            slots["square/" + name] = square
        return moved, State(count, slots)

    def pullback(transition: Transition, weights: Tree, slots: Tree) -> Cotangents:
        count, after = transition.new_state
        step_size, root = scales(count)
        to_gradients: Tree = {}
        to_slots: Tree = {}
        # Moments only matter through the weights that they will move, so that none has
        # a cotangent whose weight has not.
        for name, cotangent in weights.items():
            mean, square = _pull_moments(
                cotangent,
                (after["mean/" + name], after["square/" + name]),
                (slots.get("mean/" + name), slots.get("square/" + name)),
                factor=step_size * root,
                shift=eps * root,
            )
            to_gradients[name] = (mean * (1 - first)).addcmul_(
                transition.gradients[name], square, value=2 * (1 - second)
            )
            to_slots["mean/" + name] = mean.mul_(first)
            to_slots["square/" + name] = square.mul_(second)
        return Cotangents(to_gradients, to_slots, weights)

    return Optimizer(init, update, pullback)


def _root(square: Tensor) -> Tensor:
    """Return the square root, with derivative 0 at 0 where one is recorded."""
    if not square.requires_grad:
        return square.sqrt()
    # Not "square > 0", which would turn NaN into 0.
    zero = square == 0
    return square.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)


def _pull_moments(
    cotangent: Tensor,
    moments: tuple[Tensor, Tensor],
    cotangents: tuple[Tensor | None, Tensor | None],
    *,
    factor: float,
    shift: float,
) -> tuple[Tensor, Tensor]:
    """Pull the cotangent of the new weights back to the new moments.

    With ``D = sqrt(V) + c eps`` and ``f = s c`` the step is ``W - f M / D``, hence

        cotangent of M  +=  -f a / D
        cotangent of V  +=  f a M / (2 D^2 sqrt(V))

    Args:
        cotangent: ``a``, of the new weights.
        moments: ``M`` and ``V``, after the step.
        cotangents: of ``M`` and ``V`` from later steps; None is zero.
        factor: ``f``.
        shift: ``c eps``.

    Returns:
        The cotangents of ``M`` and ``V``: two new tensors.
    """
    mean, square = moments
    to_mean, to_square = cotangents
    root = square.sqrt()
    divisor = root + shift
    quotient = cotangent / divisor
    first = (
        quotient * -factor
        if to_mean is None
        else torch.add(to_mean, quotient, alpha=-factor)
    )
    # As M sqrt(V) / (D V) the quotient is 0 where V = 0 and NaN where V is NaN, with no
    # mask (slower than all the rest). The bound only acts where sqrt(V) << eps,
    # and there the cotangent of M outweighs this one by eps / sqrt(V).
    divisor.mul_(square).clamp_min_(torch.finfo(square.dtype).tiny)
    product = quotient.mul_(mean).mul_(root)
    if to_square is None:
        return first, product.div_(divisor).mul_(factor / 2)
    return first, torch.addcdiv(to_square, product, divisor, value=factor / 2)
