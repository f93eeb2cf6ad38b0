"""Triton programs over rows of dense numbers: loss, lanes, dropout of stored values.

Sums over many rows are made chunk by chunk and then over the chunks, both in a fixed
order.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from gsebo.sparse.kernels.backend import Call
from gsebo.sparse.kernels.triton_random import drop_keys, kept
from gsebo.sparse.kernels.triton_segments import bind_programs, steps_of, tiles_of

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators


@triton.jit(do_not_specialize=["rows", "chunks", "batch"])
def cross_entropy_rows(
    logits,
    logit_steps,
    labels,
    scale,
    grad,
    grad_steps,
    losses,
    rows,
    classes,
    chunks,
    batch,
    LANES: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Loss of one chunk of rows, and its gradient or the tangent of it."""
    n = (tl.program_id(0) % batch).to(tl.int64)
    chunk = tl.program_id(0) // batch
    row = chunk * ROWS + tl.arange(0, ROWS)
    place = tl.arange(0, WIDTH)[None, :]
    inside = (row < rows)[:, None] & (place < classes)
    step = row.to(tl.int64)[:, None]
    at = logits + n * logit_steps[0] + step * logit_steps[1] + place
    to = grad + n * grad_steps[0] + step * grad_steps[1] + place
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
        t = tl.load(at + logit_steps[2], mask=inside, other=0)
        mean = tl.sum(share * t, 1)
        change = share * (t - mean[:, None]) * number
        tl.store(to + grad_steps[2], change, mask=inside)
    loss = tl.sum(tl.where(row < rows, loss, 0), 0)
    tl.store(losses + n * chunks + chunk, loss * number)


@triton.jit(do_not_specialize=["chunks", "out_step", "batch"])
def sum_chunks(
    parts,
    out,
    out_step,
    chunks,
    width,
    batch,
    ADD: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """``out[replica] = parts[replica].sum(0)``, or the same added."""
    n = (tl.program_id(0) % batch).to(tl.int64)
    place = tl.program_id(0) // batch * WIDTH + tl.arange(0, WIDTH)
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
    number,
    number_steps,
    tangent,
    tangent_steps,
    out,
    rows,
    channels,
    batch,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Put numbers and their tangents side by side."""
    work = tl.program_id(0)
    blocks = tl.cdiv(channels, WIDTH)
    n = (work % batch).to(tl.int64)
    place = (work // batch) % blocks * WIDTH + tl.arange(0, WIDTH)[None, :]
    row = (work // batch // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    inside = (row < rows) & (place < channels)
    at = number + n * number_steps[0] + row * number_steps[1] + place
    to = out + (n * rows + row) * 2 * channels + place
    tl.store(to, tl.load(at, mask=inside), mask=inside)
    at = tangent + n * tangent_steps[0] + row * tangent_steps[1] + place
    tl.store(to + channels, tl.load(at, mask=inside), mask=inside)


@triton.jit(do_not_specialize=["site", "threshold", "batch"])
def drop_stored(
    values,
    seeds,
    step,
    positions,
    site: tl.int64,
    threshold: tl.int64,
    out,
    size,
    batch,
    BLOCK: tl.constexpr,
):
    """Values with some of them dropped, differently for each replica."""
    n = (tl.program_id(0) % batch).to(tl.int64)
    place = (tl.program_id(0) // batch).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    keys = drop_keys(seeds, step, site, n)
    position = tl.load(positions + place, mask=inside, other=0)
    value = tl.load(values + place, mask=inside, other=0)
    value *= kept(keys, position, threshold, out)
    tl.store(out + n * size + place, value, mask=inside)


# Enough chunks to fill a large device, and few enough to be summed by one program.
_MOST = 1024
# Sums side by side that one program makes, and numbers that it holds.
_WIDTH, _NUMBERS = 16, 2048


class Chunks(NamedTuple):
    """How rows are cut into chunks.

    Attributes:
        number: How many there are.
        steps: Tiles of each, one below the other.
    """

    number: int
    steps: int


def chunks_of(rows: int, tile: int) -> Chunks:
    """Cut ``rows`` rows into chunks of whole tiles."""
    tiles = tiles_of(rows, tile)
    steps = max(tiles_of(tiles, _MOST), 1)
    return Chunks(tiles_of(tiles, steps), steps)


def bind_chunk_sums(parts: Tensor, out: Tensor, *, add: bool) -> Call:
    """``out = parts.sum(1)``, or the same added.

    Args:
        parts: ``[replicas, chunks, width]``.
        out: ``[replicas, width]``; replicas may lie apart.
        add: Whether to add.
    """
    replicas, chunks, size = parts.shape
    width = min(_WIDTH, size)
    width = 1 << (width - 1).bit_length()
    return bind_programs(
        sum_chunks,
        tiles_of(size, width) * replicas,
        parts,
        out,
        steps_of(out)[0],
        chunks,
        size,
        replicas,
        ADD=add,
        ROWS=_NUMBERS // width,
        WIDTH=width,
    )
