"""Triton programs for the softmax of rows: maximum and sum of exponentials of each.

What is left to do for an entry follows from those of its row, in a second pass over the
entries in their own order: where they are scattered, as in a transposed pattern,
writing them row by row costs eight times their size.
"""

import triton
import triton.language as tl
from torch import Tensor

from gsebo.sparse.kernels.backend import Call
from gsebo.sparse.kernels.triton_schedule import schedule_of
from gsebo.sparse.kernels.triton_segments import (
    bind_programs,
    in_turn,
    long_segments,
    read_segments,
    store_segments,
    tiling_of,
)
from gsebo.sparse.pattern import Pattern

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators

# Parts of rows that were cut, joined at a time.
_PARTS = 128
_COUNTS = ["num_wide", "num_segments", "num_parts", "num_rows", "score_step", "batch"]


@triton.jit
def _finite(top):
    """What to subtract: without any finite score, differences would be NaN."""
    return tl.where(top == -float("inf"), 0, top)


@triton.jit
def score_entries(
    scores, row, column, place, inside, HEADS: tl.constexpr, SLOPE, LANES: tl.constexpr
):
    """Score of each entry, the slope that was taken, and the tangent if any.

    It is the leaky ReLU of the sum of a score of the row and one of the column.
    """
    target = scores + row * (2 * LANES * HEADS) + place
    source = scores + (column * 2 + 1) * (LANES * HEADS) + place
    x = tl.load(target, mask=inside, other=0) + tl.load(source, mask=inside, other=0)
    slope = tl.where(x > 0, tl.full(x.shape, 1, x.dtype), SLOPE)
    change = x
    if LANES == 2:
        change = tl.load(target + HEADS, mask=inside, other=0)
        change += tl.load(source + HEADS, mask=inside, other=0)
    return x * slope, slope, change * slope


@triton.jit
def _join(top, norm, mean):
    """Join sums along axis 1 that were taken relative to different maxima."""
    most = tl.max(top, 1)
    scale = tl.exp(top - _finite(most)[:, None, :])
    return most, tl.sum(norm * scale, 1), tl.sum(mean * scale, 1)


