"""The kernel calls of ``gsebo.tape`` on the CPU.

Arrays are ``[replicas, rows, lanes, channels]``; lane 1 holds tangents. A mask is drawn
where it is used, so that none is stored.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

import time
from typing import Any, cast

import numpy as np
import torch
from numba import prange
from torch import Tensor

from gsebo.sparse.backend import Call
from gsebo.sparse.numba_calls import CallList, KernelCall, bind_kernel
from gsebo.sparse.numba_compile import compile_twice
from gsebo.sparse.numba_cpu import spmm_kernel
from gsebo.sparse.numba_pack import exponential
from gsebo.sparse.pattern import Pattern
from gsebo.sparse.random_bits import NUMBA_HASH, Drop, drop_arrays
from gsebo.tape.backend import (
    AttentionStep,
    Gradients,
    PointwiseStep,
    StandardiseStep,
    StepKernels,
    TapeKernels,
)
from gsebo.tape.cpu_attention import NumbaAttention
from gsebo.tape.cpu_norm import NumbaNorm
from gsebo.tape.cpu_products import bind_product
from gsebo.tape.cpu_sums import bind_penalty, bind_scaled, bind_zero

# Rows that one task takes. Sums over rows are made chunk by chunk, so that they do not
# depend on the number of threads.
CHUNK = 1024
_RELU, _ELU = 1, 2
_KINDS = {"identity": 0, "relu": _RELU, "elu": _ELU}
# Stands for whichever of them a kernel is compiled for.
_KIND = 0
# What happens with the gradient by z: it is where that by the result was, or it is
# written somewhere else, or it is added there.
IN_PLACE, WRITE, ADD = 0, 1, 2
_draw, _site_keys = NUMBA_HASH


def _pointwise(z, biases, drop, out):
    bias, bias_tangent = biases
    dropped, seeds, step, site, threshold, scale, positions = drop
    replicas, rows, lanes, channels = out.shape
    chunks = (rows + CHUNK - 1) // CHUNK
    zero, one = out.dtype.type(0), out.dtype.type(1)
    biased = bias.shape[1] > 0
    for task in prange(replicas * chunks):
        r = task // chunks
        start = (task - r * chunks) * CHUNK
        key0, key1 = _site_keys(seeds[r], step[0], site)
        for i in range(start, min(start + CHUNK, rows)):
            first = positions[i] * channels
            for c in range(channels):
                factor = one
                if dropped:
                    at = first + c
                    bits = _draw(key0, key1, np.uint32(at), np.uint32(at >> 32))
                    factor = scale if bits < threshold else zero
                x = z[r, i, 0, c]
                if biased:
                    x += bias[r, c]
                slope, y = one, x
                if _KIND == _RELU:
                    # Not max(x, 0): NaN has to stay.
                    y = zero if x <= 0 else x
                    slope = zero if x <= 0 else one
                elif _KIND == _ELU:
                    power = exponential(min(x, zero))
                    slope = power if x <= 0 else one
                    y = power - one if x <= 0 else x
                out[r, i, 0, c] = y * factor
                if lanes == 2:
                    t = z[r, i, 1, c]
                    if biased:
                        t += bias_tangent[r, c]
                    out[r, i, 1, c] = t * slope * factor


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
POINTWISE, POINTWISE_BACK = (
    {name: compile_twice(kernel, _KIND=kind) for name, kind in _KINDS.items()}
    for kernel in (_pointwise, _pointwise_back)
)


# Drawing a number costs about as much as so many multiplications.
_DRAW = 8


def _drop_values(values, drop, out):
    _, seeds, step, site, threshold, scale, positions = drop
    replicas, size = out.shape
    chunks = (size + CHUNK - 1) // CHUNK
    zero = out.dtype.type(0)
    for task in prange(replicas * chunks):
        r = task // chunks
        start = (task - r * chunks) * CHUNK
        key0, key1 = _site_keys(seeds[r], step[0], site)
        # Slices, because a loop from anywhere but 0 checks for negative indices, and
        # that keeps it from becoming a vector loop.
        places, given = positions[start : start + CHUNK], values[start : start + CHUNK]
        kept = out[r, start : start + CHUNK]
        for k in range(kept.shape[0]):
            bits = _draw(key0, key1, np.uint32(places[k]), np.uint32(places[k] >> 32))
            kept[k] = given[k] * (scale if bits < threshold else zero)


def _cross_entropy(logits, labels, scale, grad, losses, loss):
    replicas, rows, lanes, classes = logits.shape
    zero = logits.dtype.type(0)
    for task in prange(replicas * rows):
        r = task // rows
        i = task - r * rows
        top = logits[r, i, 0, 0]
        for c in range(1, classes):
            top = max(top, logits[r, i, 0, c])
        total = zero
        for c in range(classes):
            power = np.exp(logits[r, i, 0, c] - top)
            grad[r, i, 0, c] = power
            total += power
        losses[r, i] = np.log(total) + top - logits[r, i, 0, labels[i]]
        mean = zero
        for c in range(classes):
            share = grad[r, i, 0, c] / total
            grad[r, i, 0, c] = share
            if lanes == 2:
                mean += share * logits[r, i, 1, c]
        for c in range(classes):
            share = grad[r, i, 0, c]
            if lanes == 2:
                grad[r, i, 1, c] = share * (logits[r, i, 1, c] - mean) * scale
            hit = 1 if c == labels[i] else 0
            grad[r, i, 0, c] = (share - hit) * scale
    for r in range(replicas):
        total = zero
        for i in range(rows):
            total += losses[r, i]
        loss[r] = total * scale


def _dots(indptr, columns, entries, a, b, out):
    replicas, rows, lanes, channels = a.shape
    for task in prange(replicas * rows):
        r = task // rows
        i = task - r * rows
        for k in range(indptr[i], indptr[i + 1]):
            j = columns[k]
            total = out.dtype.type(0)
            if lanes == 1:
                for c in range(channels):
                    total += a[r, i, 0, c] * b[r, j, 0, c]
            else:
                for c in range(channels):
                    total += a[r, i, 0, c] * b[r, j, 1, c]
                for c in range(channels):
                    total += a[r, i, 1, c] * b[r, j, 0, c]
            out[r, entries[k]] += total


def _widen(number, tangent, out):
    replicas, rows, channels = number.shape
    for task in prange(replicas * rows):
        r = task // rows
        i = task - r * rows
        for c in range(channels):
            out[r, i, 0, c] = number[r, i, c]
            out[r, i, 1, c] = tangent[r, i, c]


_WIDEN = compile_twice(_widen)
_DROP_VALUES = compile_twice(_drop_values)
_CROSS_ENTROPY = compile_twice(_cross_entropy)
_DOTS = compile_twice(_dots, fastmath={"contract", "reassoc", "nsz"})


class _NumbaTape(TapeKernels):
    """Loops of numba."""

    def spmm(self, pattern: Pattern, values: Tensor, x: Tensor, out: Tensor) -> Call:
        work = out.shape[0] * pattern.num_entries * out.shape[2]
        kernel = spmm_kernel(out.shape[2])
        return bind_kernel(kernel, work, *pattern.arrays, values, x, out)

    def dots(self, pattern: Pattern, a: Tensor, b: Tensor, out: Tensor) -> Call:
        work = pattern.num_entries * (a.numel() // max(a.shape[1], 1))
        return bind_kernel(_DOTS, work, *pattern.arrays, a, b, out)

    def widen(self, number: Tensor, tangent: Tensor, out: Tensor) -> Call:
        return bind_kernel(_WIDEN, out.numel(), number, tangent, out)

    def drop_values(self, values: Tensor, drop: Drop, out: Tensor) -> Call:
        work, drawn = _DRAW * out.numel(), drop_arrays(drop, out)
        return bind_kernel(_DROP_VALUES, work, values, drawn, out)

    def pointwise(self, step: PointwiseStep, out: Tensor) -> Call:
        work = (_DRAW if step.drop else 1) * out.numel()
        return bind_kernel(POINTWISE[step.kind], work, *_arguments(step), out)

    def pointwise_back(self, step: PointwiseStep, gradients: Gradients) -> Call:
        grad, to_z, to_bias, _, accumulate = gradients
        in_place = to_z.data_ptr() == grad.data_ptr()
        mode = IN_PLACE if in_place else ADD if accumulate else WRITE
        replicas, rows, _, channels = grad.shape
        if to_bias is None:
            to_bias = grad.new_empty(replicas, 0)
        sums = grad.new_empty(replicas, -(-rows // CHUNK), channels)
        work = (_DRAW if step.drop else 2) * grad.numel()
        arguments = (*_arguments(step), grad, mode, to_z, sums, to_bias)
        return bind_kernel(POINTWISE_BACK[step.kind], work, *arguments)

    def cross_entropy(
        self, logits: Tensor, labels: Tensor, scale: float, grad: Tensor, loss: Tensor
    ) -> Call:
        losses = logits.new_empty(logits.shape[:2])
        number = logits.numpy().dtype.type(scale)
        work = 10 * logits.numel()  # an exponential costs about ten multiplications
        arguments = logits, labels, number, grad, losses, loss
        return bind_kernel(_CROSS_ENTROPY, work, *arguments)

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
