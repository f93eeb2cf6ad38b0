"""Sparse features times weights on the CPU, and the way back, without what was dropped.

What dropout leaves of the stored numbers is listed row by row before it is read: both
products then have less to do, and the mask is drawn once. The transpose is not stored:
going through the rows in order adds to every row of the result in the order in which
the transpose would have summed it.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from __future__ import annotations

from functools import cache
from typing import final

import numpy as np
import torch
from numba import prange
from torch import Tensor

from gsebo.sparse.backend import Call
from gsebo.sparse.numba_calls import bind_kernel
from gsebo.sparse.numba_compile import Variants, compile_twice
from gsebo.sparse.numba_draw import draws_of
from gsebo.sparse.numba_pack import fma, packs_of, store
from gsebo.sparse.random_bits import NUMBA_HASH, drop_arrays
from gsebo.tape.backend import FeatureKernels, FeatureStep

# Rows that one task takes.
_CHUNK = 256
# Drawing a number costs about as much as so many multiplications.
_DRAW = 8
_draw, _site_keys = NUMBA_HASH
# Stand for what a loop is compiled for: channels in a pack, and lanes.
WIDTH, LANES = 1, 1
load, _, spread, *_ = packs_of(1)
# Numbers that are drawn at a time.
_DRAWN = 16
mark_kept, _ = draws_of(_DRAWN)


def _list_kept(indptr, columns, values, drop, marks, bounds, kept_columns, kept_values):
    _, seeds, step, site, threshold, scale, positions = drop
    replicas, _, rows = bounds.shape
    chunks = (rows + _CHUNK - 1) // _CHUNK
    for task in prange(replicas * chunks):
        r = task // chunks
        first = (task - r * chunks) * _CHUNK
        last = min(first + _CHUNK, rows)
        key0, key1 = _site_keys(seeds[r], step[0], site)
        begins, ends, kept = bounds[r, 0], bounds[r, 1], marks[r]
        to_columns, to_values = kept_columns[r], kept_values[r]
        start, end = np.int64(indptr[first]), np.int64(indptr[last])
        whole = (end - start) // _DRAWN * _DRAWN
        for at in range(start, start + whole, _DRAWN):
            mark_kept(positions, at, key0, key1, threshold, kept, at)
        for at in range(start + whole, end):
            place = positions[at]
            bits = _draw(key0, key1, np.uint32(place), np.uint32(place >> 32))
            kept[at] = 1 if bits < threshold else 0
        # Each chunk writes where its entries would all be. Places have no sign here: a
        # place from the end, which others could mean, is looked for every time.
        to, k = np.uint64(start), np.uint64(start)
        for i in range(first, last):
            begins[i] = to
            while k < np.uint64(indptr[i + 1]):
                # Written in any case: a jump that nobody can foresee takes longer.
                to_columns[to] = columns[k]
                to_values[to] = values[k] * scale
                to += np.uint64(kept[k])
                k += np.uint64(1)
            ends[i] = to


def _times(bounds, columns, values, weight, tangent, out):
    replicas, rows, _, channels = out.shape
    weight_from = weight.strides[0] // weight.itemsize
    tangent_from = tangent.strides[0] // tangent.itemsize
    out_from = out.strides[0] // out.itemsize
    lists = min(bounds.shape[0], replicas) - 1
    zero = out.dtype.type(0)
    for task in prange(replicas * rows):
        r = task // rows
        i = task - r * rows
        mine = min(r, lists)
        each, numbers = columns[mine], values[mine]
        begin, end = np.uint64(bounds[mine, 0, i]), np.uint64(bounds[mine, 1, i])
        for block in range((channels + WIDTH - 1) // WIDTH):
            # The last block may overlap the one before: those channels are summed
            # twice, to the same numbers.
            c = min(block * WIDTH, channels - WIDTH)
            w_at, t_at = r * weight_from + c, r * tangent_from + c
            total = spread(zero)
            moved = spread(zero)
            k = begin
            while k < end:
                number, row = spread(numbers[k]), each[k] * channels
                k += np.uint64(1)
                total = fma(number, load(weight, w_at + row), total)
                if LANES == 2:
                    moved = fma(number, load(tangent, t_at + row), moved)
            to = out_from * r + i * LANES * channels + c
            store(out, to, total)
            if LANES == 2:
                store(out, to + channels, moved)


def _turned_times(bounds, columns, values, grad, out):
    replicas, features, channels = out.shape
    rows, size = grad.shape[1], grad.itemsize
    grad_from, grad_row = grad.strides[0] // size, grad.strides[1] // size
    out_from = out.strides[0] // size
    whole = channels // WIDTH
    lists = min(bounds.shape[0], replicas) - 1
    nothing = out.dtype.type(0)
    # A task has channels of its own, as every row adds to some of the same numbers;
    # the last one those that do not fill a pack.
    for task in prange(replicas * (whole + 1)):
        r = task // (whole + 1)
        block = task - r * (whole + 1)
        mine = min(r, lists)
        each, numbers = columns[mine], values[mine]
        begins, ends = bounds[mine, 0], bounds[mine, 1]
        c = block * WIDTH
        g_at, to = r * grad_from + c, r * out_from + c
        if block < whole:
            zero = spread(nothing)
            for j in range(features):
                store(out, to + j * channels, zero)
            for i in range(rows):
                g = load(grad, g_at + i * grad_row)
                k, end = np.uint64(begins[i]), np.uint64(ends[i])
                while k < end:
                    at = to + each[k] * channels
                    store(out, at, fma(spread(numbers[k]), g, load(out, at)))
                    k += np.uint64(1)
        elif c < channels:
            for j in range(features):
                for d in range(c, channels):
                    out[r, j, d] = nothing
            for i in range(rows):
                for entry in range(begins[i], ends[i]):
                    j = each[entry]
                    for d in range(c, channels):
                        found = fma(numbers[entry], grad[r, i, d], out[r, j, d])
                        out[r, j, d] = found


_LIST_KEPT = compile_twice(_list_kept)
_WIDTHS = (32, 16, 8, 4, 1)


@cache
def _times_kernel(width: int, lanes: int) -> Variants:
    of = packs_of(width)
    return compile_twice(
        _times, WIDTH=width, LANES=lanes, load=of.load, spread=of.spread
    )


@cache
def _turned_kernel(width: int) -> Variants:
    of = packs_of(width)
    return compile_twice(_turned_times, WIDTH=width, load=of.load, spread=of.spread)


@final
class NumbaFeatures(FeatureKernels):
    """Lists of what is kept: where rows begin and end, columns and values."""

    def __init__(self, step: FeatureStep) -> None:
        self._step, pattern = step, step.pattern
        lists = 1 if step.drop is None else step.replicas
        start = pattern.indptr
        bounds = torch.stack((start[:-1], start[1:])).long()
        # What the first run will overwrite, or what is always kept.
        self._bounds = bounds.repeat(lists, 1, 1)
        self._columns = pattern.columns.repeat(lists, 1)
        self._values = step.values.repeat(lists, 1)

    def drawn(self) -> list[Tensor]:
        kept = [self._bounds, self._columns, self._values]
        return [] if self._step.drop is None else kept

    def draw(self) -> list[Call]:
        step = self._step
        if step.drop is None:
            return []
        drawn = drop_arrays(step.drop, self._values)
        arrays = step.pattern.indptr, step.pattern.columns, step.values
        marks = torch.zeros_like(self._values, dtype=torch.uint8)
        to = marks, self._bounds, self._columns, self._values
        work = _DRAW * self._values.numel()
        return [bind_kernel(_LIST_KEPT, work, *arrays, drawn, *to)]

    def times(self, pair: tuple[Tensor, Tensor], out: Tensor) -> list[Call]:
        lanes, channels = out.shape[2:]
        kernel = _times_kernel(_width(channels), lanes)
        read = self._bounds, self._columns, self._values
        return [bind_kernel(kernel, self._work(lanes * channels), *read, *pair, out)]

    def turned_times(self, grad: Tensor, out: Tensor) -> list[Call]:
        kernel = _turned_kernel(_width(out.shape[2]))
        read = self._bounds, self._columns, self._values
        return [bind_kernel(kernel, self._work(out.shape[2]), *read, grad, out)]

    def _work(self, channels: int) -> int:
        return self._step.replicas * self._values.shape[1] * channels


def _width(channels: int) -> int:
    return next(width for width in _WIDTHS if width <= max(channels, 1))
