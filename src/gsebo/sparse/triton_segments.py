"""Triton programs over the segments and entries of a sparse matrix, and their launch.

Rows of what they read and write may lie apart, so that tangents can be propagated alone
and gradients by weights go where they belong without a copy. Where there are too few
rows to fill the device, more lanes share a row. Nothing is added by atomics.

A number and its tangent are a dual: a tuple of two, or of one where there is none. So a
formula is written once for both orders.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gsebo.sparse.backend import Call
from gsebo.sparse.pattern import Pattern
from gsebo.sparse.triton_schedule import SegmentSchedule

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators

# Channels of a row that one program takes at most.
_MOST_CHANNELS = 128


class Strided(NamedTuple):
    """A tensor as programs take it: numbers from one replica, row, lane to the next."""

    data: Tensor
    batch: int
    row: int
    lane: int


def strided(x: Tensor) -> Strided:
    """Steps along all axes but the last; none along a batch of one, or no axis."""
    first = x.stride(0) if x.shape[0] > 1 else 0
    row, lane, *_ = *x.stride()[1:-1], 0, 0
    return Strided(x, first, row, lane)


def bind_programs(
    kernel: Any, programs: int, *arguments: Any, **constants: Any
) -> Call:
    """Return the call that starts programs of a kernel, where its first tensor is."""
    if programs == 0:
        return _nothing
    launch = kernel[(programs,)]
    first = arguments[0]
    like = first if isinstance(first, Tensor) else first[0]

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


def _nothing() -> None:
    """Start no programs."""


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


def is_aligned(x: Tensor) -> bool:
    """Whether kernels read rows of it several numbers at a time."""
    # Of integers that a kernel is called with it knows whether 16 divides them.
    sizes = (*strided(x)[1:], x.shape[-1])
    return x.data_ptr() % 16 == 0 and all(size % 16 == 0 for size in sizes)


def registers_of(x: Tensor) -> int:
    """Registers for each number of a tile: its own, and those of its address."""
    return max(x.element_size() // 4, 1) * (1 if is_aligned(x) else 2)


@triton.jit
def work_of_program(batch, blocks):
    """Replica, block of channels, and tile that a program works on."""
    work = tl.program_id(0) // batch
    return (tl.program_id(0) % batch).to(tl.int64), work % blocks, work // blocks


@triton.jit
def read_positions(index, tile, num_entries, TILE: tl.constexpr):
    """Stored positions of a tile: which there are, their rows, columns and entries."""
    position = tile.to(tl.int64) * TILE + tl.arange(0, TILE)
    stored = position < num_entries
    row = tl.load(index[0] + position, mask=stored, other=0).to(tl.int64)[:, None]
    column = tl.load(index[1] + position, mask=stored, other=0).to(tl.int64)[:, None]
    entry = tl.load(index[2] + position, mask=stored, other=0).to(tl.int64)
    return stored, row, column, entry


@triton.jit
def at_rows(x, n, row, place):
    """Where the numbers of rows of one replica are."""
    return x.data + n * x.batch + row * x.row + place


@triton.jit
def zeros(shape: tl.constexpr, like, LANES: tl.constexpr):
    """A dual 0 of the type that ``like`` points to."""
    zero = tl.zeros(shape, dtype=like.dtype.element_ty)
    if LANES == 1:
        return (zero,)
    else:
        return (zero, zero)


@triton.jit
def load_dual(at, step, inside, LANES: tl.constexpr):
    """Read numbers, and ``step`` further on their tangents."""
    x = tl.load(at, mask=inside, other=0)
    if LANES == 1:
        return (x,)
    else:
        return (x, tl.load(at + step, mask=inside, other=0))


@triton.jit
def store_lanes(at, step, x, inside, LANES: tl.constexpr, ADD: tl.constexpr):
    """Write a dual, or of its lanes the last ``LANES``, or add them."""
    for lane in tl.static_range(LANES):
        found = x[len(x) - LANES + lane]
        to = at + lane * step
        if ADD:
            found += tl.load(to, mask=inside, other=0)
        tl.store(to, found, mask=inside)


@triton.jit
def plus(a, b):
    """``a + b``."""
    if len(a) == 1:
        return (a[0] + b[0],)
    else:
        return (a[0] + b[0], a[1] + b[1])


@triton.jit
def times(a, b):
    """``a b``, and if any of them has a tangent that of the product."""
    if len(a) + len(b) == 2:
        return (a[0] * b[0],)
    else:
        return (a[0] * b[0], last_product(a, b))


@triton.jit
def gained(total, a, b):
    """``total + a b``, of duals, term by term."""
    if len(total) == 1:
        return (total[0] + a[0] * b[0],)
    else:
        return (total[0] + a[0] * b[0], total[1] + a[0] * b[1] + a[1] * b[0])


@triton.jit
def last_product(a, b):
    """The last lane of ``a b``."""
    if len(a) + len(b) == 2:
        return a[0] * b[0]
    elif len(b) == 1:
        return a[1] * b[0]
    elif len(a) == 1:
        return a[0] * b[1]
    else:
        return a[0] * b[1] + a[1] * b[0]


@triton.jit
def folded(x, shape: tl.constexpr, axis: tl.constexpr):
    """Sums of a dual along an axis of another shape."""
    total = tl.sum(tl.reshape(x[0], shape), axis)
    if len(x) == 1:
        return (total,)
    else:
        return (total, tl.sum(tl.reshape(x[1], shape), axis))


@triton.jit
def read_segments(segments, span, TILE: tl.constexpr, SHARED: tl.constexpr):
    """``TILE // SHARED`` segments: start, rank and length for each row of the tile."""
    first, last = span[0], span[1]
    segment = first + tl.arange(0, TILE) // SHARED
    start = tl.load(segments.begin + segment, mask=segment < last, other=0)
    length = tl.load(segments.length + segment, mask=segment < last, other=0)
    return start, tl.arange(0, TILE) % SHARED, length


