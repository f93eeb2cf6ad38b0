"""Normalisation of rows or columns on the CPU, with tangents.

With u = (z - mean) / √(variance + ε), s the inverse root and ⟨·⟩ the mean over a row
(``"layer"``) or over a column (``"batch"``),

    u' = s (z' - ⟨z'⟩) - q u,                       q = s ⟨u (z' - ⟨z'⟩)⟩,

and a gradient g by the result, times the weight w as p = w g, goes back to z as

    r = s (p - ⟨p⟩ - u ⟨p u⟩),
    r' = s (p' - ⟨p'⟩ - u' ⟨p u⟩ - u (⟨p' u⟩ + ⟨p u'⟩)) - q r.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from typing import final

import numpy as np
from numba import njit, prange
from torch import Tensor

from gsebo.sparse.backend import Call
from gsebo.sparse.numba_calls import bind_kernel
from gsebo.sparse.numba_compile import compile_twice
from gsebo.tape.backend import Gradients, StandardiseStep, StepKernels
from gsebo.tape.cpu_sums import bind_zero

# Rows that one task takes. Sums over rows are made chunk by chunk, so that they do not
# depend on the number of threads.
_CHUNK = 1024


@njit
def _total(values):
    """Sum of a row, in eight parts that do not wait for each other."""
    zero = values.dtype.type(0)
    a, b, c, d, e, f, g, h = zero, zero, zero, zero, zero, zero, zero, zero
    whole = values.shape[0] // 8 * 8
    for k in range(0, whole, 8):
        a += values[k]
        b += values[k + 1]
        c += values[k + 2]
        d += values[k + 3]
        e += values[k + 4]
        f += values[k + 5]
        g += values[k + 6]
        h += values[k + 7]
    for k in range(whole, values.shape[0]):
        a += values[k]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@njit
def _unit_row(z, lanes, epsilon, unit, moved, work):
    """Write u and u' of one row ``[lanes, channels]``, return s and q."""
    number, channels = unit.dtype.type, unit.shape[0]
    count = number(channels)
    row = z[0]
    mean = _total(row) / count
    for c in range(channels):
        unit[c] = row[c] - mean
        work[c] = unit[c] * unit[c]
    scale = number(1) / np.sqrt(_total(work) / count + epsilon)
    for c in range(channels):
        unit[c] *= scale
    if lanes == 1:
        return scale, number(0)
    tangent = z[1]
    mean = _total(tangent) / count
    for c in range(channels):
        moved[c] = (tangent[c] - mean) * scale
        work[c] = unit[c] * moved[c]
    shrinking = _total(work) / count
    for c in range(channels):
        moved[c] -= shrinking * unit[c]
    return scale, shrinking


def _layer(z, weights, epsilon, scratch, out):
    replicas, rows, lanes, channels = out.shape
    chunks = (rows + _CHUNK - 1) // _CHUNK
    for task in prange(replicas * chunks):
        r = task // chunks
        chunk = task - r * chunks
        weight, tangent = weights[0][r], weights[1][r]
        unit, moved, work = (
            scratch[r, chunk, 0],
            scratch[r, chunk, 1],
            scratch[r, chunk, 2],
        )
        for i in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, rows)):
            _unit_row(z[r, i], lanes, epsilon, unit, moved, work)
            to = out[r, i, 0]
            for c in range(channels):
                to[c] = unit[c] * weight[c]
            if lanes == 2:
                to = out[r, i, 1]
                for c in range(channels):
                    to[c] = moved[c] * weight[c] + unit[c] * tangent[c]


def _layer_back(z, weights, epsilon, scratch, grad, add, to_z, sums, to_weight):
    replicas, rows, lanes, channels = grad.shape
    chunks = (rows + _CHUNK - 1) // _CHUNK
    zero, count = grad.dtype.type(0), grad.dtype.type(channels)
    for task in prange(replicas * chunks):
        r = task // chunks
        chunk = task - r * chunks
        weight, tangent = weights[0][r], weights[1][r]
        unit, moved, work = (
            scratch[r, chunk, 0],
            scratch[r, chunk, 1],
            scratch[r, chunk, 2],
        )
        pulled, change = scratch[r, chunk, 3], scratch[r, chunk, 4]
        total = sums[r, chunk]
        total[:] = 0
        for i in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, rows)):
            scale, shrinking = _unit_row(z[r, i], lanes, epsilon, unit, moved, work)
            g, last = grad[r, i, 0], grad[r, i, lanes - 1]
            for c in range(channels):
                pulled[c] = weight[c] * g[c]
                work[c] = pulled[c] * unit[c]
            mean, along = _total(pulled) / count, _total(work) / count
            for c in range(channels):
                pulled[c] = pulled[c] - mean - unit[c] * along
                total[c] += last[c] * unit[c]
            if lanes == 2:
                for c in range(channels):
                    first = weight[c] * g[c]
                    change[c] = tangent[c] * g[c] + weight[c] * last[c]
                    work[c] = change[c] * unit[c] + first * moved[c]
                    total[c] += g[c] * moved[c]
                mean, turned = _total(change) / count, _total(work) / count
                to = to_z[r, i, 1]
                for c in range(channels):
                    found = change[c] - mean - moved[c] * along - unit[c] * turned
                    found = scale * (found - shrinking * pulled[c])
                    to[c] = (to[c] if add else zero) + found
            to = to_z[r, i, 0]
            for c in range(channels):
                to[c] = (to[c] if add else zero) + scale * pulled[c]
    for r in range(replicas):
        for c in range(channels):
            found = zero
            for chunk in range(chunks):
                found += sums[r, chunk, c]
            to_weight[r, c] += found


