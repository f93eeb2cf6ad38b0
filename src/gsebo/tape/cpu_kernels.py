"""The kernel calls of ``gsebo.tape`` on the CPU.

Arrays are ``[replicas, rows, lanes, channels]``; lane 1 holds tangents. A mask is drawn
where it is used, so that none is stored.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import time
from functools import cache
from typing import Any, cast

import numpy as np
import torch
from numba import prange
from torch import Tensor

from gsebo.sparse.backend import Call
from gsebo.sparse.numba_calls import CallList, KernelCall, bind_kernel
from gsebo.sparse.numba_compile import Variants, compile_twice
from gsebo.sparse.numba_cpu import spmm_kernel
from gsebo.sparse.numba_draw import draws_of
from gsebo.sparse.numba_pack import (
    exponential,
    fma,
    packs_of,
    store,
    total,
    where_not_zero,
    where_positive,
    without_first,
)
from gsebo.sparse.pattern import Pattern
from gsebo.sparse.random_bits import NUMBA_HASH, drop_arrays
from gsebo.tape.backend import (
    AttentionStep,
    FeatureKernels,
    FeatureStep,
    Gradients,
    PointwiseStep,
    StandardiseStep,
    StepKernels,
    TapeKernels,
)
from gsebo.tape.cpu_attention import NumbaAttention
from gsebo.tape.cpu_features import NumbaFeatures
from gsebo.tape.cpu_norm import NumbaNorm
from gsebo.tape.cpu_products import bind_product
from gsebo.tape.cpu_sums import bind_penalty, bind_scaled, bind_zero

# Rows that one task takes. Sums over rows are made chunk by chunk, so that they do not
# depend on the number of threads.
CHUNK = 1024
_RELU, _ELU = 1, 2
_KINDS = {"identity": 0, "relu": _RELU, "elu": _ELU}
# Stand for what a kernel is compiled for.
_KIND, _WIDTH = 0, 1
load, _, spread, *_ = packs_of(1)
_, kept_scale = draws_of(1)
# What happens with the gradient by z: it is where that by the result was, or it is
# written somewhere else, or it is added there.
IN_PLACE, WRITE, ADD = 0, 1, 2
_draw, _site_keys = NUMBA_HASH


def _pointwise(z, biases, drop, out):
    bias, bias_tangent = biases
    dropped, seeds, step, site, threshold, scale, positions = drop
    replicas, rows, lanes, channels = out.shape
    size, biased = out.itemsize, bias.shape[1] > 0
    z_from, z_row, z_lane = z.strides[0] // size, z.strides[1] // size, channels
    out_from, out_row = out.strides[0] // size, out.strides[1] // size
    chunks = (rows + CHUNK - 1) // CHUNK
    zero, one = spread(out.dtype.type(0)), spread(out.dtype.type(1))
    for task in prange(replicas * chunks):
        r = task // chunks
        start = (task - r * chunks) * CHUNK
        key0, key1 = _site_keys(seeds[r], step[0], site)
        for i in range(start, min(start + CHUNK, rows)):
            first = positions[i] * channels
            z_at, out_at = r * z_from + i * z_row, r * out_from + i * out_row
            for block in range((channels + _WIDTH - 1) // _WIDTH):
                # The last block may overlap the one before: those channels are
                # computed twice, to the same numbers.
                c = min(block * _WIDTH, channels - _WIDTH)
                factor = one
                if dropped:
                    factor = kept_scale(first + c, key0, key1, threshold, scale)
                x = load(z, z_at + c)
                if biased:
                    x = x + load(bias, r * channels + c)
                slope, y = one, x
                if _KIND == _RELU:
                    # Not the larger of both: NaN has to stay.
                    y = where_positive(x, x, zero)
                    slope = where_positive(x, one, zero)
                elif _KIND == _ELU:
                    power = exponential(where_positive(x, zero, x))
                    y = where_positive(x, x, power - one)
                    slope = where_positive(x, one, power)
                store(out, out_at + c, y * factor)
                if lanes == 2:
                    t = load(z, z_at + z_lane + c)
                    if biased:
                        t = t + load(bias_tangent, r * channels + c)
                    store(out, out_at + channels + c, t * slope * factor)


def _relu_back(out, scale, grad, mode, grad_z, chunk_sums, grad_bias):
    """As below, where the result tells what was kept: what is not 0."""
    replicas, rows, lanes, channels = grad.shape
    size, biased = out.itemsize, grad_bias.shape[1] > 0
    out_from, out_row = out.strides[0] // size, out.strides[1] // size
    grad_from, grad_row = grad.strides[0] // size, grad.strides[1] // size
    z_from, z_row = grad_z.strides[0] // size, grad_z.strides[1] // size
    chunks, whole = (rows + CHUNK - 1) // CHUNK, channels // _WIDTH * _WIDTH
    zero, factor = out.dtype.type(0), spread(scale)
    for task in prange(replicas * chunks):
        r = task // chunks
        chunk = task - r * chunks
        sums = chunk_sums[r, chunk]
        sums[:] = 0
        sums_at = task * channels
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, rows)):
            kept_at = r * out_from + i * out_row
            for lane in range(lanes):
                summed = biased and lane == lanes - 1
                g_at = r * grad_from + i * grad_row + lane * channels
                to = r * z_from + i * z_row + lane * channels
                for c in range(0, whole, _WIDTH):
                    g = load(grad, g_at + c) * factor
                    g = where_not_zero(load(out, kept_at + c), g)
                    if summed:
                        found = load(chunk_sums, sums_at + c) + g
                        store(chunk_sums, sums_at + c, found)
                    if mode == ADD:
                        g = load(grad_z, to + c) + g
                    store(grad_z, to + c, g)
                for c in range(whole, channels):
                    last = grad[r, i, lane, c] * scale
                    last = where_not_zero(out[r, i, 0, c], last)
                    if summed:
                        sums[c] += last
                    if mode == ADD:
                        last += grad_z[r, i, lane, c]
                    grad_z[r, i, lane, c] = last
    if biased:
        for r in range(replicas):
            for c in range(channels):
                by_bias = zero
                for chunk in range(chunks):
                    by_bias += chunk_sums[r, chunk, c]
                grad_bias[r, c] += by_bias


def _pointwise_back(z, biases, drop, grad, mode, grad_z, chunk_sums, grad_bias):
    bias, bias_tangent = biases
    dropped, seeds, step, site, threshold, scale, positions = drop
    replicas, rows, lanes, channels = grad.shape
    chunks = (rows + CHUNK - 1) // CHUNK
    zero, one = grad.dtype.type(0), grad.dtype.type(1)
    biased = bias.shape[1] > 0
    for task in prange(replicas * chunks):
        r = task // chunks
        chunk = task - r * chunks
        key0, key1 = _site_keys(seeds[r], step[0], site)
        sums = chunk_sums[r, chunk]
        sums[:] = 0
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, rows)):
            first = positions[i] * channels
            # Nobody reads the gradient of the result again: it is overwritten.
            for c in range(channels):
                factor = one
                if dropped:
                    at = first + c
                    bits = _draw(key0, key1, np.uint32(at), np.uint32(at >> 32))
                    factor = scale if bits < threshold else zero
                x = z[r, i, 0, c]
                if biased:
                    x += bias[r, c]
                slope = one
                if _KIND == _RELU:
                    slope = zero if x <= 0 else one
                elif _KIND == _ELU:
                    power = exponential(min(x, zero))
                    slope = power if x <= 0 else one
                g = grad[r, i, 0, c] * factor
                if lanes == 2:
                    last = grad[r, i, 1, c] * factor * slope
                    if _KIND == _ELU:
                        t = z[r, i, 1, c]
                        if biased:
                            t += bias_tangent[r, c]
                        last += g * t * (slope if x <= 0 else zero)
                    grad[r, i, 1, c] = last
                grad[r, i, 0, c] = g * slope
            if mode != IN_PLACE:
                for lane in range(lanes):
                    for c in range(channels):
                        before = grad_z[r, i, lane, c] if mode == ADD else zero
                        grad_z[r, i, lane, c] = before + grad[r, i, lane, c]
            if biased:
                last_lane = grad[r, i, lanes - 1]
                for c in range(channels):
                    sums[c] += last_lane[c]
    if biased:
        for r in range(replicas):
            for c in range(channels):
                total = zero
                for chunk in range(chunks):
                    total += chunk_sums[r, chunk, c]
                grad_bias[r, c] += total


# Without any liberty for the compiler: whether it fuses a product and a sum may depend
# on the layout of the arrays, and a replica has to equal its run alone.
POINTWISE_BACK = {
    name: compile_twice(_pointwise_back, _KIND=kind)
    for name, kind in _KINDS.items()
    if name != "relu"
}
_WIDTHS = (16, 8, 4, 1)


@cache
def _in_packs(loop: Any, channels: int, kind: str = "identity") -> Variants:
    """Compile a loop for the largest packs that fit into a row."""
    width = next(width for width in _WIDTHS if width <= max(channels, 1))
    of, (_, scales) = packs_of(width), draws_of(width)
    packs = {"_WIDTH": width, "load": of.load, "spread": of.spread}
    return compile_twice(loop, **packs, kept_scale=scales, _KIND=_KINDS[kind])


# Drawing a number costs about as much as so many multiplications.
_DRAW = 8


def _cross_entropy(logits, labels, scale, grad, losses, loss):
    replicas, rows, lanes, classes = logits.shape
    z_from = logits.strides[0] // logits.itemsize
    grad_from = grad.strides[0] // grad.itemsize
    zero = logits.dtype.type(0)
    for task in prange(replicas * rows):
        r = task // rows
        i = task - r * rows
        scores, shares = logits[r, i, 0], grad[r, i, 0]
        top = scores[0]
        for c in range(1, classes):
            top = max(top, scores[c])
        summed = zero
        for block in range((classes + _WIDTH - 1) // _WIDTH):
            # The last block may overlap the one before.
            c = min(block * _WIDTH, classes - _WIDTH)
            at = i * lanes * classes + c
            powers = exponential(load(logits, r * z_from + at) - spread(top))
            store(grad, r * grad_from + at, powers)
            summed += total(without_first(powers, block * _WIDTH - c))
        losses[r, i] = np.log(summed) + top - scores[labels[i]]
        mean = zero
        for c in range(classes):
            shares[c] /= summed
            if lanes == 2:
                mean += shares[c] * logits[r, i, 1, c]
        for c in range(classes):
            if lanes == 2:
                moved = logits[r, i, 1, c] - mean
                grad[r, i, 1, c] = shares[c] * moved * scale
            hit = 1 if c == labels[i] else 0
            shares[c] = (shares[c] - hit) * scale
    for r in range(replicas):
        whole = zero
        for i in range(rows):
            whole += losses[r, i]
        loss[r] = whole * scale


def _dots(indptr, columns, entries, a, b, out):
    replicas, rows, lanes, channels = a.shape
    size = a.itemsize
    a_from, a_row = a.strides[0] // size, a.strides[1] // size
    b_from, b_row = b.strides[0] // size, b.strides[1] // size
    blocks, zero = (channels + _WIDTH - 1) // _WIDTH, spread(out.dtype.type(0))
    for task in prange(replicas * rows):
        r = task // rows
        i = task - r * rows
        a_at = r * a_from + i * a_row
        # Without a sign: see how features are listed.
        k, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        while k < end:
            b_at = r * b_from + columns[k] * b_row
            sums = zero
            for block in range(blocks):
                # The last block may overlap the one before.
                c = min(block * _WIDTH, channels - _WIDTH)
                seen = block * _WIDTH - c
                left = load(a, a_at + c)
                if seen > 0:
                    left = without_first(left, seen)
                if lanes == 1:
                    sums = fma(left, load(b, b_at + c), sums)
                else:
                    sums = fma(left, load(b, b_at + channels + c), sums)
                    left = load(a, a_at + channels + c)
                    if seen > 0:
                        left = without_first(left, seen)
                    sums = fma(left, load(b, b_at + c), sums)
            out[r, entries[k]] += total(sums)
            k += np.uint64(1)


def _widen(number, tangent, out):
    replicas, rows, channels = number.shape
    for task in prange(replicas * rows):
        r = task // rows
        i = task - r * rows
        for c in range(channels):
            out[r, i, 0, c] = number[r, i, c]
            out[r, i, 1, c] = tangent[r, i, c]


_WIDEN = compile_twice(_widen)


class _NumbaTape(TapeKernels):
    """Loops of numba."""

    def spmm(self, pattern: Pattern, values: Tensor, x: Tensor, out: Tensor) -> Call:
        work = out.shape[0] * pattern.num_entries * out.shape[2]
        kernel = spmm_kernel(out.shape[2])
        return bind_kernel(kernel, work, *pattern.arrays, values, x, out)

    def dots(self, pattern: Pattern, a: Tensor, b: Tensor, out: Tensor) -> Call:
        work = pattern.num_entries * (a.numel() // max(a.shape[1], 1))
        kernel = _in_packs(_dots, a.shape[3])
        return bind_kernel(kernel, work, *pattern.arrays, a, b, out)

    def widen(self, number: Tensor, tangent: Tensor, out: Tensor) -> Call:
        return bind_kernel(_WIDEN, out.numel(), number, tangent, out)

    def features(self, step: FeatureStep) -> FeatureKernels:
        return NumbaFeatures(step)

    def pointwise(self, step: PointwiseStep, out: Tensor) -> Call:
        work = (_DRAW if step.drop else 1) * out.numel()
        kernel = _in_packs(_pointwise, out.shape[3], step.kind)
        return bind_kernel(kernel, work, *_arguments(step), out)

    def pointwise_back(
        self, step: PointwiseStep, out: Tensor, gradients: Gradients
    ) -> Call:
        grad, to_z, to_bias, _, accumulate = gradients
        in_place = to_z.data_ptr() == grad.data_ptr()
        mode = IN_PLACE if in_place else ADD if accumulate else WRITE
        replicas, rows, _, channels = grad.shape
        if to_bias is None:
            to_bias = grad.new_empty(replicas, 0)
        sums = grad.new_empty(replicas, -(-rows // CHUNK), channels)
        written = grad, mode, to_z, sums, to_bias
        if step.kind == "relu":
            scale = drop_arrays(step.drop, grad)[5]
            kernel = _in_packs(_relu_back, channels, step.kind)
            return bind_kernel(kernel, 2 * grad.numel(), out, scale, *written)
        work = (_DRAW if step.drop else 2) * grad.numel()
        arguments = (*_arguments(step), *written)
        return bind_kernel(POINTWISE_BACK[step.kind], work, *arguments)

    def cross_entropy(
        self, logits: Tensor, labels: Tensor, scale: float, grad: Tensor, loss: Tensor
    ) -> Call:
        losses = logits.new_empty(logits.shape[:2])
        number = logits.numpy().dtype.type(scale)
        work = 10 * logits.numel()  # an exponential costs about ten multiplications
        arguments = logits, labels, number, grad, losses, loss
        return bind_kernel(_in_packs(_cross_entropy, logits.shape[3]), work, *arguments)

    def zero(self, out: Tensor) -> Call:
        return bind_zero(out)

    def scaled(self, x: Tensor, factor: float, out: Tensor, *, add: bool) -> Call:
        return bind_scaled(x, factor, out, add=add)

    def matmul(self, a: Tensor, b: Tensor, out: Tensor, *, add: bool = False) -> Call:
        return bind_product(a, b, out, add=add)

    def penalty(
        self, weights: Tensor, factor: float, found: Tensor, out: Tensor, loss: Tensor
    ) -> Call:
        return bind_penalty(weights, factor, found, out, loss)

    def attention(self, step: AttentionStep) -> StepKernels:
        return NumbaAttention(step)

    def standardise(self, step: StandardiseStep) -> StepKernels:
        return NumbaNorm(step)

    def together(self, calls: list[Call], device: torch.device) -> Call:
        return CallList(cast(list[KernelCall], calls))

    def seconds(self, call: Call, device: torch.device, repeats: int) -> float:
        run, shortest = self.together([call], device), float("inf")
        for _ in range(repeats):
            begun = time.perf_counter()
            run()
            shortest = min(shortest, time.perf_counter() - begun)
        return shortest


def _arguments(step: PointwiseStep) -> tuple[Any, ...]:
    z, bias = step.z, step.bias
    pair = bias or (z.new_empty(z.shape[0], 0),) * 2
    return z, tuple(each.numpy() for each in pair), drop_arrays(step.drop, z)


NUMBA_TAPE = _NumbaTape()
