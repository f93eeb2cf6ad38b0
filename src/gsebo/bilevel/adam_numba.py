"""Adam and its adjoint on the CPU: one pass over memory each.

All arrays are flat. Numbers that differ from step to step are in an array too, so that
whoever takes many steps in compiled code can bind all others once.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from gsebo.bilevel.optimizers import AdamKernels, Scales

# Infinity and NaN have to survive, because a diverging fit is recognised by them.
_compiled = njit(cache=True, nogil=True, fastmath={"contract"}, error_model="numpy")


@_compiled
def step_loop(
    weight, gradient, mean, square, scales, moved, kept, new_mean, new_square
):
    """A step; the next weight is written twice, and must not be where the weight is.

    The compiler checks that, and gives up vectors otherwise.
    """
    number = weight.dtype.type
    second, new_first = number(scales[1]), number(scales[2])
    new_second, step_size = number(scales[3]), number(scales[4])
    root, eps = number(scales[5]), number(scales[6])
    for k in range(weight.shape[0]):
        g = gradient[k]
        m = mean[k] + new_first * (g - mean[k])
        v = second * square[k] + new_second * g * g
        after = weight[k] - step_size * m / (np.sqrt(v) / root + eps)
        new_mean[k] = m
        new_square[k] = v
        moved[k] = after
        kept[k] = after


@_compiled
def step_back_loop(
    cotangent,
    gradient,
    mean,
    square,
    later_mean,
    later_square,
    scales,
    to_gradient,
    to_mean,
    to_square,
):
    """The adjoint of a step, with the cotangents of later moments."""
    number = mean.dtype.type
    first, second, new_first = number(scales[0]), number(scales[1]), number(scales[2])
    new_second, step_size = number(scales[3]), number(scales[4])
    root, eps = number(scales[5]), number(scales[6])
    zero, two = number(0), number(2)
    factor, shift = step_size * root, eps * root
    tiny = np.finfo(mean.dtype).tiny
    for k in range(mean.shape[0]):
        deviation = np.sqrt(square[k])
        divisor = deviation + shift
        moved = zero if square[k] == 0 and mean[k] == 0 else cotangent[k]
        quotient = moved / divisor
        # Bounded as the plain operations are.
        bounded = divisor * square[k]
        if bounded < tiny:
            bounded = tiny
        by_square = factor / two * (quotient * mean[k] * deviation / bounded)
        by_mean = later_mean[k] - factor * quotient
        by_square += later_square[k]
        by_gradient = two * new_second * gradient[k] * by_square
        to_gradient[k] = new_first * by_mean + by_gradient
        to_mean[k] = first * by_mean
        to_square[k] = second * by_square


def _flat(tensor: Tensor) -> Any:
    return tensor.detach().view(-1).numpy()


def _numbers(scales: Scales) -> Any:
    return np.array(scales, dtype=np.float64)


def _step(tensors: Sequence[Tensor], scales: Scales) -> Sequence[Tensor]:
    moved, *new = out = [torch.empty_like(tensors[0]) for _ in range(3)]
    given, to = map(_flat, tensors), map(_flat, (moved, moved, *new))
    step_loop(*given, _numbers(scales), *to)
    return out


def _step_back(tensors: Sequence[Tensor], scales: Scales) -> Sequence[Tensor]:
    cotangent, gradient, mean, square, *later = tensors
    out = [torch.empty_like(gradient) for _ in range(3)]
    if not later:
        later = [torch.zeros_like(mean)] * 2
    given = map(_flat, (cotangent, gradient, mean, square, *later))
    step_back_loop(*given, _numbers(scales), *map(_flat, out))
    return out


NUMBA_ADAM = AdamKernels(_step, _step_back)
