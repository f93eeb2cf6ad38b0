"""Triton programs for the softmax of rows.

Where the entries of a row lie together, one program reads a row, normalises it and
writes it. Where they are scattered, as in a transposed pattern, single numbers cost
eight times their size and writing them more than that; so only the maximum and the sum
of each row are kept, and a second program normalises all entries in their own order.

Triton programs for one number per entry: sums of rows, dropout masks.

A program is one warp that holds ``TILE`` stored positions in registers: one segment of
the longest class, or twice as many of the next, and so on.
"""

import triton
import triton.language as tl

from gsebo.sparse.kernels.triton_random import bits_at

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators

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
    keys = (key0.to(tl.uint32), key1.to(tl.uint32))
    h = bits_at(keys, start + lane)
    scale = 4294967296.0 / threshold.to(tl.float64)
    value = tl.where(h.to(tl.int64) < threshold, scale.to(out.dtype.element_ty), 0)
    tl.store(out + start + lane, value, mask=start + lane < size)


# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators


@triton.jit
def _total(score, top):
    """Sum of exponentials of each segment."""
    # A part without any finite score must not turn the rest of its row to NaN.
    shift = tl.where(top == -float("inf"), 0, top)
    return tl.sum(tl.sum(tl.exp(score - shift[None, :, None]), 0), 1)


@triton.jit
def _softmax_segments(
    segments,
    first,
    last,
    source,
    target,
    LENGTH: tl.constexpr,
    TILE: tl.constexpr,
    SCATTERED: tl.constexpr,
):
    entries, scores = source
    out, stats, part_stats, num_parts = target
    inside, entry, score = read_segments(
        segments, first, last, entries, scores, LENGTH, TILE
    )
    score = by_segment(tl.where(inside, score, -float("inf")), LENGTH, TILE)
    top = tl.max(tl.max(score, 0), 1)
    segment = first + tl.arange(0, TILE // LENGTH)
    whole = (segment >= num_parts) & (segment < last)
    if SCATTERED:
        row = tl.load(segments.row + segment, mask=whole, other=0).to(tl.int64)
        tl.store(stats + 2 * row, top, mask=whole)
        tl.store(stats + 2 * row + 1, _total(score, top), mask=whole)
    # A tile of the longest class holds one segment: all of it is a part, or none.
    elif first >= num_parts:
        weight = tl.exp(score - top[None, :, None])
        weight *= (1 / tl.sum(tl.sum(weight, 0), 1))[None, :, None]
        tl.store(out + entry, tl.reshape(weight, [TILE]), mask=inside)
    if LENGTH == TILE:
        part = segment < num_parts
        tl.store(part_stats + 2 * segment, top, mask=part)
        tl.store(part_stats + 2 * segment + 1, _total(score, top), mask=part)


@triton.jit(do_not_specialize=COUNTS)
def softmax_segments(
    tiles,
    segments,
    entries,
    scores,
    out,
    stats,
    part_stats,
    num_parts,
    num_rows,
    num_entries,
    batch,
    CLASSES: tl.constexpr,
    TILE: tl.constexpr,
    SCATTERED: tl.constexpr,
):
    """Softmax of whole rows, or their maximum and sum; those of parts of cut rows."""
    tile = tl.program_id(0) // batch
    n = (tl.program_id(0) % batch).to(tl.int64)
    source = (entries, scores + n * num_entries)
    target = (
        out + n * num_entries,
        stats + 2 * n * num_rows,
        part_stats + 2 * n * num_parts,
        num_parts,
    )
    first, last = tl.load(tiles.first + tile), tl.load(tiles.last + tile)
    rank = tl.load(tiles.rank + tile)
    for each in tl.static_range(len(CLASSES)):
        if rank == each:
            _softmax_segments(
                segments, first, last, source, target, CLASSES[each], TILE, SCATTERED
            )


@triton.jit(do_not_specialize=["num_parts", "num_rows", "batch"])
def softmax_cut_rows(
    part_begin, row, part_stats, stats, num_parts, num_rows, batch, TILE: tl.constexpr
):
    """Maximum and sum of each row that was cut, from those of its parts."""
    cut = tl.program_id(0) // batch
    n = (tl.program_id(0) % batch).to(tl.int64)
    part_stats += 2 * n * num_parts
    start, stop = tl.load(part_begin + cut), tl.load(part_begin + cut + 1)
    top = tl.full([TILE], -float("inf"), dtype=stats.dtype.element_ty)
    for first in range(start, stop, TILE):
        part = first + tl.arange(0, TILE)
        found = tl.load(part_stats + 2 * part, part < stop, other=-float("inf"))
        top = tl.maximum(top, found)
    row_top = tl.max(top, 0)
    total = tl.zeros([TILE], dtype=stats.dtype.element_ty)
    for first in range(start, stop, TILE):
        part = first + tl.arange(0, TILE)
        found = tl.load(part_stats + 2 * part, part < stop, other=-float("inf"))
        share = tl.load(part_stats + 2 * part + 1, part < stop, other=0)
        total += tl.where(part < stop, share * tl.exp(found - row_top), 0)
    stats += 2 * (n * num_rows + tl.load(row + start))
    tl.store(stats, row_top)
    tl.store(stats + 1, tl.sum(total, 0))


@triton.jit(do_not_specialize=["num_parts", "num_rows", "num_entries", "batch"])
def softmax_parts(
    segments,
    entries,
    scores,
    out,
    stats,
    num_parts,
    num_rows,
    num_entries,
    batch,
    LENGTH: tl.constexpr,
):
    """Softmax of the parts of cut rows, from the maximum and the sum of the row."""
    part = tl.program_id(0) // batch
    n = (tl.program_id(0) % batch).to(tl.int64)
    scores += n * num_entries
    stats += 2 * (n * num_rows + tl.load(segments.row + part))
    inside, entry, score = read_segments(
        segments, part, num_parts, entries, scores, LENGTH, LENGTH
    )
    weight = tl.exp(score - tl.load(stats)) / tl.load(stats + 1)
    tl.store(out + n * num_entries + entry, weight, mask=inside)


@triton.jit(do_not_specialize=["num_rows", "batch"])
def softmax_entries(
    row_of_entry,
    scores,
    out,
    stats,
    num_rows,
    num_entries,
    batch,
    BLOCK: tl.constexpr,
):
    """Softmax of all entries, from the maximum and the sum of their rows."""
    n = (tl.program_id(0) % batch).to(tl.int64)
    entry = (tl.program_id(0) // batch).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < num_entries
    row = n * num_rows + tl.load(row_of_entry + entry, mask=inside, other=0)
    score = tl.load(scores + n * num_entries + entry, mask=inside, other=0)
    top = tl.load(stats + 2 * row, mask=inside, other=0)
    total = tl.load(stats + 2 * row + 1, mask=inside, other=1)
    tl.store(out + n * num_entries + entry, tl.exp(score - top) / total, mask=inside)
