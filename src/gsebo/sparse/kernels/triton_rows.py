"""Triton programs for one number per entry: sums of rows, dropout masks.

A program is one warp that holds ``TILE`` stored positions in registers: one segment of
the longest class, or twice as many of the next, and so on.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators
import triton
import triton.language as tl

# What changes with the pattern is not worth compiling for.
COUNTS = ["num_parts", "num_rows", "num_entries", "batch"]


@triton.jit
def read_segments(
    segments, first, last, entries, values, LENGTH: tl.constexpr, TILE: tl.constexpr
):
    """Read ``TILE // LENGTH`` segments: where there is an entry, which, its value.

    A thread holds two entries of a row or more, so that what is done once for a row
    costs less: 8 entries take 4 lanes, 64 and more take all 32. The result lies along
    one axis, ``[depth, segment, lane]`` in this order. Along several, the compiler
    would take the order of the axes from what it knows of the addresses, and it knows
    nothing of ``values + entry``.
    """
    LANES: tl.constexpr = min(LENGTH // 2, 32)
    DEPTH: tl.constexpr = LENGTH // LANES
    slot = tl.arange(0, TILE // DEPTH)
    segment = first + slot // LANES
    start = tl.load(segments.begin + segment, mask=segment < last, other=0)
    length = tl.load(segments.length + segment, mask=segment < last, other=0)
    offset = (tl.arange(0, DEPTH) * LANES)[:, None] + (slot % LANES)[None, :]
    inside = tl.reshape(offset < length[None, :], [TILE])
    position = tl.reshape(start[None, :] + offset, [TILE])
    entry = tl.load(entries + position, mask=inside, other=0)
    return inside, entry, tl.load(values + entry, mask=inside, other=0)


@triton.jit
def by_segment(number, LENGTH: tl.constexpr, TILE: tl.constexpr):
    """``[depth, segment, lane]`` of what was read."""
    LANES: tl.constexpr = min(LENGTH // 2, 32)
    return tl.reshape(number, [LENGTH // LANES, TILE // LENGTH, LANES])


@triton.jit
def _sum_segments(
    segments, first, last, source, target, LENGTH: tl.constexpr, TILE: tl.constexpr
):
    entries, values = source
    out, parts, num_parts = target
    _, _, value = read_segments(segments, first, last, entries, values, LENGTH, TILE)
    total = tl.sum(tl.sum(by_segment(value, LENGTH, TILE), 0), 1)
    segment = first + tl.arange(0, TILE // LENGTH)
    row = tl.load(segments.row + segment, mask=segment < last, other=0)
    tl.store(out + row, total, mask=(segment >= num_parts) & (segment < last))
    tl.store(parts + segment, total, mask=segment < num_parts)


@triton.jit(do_not_specialize=COUNTS)
def row_sum_segments(
    tiles,
    segments,
    entries,
    values,
    out,
    parts,
    num_parts,
    num_rows,
    num_entries,
    batch,
    CLASSES: tl.constexpr,
    TILE: tl.constexpr,
):
    """Sum of the values of each segment."""
    tile = tl.program_id(0) // batch
    n = (tl.program_id(0) % batch).to(tl.int64)
    source = (entries, values + n * num_entries)
    target = (out + n * num_rows, parts + n * num_parts, num_parts)
    first, last = tl.load(tiles.first + tile), tl.load(tiles.last + tile)
    rank = tl.load(tiles.rank + tile)
    for each in tl.static_range(len(CLASSES)):
        if rank == each:
            _sum_segments(segments, first, last, source, target, CLASSES[each], TILE)


@triton.jit(do_not_specialize=["num_rows", "batch"])
def expand_entries(
    row_of_entry, x, out, num_rows, num_entries, batch, BLOCK: tl.constexpr
):
    """Value of its row at each entry."""
    n = (tl.program_id(0) % batch).to(tl.int64)
    entry = (tl.program_id(0) // batch).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < num_entries
    row = tl.load(row_of_entry + entry, mask=inside, other=0)
    value = tl.load(x + n * num_rows + row, mask=inside, other=0)
    tl.store(out + n * num_entries + entry, value, mask=inside)


@triton.jit
def _mix(h):
    h = h ^ (h >> 16)
    h = h * 0x7FEB352D
    h = h ^ (h >> 15)
    h = h * 0x846CA68B
    return h ^ (h >> 16)


@triton.jit(do_not_specialize=["key0", "key1", "threshold"])
def mask_positions(
    out,
    size,
    key0: tl.int64,
    key1: tl.int64,
    threshold: tl.int64,
    BLOCK: tl.constexpr,
):
    """Inverse keep rate where the hash of the position is below threshold, else 0."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    # A block lies on one side of every multiple of 2**32: its high word is one number.
    high = (start >> 32).to(tl.uint32) * 0x9E3779B9
    low = start.to(tl.uint32) + lane.to(tl.uint32)
    h = _mix(low + key0.to(tl.uint32))
    h = _mix(h ^ (key1.to(tl.uint32) ^ high))
    scale = 4294967296.0 / threshold.to(tl.float64)
    value = tl.where(h.to(tl.int64) < threshold, scale.to(out.dtype.element_ty), 0)
    tl.store(out + start + lane, value, mask=start + lane < size)
