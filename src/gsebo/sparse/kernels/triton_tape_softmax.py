"""Triton programs for the attention of entries, forwards and backwards.

Both ways take two passes over the entries: sums over each row, then what is left to do
for each entry. Heads lie side by side. Scores of nodes are ``[columns, 2, lanes,
heads]``, target and source; what belongs to entries is ``[entries, lanes, heads]``.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators
import triton
import triton.language as tl

from gsebo.sparse.kernels.triton_tape_noise import kept, site_keys
from gsebo.sparse.kernels.triton_tape_products import read_segments, store_segments

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
        keys = site_keys(seeds, step, site, n)
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
