"""Triton programs for the two products, sparse by dense and sampled dense by dense."""

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators
import triton
import triton.language as tl

# Whether these are one or a multiple of 16 makes no difference worth compiling for.
_COUNTS = ["num_wide", "num_segments", "num_parts", "num_rows", "value_step", "batch"]


@triton.jit(do_not_specialize=_COUNTS)
def spmm_segments(
    segments,
    columns,
    entries,
    values,
    x,
    out,
    parts,
    num_wide,
    num_segments,
    num_parts,
    num_rows,
    channels,
    value_step,
    x_step,
    batch,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
):
    """Weighted sum of the rows of ``x`` over each segment.

    The first ``num_wide`` segments are long and get a program each; of the others a
    program takes ``TILE // LANES``. Numbered so that the longest start first.
    """
    blocks = tl.cdiv(channels, WIDTH)
    work = tl.program_id(0)
    tile = work // (blocks * batch)
    n = (work % batch).to(tl.int64)
    channel = (work // batch) % blocks * WIDTH + tl.arange(0, WIDTH)[None, :]
    matrix = (columns, entries, values + n * value_step)
    dense = (x + n * x_step, channel, channels)
    out += n * num_rows * channels
    if tile < num_wide:
        target = (out, parts + n * num_parts * channels, num_parts)
        _sum_segments(segments, tile, num_wide, matrix, dense, target, TILE, TILE)
    else:
        first = num_wide + (tile - num_wide) * (TILE // LANES)
        target = (out, parts, num_parts)
        _sum_segments(segments, first, num_segments, matrix, dense, target, TILE, LANES)


@triton.jit
def _read_indices(matrix, start, offset, length):
    """Column and number of one entry for each lane."""
    columns, entries, _ = matrix
    column = tl.load(columns + (start + offset), mask=offset < length, other=0)
    entry = tl.load(entries + (start + offset), mask=offset < length, other=0)
    return column, entry


@triton.jit
def _read_numbers(matrix, dense, column, entry, stored):
    """Value of an entry and the block of its dense row, for each lane."""
    x, channel, channels = dense
    _, _, values = matrix
    value = tl.load(values + entry, mask=stored, other=0)
    place = column.to(tl.int64)[:, None] * channels + channel
    inside = stored[:, None] & (channel < channels)
    return value[:, None], tl.load(x + place, mask=inside, other=0)


@triton.jit
def _sum_segments(
    segments,
    first,
    last,
    matrix,
    dense,
    target,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
):
    """Sum ``TILE // LANES`` segments; each lane takes every ``LANES``-th entry."""
    x, channel, channels = dense
    out, parts, num_parts = target
    segment = first + tl.arange(0, TILE) // LANES
    lane = tl.arange(0, TILE) % LANES
    start = tl.load(segments.begin + segment, mask=segment < last, other=0)
    length = tl.load(segments.length + segment, mask=segment < last, other=0)
    if LANES == TILE:
        steps = tl.cdiv(tl.load(segments.length + first), LANES)
    else:
        steps = tl.cdiv(tl.max(length, 0), LANES)
    total = tl.zeros([TILE, channel.shape[1]], dtype=x.dtype.element_ty)
    # Four entries at a time, and the indices of the next four while their numbers are
    # on the way. Written out, so that the compiler issues all reads before it waits.
    offset = lane
    c0, e0 = _read_indices(matrix, start, offset, length)
    c1, e1 = _read_indices(matrix, start, offset + LANES, length)
    c2, e2 = _read_indices(matrix, start, offset + 2 * LANES, length)
    c3, e3 = _read_indices(matrix, start, offset + 3 * LANES, length)
    for _ in range(0, steps, 4):
        v0, x0 = _read_numbers(matrix, dense, c0, e0, offset < length)
        v1, x1 = _read_numbers(matrix, dense, c1, e1, offset + LANES < length)
        v2, x2 = _read_numbers(matrix, dense, c2, e2, offset + 2 * LANES < length)
        v3, x3 = _read_numbers(matrix, dense, c3, e3, offset + 3 * LANES < length)
        offset += 4 * LANES
        c0, e0 = _read_indices(matrix, start, offset, length)
        c1, e1 = _read_indices(matrix, start, offset + LANES, length)
        c2, e2 = _read_indices(matrix, start, offset + 2 * LANES, length)
        c3, e3 = _read_indices(matrix, start, offset + 3 * LANES, length)
        total += v0 * x0
        total += v1 * x1
        total += v2 * x2
        total += v3 * x3
    if LANES > 1:
        total = tl.reshape(total, [TILE // LANES, LANES, channel.shape[1]])
        total = tl.sum(total, 1)
    segment = first + tl.arange(0, TILE // LANES)
    inside = (segment < last)[:, None] & (channel < channels)
    if LANES == TILE:
        part = (segment < num_parts)[:, None]
        place = segment.to(tl.int64)[:, None] * channels + channel
        tl.store(parts + place, total, mask=inside & part)
        inside &= (segment >= num_parts)[:, None]
    row = tl.load(segments.row + segment, mask=segment < last, other=0)
    place = row.to(tl.int64)[:, None] * channels + channel
    tl.store(out + place, total, mask=inside)


@triton.jit(do_not_specialize=["num_parts", "num_rows", "batch"])
def add_parts(
    part_begin,
    row,
    parts,
    out,
    num_parts,
    num_rows,
    channels,
    batch,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """Sum of the parts of each row that was cut, in a fixed order."""
    blocks = tl.cdiv(channels, WIDTH)
    work = tl.program_id(0)
    cut = work // (blocks * batch)
    n = (work % batch).to(tl.int64)
    channel = (work // batch) % blocks * WIDTH + tl.arange(0, WIDTH)
    start, stop = tl.load(part_begin + cut), tl.load(part_begin + cut + 1)
    total = tl.zeros([TILE, WIDTH], dtype=parts.dtype.element_ty)
    for first in range(start, stop, TILE):
        part = first + tl.arange(0, TILE)
        inside = (part < stop)[:, None] & (channel < channels)[None, :]
        place = (n * num_parts + part)[:, None] * channels + channel[None, :]
        total += tl.load(parts + place, mask=inside, other=0)
    place = (n * num_rows + tl.load(row + start)) * channels + channel
    tl.store(out + place, tl.sum(total, 0), mask=channel < channels)


@triton.jit(do_not_specialize=["num_entries", "batch"])
def sddmm_entries(
    rows,
    columns,
    entries,
    a,
    b,
    out,
    num_entries,
    channels,
    a_step,
    b_step,
    batch,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """Dot products at ``TILE`` stored positions."""
    work = tl.program_id(0)
    n = (work % batch).to(tl.int64)
    position = (work // batch).to(tl.int64) * TILE + tl.arange(0, TILE)
    stored = position < num_entries
    row = tl.load(rows + position, mask=stored, other=0).to(tl.int64)[:, None]
    column = tl.load(columns + position, mask=stored, other=0).to(tl.int64)[:, None]
    total = tl.zeros([TILE, WIDTH], dtype=out.dtype.element_ty)
    for first in range(0, channels, WIDTH):
        channel = first + tl.arange(0, WIDTH)[None, :]
        inside = stored[:, None] & (channel < channels)
        left = tl.load(a + n * a_step + row * channels + channel, inside, other=0)
        right = tl.load(b + n * b_step + column * channels + channel, inside, other=0)
        total += left * right
    entry = tl.load(entries + position, mask=stored, other=0)
    tl.store(out + n * num_entries + entry, tl.sum(total, 1), mask=stored)