# Of each column: mean, that of the tangents, s and q.
_MEAN, _DRIFT, _SCALE, _SHRINKING = 0, 1, 2, 3


@njit
def _gathered(parts, place, r, c):
    """Sum over the chunks."""
    found = parts.dtype.type(0)
    for chunk in range(parts.shape[1]):
        found += parts[r, chunk, place, c]
    return found


def _batch(z, weights, epsilon, parts, facts, out):
    replicas, rows, lanes, channels = z.shape
    kept = out.shape[1]
    chunks = (rows + _CHUNK - 1) // _CHUNK
    one, count = z.dtype.type(1), z.dtype.type(max(rows, 1))
    for task in prange(replicas * chunks):
        r = task // chunks
        chunk = task - r * chunks
        for lane in range(lanes):
            total = parts[r, chunk, lane]
            total[:] = 0
            for i in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, rows)):
                row = z[r, i, lane]
                for c in range(channels):
                    total[c] += row[c]
    for r in range(replicas):
        for lane in range(lanes):
            for c in range(channels):
                facts[r, _MEAN + lane, c] = _gathered(parts, lane, r, c) / count
    for task in prange(replicas * chunks):
        r = task // chunks
        chunk = task - r * chunks
        mean, drift = facts[r, _MEAN], facts[r, _DRIFT]
        squares, products = parts[r, chunk, 0], parts[r, chunk, 1]
        squares[:] = 0
        products[:] = 0
        for i in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, rows)):
            row, tangent = z[r, i, 0], z[r, i, lanes - 1]
            for c in range(channels):
                squares[c] += (row[c] - mean[c]) * (row[c] - mean[c])
            if lanes == 2:
                for c in range(channels):
                    products[c] += (row[c] - mean[c]) * (tangent[c] - drift[c])
    for r in range(replicas):
        for c in range(channels):
            scale = one / np.sqrt(_gathered(parts, 0, r, c) / count + epsilon)
            facts[r, _SCALE, c] = scale
            if lanes == 2:
                product = _gathered(parts, 1, r, c) / count
                facts[r, _SHRINKING, c] = scale * scale * product
    kept_chunks = (kept + _CHUNK - 1) // _CHUNK
    for task in prange(replicas * kept_chunks):
        r = task // kept_chunks
        chunk = task - r * kept_chunks
        weight, moving = weights[0][r], weights[1][r]
        mean, drift, scale = facts[r, _MEAN], facts[r, _DRIFT], facts[r, _SCALE]
        shrinking = facts[r, _SHRINKING]
        for i in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, kept)):
            row, to = z[r, i, 0], out[r, i, 0]
            for c in range(channels):
                to[c] = (row[c] - mean[c]) * scale[c] * weight[c]
            if lanes == 2:
                tangent, to = z[r, i, 1], out[r, i, 1]
                for c in range(channels):
                    unit = (row[c] - mean[c]) * scale[c]
                    moved = (tangent[c] - drift[c]) * scale[c] - shrinking[c] * unit
                    to[c] = moved * weight[c] + unit * moving[c]


