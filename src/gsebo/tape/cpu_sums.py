"""Sums of results on the CPU, number by number."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from numba import prange
from torch import Tensor

from gsebo.sparse.numba_calls import KernelCall, bind_kernel
from gsebo.sparse.numba_compile import compile_twice
from gsebo.sparse.numba_pack import fma


def _zero(out):
    replicas, rows, lanes, channels = out.shape
    for task in prange(replicas * rows):
        r = task // rows
        i = task - r * rows
        for lane in range(lanes):
            for c in range(channels):
                out[r, i, lane, c] = 0


def _scaled(x, factor, out):
    replicas, rows, lanes, channels = out.shape
    for task in prange(replicas * rows):
        r = task // rows
        i = task - r * rows
        for lane in range(lanes):
            for c in range(channels):
                out[r, i, lane, c] = factor * x[r, i, lane, c]


def _add_scaled(x, factor, out):
    replicas, rows, lanes, channels = out.shape
    for task in prange(replicas * rows):
        r = task // rows
        i = task - r * rows
        for lane in range(lanes):
            for c in range(channels):
                before = out[r, i, lane, c]
                out[r, i, lane, c] = fma(factor, x[r, i, lane, c], before)


_ZERO, _SCALED, _ADD_SCALED = map(compile_twice, (_zero, _scaled, _add_scaled))


def bind_zero(out: Tensor) -> KernelCall:
    """``out = 0``."""
    if out.dim() == 2:
        out = out[:, None, None]
    return bind_kernel(_ZERO, out.numel(), out)


def bind_scaled(x: Tensor, factor: float, out: Tensor, *, add: bool) -> KernelCall:
    """``out = factor * x``, or ``out += factor * x``."""
    kernel, number = _ADD_SCALED if add else _SCALED, out.numpy().dtype.type(factor)
    return bind_kernel(kernel, out.numel(), x, number, out)
