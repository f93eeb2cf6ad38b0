"""Triton programs over rows of dense numbers: activations, loss, lanes, dropout.

Numbers are ``[replicas, rows, lanes, channels]``; lane 1 holds tangents. A mask is
drawn where it is used, so that none is stored.

Sums over many rows are made chunk by chunk and then over the chunks, both in a fixed
order.
"""

import triton
import triton.language as tl
from torch import Tensor

from gsebo.sparse.backend import Call
from gsebo.sparse.triton_random import drop_keys, kept
from gsebo.sparse.triton_segments import (
    at_rows,
    bind_programs,
    load_dual,
    plus,
    store_lanes,
    strided,
    tiles_of,
    times,
    work_of_program,
)
from gsebo.tape.cuda_heads import load_weight

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators


@triton.jit
def _exponential_less_one(x):
    """``exp(x) - 1`` for ``x <= 0``, also where the difference would cancel."""
    series = tl.full(x.shape, 1, x.dtype)
    for number in tl.static_range(12, 1, -1):
        series = 1 + series * x * (1 / number)
    return tl.where(x > -0.25, series * x, tl.exp(x) - 1)


@triton.jit
def _read(z, bias, n, row, place, inside, channels, LANES: tl.constexpr):
    """``z + bias``."""
    x = load_dual(at_rows(z, n, row, place), z.lane, inside, LANES)
    if bias is not None:
        x = plus(x, load_weight(bias, n, place, place < channels, LANES))
    return x


@triton.jit
def _kept(drop, keys, row, rows, place, channels, like):
    """Inverse keep rate or 0 at each place of a tile."""
    number = tl.load(drop.positions + row, mask=row < rows, other=0)
    return kept(keys, number * channels + place, like)


