"""Adam and its adjoint on the CPU, in one pass over memory each.

The plain operations of ``adam.py`` are what these are tested against; on small networks
most of their time goes into starting them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from gsebo.bilevel.moments import Moments, Scales

# Infinity and NaN have to survive, because a diverging fit is recognised by them.
_compiled = njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")


def step(
    weight: Tensor, gradient: Tensor, before: Moments, scales: Scales
) -> tuple[Tensor, Moments]:
    """Return the next weights and moments."""
    moved, after = torch.empty_like(weight), _like(weight)
    _step(
        *_flat(weight, gradient, *before),
        *_numbers(scales, weight),
        *_flat(moved, *after),
    )
    return moved, after


def step_back(
    cotangent: Tensor,
    gradient: Tensor,
    moments: Moments,
    cotangents: Moments | None,
    scales: Scales,
) -> tuple[Tensor, Moments]:
    """Pull cotangents of the new weights and moments back to gradient and moments.

    Args:
        cotangent: Of the new weights.
        gradient: The gradient that the step was taken with.
        moments: After the step.
        cotangents: Of the new moments from later steps; None is zero.
        scales: Of the step.
    """
    to_gradient, before = torch.empty_like(gradient), _like(gradient)
    later = cotangents or Moments(cotangent, cotangent)
    _step_back(
        *_flat(cotangent, gradient, *moments, *later),
        cotangents is not None,
        *_numbers(scales, gradient),
        *_flat(to_gradient, *before),
    )
    return to_gradient, before


@_compiled
def _step(  # type: ignore[no-untyped-def]
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
def _step_back(  # type: ignore[no-untyped-def]
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
        # A weight that never had a gradient passes nothing on but to itself, by weight
        # decay, and there it would grow by 1 / eps in every step until it overflows.
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
