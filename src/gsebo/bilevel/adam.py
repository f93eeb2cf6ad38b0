"""Adam (Kingma and Ba, 2015), differentiable, step for step ``torch.optim.Adam``."""

import torch
from torch import Tensor

from gsebo.bilevel.adam_fused import fused_adam
from gsebo.bilevel.moments import Moments, Scales
from gsebo.bilevel.optimizer import (
    Cotangents,
    Optimizer,
    State,
    Transition,
    checked_rate,
)
from gsebo.bilevel.tree import Tree
from gsebo.errors import InvalidInput


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

    def init(weights: Tree) -> State:
        slots = {}
        for name, weight in weights.items():
            slots["mean/" + name] = torch.zeros_like(weight)
            slots["square/" + name] = torch.zeros_like(weight)
        return State(0, slots)

    def update(gradients: Tree, state: State, weights: Tree) -> tuple[Tree, State]:
        count = state.count + 1
        scales = Scales.at(count, rate, betas, eps)
        moved: Tree = {}
        slots: Tree = {}
        for name, weight in weights.items():
            gradient, before = gradients[name], _moments(state.slots, name)
            assert before is not None
            fused = fused_adam(weight, gradient, *before)
            step = fused.step if fused else _step
            moved[name], after = step(weight, gradient, before, scales)
            slots |= _named(after, name)
        return moved, State(count, slots)

    def pullback(transition: Transition, weights: Tree, slots: Tree) -> Cotangents:
        count, after = transition.new_state
        scales = Scales.at(count, rate, betas, eps)
        to_gradients: Tree = {}
        to_slots: Tree = {}
        # Moments only matter through the weights that they will move, so that none has
        # a cotangent whose weight has not.
        for name, cotangent in weights.items():
            gradient, moments = transition.gradients[name], _moments(after, name)
            assert moments is not None
            later = _moments(slots, name)
            fused = fused_adam(cotangent, gradient, *moments, *(later or ()))
            step_back = fused.step_back if fused else _step_back
            to_gradients[name], before = step_back(
                cotangent, gradient, moments, later, scales
            )
            to_slots |= _named(before, name)
        return Cotangents(to_gradients, to_slots, weights)

    return Optimizer(init, update, pullback)


def _moments(slots: Tree, name: str) -> Moments | None:
    """Both moments of a weight, or their cotangents; None where there are none."""
    if "mean/" + name not in slots:
        return None
    return Moments(slots["mean/" + name], slots["square/" + name])


def _named(moments: Moments, name: str) -> Tree:
    return {"mean/" + name: moments.mean, "square/" + name: moments.square}


def _step(
    weight: Tensor, gradient: Tensor, before: Moments, scales: Scales
) -> tuple[Tensor, Moments]:
    """Return the next weights and moments."""
    mean = torch.lerp(before.mean, gradient, scales.new_first)
    square = (before.square * scales.second).addcmul_(
        gradient, gradient, value=scales.new_second
    )
    divisor = (_root(square) / scales.root).add_(scales.eps)
    moved = torch.addcdiv(weight, mean, divisor, value=-scales.step_size)
    return moved, Moments(mean, square)


def _step_back(
    cotangent: Tensor,
    gradient: Tensor,
    moments: Moments,
    cotangents: Moments | None,
    scales: Scales,
) -> tuple[Tensor, Moments]:
    """Pull cotangents of the new weights and moments back to gradient and moments.

    With ``D = sqrt(V) + c eps`` and ``f = s c`` the step is ``W - f M / D``, hence

        cotangent of M  +=  -f a / D
        cotangent of V  +=  f a M / (2 D^2 sqrt(V))

    Where ``M = V = 0`` both are left out: see below.

    Args:
        cotangent: ``a``, of the new weights.
        gradient: The gradient that the step was taken with.
        moments: ``M`` and ``V``, after the step.
        cotangents: Of ``M`` and ``V`` from later steps; None is zero.
        scales: Of the step.
    """
    factor, shift = scales.step_size * scales.root, scales.eps * scales.root
    root = moments.square.sqrt()
    divisor = root + shift
    quotient = cotangent / divisor
    # A weight that never had a gradient passes nothing on but to itself, by weight
    # decay, and there it would grow by 1 / eps in every step until it overflows.
    quotient.masked_fill_((moments.square == 0) & (moments.mean == 0), 0)
    mean = quotient * -factor
    # As M sqrt(V) / (D V) the quotient is 0 where V = 0 and NaN where V is NaN, with no
    # mask (slower than all the rest). The bound only acts where sqrt(V) << eps,
    # and there the cotangent of M outweighs this one by eps / sqrt(V).
    divisor.mul_(moments.square).clamp_min_(torch.finfo(root.dtype).tiny)
    square = quotient.mul_(moments.mean).mul_(root).div_(divisor).mul_(factor / 2)
    if cotangents is not None:
        mean += cotangents.mean
        square += cotangents.square
    to_gradient = (mean * scales.new_first).addcmul_(
        gradient, square, value=2 * scales.new_second
    )
    return to_gradient, Moments(mean.mul_(scales.first), square.mul_(scales.second))


def _root(square: Tensor) -> Tensor:
    """Return the square root, with derivative 0 at 0 where one is recorded."""
    if not square.requires_grad:
        return square.sqrt()
    # Not "square > 0", which would turn NaN into 0.
    zero = square == 0
    return square.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)
