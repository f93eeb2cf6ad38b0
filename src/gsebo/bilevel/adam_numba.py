"""Adam and its adjoint on the CPU: one pass over memory each.

All arrays are flat. They are kernels like those of a network, so that a whole sequence
of steps can be one list of calls.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from gsebo.bilevel.optimizers import AdamKernels, Scales
from gsebo.sparse.numba_calls import KernelCall, bind_kernel
from gsebo.sparse.numba_compile import compile_twice, run_kernel

# Numbers that one task takes.
_CHUNK = 4096
# A root and a quotient cost about as much as so many multiplications.
_WORK = 10


def _step(weight, gradient, mean, square, scales, moved, kept, new_mean, new_square):
    size, number = weight.shape[0], weight.dtype.type
    second, new_first = number(scales[1]), number(scales[2])
    new_second, step_size = number(scales[3]), number(scales[4])
    root, eps = number(scales[5]), number(scales[6])
    for task in prange((size + _CHUNK - 1) // _CHUNK):
        # Slices, because a loop from anywhere but 0 checks for negative indices, and
        # that keeps it from becoming a vector loop.
        part = slice(task * _CHUNK, min((task + 1) * _CHUNK, size))
        w, grad, old_m, old_v = weight[part], gradient[part], mean[part], square[part]
        to, copy, m, v = moved[part], kept[part], new_mean[part], new_square[part]
        for k in range(w.shape[0]):
            g = grad[k]
            new_m = old_m[k] + new_first * (g - old_m[k])
            new_v = second * old_v[k] + new_second * g * g
            after = w[k] - step_size * new_m / (np.sqrt(new_v) / root + eps)
            m[k] = new_m
            v[k] = new_v
            to[k] = after
            copy[k] = after


def _step_back(
    cotangent, gradient, mean, square, later_mean, later_square, scales,
    to_gradient, to_mean, to_square,
):  # fmt: skip
    size, number = mean.shape[0], mean.dtype.type
    first, second, new_first = number(scales[0]), number(scales[1]), number(scales[2])
    new_second, step_size = number(scales[3]), number(scales[4])
    root, eps = number(scales[5]), number(scales[6])
    zero, two = number(0), number(2)
    factor, shift = step_size * root, eps * root
    tiny = np.finfo(mean.dtype).tiny
    for task in prange((size + _CHUNK - 1) // _CHUNK):
        part = slice(task * _CHUNK, min((task + 1) * _CHUNK, size))
        a, grad, m, v = cotangent[part], gradient[part], mean[part], square[part]
        later_m, later_v = later_mean[part], later_square[part]
        to_g, to_m, to_v = to_gradient[part], to_mean[part], to_square[part]
        for k in range(m.shape[0]):
            deviation = np.sqrt(v[k])
            divisor = deviation + shift
            moved = zero if v[k] == 0 and m[k] == 0 else a[k]
            quotient = moved / divisor
            # Bounded as the plain operations are.
            bounded = divisor * v[k]
            if bounded < tiny:
                bounded = tiny
            by_square = factor / two * (quotient * m[k] * deviation / bounded)
            by_mean = later_m[k] - factor * quotient
            by_square += later_v[k]
            by_gradient = two * new_second * grad[k] * by_square
            to_g[k] = new_first * by_mean + by_gradient
            to_m[k] = first * by_mean
            to_v[k] = second * by_square


# Infinity and NaN have to survive, because a diverging fit is recognised by them.
_STEP, _STEP_BACK = (
    compile_twice(kernel, fastmath={"contract"}, error_model="numpy")
    for kernel in (_step, _step_back)
)


def bind_step(
    weight: Tensor,
    gradient: Tensor,
    moments: Sequence[Tensor],
    scales: Tensor,
    out: Sequence[Tensor],
) -> KernelCall:
    """A step; ``out`` is the next weight, twice, and the next moments.

    What is read must not be written: the compiler checks that, and gives up vectors.
    """
    given, to = map(_flat, (weight, gradient, *moments)), map(_flat, out)
    return bind_kernel(_STEP, _WORK * weight.numel(), *given, scales, *to)


def bind_step_back(
    cotangent: Tensor,
    gradient: Tensor,
    moments: Sequence[Tensor],
    later: Sequence[Tensor],
    scales: Tensor,
    out: Sequence[Tensor],
) -> KernelCall:
    """Its adjoint; ``later`` and ``out`` are cotangents as of :class:`AdamKernels`."""
    given = map(_flat, (cotangent, gradient, *moments, *later))
    work, to = _WORK * gradient.numel(), map(_flat, out)
    return bind_kernel(_STEP_BACK, work, *given, scales, *to)


def _flat(tensor: Tensor) -> Any:
    return tensor.detach().view(-1).numpy()


def _numbers(scales: Scales) -> Any:
    return np.array(scales, dtype=np.float64)


def _numba_step(tensors: Sequence[Tensor], scales: Scales) -> Sequence[Tensor]:
    moved, *new = out = [torch.empty_like(tensors[0]) for _ in range(3)]
    given, to = map(_flat, tensors), map(_flat, (moved, moved, *new))
    run_kernel(_STEP, _WORK * moved.numel(), *given, _numbers(scales), *to)
    return out


def _numba_step_back(tensors: Sequence[Tensor], scales: Scales) -> Sequence[Tensor]:
    cotangent, gradient, mean, square, *later = tensors
    out = [torch.empty_like(gradient) for _ in range(3)]
    if not later:
        later = [torch.zeros_like(mean)] * 2
    given = map(_flat, (cotangent, gradient, mean, square, *later))
    work, to = _WORK * gradient.numel(), map(_flat, out)
    run_kernel(_STEP_BACK, work, *given, _numbers(scales), *to)
    return out


NUMBA_ADAM = AdamKernels(_numba_step, _numba_step_back)