@triton.jit
def wide_span(tile, num_wide, num_parts, TILES: tl.constexpr):
    """First of a tile's long segments, one past the last, and how many are parts."""
    return tile * (TILES[0] // TILES[1]), num_wide, num_parts


@triton.jit
def short_span(tile, num_wide, num_segments, TILES: tl.constexpr):
    """The same of the short ones behind them, of which none was cut."""
    first = tile - tl.cdiv(num_wide, TILES[0] // TILES[1])
    return num_wide + first * (TILES[0] // TILES[2]), num_segments, 0


@triton.jit
def store_segments(segments, span, total, target, place, width, ADD: tl.constexpr):
    """Write or add sums of segments to their rows, or to the parts of cut rows.

    There is a row of numbers for each segment of ``span``; those from ``width`` on are
    none. The target is where rows begin and how far apart they are, and that of parts.
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
def _read_entries(matrix, at, stored, number: tl.constexpr):
    """Column and value of one entry for each row of the tile."""
    columns, entries, values = matrix
    column = tl.load(columns + at, mask=stored, other=0)
    if values is None:
        value = stored.to(number)
    else:
        entry = tl.load(entries + at, mask=stored, other=0)
        value = tl.load(values + entry, mask=stored, other=0)
    return column.to(tl.int64)[:, None], value[:, None]


@triton.jit
def _sum_segments(
    segments, span, matrix, dense, target, TILE: tl.constexpr, SHARED: tl.constexpr
):
    """Sum ``TILE // SHARED`` segments, of each ``SHARED`` entries at a time."""
    x, x_row, place, width = dense
    start, rank, length = read_segments(segments, span, TILE, SHARED)
    wide = place < width
    number: tl.constexpr = x.dtype.element_ty
    total = tl.zeros([TILE, place.shape[1]], dtype=number)
    for offset in range(0, tl.max(length, 0), 4 * SHARED):
        # All reads before the first sum, so that they wait together.
        o0 = offset + rank
        o1, o2, o3 = o0 + SHARED, o0 + 2 * SHARED, o0 + 3 * SHARED
        c0, v0 = _read_entries(matrix, start + o0, o0 < length, number)
        c1, v1 = _read_entries(matrix, start + o1, o1 < length, number)
        c2, v2 = _read_entries(matrix, start + o2, o2 < length, number)
        c3, v3 = _read_entries(matrix, start + o3, o3 < length, number)
        x0 = tl.load(x + c0 * x_row + place, (o0 < length)[:, None] & wide, other=0)
        x1 = tl.load(x + c1 * x_row + place, (o1 < length)[:, None] & wide, other=0)
        x2 = tl.load(x + c2 * x_row + place, (o2 < length)[:, None] & wide, other=0)
        x3 = tl.load(x + c3 * x_row + place, (o3 < length)[:, None] & wide, other=0)
        total += v0 * x0
        total += v1 * x1
        total += v2 * x2
        total += v3 * x3
    total = tl.reshape(total, [TILE // SHARED, SHARED, place.shape[1]])
    total = tl.sum(total, 1)
    store_segments(segments, span, total, target, place, width, False)


@triton.jit(
    do_not_specialize=["num_wide", "num_segments", "num_parts", "value_step", "batch"]
)
def spmm_segments(
    segments, num_wide, num_segments, num_parts, parts,
    columns, entries, values, value_step, x, out, channels, batch,
    WIDTH: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Weighted sum of the rows of ``x`` over each segment."""
    n, block, tile = work_of_program(batch, tl.cdiv(channels, WIDTH))
    place = block * WIDTH + tl.arange(0, WIDTH)[None, :]
    if values is not None:
        values += n * value_step
    matrix = (columns, entries, values)
    dense = (x.data + n * x.batch, x.row, place, channels)
    parts += n * num_parts * channels
    target = (out.data + n * out.batch, out.row, parts, channels)
    if tile < tl.cdiv(num_wide, TILES[0] // TILES[1]):
        span = wide_span(tile, num_wide, num_parts, TILES)
        _sum_segments(segments, span, matrix, dense, target, TILES[0], TILES[1])
    else:
        span = short_span(tile, num_wide, num_segments, TILES)
        _sum_segments(segments, span, matrix, dense, target, TILES[0], TILES[2])


@triton.jit(do_not_specialize=["num_parts", "batch"])
def add_parts(
    part_begin, row_of_segment, parts, out, num_parts, channels, batch,
    ADD: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Sum of the parts of each row that was cut, in a fixed order."""
    n, block, cut = work_of_program(batch, tl.cdiv(channels, WIDTH))
    place = block * WIDTH + tl.arange(0, WIDTH)
    start, stop = tl.load(part_begin + cut), tl.load(part_begin + cut + 1)
    total = tl.zeros([TILE, WIDTH], dtype=parts.dtype.element_ty)
    for first in range(start, stop, TILE):
        part = first + tl.arange(0, TILE)
        inside = (part < stop)[:, None] & (place < channels)[None, :]
        at = (n * num_parts + part)[:, None] * channels + place[None, :]
        total += tl.load(parts + at, mask=inside, other=0)
    found = tl.sum(total, 0)
    row = tl.load(row_of_segment + start).to(tl.int64)
    to = at_rows(out, n, row, place)
    if ADD:
        found += tl.load(to, mask=place < channels, other=0)
    tl.store(to, found, mask=place < channels)


@triton.jit(do_not_specialize=["num_entries", "batch"])
def dot_entries(
    index, a, b, out, num_entries, channels, batch,
    ADD: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """``a[row] . b[column]`` of entries, or with two lanes its tangent."""
    n, _, tile = work_of_program(batch, 1)
    stored, row, column, entry = read_positions(index, tile, num_entries, TILE)
    total = tl.zeros([TILE, WIDTH], dtype=out.dtype.element_ty)
    for first in range(0, channels, WIDTH):
        place = first + tl.arange(0, WIDTH)[None, :]
        inside = stored[:, None] & (place < channels)
        left = load_dual(at_rows(a, n, row, place), a.lane, inside, LANES)
        right = load_dual(at_rows(b, n, column, place), b.lane, inside, LANES)
        total += last_product(left, right)
    to = out + n * num_entries + entry
    found = tl.sum(total, 1)
    if ADD:
        found += tl.load(to, mask=stored, other=0)
    tl.store(to, found, mask=stored)


# Numbers that a program holds of each tensor where rows are many, and where they are
# few, with so many rows of a tile to a segment.
_MANY_ROWS, _FEW_ROWS, _FEW_ROWS_SHARED = 512, 2048, 8
# Every thread holds the indices of several rows of a tile: more would not fit.
_TALLEST = 128
# As many programs run at once on a large device.
_AT_ONCE = 2048
# Where an entry is one number: rows of a tile, and how many of them share a long
# segment and a short one. Four reads of each then take all of a segment of 128, or 32.
_SINGLE = (512, 32, 8)
# Numbers of parts that are summed at once.
_PARTS = 2048


def bind_segments(
    kernel: Any,
    schedule: SegmentSchedule,
    parts: Tensor,
    *arguments: Any,
    width: int,
    copies: int,
    held: int,
    **constants: Any,
) -> Call:
    """Bind a kernel over the segments of a pattern, with the tiles that suit it.

    Where rows are many, the fewest rows of a tile share a segment that read whole
    sectors of memory. Where they are few the device is not full anyway, and more end
    sooner. All segments are worked on ``copies`` times, for more channels and replicas;
    a program needs ``held`` registers for each number of a tile.
    """
    wide, every = schedule.num_long, schedule.class_ends[-1]
    short = every - wide
    tile, shared, warps = _FEW_ROWS // (width * held), _FEW_ROWS_SHARED, 4
    if short * shared * copies > _AT_ONCE * tile:
        tile, shared, warps = _MANY_ROWS // (width * held), max(16 // width, 1), 2
    tile = min(max(tile, 1), _TALLEST)
    tiles = (tile, tile, min(shared, tile))
    if width == 1 and warps == 2:
        tiles, warps = _SINGLE, 4
    programs = tiles_of(wide, tiles[0] // tiles[1]) + tiles_of(
        short, tiles[0] // tiles[2]
    )
    return bind_programs(
        kernel,
        programs * copies,
        schedule.segments,
        wide,
        every,
        schedule.num_parts,
        parts,
        *arguments,
        **constants,
        TILES=tiles,
        num_warps=warps,
    )


def bind_sums(
    schedule: SegmentSchedule,
    columns: Tensor,
    entries: Tensor,
    values: Tensor | None,
    x: Tensor,
    out: Tensor,
) -> Call:
    """``out[row] = Σ values[entry] x[column]`` over the stored positions of each row.

    Values are ``[replicas or 1, values]``, or ones; ``x`` and ``out`` are ``[replicas
    (x: or 1), rows, channels]`` and may be slices with whole rows.
    """
    batch, _, channels = out.shape
    width = tile_width(channels)
    parts = out.new_empty(batch, schedule.num_parts, channels)
    step = 0 if values is None else strided(values).batch
    sums = bind_segments(
        spmm_segments,
        schedule,
        parts,
        *(columns, entries, values, step, strided(x), strided(out), channels, batch),
        width=width,
        copies=blocks_of(channels) * batch,
        held=registers_of(x),
        WIDTH=width,
    )
    return in_turn(sums, bind_parts(schedule, parts, out))


def bind_parts(
    schedule: SegmentSchedule, parts: Tensor, out: Tensor, *, add: bool = False
) -> Call:
    """Sum the parts of each row that was cut, ``[replicas, parts, channels]``."""
    batch, _, channels = out.shape
    width = tile_width(channels)
    programs = schedule.num_cut * blocks_of(channels) * batch
    index = schedule.part_begin, schedule.segments.row
    sizes = schedule.num_parts, channels, batch
    constants = {"ADD": add, "WIDTH": width, "TILE": _PARTS // width}
    return bind_programs(
        add_parts, programs, *index, parts, strided(out), *sizes, **constants
    )


def bind_dots(
    pattern: Pattern, a: Tensor, b: Tensor, out: Tensor, *, add: bool
) -> Call:
    """``out[entry] = a[row] . b[column]``, or with two lanes its tangent.

    Both are ``[replicas or 1, rows, lanes, channels]`` and may be slices with whole
    rows; ``out`` is ``[replicas, entries]``.
    """
    lanes, channels = a.shape[2:]
    aligned = is_aligned(a) and is_aligned(b)
    width = min(tile_width(channels), 32 if aligned else 16)
    tile = min((2 if aligned else 1) * _MANY_ROWS // width, _TALLEST)
    index = pattern.rows, pattern.columns, pattern.entries
    sizes = pattern.num_entries, channels, out.shape[0]
    programs = tiles_of(pattern.num_entries, tile) * out.shape[0]
    constants = {"ADD": add, "LANES": lanes, "WIDTH": width, "TILE": tile}
    return bind_programs(
        dot_entries, programs, index, strided(a), strided(b), out, *sizes, **constants
    )
