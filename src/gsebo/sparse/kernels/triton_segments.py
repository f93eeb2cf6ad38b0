"""Triton programs over the segments and entries of a sparse matrix, and their launch.

Rows of what they read and write may lie apart, so that tangents can be propagated alone
and gradients by weights go where they belong without a copy. Where there are too few
rows to fill the device, more lanes share a row. Nothing is added by atomics.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gsebo.sparse.kernels.backend import Call
from gsebo.sparse.kernels.triton_schedule import SegmentSchedule
from gsebo.sparse.pattern import Pattern

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators

# Channels of a row that one program takes at most.
_MOST_CHANNELS = 128


def bind_programs(
    kernel: Any, programs: int, *arguments: Any, **constants: Any
) -> Call:
    """Return the call that starts ``programs`` programs of a kernel."""
    if programs == 0:
        return _nothing
    launch = kernel[(programs,)]
    like = next(each for each in arguments if isinstance(each, Tensor))

    def call() -> None:
        with torch.cuda.device_of(like):
            launch(*arguments, **constants)

    return call


def in_turn(*calls: Call) -> Call:
    """Return one call that makes several, one after the other."""
    needed = [call for call in calls if call is not _nothing]
    if len(needed) == 1:
        return needed[0]

    def call_all() -> None:
        for call in needed:
            call()

    return call_all


def tile_width(channels: int) -> int:
    """Width of a tile over so many channels."""
    power: int = triton.next_power_of_2(max(channels, 1))
    return min(power, _MOST_CHANNELS)


def blocks_of(channels: int) -> int:
    """Number of tiles side by side."""
    return tiles_of(channels, tile_width(channels))


def tiles_of(size: int, tile: int) -> int:
    """Number of tiles that cover ``size``."""
    return -(-size // tile)


def steps_of(x: Tensor) -> tuple[int, ...]:
    """Distances along all axes but the last; none along a batch of one."""
    first = x.stride(0) if x.shape[0] > 1 else 0
    return first, *x.stride()[1:-1]


def is_aligned(x: Tensor) -> bool:
    """Whether kernels read rows of it several numbers at a time."""
    # Of integers that a kernel is called with it knows whether 16 divides them.
    sizes = (*steps_of(x), x.shape[-1])
    return x.data_ptr() % 16 == 0 and all(size % 16 == 0 for size in sizes)


def registers_of(x: Tensor) -> int:
    """Registers for each number of a tile: its own, and those of its address."""
    return max(x.element_size() // 4, 1) * (1 if is_aligned(x) else 2)


def _nothing() -> None:
    """Start no programs."""


_COUNTS = ["num_wide", "num_segments", "num_parts", "value_step", "batch"]


@triton.jit
def read_segments(segments, span, TILE: tl.constexpr, LANES: tl.constexpr):
    """``TILE // LANES`` segments: start, lane and length for each of ``TILE`` lanes."""
    first, last = span[0], span[1]
    segment = first + tl.arange(0, TILE) // LANES
    start = tl.load(segments.begin + segment, mask=segment < last, other=0)
    length = tl.load(segments.length + segment, mask=segment < last, other=0)
    return start, tl.arange(0, TILE) % LANES, length


@triton.jit
def store_segments(segments, span, total, target, place, width, ADD: tl.constexpr):
    """Write sums of segments to their rows, or to the parts of a row that was cut.

    Args:
        segments: All of them.
        span: The first one of these, one past the last, and how many are parts.
        total: A row of numbers for each.
        target: Where rows begin and how far apart they are, and the same of parts.
        place: Of the numbers in a row.
        width: Numbers beyond are none.
        ADD: Whether to add to the rows.
    """
    first, last, num_parts = span
    out, out_row, parts, part_row = target
    segment = first + tl.arange(0, total.shape[0])
    inside = (segment < last)[:, None] & (place < width)
    is_part = (segment < num_parts)[:, None]
    at = segment.to(tl.int64)[:, None] * part_row + place
    tl.store(parts + at, total, mask=inside & is_part)
    row = tl.load(segments.row + segment, mask=segment < last, other=0)
    to = out + row.to(tl.int64)[:, None] * out_row + place
    inside &= segment[:, None] >= num_parts
    if ADD:
        total += tl.load(to, mask=inside, other=0)
    tl.store(to, total, mask=inside)


