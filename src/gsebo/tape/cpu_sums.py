"""Sums of results and of weights on the CPU, number by number."""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from numba import prange
from torch import Tensor

from gsebo.sparse.numba_calls import KernelCall, bind_kernel
from gsebo.sparse.numba_compile import compile_twice
from gsebo.sparse.numba_pack import fma, packs_of, store, total

# Numbers that one task takes. Sums are made chunk by chunk, so that they do not depend
# on the number of threads, each with so many partial sums.
_CHUNK, _PACK = 4096, 16
load, _, spread, *_ = packs_of(_PACK)


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


def _penalty(weights, factor, found, out, sums, loss):
    replicas, size = weights.shape
    chunks = sums.shape[1]
    zero, two = weights.dtype.type(0), weights.dtype.type(2)
    for task in prange(replicas * chunks):
        r = task // chunks
        start = (task - r * chunks) * _CHUNK
        end = min(start + _CHUNK, size)
        w, g, to = weights[r, start:end], found[r, start:end], out[r, start:end]
        whole = w.shape[0] // _PACK * _PACK
        squares, factors = spread(zero), spread(factor)
        for k in range(0, whole, _PACK):
            part = load(w, k)
            squares = fma(part, part, squares)
            store(to, k, fma(factors, part, load(g, k)))
        rest = zero
        for k in range(whole, w.shape[0]):
            rest += w[k] * w[k]
            to[k] = fma(factor, w[k], g[k])
        sums[r, start // _CHUNK] = total(squares) + rest
    for r in range(loss.shape[0]):
        square = zero
        for chunk in range(chunks):
            square += sums[r, chunk]
        loss[r] += factor / two * square


_ZERO, _SCALED, _ADD_SCALED = map(compile_twice, (_zero, _scaled, _add_scaled))
_PENALTY = compile_twice(_penalty)


def bind_copy(x: Tensor, out: Tensor) -> KernelCall:
    """``out = x``, of any numbers."""
    return bind_scaled(x, 1, out, add=False)


def bind_zero(out: Tensor) -> KernelCall:
    """``out = 0``."""
    out = _as_rows(out)
    return bind_kernel(_ZERO, out.numel(), out)


def bind_scaled(x: Tensor, factor: float, out: Tensor, *, add: bool) -> KernelCall:
    """``out = factor * x``, or ``out += factor * x``."""
    kernel, number = _ADD_SCALED if add else _SCALED, out.numpy().dtype.type(factor)
    return bind_kernel(kernel, out.numel(), _as_rows(x), number, _as_rows(out))


def _as_rows(x: Tensor) -> Tensor:
    """``[replicas, rows, lanes, channels]`` of fewer axes."""
    return x.view(*x.shape[:-1], *[1] * (4 - x.dim()), x.shape[-1])


def bind_penalty(
    weights: Tensor, factor: float, found: Tensor, out: Tensor, loss: Tensor
) -> KernelCall:
    """``out = found + factor * weights``, ``loss += factor / 2 * weights²``."""
    replicas, size = weights.shape
    sums = weights.new_empty(replicas, -(-size // _CHUNK))
    number = weights.numpy().dtype.type(factor)
    given = weights, number, found, out, sums, loss
    return bind_kernel(_PENALTY, 2 * weights.numel(), *given)
