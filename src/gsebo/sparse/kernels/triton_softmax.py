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
    bind_segments,
    in_turn,
    load_dual,
    plus,
    read_segments,
    short_span,
    store_segments,
    times,
    wide_span,
)
from gsebo.sparse.pattern import Pattern

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators

# Parts of rows that were cut, joined at a time.
_PARTS = 128


@triton.jit
def _finite(top):
    """What to subtract: without any finite score, differences would be NaN."""
    return tl.where(top == -float("inf"), 0, top)


@triton.jit
def score_entries(
    scores, row, column, place, inside, HEADS: tl.constexpr, SLOPE, LANES: tl.constexpr
):
    """Score of each entry, and the slope that was taken.

    It is the leaky ReLU of the sum of a score of the row and one of the column.
    """
    target = scores + row * (2 * LANES * HEADS) + place
    source = scores + (column * 2 + 1) * (LANES * HEADS) + place
    x = load_dual(target, HEADS, inside, LANES)
    x = plus(x, load_dual(source, HEADS, inside, LANES))
    slope = tl.where(x[0] > 0, tl.full(x[0].shape, 1, x[0].dtype), SLOPE)
    return times(x, (slope,)), slope


@triton.jit
def _join(top, norm, mean):
    """Join sums along axis 1 that were taken relative to different maxima."""
    most = tl.max(top, 1)
    scale = tl.exp(top - _finite(most)[:, None, :])
    return most, tl.sum(norm * scale, 1), tl.sum(mean * scale, 1)


@triton.jit
def _softmax_segments(
    segments, span, indices, scores, target, HEADS: tl.constexpr, SLOPE: tl.constexpr,
    LANES: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    first, last = span[0], span[1]
    out, out_row, parts, part_row = target
    start, rank, length = read_segments(segments, span, TILE, SHARED)
    segment = first + tl.arange(0, TILE) // SHARED
    row = tl.load(segments.row + segment, mask=segment < last, other=0)
    row = row.to(tl.int64)[:, None]
    place = tl.arange(0, WIDTH)[None, :]
    top = tl.full([TILE, WIDTH], -float("inf"), scores.dtype.element_ty)
    norm = tl.zeros([TILE, WIDTH], dtype=scores.dtype.element_ty)
    mean = tl.zeros([TILE, WIDTH], dtype=scores.dtype.element_ty)
    for offset in range(0, tl.max(length, 0), SHARED):
        stored = offset + rank < length
        index = tl.load(indices + start + offset + rank, mask=stored, other=0)
        index = index.to(tl.int64)[:, None]
        inside = stored[:, None] & (place < HEADS)
        if LANES == 0:
            score = (tl.load(scores + index * HEADS + place, mask=inside, other=0),)
        else:
            score, _slope = score_entries(
                scores, row, index, place, inside, HEADS, SLOPE, LANES
            )
        x = tl.where(inside, score[0], -float("inf"))
        most = tl.maximum(top, x)
        shift = _finite(most)
        power = tl.where(inside, tl.exp(x - shift), 0)
        scale = tl.exp(top - shift)
        norm = norm * scale + power
        if LANES == 2:
            mean = mean * scale + power * score[LANES - 1]
        top = most
    shape: tl.constexpr = [TILE // SHARED, SHARED, WIDTH]
    top, norm, mean = _join(
        tl.reshape(top, shape), tl.reshape(norm, shape), tl.reshape(mean, shape)
    )
    found = (top, norm, mean)
    for which in tl.static_range(3):
        to = (out + which * HEADS, out_row, parts + which * HEADS, part_row)
        store_segments(segments, span, found[which], to, place, HEADS, False)


@triton.jit(
    do_not_specialize=[
        "num_wide", "num_segments", "num_parts", "num_rows", "score_step", "batch"
    ]
)  # fmt: skip
def softmax_segments(
    segments, num_wide, num_segments, num_parts, parts,
    indices, scores, sums, num_rows, score_step, batch,
    HEADS: tl.constexpr, SLOPE: tl.constexpr, LANES: tl.constexpr,
    WIDTH: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
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
    if tile < tl.cdiv(num_wide, TILES[0] // TILES[1]):
        span = wide_span(tile, num_wide, num_parts, TILES)
        _softmax_segments(
            segments, span, indices, scores, target, HEADS,
            SLOPE, LANES, WIDTH, TILES[0], TILES[1],
        )  # fmt: skip
    else:
        span = short_span(tile, num_wide, num_segments, TILES)
        _softmax_segments(
            segments, span, indices, scores, target, HEADS,
            SLOPE, LANES, WIDTH, TILES[0], TILES[2],
        )  # fmt: skip


@triton.jit(do_not_specialize=["num_parts", "num_rows", "batch"])
def join_parts(
    part_begin, row_of_segment, parts, sums, num_parts, num_rows, batch,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
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

    Each stored position has its score at ``indices``: its column, for scores of nodes
    ``[replicas, columns, 2, lanes, heads]``, or its entry, for those of entries
    ``[replicas, entries]``, with ``lanes`` 0. The sums are ``[replicas, rows, 3 *
    heads]``.
    """
    replicas, num_rows, heads = sums.shape
    heads //= 3
    schedule = schedule_of(pattern)
    width: int = triton.next_power_of_2(heads)
    parts = scores.new_empty(replicas, schedule.num_parts, 3 * heads)
    sizes = {"HEADS": heads, "WIDTH": width}
    over_segments = bind_segments(
        softmax_segments,
        schedule,
        parts,
        *(indices, scores, sums, num_rows, scores[0].numel(), replicas),
        width=width,
        copies=replicas,
        held=scores.element_size() // 4,
        SLOPE=slope,
        LANES=lanes,
        **sizes,
    )
    index = schedule.part_begin, schedule.segments.row
    over_parts = bind_programs(
        join_parts,
        schedule.num_cut * replicas,
        *(*index, parts, sums, schedule.num_parts, num_rows, replicas),
        **sizes,
        TILE=max(_PARTS // width, 1),
    )
    return in_turn(over_segments, over_parts)
