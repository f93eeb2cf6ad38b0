"""Triton programs for the way back through the attention of entries.

With ``q`` the gradient by the attention of an entry after dropout and strength, ``A``
its attention, ``K`` the mask, ``z`` the strength and ``s`` the slope of the leaky ReLU,

    d = K z q,    gradient by the score = s A (d - Σ A d)

where the sum is over the row, and every product has the tangent that the rule for
products gives it. Sums over rows are ``[rows, 3, lanes, heads]``: ``Σ A d``,
``Σ s A d`` and ``Σ s A``; the gradient by a target's score follows from them.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators
import triton
import triton.language as tl

from gsebo.sparse.kernels.triton_tape_noise import kept, site_keys
from gsebo.sparse.kernels.triton_tape_products import read_segments, store_segments

_PLAIN = ["site", "threshold", "whole", "num_entries", "num_rows", "batch"]


@triton.jit
def _read(at, inside, HEADS: tl.constexpr, SLOPE, LANES: tl.constexpr):
    """Attention, its tangent, and the slope: see ``attend_entries`` for the sign."""
    share = tl.load(at, mask=inside, other=0)
    slope = tl.where(share < 0, SLOPE, tl.full(share.shape, 1, share.dtype))
    change = share
    if LANES == 2:
        change = tl.load(at + HEADS, mask=inside, other=0)
    return tl.abs(share), change, slope


@triton.jit
def _sum_segments(
    segments,
    span,
    entries,
    tensors,
    drop,
    target,
    HEADS: tl.constexpr,
    SLOPE: tl.constexpr,
    DROPPED: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    SHARED: tl.constexpr,
):
    strength, share, to_entries = tensors
    keys, positions, threshold, whole = drop
    start, lane, length = read_segments(segments, span, TILE, SHARED)
    place = tl.arange(0, WIDTH)[None, :]
    number = share.dtype.element_ty
    mean = tl.zeros([TILE, WIDTH], dtype=number)
    sloped = tl.zeros([TILE, WIDTH], dtype=number)
    slopes = tl.zeros([TILE, WIDTH], dtype=number)
    mean_change = tl.zeros([TILE, WIDTH], dtype=number)
    sloped_change = tl.zeros([TILE, WIDTH], dtype=number)
    slopes_change = tl.zeros([TILE, WIDTH], dtype=number)
    for offset in range(0, tl.max(length, 0), SHARED):
        stored = offset + lane < length
        entry = tl.load(entries + start + offset + lane, mask=stored, other=0)
        entry = entry.to(tl.int64)
        inside = stored[:, None] & (place < HEADS)
        at = entry[:, None] * (LANES * HEADS) + place
        a, a_change, slope = _read(share + at, inside, HEADS, SLOPE, LANES)
        factor = tl.load(strength + entry, mask=stored, other=0)[:, None]
        if DROPPED:
            position = tl.load(positions + entry, mask=stored, other=0)[:, None]
            factor = factor * kept(keys, position + place * whole, threshold, share)
        d = factor * tl.load(to_entries + at, mask=inside, other=0)
        mean += a * d
        sloped += slope * a * d
        slopes += tl.where(inside, slope * a, 0)
        if LANES == 2:
            d_change = tl.load(to_entries + at + HEADS, mask=inside, other=0)
            both = a * factor * d_change + a_change * d
            mean_change += both
            sloped_change += slope * both
            slopes_change += slope * a_change
    out, out_row, parts, part_row = target
    shape: tl.constexpr = [TILE // SHARED, SHARED, WIDTH]
    plain = (mean, sloped, slopes)
    changes = (mean_change, sloped_change, slopes_change)
    for which in tl.static_range(3):
        shift = which * LANES * HEADS
        to = (out + shift, out_row, parts + shift, part_row)
        total = tl.sum(tl.reshape(plain[which], shape), 1)
        store_segments(segments, span, total, to, place, HEADS, False)
        if LANES == 2:
            to = (out + shift + HEADS, out_row, parts + shift + HEADS, part_row)
            total = tl.sum(tl.reshape(changes[which], shape), 1)
            store_segments(segments, span, total, to, place, HEADS, False)


@triton.jit(do_not_specialize=["num_wide", "num_segments", "num_parts", *_PLAIN])
def softmax_back_segments(
    segments,
    entries,
    strength,
    share,
    to_entries,
    seeds,
    step,
    positions,
    site: tl.int64,
    threshold: tl.int64,
    whole: tl.int64,
    sums,
    parts,
    num_wide,
    num_segments,
    num_parts,
    num_entries,
    num_rows,
    batch,
    HEADS: tl.constexpr,
    SLOPE: tl.constexpr,
    DROPPED: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    SHARED: tl.constexpr,
):
    """The three sums over each segment, with tangents."""
    n = (tl.program_id(0) % batch).to(tl.int64)
    tile = tl.program_id(0) // batch
    keys = (tl.full([], 0, tl.uint32), tl.full([], 0, tl.uint32))
    if DROPPED:
        keys = site_keys(seeds, step, site, n)
    first = n * num_entries
    share += first * (LANES * HEADS)
    tensors = (strength + first, share, to_entries + first * (LANES * HEADS))
    drop = (keys, positions, threshold, whole)
    size = 3 * LANES * HEADS
    target = (sums + n * num_rows * size, size, parts + n * num_parts * size, size)
    if tile < num_wide:
        span = (tile, num_wide, num_parts)
        _sum_segments(
            segments, span, entries, tensors, drop, target, HEADS,
            SLOPE, DROPPED, LANES, WIDTH, TILE, TILE,
        )  # fmt: skip
    else:
        span = (num_wide + (tile - num_wide) * (TILE // SHARED), num_segments, 0)
        _sum_segments(
            segments, span, entries, tensors, drop, target, HEADS,
            SLOPE, DROPPED, LANES, WIDTH, TILE, SHARED,
        )  # fmt: skip


@triton.jit(do_not_specialize=_PLAIN)
def attend_back_entries(
    rows,
    entries,
    strength,
    share,
    to_entries,
    seeds,
    step,
    positions,
    site: tl.int64,
    threshold: tl.int64,
    whole: tl.int64,
    sums,
    to_strength,
    num_entries,
    num_rows,
    batch,
    HEADS: tl.constexpr,
    SLOPE: tl.constexpr,
    DROPPED: tl.constexpr,
    ASKED: tl.constexpr,
    LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """Gradients by scores in the place of ``q``, and, if asked, those by strengths."""
    n = (tl.program_id(0) % batch).to(tl.int64)
    at = (tl.program_id(0) // batch).to(tl.int64) * TILE + tl.arange(0, TILE)
    stored = at < num_entries
    row = tl.load(rows + at, mask=stored, other=0).to(tl.int64)[:, None]
    entry = tl.load(entries + at, mask=stored, other=0).to(tl.int64)
    place = tl.arange(0, WIDTH)[None, :]
    inside = stored[:, None] & (place < HEADS)
    to = (n * num_entries + entry)[:, None] * (LANES * HEADS) + place
    a, a_change, slope = _read(share + to, inside, HEADS, SLOPE, LANES)
    d = tl.load(to_entries + to, mask=inside, other=0)
    d_change = d
    if LANES == 2:
        d_change = tl.load(to_entries + to + HEADS, mask=inside, other=0)
    if DROPPED:
        keys = site_keys(seeds, step, site, n)
        position = tl.load(positions + entry, mask=stored, other=0)[:, None]
        factor = kept(keys, position + place * whole, threshold, share)
        d *= factor
        d_change *= factor
    by_strength = a * d
    if LANES == 2:
        by_strength = a * d_change + a_change * d
    z = tl.load(strength + n * num_entries + entry, mask=stored, other=0)[:, None]
    in_sums = sums + (n * num_rows + row) * (3 * LANES * HEADS) + place
    d = d * z - tl.load(in_sums, mask=inside, other=0)
    tl.store(to_entries + to, slope * a * d, mask=inside)
    if LANES == 2:
        d_change = d_change * z - tl.load(in_sums + HEADS, mask=inside, other=0)
        both = slope * (a * d_change + a_change * d)
        tl.store(to_entries + to + HEADS, both, mask=inside)
    if ASKED:
        place_of = to_strength + n * num_entries + entry
        found = tl.sum(tl.where(inside, by_strength, 0), 1)
        found += tl.load(place_of, mask=stored, other=0)
        tl.store(place_of, found, mask=stored)
