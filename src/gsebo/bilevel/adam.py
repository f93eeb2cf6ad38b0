"""Adam (Kingma and Ba, 2015), differentiable, step for step ``torch.optim.Adam``.

A step and its adjoint exist as plain operations, and fused into one pass over memory
each, for the CPU here and for a GPU in ``adam_triton``: on small networks most of the
time of plain operations goes into starting them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
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


class Moments(NamedTuple):
    """First and second moment of the gradients, or their cotangents."""

    mean: Tensor
    square: Tensor


class Scales(NamedTuple):
    """The plain numbers of one step; the bias corrections depend on its number.

    Attributes:
        first: ``b1``.
        second: ``b2``.
        new_first: ``1 - b1``, not to be rounded twice.
        new_second: ``1 - b2``.
        step_size: ``s = lr / (1 - b1^t)``.
        root: ``c = sqrt(1 - b2^t)``.
        eps: Added to the root.
    """

    first: float
    second: float
    new_first: float
    new_second: float
    step_size: float
    root: float
    eps: float

    @classmethod
    def at(
        cls, count: int, rate: float, betas: tuple[float, float], eps: float
    ) -> Scales:
        """The numbers of step ``count``, from 1."""
        first, second = betas
        return cls(
            first,
            second,
            1 - first,
            1 - second,
            rate / (1 - first**count),
            math.sqrt(1 - second**count),
            eps,
        )


class AdamKernels(ABC):
    """A step of Adam and its adjoint."""

    @abstractmethod
    def step(
        self, weight: Tensor, gradient: Tensor, before: Moments, scales: Scales
    ) -> tuple[Tensor, Moments]:
        """Return the next weights and moments."""

    @abstractmethod
    def step_back(
        self,
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

        and both are left out where ``M = V = 0``: a weight that never had a gradient
        passes nothing on but to itself, by weight decay, and there it would grow by
        ``1 / eps`` in every step until it overflows.

        Args:
            cotangent: ``a``, of the new weights.
            gradient: The gradient that the step was taken with.
            moments: ``M`` and ``V``, after the step.
            cotangents: Of ``M`` and ``V`` from later steps; None is zero.
            scales: Of the step.
        """


# Infinity and NaN have to survive, because a diverging fit is recognised by them.
_compiled = njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")


@_compiled
def _step_kernel(  # type: ignore[no-untyped-def]
    weight,
    gradient,
    mean,
    square,
    first,
    second,
    new_first,
    new_second,
    step_size,
    root,
    eps,
    moved,
    m,
    v,
):
    for k in range(weight.shape[0]):
        g = gradient[k]
        m[k] = mean[k] + new_first * (g - mean[k])
        v[k] = second * square[k] + new_second * g * g
        moved[k] = weight[k] - step_size * m[k] / (np.sqrt(v[k]) / root + eps)


@_compiled
def _step_back_kernel(  # type: ignore[no-untyped-def]
    cotangent,
    gradient,
    mean,
    square,
    later_mean,
    later_square,
    has_later,
    first,
    second,
    new_first,
    new_second,
    step_size,
    root,
    eps,
    to_gradient,
    to_mean,
    to_square,
):
    zero, two = mean.dtype.type(0), mean.dtype.type(2)
    factor, shift = step_size * root, eps * root
    tiny = np.finfo(mean.dtype).tiny
    for k in range(mean.shape[0]):
        deviation = np.sqrt(square[k])
        divisor = deviation + shift
        moved = zero if square[k] == 0 and mean[k] == 0 else cotangent[k]
        quotient = moved / divisor
        by_mean = -factor * quotient
        # As M sqrt(V) / (D V) it is 0 where V = 0 and NaN where V is NaN. The bound
        # only acts where sqrt(V) << eps, and there the cotangent of M outweighs this
        # one by eps / sqrt(V).
        bounded = divisor * square[k]
        if bounded < tiny:
            bounded = tiny
        by_square = factor / two * (quotient * mean[k] * deviation / bounded)
        if has_later:
            by_mean += later_mean[k]
            by_square += later_square[k]
        by_gradient = two * new_second * gradient[k] * by_square
        to_gradient[k] = new_first * by_mean + by_gradient
        to_mean[k] = first * by_mean
        to_square[k] = second * by_square


def _like(tensor: Tensor) -> Moments:
    return Moments(torch.empty_like(tensor), torch.empty_like(tensor))


def _flat(*tensors: Tensor) -> list[Any]:
    return [tensor.detach().view(-1).numpy() for tensor in tensors]