@triton.jit
def _read_entries(matrix, at, stored, WEIGHTED: tl.constexpr):
    """Column and value of one entry for each lane."""
    columns, entries, values = matrix
    column = tl.load(columns + at, mask=stored, other=0)
    value = stored.to(values.dtype.element_ty)
    if WEIGHTED:
        entry = tl.load(entries + at, mask=stored, other=0)
        value = tl.load(values + entry, mask=stored, other=0)
    return column.to(tl.int64)[:, None], value[:, None]


@triton.jit
def _sum_segments(
    segments,
    span,
    matrix,
    dense,
    target,
    WEIGHTED: tl.constexpr,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
):
    """Sum ``TILE // LANES`` segments; each lane takes every ``LANES``-th entry."""
    x, x_row, place, width = dense
    start, lane, length = read_segments(segments, span, TILE, LANES)
    wide = place < width
    total = tl.zeros([TILE, place.shape[1]], dtype=x.dtype.element_ty)
    for offset in range(0, tl.max(length, 0), 4 * LANES):
        # All reads before the first sum, so that they wait together.
        o0 = offset + lane
        o1, o2, o3 = o0 + LANES, o0 + 2 * LANES, o0 + 3 * LANES
        c0, v0 = _read_entries(matrix, start + o0, o0 < length, WEIGHTED)
        c1, v1 = _read_entries(matrix, start + o1, o1 < length, WEIGHTED)
        c2, v2 = _read_entries(matrix, start + o2, o2 < length, WEIGHTED)
        c3, v3 = _read_entries(matrix, start + o3, o3 < length, WEIGHTED)
        x0 = tl.load(x + c0 * x_row + place, (o0 < length)[:, None] & wide, other=0)
        x1 = tl.load(x + c1 * x_row + place, (o1 < length)[:, None] & wide, other=0)
        x2 = tl.load(x + c2 * x_row + place, (o2 < length)[:, None] & wide, other=0)
        x3 = tl.load(x + c3 * x_row + place, (o3 < length)[:, None] & wide, other=0)
        total += v0 * x0
        total += v1 * x1
        total += v2 * x2
        total += v3 * x3
    total = tl.reshape(total, [TILE // LANES, LANES, place.shape[1]])
    total = tl.sum(total, 1)
    store_segments(segments, span, total, target, place, width, False)


@triton.jit(do_not_specialize=_COUNTS)
def spmm_segments(
    segments,
    columns,
    entries,
    values,
    x,
    x_steps,
    out,
    out_steps,
    parts,
    num_wide,
    num_segments,
    num_parts,
    channels,
    value_step,
    batch,
    WEIGHTED: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
):
    """Weighted sum of the rows of ``x`` over each segment.

    The first ``num_wide`` segments are long and get a program each; of the others a
    program takes ``TILE // LANES``.
    """
    blocks = tl.cdiv(channels, WIDTH)
    work = tl.program_id(0)
    n = (work % batch).to(tl.int64)
    place = (work // batch) % blocks * WIDTH + tl.arange(0, WIDTH)[None, :]
    tile = work // batch // blocks
    matrix = (columns, entries, values + n * value_step)
    dense = (x + n * x_steps[0], x_steps[1], place, channels)
    parts += n * num_parts * channels
    target = (out + n * out_steps[0], out_steps[1], parts, channels)
    if tile < num_wide:
        span = (tile, num_wide, num_parts)
        _sum_segments(segments, span, matrix, dense, target, WEIGHTED, TILE, TILE)
    else:
        first = num_wide + (tile - num_wide) * (TILE // LANES)
        # Nothing that is short was cut.
        span = (first, num_segments, 0)
        _sum_segments(segments, span, matrix, dense, target, WEIGHTED, TILE, LANES)


@triton.jit(do_not_specialize=["num_parts", "batch"])
def add_parts(
    part_begin,
    row_of_segment,
    parts,
    out,
    out_steps,
    num_parts,
    channels,
    batch,
    ADD: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """Sum of the parts of each row that was cut, in a fixed order."""
    blocks = tl.cdiv(channels, WIDTH)
    work = tl.program_id(0)
    n = (work % batch).to(tl.int64)
    place = (work // batch) % blocks * WIDTH + tl.arange(0, WIDTH)
    cut = work // batch // blocks
    start, stop = tl.load(part_begin + cut), tl.load(part_begin + cut + 1)
    total = tl.zeros([TILE, WIDTH], dtype=parts.dtype.element_ty)
    for first in range(start, stop, TILE):
        part = first + tl.arange(0, TILE)
        inside = (part < stop)[:, None] & (place < channels)[None, :]
        at = (n * num_parts + part)[:, None] * channels + place[None, :]
        total += tl.load(parts + at, mask=inside, other=0)
    found = tl.sum(total, 0)
    row = tl.load(row_of_segment + start).to(tl.int64)
    to = out + n * out_steps[0] + row * out_steps[1] + place
    if ADD:
        found += tl.load(to, mask=place < channels, other=0)
    tl.store(to, found, mask=place < channels)


@triton.jit(do_not_specialize=["num_entries", "batch"])
def dot_entries(
    rows,
    columns,
    entries,
    a,
    a_steps,
    b,
    b_steps,
    out,
    num_entries,
    channels,
    batch,
    ADD: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """``a[row] . b[column]`` of entries, or with two lanes its tangent."""
    work = tl.program_id(0)
    n = (work % batch).to(tl.int64)
    position = (work // batch).to(tl.int64) * TILE + tl.arange(0, TILE)
    stored = position < num_entries
    row = tl.load(rows + position, mask=stored, other=0).to(tl.int64)[:, None]
    column = tl.load(columns + position, mask=stored, other=0).to(tl.int64)[:, None]
    entry = tl.load(entries + position, mask=stored, other=0)
    a += n * a_steps[0] + row * a_steps[1]
    b += n * b_steps[0] + column * b_steps[1]
    total = tl.zeros([TILE, WIDTH], dtype=out.dtype.element_ty)
    for first in range(0, channels, WIDTH):
        place = first + tl.arange(0, WIDTH)[None, :]
        inside = stored[:, None] & (place < channels)
        left = tl.load(a + place, mask=inside, other=0)
        right = tl.load(b + (LANES - 1) * b_steps[2] + place, mask=inside, other=0)
        total += left * right
        if LANES == 2:
            left = tl.load(a + a_steps[2] + place, mask=inside, other=0)
            right = tl.load(b + place, mask=inside, other=0)
            total += left * right
    to = out + n * num_entries + entry
    found = tl.sum(total, 1)
    if ADD:
        found += tl.load(to, mask=stored, other=0)
    tl.store(to, found, mask=stored)


# Numbers that a program holds of each tensor where rows are many, and where they are
# few, with so many lanes to a row.
_MANY_ROWS, _FEW_ROWS, _FEW_ROWS_LANES = 512, 2048, 8
# Every thread holds the indices of several rows of a tile: more would not fit.
_TALLEST = 128
# As many programs run at once on a large device.
_AT_ONCE = 2048
# Numbers of parts that are summed at once.
_PARTS = 2048


class Tiling(NamedTuple):
    """Which segments a program takes.

    Attributes:
        tile: Rows of a tile.
        lanes: How many of them share a segment that is not long.
        programs: Number of programs.
        warps: Of each program.
    """

    tile: int
    lanes: int
    programs: int
    warps: int


def long_segments(schedule: SegmentSchedule) -> int:
    """How many segments are worth a program of their own; they come first."""
    return schedule.class_ends[1]


def tiling_of(schedule: SegmentSchedule, width: int, copies: int, held: int) -> Tiling:
    """Choose tiles for a kernel over the segments of a pattern.

    Where rows are many, the fewest lanes that read whole sectors of memory. Where they
    are few the device is not full anyway, and more lanes end sooner.

    Args:
        schedule: The segments.
        width: Channels of a tile.
        copies: How often all segments are worked on, for more channels and replicas.
        held: Registers that a program needs for each number of the tile.
    """
    wide = long_segments(schedule)
    short = schedule.class_ends[-1] - wide
    tile, lanes, warps = _FEW_ROWS // (width * held), _FEW_ROWS_LANES, 4
    if short * lanes * copies > _AT_ONCE * tile:
        tile, lanes, warps = _MANY_ROWS // (width * held), max(16 // width, 1), 2
    tile = min(max(tile, 1), _TALLEST)
    lanes = min(lanes, tile)
    programs = wide + tiles_of(short, tile // lanes)
    return Tiling(tile, lanes, programs * copies, warps)


def bind_sums(
    schedule: SegmentSchedule,
    columns: Tensor,
    entries: Tensor,
    values: Tensor | None,
    x: Tensor,
    out: Tensor,
) -> Call:
    """``out[row] = Σ values[entry] x[column]`` over the stored positions of each row.

    Args:
        schedule: Of the rows.
        columns: Row of ``x`` for each stored position.
        entries: Which value each of them takes.
        values: ``[replicas or 1, values]``, or None for ones.
        x: ``[replicas or 1, columns, channels]``, may be a slice with whole rows.
        out: ``[replicas, rows, channels]``, may be a slice with whole rows.
    """
    batch, _, channels = out.shape
    width = tile_width(channels)
    tiling = tiling_of(schedule, width, blocks_of(channels) * batch, registers_of(x))
    parts = out.new_empty(batch, schedule.num_parts, channels)
    sums = bind_programs(
        spmm_segments,
        tiling.programs,
        schedule.segments,
        columns,
        entries,
        x if values is None else values,
        x,
        steps_of(x),
        out,
        steps_of(out),
        parts,
        long_segments(schedule),
        schedule.class_ends[-1],
        schedule.num_parts,
        channels,
        0 if values is None else steps_of(values)[0],
        batch,
        WEIGHTED=values is not None,
        WIDTH=width,
        TILE=tiling.tile,
        LANES=tiling.lanes,
        num_warps=tiling.warps,
    )
    return in_turn(sums, bind_parts(schedule, parts, out))


def bind_parts(
    schedule: SegmentSchedule, parts: Tensor, out: Tensor, *, add: bool = False
) -> Call:
    """Sum the parts of each row that was cut, ``[replicas, parts, channels]``."""
    batch, _, channels = out.shape
    width = tile_width(channels)
    return bind_programs(
        add_parts,
        schedule.num_cut * blocks_of(channels) * batch,
        schedule.part_begin,
        schedule.segments.row,
        parts,
        out,
        steps_of(out),
        schedule.num_parts,
        channels,
        batch,
        ADD=add,
        WIDTH=width,
        TILE=_PARTS // width,
    )


def bind_dots(
    pattern: Pattern, a: Tensor, b: Tensor, out: Tensor, *, add: bool
) -> Call:
    """``out[entry] = a[row] . b[column]``, or with two lanes its tangent.

    Args:
        pattern: Positions of the entries.
        a: ``[replicas or 1, rows, lanes, channels]``, may be a slice with whole rows.
        b: ``[replicas or 1, columns, lanes, channels]``, likewise.
        out: ``[replicas, entries]``.
        add: Whether to add to ``out``.
    """
    lanes, channels = a.shape[2:]
    aligned = is_aligned(a) and is_aligned(b)
    width = min(tile_width(channels), 32 if aligned else 16)
    tile = min((2 if aligned else 1) * _MANY_ROWS // width, _TALLEST)
    return bind_programs(
        dot_entries,
        tiles_of(pattern.num_entries, tile) * out.shape[0],
        pattern.rows,
        pattern.columns,
        pattern.entries,
        a,
        steps_of(a),
        b,
        steps_of(b),
        out,
        pattern.num_entries,
        channels,
        out.shape[0],
        ADD=add,
        LANES=lanes,
        WIDTH=width,
        TILE=tile,
    )


def whole_rows(x: Tensor) -> Tensor:
    """Lanes side by side, ``[replicas, rows, lanes * channels]``, without a copy."""
    replicas, rows, lanes, channels = x.shape
    shape = replicas, rows, lanes * channels
    return torch.as_strided(x, shape, (x.stride(0), x.stride(1), 1), x.storage_offset())