def _batch_back(z, weights, facts, grad, add, to_z, parts, means, to_weight):
    replicas, rows, lanes, channels = z.shape
    given = grad.shape[1]
    chunks = (given + _CHUNK - 1) // _CHUNK
    zero, count = grad.dtype.type(0), grad.dtype.type(rows)
    for task in prange(replicas * chunks):
        r = task // chunks
        chunk = task - r * chunks
        mean, drift, scale = facts[r, _MEAN], facts[r, _DRIFT], facts[r, _SCALE]
        shrinking = facts[r, _SHRINKING]
        total = parts[r, chunk]
        total[:] = 0
        for i in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, given)):
            row, g = z[r, i, 0], grad[r, i, 0]
            tangent, last = z[r, i, lanes - 1], grad[r, i, lanes - 1]
            for c in range(channels):
                unit = (row[c] - mean[c]) * scale[c]
                total[0, c] += g[c]
                total[1, c] += g[c] * unit
                if lanes == 2:
                    moved = (tangent[c] - drift[c]) * scale[c] - shrinking[c] * unit
                    total[2, c] += last[c]
                    total[3, c] += last[c] * unit + g[c] * moved
    for r in range(replicas):
        for c in range(channels):
            weight, moving = weights[0][r, c], weights[1][r, c]
            plain, along = _gathered(parts, 0, r, c), _gathered(parts, 1, r, c)
            means[r, 0, c] = weight * plain / count
            means[r, 1, c] = weight * along / count
            if lanes == 2:
                changed = _gathered(parts, 2, r, c)
                turned = _gathered(parts, 3, r, c)
                means[r, 2, c] = (moving * plain + weight * changed) / count
                means[r, 3, c] = (moving * along + weight * turned) / count
                to_weight[r, c] += turned
            else:
                to_weight[r, c] += along
    all_chunks = (rows + _CHUNK - 1) // _CHUNK
    for task in prange(replicas * all_chunks):
        r = task // all_chunks
        chunk = task - r * all_chunks
        weight, moving = weights[0][r], weights[1][r]
        mean, drift, scale = facts[r, _MEAN], facts[r, _DRIFT], facts[r, _SCALE]
        shrinking = facts[r, _SHRINKING]
        for i in range(chunk * _CHUNK, min((chunk + 1) * _CHUNK, rows)):
            # Rows that nobody reads have no gradient of their own.
            share = grad.dtype.type(1 if i < given else 0)
            place = min(i, given - 1)
            row, g, to = z[r, i, 0], grad[r, place, 0], to_z[r, i, 0]
            tangent, last = z[r, i, lanes - 1], grad[r, place, lanes - 1]
            to_last = to_z[r, i, lanes - 1]
            for c in range(channels):
                unit = (row[c] - mean[c]) * scale[c]
                pulled = share * weight[c] * g[c]
                back = scale[c] * (pulled - means[r, 0, c] - unit * means[r, 1, c])
                if lanes == 2:
                    moved = (tangent[c] - drift[c]) * scale[c] - shrinking[c] * unit
                    found = share * (moving[c] * g[c] + weight[c] * last[c])
                    found -= means[r, 2, c] + moved * means[r, 1, c]
                    found = scale[c] * (found - unit * means[r, 3, c])
                    found -= shrinking[c] * back
                    to_last[c] = (to_last[c] if add else zero) + found
                to[c] = (to[c] if add else zero) + back


# Without any liberty for the compiler: a replica has to equal its run alone.
_LAYER, _LAYER_BACK = compile_twice(_layer), compile_twice(_layer_back)
_BATCH, _BATCH_BACK = compile_twice(_batch), compile_twice(_batch_back)
# A number is read, and computed with, about so often.
_FORWARD, _BACKWARD = 6, 16


@final
class NumbaNorm(StepKernels):
    """Loops of numba over rows, with the facts of columns in between."""

    def __init__(self, step: StandardiseStep) -> None:
        z, self._of_rows = step.z, step.kind == "layer"
        replicas, rows, _, channels = z.shape
        self._z, self._weights = z, tuple(each.numpy() for each in step.weight)
        self._epsilon = z.numpy().dtype.type(step.epsilon)
        self._chunks = -(-rows // _CHUNK)
        self._scratch = z.new_empty(replicas, self._chunks, 5, channels)
        self._facts = z.new_zeros(replicas, 4, channels)

    def forward(self, out: Tensor) -> list[Call]:
        work, given = (
            _FORWARD * self._z.numel(),
            (self._z, self._weights, self._epsilon),
        )
        if self._of_rows:
            return [bind_kernel(_LAYER, work, *given, self._scratch, out)]
        return [bind_kernel(_BATCH, work, *given, self._scratch, self._facts, out)]

    def back(self, gradients: Gradients) -> list[Call]:
        grad, to_z, to_weight, _, add = gradients
        assert to_weight is not None  # there is always one
        z, weights, work = self._z, self._weights, _BACKWARD * self._z.numel()
        replicas, _, _, channels = z.shape
        if self._of_rows:
            sums = z.new_empty(replicas, self._chunks, channels)
            read = z, weights, self._epsilon, self._scratch, grad
            return [bind_kernel(_LAYER_BACK, work, *read, add, to_z, sums, to_weight)]
        if grad.shape[1] == 0:
            # Nobody reads the result.
            return [] if add else [bind_zero(to_z)]
        parts = z.new_empty(replicas, -(-grad.shape[1] // _CHUNK), 4, channels)
        means = z.new_empty(replicas, 4, channels)
        given = z, weights, self._facts, grad, add, to_z, parts, means, to_weight
        return [bind_kernel(_BATCH_BACK, work, *given)]