def _numbers(scales: Scales, like: Tensor) -> list[Any]:
    number = np.float64 if like.dtype == torch.float64 else np.float32
    return [number(scale) for scale in scales]


class _NumbaAdam(AdamKernels):
    """One pass over memory each, on the CPU."""

    def step(
        self, weight: Tensor, gradient: Tensor, before: Moments, scales: Scales
    ) -> tuple[Tensor, Moments]:
        moved, after = torch.empty_like(weight), _like(weight)
        _step_kernel(
            *_flat(weight, gradient, *before),
            *_numbers(scales, weight),
            *_flat(moved, *after),
        )
        return moved, after

    def step_back(
        self,
        cotangent: Tensor,
        gradient: Tensor,
        moments: Moments,
        cotangents: Moments | None,
        scales: Scales,
    ) -> tuple[Tensor, Moments]:
        to_gradient, before = torch.empty_like(gradient), _like(gradient)
        later = cotangents or Moments(cotangent, cotangent)
        _step_back_kernel(
            *_flat(cotangent, gradient, *moments, *later),
            cotangents is not None,
            *_numbers(scales, gradient),
            *_flat(to_gradient, *before),
        )
        return to_gradient, before


class _PlainAdam(AdamKernels):
    """Operations of torch, which can be differentiated themselves."""

    def step(
        self, weight: Tensor, gradient: Tensor, before: Moments, scales: Scales
    ) -> tuple[Tensor, Moments]:
        mean = torch.lerp(before.mean, gradient, scales.new_first)
        square = (before.square * scales.second).addcmul_(
            gradient, gradient, value=scales.new_second
        )
        divisor = (_root(square) / scales.root).add_(scales.eps)
        moved = torch.addcdiv(weight, mean, divisor, value=-scales.step_size)
        return moved, Moments(mean, square)

    def step_back(
        self,
        cotangent: Tensor,
        gradient: Tensor,
        moments: Moments,
        cotangents: Moments | None,
        scales: Scales,
    ) -> tuple[Tensor, Moments]:
        factor, shift = scales.step_size * scales.root, scales.eps * scales.root
        root = moments.square.sqrt()
        divisor = root + shift
        quotient = cotangent / divisor
        quotient.masked_fill_((moments.square == 0) & (moments.mean == 0), 0)
        mean = quotient * -factor
        # As M sqrt(V) / (D V) the quotient is 0 where V = 0 and NaN where V is NaN,
        # with no mask (slower than all the rest). The bound only acts where
        # sqrt(V) << eps, and there the cotangent of M outweighs this one by
        # eps / sqrt(V).
        divisor.mul_(moments.square).clamp_min_(torch.finfo(root.dtype).tiny)
        square = quotient.mul_(moments.mean).mul_(root).div_(divisor).mul_(factor / 2)
        if cotangents is not None:
            mean += cotangents.mean
            square += cotangents.square
        to_gradient = (mean * scales.new_first).addcmul_(
            gradient, square, value=2 * scales.new_second
        )
        return to_gradient, Moments(mean.mul_(scales.first), square.mul_(scales.second))


NUMBA_ADAM, PLAIN_ADAM = _NumbaAdam(), _PlainAdam()


def adam_kernels_for(*tensors: Tensor) -> AdamKernels:
    """The fastest that can be used on these tensors."""
    numbers = all(
        tensor.dtype in (torch.float32, torch.float64)
        and tensor.is_contiguous()
        and tensor.device == tensors[0].device
        and not (tensor.requires_grad and torch.is_grad_enabled())
        for tensor in tensors
    )
    return _fused_on(tensors[0].device.type) if numbers else PLAIN_ADAM


@cache
def _fused_on(device: str) -> AdamKernels:
    if device == "cpu":
        return NUMBA_ADAM
    if device == "cuda" and find_spec("triton") is not None:
        from gsebo.bilevel.adam_triton import TRITON_ADAM

        return TRITON_ADAM
    return PLAIN_ADAM


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
            kernels = adam_kernels_for(weight, gradient, *before)
            moved[name], after = kernels.step(weight, gradient, before, scales)
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
            kernels = adam_kernels_for(cotangent, gradient, *moments, *(later or ()))
            to_gradients[name], before = kernels.step_back(
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


def _root(square: Tensor) -> Tensor:
    """Return the square root, with derivative 0 at 0 where one is recorded."""
    if not square.requires_grad:
        return square.sqrt()
    # Not "square > 0", which would turn NaN into 0.
    zero = square == 0
    return square.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)
