"""Adam and its adjoint on a GPU, one kernel each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from gsebo.bilevel.optimizers import AdamKernels, Scales

_BLOCK = 256
_SCALES = [*Scales._fields]


@triton.jit(do_not_specialize=_SCALES)  # type: ignore[untyped-decorator]
def _step(  # type: ignore[no-untyped-def]
    weight,
    gradient,
    mean,
    square,
    moved,
    new_mean,
    new_square,
    size,
    first: tl.float64,
    second: tl.float64,
    new_first: tl.float64,
    new_second: tl.float64,
    step_size: tl.float64,
    root: tl.float64,
    eps: tl.float64,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    number = weight.dtype.element_ty
    g = tl.load(gradient + at, mask=inside)
    m = tl.load(mean + at, mask=inside)
    m += new_first.to(number) * (g - m)
    v = tl.load(square + at, mask=inside) * second.to(number)
    v += new_second.to(number) * g * g
    divisor = tl.sqrt(v) / root.to(number) + eps.to(number)
    w = tl.load(weight + at, mask=inside) - step_size.to(number) * m / divisor
    tl.store(new_mean + at, m, mask=inside)
    tl.store(new_square + at, v, mask=inside)
    tl.store(moved + at, w, mask=inside)


@triton.jit(do_not_specialize=_SCALES)  # type: ignore[untyped-decorator]
def _step_back(  # type: ignore[no-untyped-def]
    cotangent,
    gradient,
    mean,
    square,
    later_mean,
    later_square,
    to_gradient,
    to_mean,
    to_square,
    size,
    first: tl.float64,
    second: tl.float64,
    new_first: tl.float64,
    new_second: tl.float64,
    step_size: tl.float64,
    root: tl.float64,
    eps: tl.float64,
    TINY: tl.constexpr,
    HAS_LATER: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    number = cotangent.dtype.element_ty
    factor, shift = (step_size * root).to(number), (eps * root).to(number)
    v = tl.load(square + at, mask=inside)
    deviation = tl.sqrt(v)
    divisor = deviation + shift
    m = tl.load(mean + at, mask=inside)
    # As on the CPU: nothing of a weight that never had a gradient.
    idle = (v == 0) & (m == 0)
    quotient = tl.where(idle, 0.0, tl.load(cotangent + at, mask=inside)) / divisor
    by_mean = -quotient * factor
    # As on the CPU: NaN where V is NaN.
    bounded = tl.maximum(divisor * v, TINY, propagate_nan=tl.PropagateNan.ALL)
    by_square = quotient * m * deviation / bounded
    by_square *= factor / 2
    if HAS_LATER:
        by_mean += tl.load(later_mean + at, mask=inside)
        by_square += tl.load(later_square + at, mask=inside)
    g = tl.load(gradient + at, mask=inside)
    by_gradient = by_mean * new_first.to(number)
    by_gradient += 2 * new_second.to(number) * g * by_square
    tl.store(to_gradient + at, by_gradient, mask=inside)
    tl.store(to_mean + at, by_mean * first.to(number), mask=inside)
    tl.store(to_square + at, by_square * second.to(number), mask=inside)


def _grid(tensor: Tensor) -> tuple[int]:
    return (max(-(-tensor.numel() // _BLOCK), 1),)


def _triton_step(tensors: Sequence[Tensor], scales: Scales) -> Sequence[Tensor]:
    weight = tensors[0]
    out = [torch.empty_like(weight) for _ in range(3)]
    _step[_grid(weight)](*tensors, *out, weight.numel(), *scales, BLOCK=_BLOCK)
    return out


def _triton_step_back(tensors: Sequence[Tensor], scales: Scales) -> Sequence[Tensor]:
    cotangent, gradient, mean, square, *later = tensors
    out = [torch.empty_like(gradient) for _ in range(3)]
    given = (cotangent, gradient, mean, square, *(later or [cotangent, cotangent]))
    _step_back[_grid(gradient)](
        *given,
        *out,
        gradient.numel(),
        *scales,
        TINY=torch.finfo(gradient.dtype).tiny,
        HAS_LATER=bool(later),
        BLOCK=_BLOCK,
    )
    return out


TRITON_ADAM = AdamKernels(_triton_step, _triton_step_back)
