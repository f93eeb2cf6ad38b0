"""Triton programs for the messages of an attention step, forwards and backwards.

Messages are ``[rows, lanes, heads * channels]`` and may lie apart; what belongs to
entries is ``[entries, lanes, heads]``. Numbers of heads and channels are constants of
the compiled programs, which so know how numbers are aligned.
"""

import triton
import triton.language as tl

from gsebo.sparse.kernels.triton_segments import read_segments, store_segments

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators


@triton.jit(do_not_specialize=["num_columns", "batch", "weight_step"])
def score_nodes(
    message,
    message_steps,
    weight,
    tangent,
    weight_step,
    scores,
    num_columns,
    batch,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    LANES: tl.constexpr,
    GROUP: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """Both parts of the scores of ``GROUP`` heads; an entry's score sums two."""
    work = tl.program_id(0)
    groups = tl.cdiv(HEADS, GROUP)
    n = (work % batch).to(tl.int64)
    first = (work // batch) % groups * GROUP
    node = (work // batch // groups).to(tl.int64) * TILE + tl.arange(0, TILE)
    slot = tl.arange(0, GROUP * WIDTH)[None, :]
    head = first + slot // WIDTH
    message += n * message_steps[0] + node[:, None] * message_steps[1]
    number = scores.dtype.element_ty
    target = tl.zeros([TILE, GROUP * WIDTH], dtype=number)
    source = tl.zeros([TILE, GROUP * WIDTH], dtype=number)
    target_change = tl.zeros([TILE, GROUP * WIDTH], dtype=number)
    source_change = tl.zeros([TILE, GROUP * WIDTH], dtype=number)
    for begin in range(0, CHANNELS, WIDTH):
        channel = begin + slot % WIDTH
        known = (head < HEADS) & (channel < CHANNELS)
        inside = (node < num_columns)[:, None] & known
        place = head * CHANNELS + channel
        at = n * weight_step + 2 * place
        x = tl.load(message + place, mask=inside, other=0)
        to_target = tl.load(weight + at, mask=known, other=0)
        to_source = tl.load(weight + at + 1, mask=known, other=0)
        target += x * to_target
        source += x * to_source
        if LANES == 2:
            y = tl.load(message + message_steps[2] + place, mask=inside, other=0)
            change = tl.load(tangent + at, mask=known, other=0)
            target_change += y * to_target + x * change
            change = tl.load(tangent + at + 1, mask=known, other=0)
            source_change += y * to_source + x * change
    shape: tl.constexpr = [TILE, GROUP, WIDTH]
    head = first + tl.arange(0, GROUP)[None, :]
    inside = (node < num_columns)[:, None] & (head < HEADS)
    to = scores + (n * num_columns + node)[:, None] * (2 * LANES * HEADS) + head
    tl.store(to, tl.sum(tl.reshape(target, shape), 2), mask=inside)
    to_source = to + LANES * HEADS
    tl.store(to_source, tl.sum(tl.reshape(source, shape), 2), mask=inside)
    if LANES == 2:
        total = tl.sum(tl.reshape(target_change, shape), 2)
        tl.store(to + HEADS, total, mask=inside)
        total = tl.sum(tl.reshape(source_change, shape), 2)
        tl.store(to_source + HEADS, total, mask=inside)


@triton.jit
def _gather_entry(
    matrix,
    dense,
    at,
    stored,
    plain,
    change,
    HEADS: tl.constexpr,
    LANES: tl.constexpr,
    OUT_LANES: tl.constexpr,
):
    """Add one entry for each row of the tile to its sums."""
    columns, entries, weighted = matrix
    x, x_row, x_lane, place, head, size = dense
    column = tl.load(columns + at, mask=stored, other=0)
    entry = tl.load(entries + at, mask=stored, other=0)
    inside = stored[:, None] & (place < size)
    w_at = weighted + entry.to(tl.int64)[:, None] * (LANES * HEADS) + head
    x_at = x + column.to(tl.int64)[:, None] * x_row + place
    w = tl.load(w_at, mask=inside, other=0)
    numbers = tl.load(x_at, mask=inside, other=0)
    if OUT_LANES == LANES:
        plain += w * numbers
    if LANES == 2:
        change += tl.load(w_at + HEADS, mask=inside, other=0) * numbers
        change += w * tl.load(x_at + x_lane, mask=inside, other=0)
    return plain, change


@triton.jit
def _gather(
    segments,
    span,
    matrix,
    dense,
    target,
    ADD: tl.constexpr,
    HEADS: tl.constexpr,
    LANES: tl.constexpr,
    OUT_LANES: tl.constexpr,
    TILE: tl.constexpr,
    SHARED: tl.constexpr,
):
    """Sum ``TILE // SHARED`` segments; ``SHARED`` rows of the tile share a segment."""
    x, _x_row, _x_lane, place, _head, size = dense
    start, lane, length = read_segments(segments, span, TILE, SHARED)
    plain = tl.zeros([TILE, place.shape[1]], dtype=x.dtype.element_ty)
    change = tl.zeros([TILE, place.shape[1]], dtype=x.dtype.element_ty)
    for offset in range(0, tl.max(length, 0), 2 * SHARED):
        for half in tl.static_range(2):
            own = offset + half * SHARED + lane
            plain, change = _gather_entry(
                matrix, dense, start + own, own < length, plain, change,
                HEADS, LANES, OUT_LANES,
            )  # fmt: skip
    shape: tl.constexpr = [TILE // SHARED, SHARED, place.shape[1]]
    if OUT_LANES == LANES:
        total = tl.sum(tl.reshape(plain, shape), 1)
        store_segments(segments, span, total, target, place, size, ADD)
    if LANES == 2:
        out, out_row, parts, part_row = target
        shift = (OUT_LANES - 1) * size
        to = (out + shift, out_row, parts + shift, part_row)
        total = tl.sum(tl.reshape(change, shape), 1)
        store_segments(segments, span, total, to, place, size, ADD)


_COUNTS = ["num_wide", "num_segments", "num_parts", "num_entries", "batch"]


@triton.jit(do_not_specialize=_COUNTS)
def gather_segments(
    segments,
    columns,
    entries,
    weighted,
    x,
    x_steps,
    out,
    out_steps,
    parts,
    num_wide,
    num_segments,
    num_parts,
    num_entries,
    size,
    batch,
    ADD: tl.constexpr,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    LANES: tl.constexpr,
    OUT_LANES: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    SHARED: tl.constexpr,
):
    """Sum of the rows of ``x`` over each segment, weighted by attention.

    Without tangents ``Σ w x``, with them also ``Σ w' x + Σ w x'``, or that alone.
    """
    blocks = tl.cdiv(size, WIDTH)
    work = tl.program_id(0)
    n = (work % batch).to(tl.int64)
    place = (work // batch) % blocks * WIDTH + tl.arange(0, WIDTH)[None, :]
    tile = work // batch // blocks
    matrix = (columns, entries, weighted + n * num_entries * (LANES * HEADS))
    dense = (x + n * x_steps[0], x_steps[1], x_steps[2], place, place // CHANNELS, size)
    parts += n * num_parts * OUT_LANES * size
    target = (out + n * out_steps[0], out_steps[1], parts, OUT_LANES * size)
    if tile < num_wide:
        span = (tile, num_wide, num_parts)
        _gather(
            segments, span, matrix, dense, target,
            ADD, HEADS, LANES, OUT_LANES, TILE, TILE,
        )  # fmt: skip
    else:
        span = (num_wide + (tile - num_wide) * (TILE // SHARED), num_segments, 0)
        _gather(
            segments, span, matrix, dense, target,
            ADD, HEADS, LANES, OUT_LANES, TILE, SHARED,
        )  # fmt: skip


@triton.jit(do_not_specialize=["num_entries", "batch"])
def dot_heads(
    rows,
    columns,
    entries,
    grad,
    grad_steps,
    message,
    message_steps,
    to_entries,
    num_entries,
    batch,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    LANES: tl.constexpr,
    GROUP: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
):
    """``<gradient of the row, message of the column>`` of entries, ``GROUP`` heads."""
    work = tl.program_id(0)
    groups = tl.cdiv(HEADS, GROUP)
    n = (work % batch).to(tl.int64)
    first = (work // batch) % groups * GROUP
    position = (work // batch // groups).to(tl.int64) * TILE + tl.arange(0, TILE)
    stored = position < num_entries
    row = tl.load(rows + position, mask=stored, other=0).to(tl.int64)[:, None]
    column = tl.load(columns + position, mask=stored, other=0).to(tl.int64)[:, None]
    entry = tl.load(entries + position, mask=stored, other=0).to(tl.int64)
    slot = tl.arange(0, GROUP * WIDTH)[None, :]
    head = first + slot // WIDTH
    grad += n * grad_steps[0] + row * grad_steps[1]
    message += n * message_steps[0] + column * message_steps[1]
    plain = tl.zeros([TILE, GROUP * WIDTH], dtype=to_entries.dtype.element_ty)
    change = tl.zeros([TILE, GROUP * WIDTH], dtype=to_entries.dtype.element_ty)
    for begin in range(0, CHANNELS, WIDTH):
        channel = begin + slot % WIDTH
        inside = stored[:, None] & (head < HEADS) & (channel < CHANNELS)
        place = head * CHANNELS + channel
        g = tl.load(grad + place, mask=inside, other=0)
        x = tl.load(message + place, mask=inside, other=0)
        plain += g * x
        if LANES == 2:
            change += g * tl.load(message + message_steps[2] + place, inside, other=0)
            change += x * tl.load(grad + grad_steps[2] + place, inside, other=0)
    shape: tl.constexpr = [TILE, GROUP, WIDTH]
    head = first + tl.arange(0, GROUP)[None, :]
    inside = stored[:, None] & (head < HEADS)
    to = to_entries + (n * num_entries + entry)[:, None] * (LANES * HEADS) + head
    tl.store(to, tl.sum(tl.reshape(plain, shape), 2), mask=inside)
    if LANES == 2:
        tl.store(to + HEADS, tl.sum(tl.reshape(change, shape), 2), mask=inside)
