"""The attention step of ``gsebo.tape`` on CUDA, forwards.

Triton programs for the attention of entries, forwards and backwards.

Both ways take two passes over the entries: sums over each row, then what is left to do
for each entry. Heads lie side by side. Scores of nodes are ``[columns, 2, lanes,
heads]``, target and source; what belongs to entries is ``[entries, lanes, heads]``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from gsebo.sparse.kernels.triton_random import drop_keys, drop_tensors, kept
from gsebo.sparse.kernels.triton_schedule import schedule_of
from gsebo.sparse.pattern import Pattern
from gsebo.tape.backend import AttentionStep, Call
from gsebo.tape.cuda.heads import gather_segments, score_nodes
from gsebo.tape.cuda.products import (
    bind_parts,
    long_segments,
    read_segments,
    store_segments,
    tiling_of,
    whole_rows,
)
from gsebo.tape.cuda.rows import (
    bind_programs,
    blocks_of,
    in_turn,
    is_aligned,
    registers_of,
    steps_of,
    tile_width,
    tiles_of,
)

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators


# Less than any score, and still a number: differences of infinities would be NaN.
_LOWEST = tl.constexpr(-3e38)
_COUNTS = ["num_wide", "num_segments", "num_parts", "num_rows", "num_columns", "batch"]


@triton.jit
def _score(
    scores, row, column, place, inside, HEADS: tl.constexpr, SLOPE, LANES: tl.constexpr
):
    """Score of each entry, the slope that was taken, and the tangent if any."""
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
    scale = tl.exp(top - most[:, None, :])
    return most, tl.sum(norm * scale, 1), tl.sum(mean * scale, 1)


@triton.jit
def _softmax_segments(
    segments,
    span,
    columns,
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
    top = tl.full([TILE, WIDTH], _LOWEST, scores.dtype.element_ty)
    norm = tl.zeros([TILE, WIDTH], dtype=scores.dtype.element_ty)
    mean = tl.zeros([TILE, WIDTH], dtype=scores.dtype.element_ty)
    for offset in range(0, tl.max(length, 0), SHARED):
        stored = offset + lane < length
        column = tl.load(columns + start + offset + lane, mask=stored, other=0)
        inside = stored[:, None] & (place < HEADS)
        column = column.to(tl.int64)[:, None]
        x, _slope, change = _score(
            scores, row, column, place, inside, HEADS, SLOPE, LANES
        )
        x = tl.where(inside, x, _LOWEST)
        most = tl.maximum(top, x)
        power = tl.where(inside, tl.exp(x - most), 0)
        scale = tl.exp(top - most)
        norm = norm * scale + power
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
    columns,
    scores,
    sums,
    parts,
    num_wide,
    num_segments,
    num_parts,
    num_rows,
    num_columns,
    batch,
    HEADS: tl.constexpr,
    SLOPE: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    SHARED: tl.constexpr,
):
    """Maximum, sum of exponentials, and sum of tangents so weighted of each segment."""
    n = (tl.program_id(0) % batch).to(tl.int64)
    tile = tl.program_id(0) // batch
    scores += n * num_columns * (2 * LANES * HEADS)
    sums += n * num_rows * (3 * HEADS)
    parts += n * num_parts * (3 * HEADS)
    target = (sums, 3 * HEADS, parts, 3 * HEADS)
    if tile < num_wide:
        span = (tile, num_wide, num_parts)
        _softmax_segments(
            segments, span, columns, scores, target, HEADS,
            SLOPE, LANES, WIDTH, TILE, TILE,
        )  # fmt: skip
    else:
        span = (num_wide + (tile - num_wide) * (TILE // SHARED), num_segments, 0)
        _softmax_segments(
            segments, span, columns, scores, target, HEADS,
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
    top = tl.full([TILE, WIDTH], _LOWEST, sums.dtype.element_ty)
    norm = tl.zeros([TILE, WIDTH], dtype=sums.dtype.element_ty)
    mean = tl.zeros([TILE, WIDTH], dtype=sums.dtype.element_ty)
    for first in range(start, stop, TILE):
        part = (first + tl.arange(0, TILE)).to(tl.int64)[:, None]
        inside = (part < stop) & (place < HEADS)
        at = parts + part * (3 * HEADS) + place
        found = tl.load(at, mask=inside, other=_LOWEST)
        most = tl.maximum(top, found)
        scale, new = tl.exp(top - most), tl.exp(found - most)
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


@triton.jit(
    do_not_specialize=[
        "site", "threshold", "whole", "num_entries", "num_rows", "num_columns", "batch",
    ]
)  # fmt: skip
def attend_entries(
    rows,
    columns,
    entries,
    scores,
    sums,
    strength,
    seeds,
    step,
    positions,
    site: tl.int64,
    threshold: tl.int64,
    whole: tl.int64,
    share,
    weighted,
    num_entries,
    num_rows,
    num_columns,
    batch,
    HEADS: tl.constexpr,
    SLOPE: tl.constexpr,
    DROPPED: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """Attention of each entry before dropout, and after it, times strength.

    Attention is never negative, so its sign is free to say on which side of the leaky
    ReLU the score was: it is stored with a minus where the slope applied.
    """
    n = (tl.program_id(0) % batch).to(tl.int64)
    at = (tl.program_id(0) // batch).to(tl.int64) * TILE + tl.arange(0, TILE)
    stored = at < num_entries
    row = tl.load(rows + at, mask=stored, other=0).to(tl.int64)[:, None]
    column = tl.load(columns + at, mask=stored, other=0).to(tl.int64)[:, None]
    entry = tl.load(entries + at, mask=stored, other=0).to(tl.int64)
    place = tl.arange(0, WIDTH)[None, :]
    inside = stored[:, None] & (place < HEADS)
    scores += n * num_columns * (2 * LANES * HEADS)
    x, slope, change = _score(scores, row, column, place, inside, HEADS, SLOPE, LANES)
    in_sums = sums + (n * num_rows + row) * (3 * HEADS) + place
    top = tl.load(in_sums, mask=inside, other=0)
    norm = tl.load(in_sums + HEADS, mask=inside, other=1)
    part = tl.exp(x - top) / norm
    factor = tl.load(strength + n * num_entries + entry, mask=stored, other=0)[:, None]
    if DROPPED:
        keys = drop_keys(seeds, step, site, n)
        position = tl.load(positions + entry, mask=stored, other=0)[:, None]
        factor = factor * kept(keys, position + place * whole, threshold, share)
    to = (n * num_entries + entry)[:, None] * (LANES * HEADS) + place
    tl.store(share + to, tl.where(slope == 1, part, -part), mask=inside)
    tl.store(weighted + to, part * factor, mask=inside)
    if LANES == 2:
        mean = tl.load(in_sums + 2 * HEADS, mask=inside, other=0) / norm
        change = part * (change - mean)
        tl.store(share + to + HEADS, change, mask=inside)
        tl.store(weighted + to + HEADS, change * factor, mask=inside)


# Numbers that a program holds of each tensor.
NUMBERS = 512
# Rows of a tile at most: every thread holds the indices of several.
TALLEST = 128
# Channels of all heads that a program takes together.
_GROUP_CHANNELS = 64


class AttentionMemory(NamedTuple):
    """What an attention step keeps from its way forwards for its way back.

    Attributes:
        scores: Of the nodes, ``[replicas, columns, 2, lanes, heads]``.
        share: Attention before dropout, ``[replicas, entries, lanes, heads]``, with a
            minus where the score was on the flat side of the leaky ReLU.
        weighted: Attention after dropout, times strength; of the same shape.
    """

    scores: Tensor
    share: Tensor
    weighted: Tensor

    @classmethod
    def of(cls, step: AttentionStep) -> AttentionMemory:
        """Allocate it, for both directions."""
        replicas, columns, lanes, _ = step.message.shape
        of_entries = replicas, step.pattern.num_entries, lanes, step.heads
        return cls(
            step.message.new_empty(replicas, columns, 2, lanes, step.heads),
            step.message.new_empty(of_entries),
            step.message.new_empty(of_entries),
        )


def attention_forward(
    step: AttentionStep, memory: AttentionMemory, out: Tensor
) -> list[Call]:
    """Calls that compute an attention step."""
    replicas, columns, lanes, _ = step.message.shape
    tile = tile_of_groups(step)
    scores = bind_programs(
        score_nodes,
        tiles_of(columns, tile["TILE"]) * groups_of(step) * replicas,
        step.message,
        steps_of(step.message),
        step.weight,
        step.tangent,
        steps_of(step.weight)[0],
        memory.scores,
        columns,
        replicas,
        HEADS=step.heads,
        CHANNELS=step.channels,
        LANES=lanes,
        **tile,
    )
    return [
        scores,
        *_softmax(step, memory),
        bind_gather(step.pattern, step, memory, step.message, out, add=False),
    ]


def bind_gather(
    pattern: Pattern,
    step: AttentionStep,
    memory: AttentionMemory,
    x: Tensor,
    out: Tensor,
    *,
    add: bool,
) -> Call:
    """Sum ``x`` over the entries, weighted.

    Args:
        pattern: That of the step, or for the way back its transpose.
        step: The step.
        memory: With the weights.
        x: What to sum, ``[replicas, columns, lanes, heads * channels]``.
        out: Where to; with two lanes in ``x`` and one here, only the tangent.
        add: Whether to add to ``out``.
    """
    replicas, _, out_lanes, size = out.shape
    schedule = schedule_of(pattern)
    width = tile_width(size)
    held = step.lanes * registers_of(x)
    tiling = tiling_of(schedule, width, blocks_of(size) * replicas, held)
    parts = out.new_empty(replicas, schedule.num_parts, out_lanes * size)
    sums = bind_programs(
        gather_segments,
        tiling.programs,
        schedule.segments,
        pattern.columns,
        pattern.entries,
        memory.weighted,
        x,
        steps_of(x),
        out,
        steps_of(out),
        parts,
        long_segments(schedule),
        schedule.class_ends[-1],
        schedule.num_parts,
        pattern.num_entries,
        size,
        replicas,
        ADD=add,
        HEADS=step.heads,
        CHANNELS=step.channels,
        LANES=step.lanes,
        OUT_LANES=out_lanes,
        WIDTH=width,
        TILE=tiling.tile,
        SHARED=tiling.lanes,
        num_warps=tiling.warps,
    )
    return in_turn(sums, bind_parts(schedule, parts, whole_rows(out), add=add))


def mask_arguments(step: AttentionStep) -> tuple[Any, ...]:
    """What the kernels over entries want to know of dropout."""
    return *drop_tensors(step.drop, step.message.device), step.whole_entries


def width_of_heads(step: AttentionStep) -> int:
    """Width of a tile that holds all heads."""
    power: int = triton.next_power_of_2(step.heads)
    return power


def tile_of_heads(width: int) -> int:
    """Rows of a tile that holds all heads."""
    return min(max(NUMBERS // width, 1), TALLEST)


def tile_of_groups(step: AttentionStep) -> dict[str, int]:
    """Tile over the channels of so many heads that their rows are read at once."""
    # Without alignment every number needs an address of its own.
    aligned = step.channels % 4 == 0 and is_aligned(step.message)
    width = min(tile_width(step.channels), 32 if aligned else 16)
    group = max(min(width_of_heads(step), _GROUP_CHANNELS // width), 1)
    rows = (2 * NUMBERS if aligned else NUMBERS) // (width * group)
    return {"GROUP": group, "WIDTH": width, "TILE": min(rows, TALLEST)}


def groups_of(step: AttentionStep) -> int:
    """Number of groups of heads."""
    return tiles_of(step.heads, tile_of_groups(step)["GROUP"])


def _softmax(step: AttentionStep, memory: AttentionMemory) -> list[Call]:
    """Sums over rows, then the attention of each entry."""
    pattern, heads = step.pattern, step.heads
    replicas, columns, lanes, _ = step.message.shape
    schedule = schedule_of(pattern)
    width = width_of_heads(step)
    tile = tile_of_heads(width)
    held = memory.scores.element_size() // 4
    tiling = tiling_of(schedule, width, replicas, held)
    sums = memory.scores.new_empty(replicas, pattern.num_rows, 3 * heads)
    parts = memory.scores.new_empty(replicas, schedule.num_parts, 3 * heads)
    over_segments = bind_programs(
        softmax_segments,
        tiling.programs,
        schedule.segments,
        pattern.columns,
        memory.scores,
        sums,
        parts,
        long_segments(schedule),
        schedule.class_ends[-1],
        schedule.num_parts,
        pattern.num_rows,
        columns,
        replicas,
        HEADS=heads,
        SLOPE=step.slope,
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
        TILE=tile,
    )
    of_entries = bind_programs(
        attend_entries,
        tiles_of(pattern.num_entries, tile) * replicas,
        pattern.rows,
        pattern.columns,
        pattern.entries,
        memory.scores,
        sums,
        step.strength,
        *mask_arguments(step),
        memory.share,
        memory.weighted,
        pattern.num_entries,
        pattern.num_rows,
        columns,
        replicas,
        HEADS=heads,
        SLOPE=step.slope,
        DROPPED=step.drop is not None,
        LANES=lanes,
        WIDTH=width,
        TILE=tile,
    )
    return [in_turn(over_segments, over_parts), of_entries]