@triton.jit
def _softmax_segments(
    segments,
    span,
    indices,
    scores,
    target,
    HEADS: tl.constexpr,
    SLOPE: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    SHARED: tl.constexpr,
):
    first, last = span[0], span[1]
    out, out_row, parts, part_row = target
    start, lane, length = read_segments(segments, span, TILE, SHARED)
    segment = first + tl.arange(0, TILE) // SHARED
    row = tl.load(segments.row + segment, mask=segment < last, other=0)
    row = row.to(tl.int64)[:, None]
    place = tl.arange(0, WIDTH)[None, :]
    top = tl.full([TILE, WIDTH], -float("inf"), scores.dtype.element_ty)
    norm = tl.zeros([TILE, WIDTH], dtype=scores.dtype.element_ty)
    mean = tl.zeros([TILE, WIDTH], dtype=scores.dtype.element_ty)
    for offset in range(0, tl.max(length, 0), SHARED):
        stored = offset + lane < length
        index = tl.load(indices + start + offset + lane, mask=stored, other=0)
        index = index.to(tl.int64)[:, None]
        inside = stored[:, None] & (place < HEADS)
        if LANES == 0:
            x = tl.load(scores + index * HEADS + place, mask=inside, other=0)
            change = x
        else:
            x, _slope, change = score_entries(
                scores, row, index, place, inside, HEADS, SLOPE, LANES
            )
        x = tl.where(inside, x, -float("inf"))
        most = tl.maximum(top, x)
        shift = _finite(most)
        power = tl.where(inside, tl.exp(x - shift), 0)
        scale = tl.exp(top - shift)
        norm = norm * scale + power
        if LANES == 2:
            mean = mean * scale + power * change
        top = most
    shape: tl.constexpr = [TILE // SHARED, SHARED, WIDTH]
    top, norm, mean = _join(
        tl.reshape(top, shape), tl.reshape(norm, shape), tl.reshape(mean, shape)
    )
    store_segments(segments, span, top, target, place, HEADS, False)
    target = (out + HEADS, out_row, parts + HEADS, part_row)
    store_segments(segments, span, norm, target, place, HEADS, False)
    target = (out + 2 * HEADS, out_row, parts + 2 * HEADS, part_row)
    store_segments(segments, span, mean, target, place, HEADS, False)


@triton.jit(do_not_specialize=_COUNTS)
def softmax_segments(
    segments,
    indices,
    scores,
    sums,
    parts,
    num_wide,
    num_segments,
    num_parts,
    num_rows,
    score_step,
    batch,
    HEADS: tl.constexpr,
    SLOPE: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    SHARED: tl.constexpr,
):
    """Maximum, sum of exponentials, and sum of tangents so weighted of each segment.

    Scores are those of nodes, with so many lanes, and ``indices`` are columns; or, with
    ``LANES`` 0, they are those of entries, and ``indices`` are these.
    """
    n = (tl.program_id(0) % batch).to(tl.int64)
    tile = tl.program_id(0) // batch
    scores += n * score_step
    sums += n * num_rows * (3 * HEADS)
    parts += n * num_parts * (3 * HEADS)
    target = (sums, 3 * HEADS, parts, 3 * HEADS)
    if tile < num_wide:
        span = (tile, num_wide, num_parts)
        _softmax_segments(
            segments, span, indices, scores, target, HEADS,
            SLOPE, LANES, WIDTH, TILE, TILE,
        )  # fmt: skip
    else:
        span = (num_wide + (tile - num_wide) * (TILE // SHARED), num_segments, 0)
        _softmax_segments(
            segments, span, indices, scores, target, HEADS,
            SLOPE, LANES, WIDTH, TILE, SHARED,
        )  # fmt: skip


@triton.jit(do_not_specialize=["num_parts", "num_rows", "batch"])
def join_parts(
    part_begin,
    row_of_segment,
    parts,
    sums,
    num_parts,
    num_rows,
    batch,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """The same for the rows that were cut, from their parts."""
    n = (tl.program_id(0) % batch).to(tl.int64)
    cut = tl.program_id(0) // batch
    start, stop = tl.load(part_begin + cut), tl.load(part_begin + cut + 1)
    parts += n * num_parts * (3 * HEADS)
    place = tl.arange(0, WIDTH)[None, :]
    top = tl.full([TILE, WIDTH], -float("inf"), sums.dtype.element_ty)
    norm = tl.zeros([TILE, WIDTH], dtype=sums.dtype.element_ty)
    mean = tl.zeros([TILE, WIDTH], dtype=sums.dtype.element_ty)
    for first in range(start, stop, TILE):
        part = (first + tl.arange(0, TILE)).to(tl.int64)[:, None]
        inside = (part < stop) & (place < HEADS)
        at = parts + part * (3 * HEADS) + place
        found = tl.load(at, mask=inside, other=-float("inf"))
        most = tl.maximum(top, found)
        shift = _finite(most)
        scale, new = tl.exp(top - shift), tl.exp(found - shift)
        norm = norm * scale + new * tl.load(at + HEADS, mask=inside, other=0)
        mean = mean * scale + new * tl.load(at + 2 * HEADS, mask=inside, other=0)
        top = most
    shape: tl.constexpr = [1, TILE, WIDTH]
    top, norm, mean = _join(
        tl.reshape(top, shape), tl.reshape(norm, shape), tl.reshape(mean, shape)
    )
    row = tl.load(row_of_segment + start).to(tl.int64)
    to = sums + (n * num_rows + row) * (3 * HEADS) + place
    tl.store(to, top, mask=place < HEADS)
    tl.store(to + HEADS, norm, mask=place < HEADS)
    tl.store(to + 2 * HEADS, mean, mask=place < HEADS)


def bind_softmax_sums(
    pattern: Pattern,
    indices: Tensor,
    scores: Tensor,
    sums: Tensor,
    *,
    lanes: int,
    slope: float = 1.0,
) -> Call:
    """Maximum, sum of exponentials and weighted tangents of each row.

    Args:
        pattern: With the rows.
        indices: Where each stored position has its score: its column, or its entry.
        scores: Of nodes, ``[replicas, columns, 2, lanes, heads]``, or of entries,
            ``[replicas, entries]``.
        sums: ``[replicas, rows, 3 * heads]``.
        lanes: Of the scores of nodes; 0 for scores of entries.
        slope: Of the leaky ReLU of scores of nodes.
    """
    replicas, _, heads = sums.shape
    heads //= 3
    schedule = schedule_of(pattern)
    width: int = triton.next_power_of_2(heads)
    tiling = tiling_of(schedule, width, replicas, scores.element_size() // 4)
    parts = scores.new_empty(replicas, schedule.num_parts, 3 * heads)
    over_segments = bind_programs(
        softmax_segments,
        tiling.programs,
        schedule.segments,
        indices,
        scores,
        sums,
        parts,
        long_segments(schedule),
        schedule.class_ends[-1],
        schedule.num_parts,
        pattern.num_rows,
        scores[0].numel(),
        replicas,
        HEADS=heads,
        SLOPE=slope,
        LANES=lanes,
        WIDTH=width,
        TILE=tiling.tile,
        SHARED=tiling.lanes,
        num_warps=tiling.warps,
    )
    over_parts = bind_programs(
        join_parts,
        schedule.num_cut * replicas,
        schedule.part_begin,
        schedule.segments.row,
        parts,
        sums,
        schedule.num_parts,
        pattern.num_rows,
        replicas,
        HEADS=heads,
        WIDTH=width,
        TILE=max(_PARTS // width, 1),
    )
    return in_turn(over_segments, over_parts)