@triton.jit(do_not_specialize=["rows", "batch"])
def pointwise_rows(
    z, bias, drop, out, rows, channels, batch,
    KIND: tl.constexpr, LANES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One tile of the result."""
    n, block, tile = work_of_program(batch, tl.cdiv(channels, WIDTH))
    place = block * WIDTH + tl.arange(0, WIDTH)[None, :]
    row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    inside = (row < rows) & (place < channels)
    x = _read(z, bias, n, row, place, inside, channels, LANES)
    y = x[0]
    slope = tl.full(y.shape, 1, y.dtype)
    if KIND == "relu":
        # Not the larger of x and 0: NaN has to stay.
        y = tl.where(x[0] <= 0, 0, x[0])
        slope = tl.where(x[0] <= 0, 0, slope)
    elif KIND == "elu":
        y = tl.where(x[0] <= 0, _exponential_less_one(x[0]), x[0])
        slope = tl.where(x[0] <= 0, tl.exp(x[0]), slope)
    if drop is not None:
        keys = drop_keys(drop, n)
        factor = _kept(drop, keys, row, rows, place, channels, out.data)
        y *= factor
        slope *= factor
    to = at_rows(out, n, row, place)
    tl.store(to, y, mask=inside)
    if LANES == 2:
        tl.store(to + out.lane, x[1] * slope, mask=inside)


@triton.jit(do_not_specialize=["rows", "steps", "batch"])
def pointwise_back_rows(
    z, bias, drop, grad, to_z, sums, rows, channels, steps, batch,
    KIND: tl.constexpr, LANES: tl.constexpr, ADD: tl.constexpr, ADD_SUMS: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """``steps`` tiles of the gradient by ``z``, one below the other, and their sums.

    ``to_z`` may be the memory of ``grad``.
    """
    n, block, chunk = work_of_program(batch, tl.cdiv(channels, WIDTH))
    place = block * WIDTH + tl.arange(0, WIDTH)[None, :]
    chunk = chunk.to(tl.int64)
    if drop is not None:
        keys = drop_keys(drop, n)
    total = tl.zeros([ROWS, WIDTH], dtype=grad.data.dtype.element_ty)
    for number in range(0, steps):
        row = (chunk * steps + number) * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (place < channels)
        g = load_dual(at_rows(grad, n, row, place), grad.lane, inside, LANES)
        if drop is not None:
            g = times(g, (_kept(drop, keys, row, rows, place, channels, grad.data),))
        # Of the slope only that of an exponential has a tangent.
        if KIND == "relu":
            x = _read(z, bias, n, row, place, inside, channels, 1)
            g = times(g, (tl.where(x[0] <= 0, 0, tl.full(x[0].shape, 1, x[0].dtype)),))
        elif KIND == "elu":
            x = _read(z, bias, n, row, place, inside, channels, LANES)
            slope = tl.where(x[0] <= 0, tl.exp(x[0]), 1)
            if LANES == 1:
                g = times(g, (slope,))
            else:
                g = times(g, (slope, tl.where(x[0] <= 0, slope * x[1], 0)))
        to = at_rows(to_z, n, row, place)
        store_lanes(to, to_z.lane, g, inside, LANES, ADD)
        if sums is not None:
            total += g[LANES - 1]
    if sums is not None:
        found = tl.sum(total, 0)[None, :]
        to_sums = at_rows(sums, n, chunk, place)
        if ADD_SUMS:
            found += tl.load(to_sums, mask=place < channels, other=0)
        tl.store(to_sums, found, mask=place < channels)


@triton.jit(do_not_specialize=["rows", "chunks", "batch"])
def cross_entropy_rows(
    logits, labels, scale, grad, losses, rows, classes, chunks, batch,
    LANES: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Loss of one chunk of rows, and its gradient or the tangent of it."""
    n, _, chunk = work_of_program(batch, 1)
    row = chunk * ROWS + tl.arange(0, ROWS)
    place = tl.arange(0, WIDTH)[None, :]
    inside = (row < rows)[:, None] & (place < classes)
    at = at_rows(logits, n, row.to(tl.int64)[:, None], place)
    to = at_rows(grad, n, row.to(tl.int64)[:, None], place)
    x = tl.load(at, mask=inside, other=-float("inf"))
    # Rows past the end are all alike, and no NaN.
    x = tl.where((row < rows)[:, None], x, 0)
    label = tl.load(labels + row, mask=row < rows, other=0)
    top = tl.max(x, 1)
    power = tl.exp(x - top[:, None])
    total = tl.sum(power, 1)
    hit = place == label[:, None]
    loss = tl.log(total) + top - tl.sum(tl.where(hit, x, 0), 1)
    share = power / total[:, None]
    number = tl.load(scale)
    tl.store(to, tl.where(hit, share - 1, share) * number, mask=inside)
    if LANES == 2:
        t = tl.load(at + logits.lane, mask=inside, other=0)
        mean = tl.sum(share * t, 1)
        change = share * (t - mean[:, None]) * number
        tl.store(to + grad.lane, change, mask=inside)
    loss = tl.sum(tl.where(row < rows, loss, 0), 0)
    tl.store(losses + n * chunks + chunk, loss * number)


@triton.jit(do_not_specialize=["chunks", "out_step", "batch"])
def sum_chunks(
    parts, out, out_step, chunks, width, batch,
    ADD: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """``out[replica] = parts[replica].sum(0)``, or the same added."""
    n, _, block = work_of_program(batch, 1)
    place = block * WIDTH + tl.arange(0, WIDTH)
    total = tl.zeros([ROWS, WIDTH], dtype=out.dtype.element_ty)
    for first in range(0, chunks, ROWS):
        chunk = first + tl.arange(0, ROWS)[:, None]
        inside = (chunk < chunks) & (place < width)[None, :]
        at = (n * chunks + chunk) * width + place[None, :]
        total += tl.load(parts + at, mask=inside, other=0)
    found = tl.sum(total, 0)
    to = out + n * out_step + place
    if ADD:
        found += tl.load(to, mask=place < width, other=0)
    tl.store(to, found, mask=place < width)


@triton.jit(do_not_specialize=["rows", "batch"])
def widen_rows(
    out, number, tangent, rows, channels, batch, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    """Put numbers and their tangents side by side."""
    n, block, tile = work_of_program(batch, tl.cdiv(channels, WIDTH))
    place = block * WIDTH + tl.arange(0, WIDTH)[None, :]
    row = tile.to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    inside = (row < rows) & (place < channels)
    to = out + (n * rows + row) * 2 * channels + place
    tl.store(to, tl.load(at_rows(number, n, row, place), mask=inside), mask=inside)
    found = tl.load(at_rows(tangent, n, row, place), mask=inside)
    tl.store(to + channels, found, mask=inside)


@triton.jit(do_not_specialize=["batch"])
def drop_stored(values, drop, out, size, batch, BLOCK: tl.constexpr):
    """Values with some of them dropped, differently for each replica."""
    n, _, tile = work_of_program(batch, 1)
    place = tile.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    position = tl.load(drop.positions + place, mask=inside, other=0)
    value = tl.load(values + place, mask=inside, other=0)
    value *= kept(drop_keys(drop, n), position, out)
    tl.store(out + n * size + place, value, mask=inside)


# Enough chunks to fill a large device, and few enough to be summed by one program.
_MOST = 1024
# Sums side by side that one program makes, and numbers that it holds.
_WIDTH, _NUMBERS = 16, 2048


def chunks_of(rows: int, tile: int) -> tuple[int, int]:
    """Cut rows into chunks of whole tiles: how many chunks, and tiles of each."""
    tiles = tiles_of(rows, tile)
    steps = max(tiles_of(tiles, _MOST), 1)
    return tiles_of(tiles, steps), steps


def bind_chunk_sums(parts: Tensor, out: Tensor, *, add: bool) -> Call:
    """``out = parts.sum(1)``, or the same added; replicas of ``out`` may lie apart."""
    replicas, chunks, size = parts.shape
    width: int = triton.next_power_of_2(min(_WIDTH, size))
    sizes = strided(out).batch, chunks, size, replicas
    constants = {"ADD": add, "ROWS": _NUMBERS // width, "WIDTH": width}
    programs = tiles_of(size, width) * replicas
    return bind_programs(sum_chunks, programs, parts, out, *sizes, **constants)
