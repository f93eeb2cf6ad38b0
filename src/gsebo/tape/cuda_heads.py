"""Triton programs for the messages of an attention step, forwards and backwards.

Messages are ``[rows, lanes, heads * channels]`` and may lie apart; what belongs to
entries is ``[entries, lanes, heads]``. Numbers of heads and channels are constants of
the compiled programs, which so know how numbers are aligned.
"""

import triton
import triton.language as tl

from gsebo.sparse.triton_segments import (
    at_rows,
    folded,
    gained,
    last_product,
    load_dual,
    plus,
    read_positions,
    read_segments,
    short_span,
    store_lanes,
    store_segments,
    times,
    wide_span,
    work_of_program,
    zeros,
)

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators


@triton.jit
def load_weight(weight, n, place, known, LANES: tl.constexpr):
    """Numbers of a weight, whose tangent lies elsewhere."""
    numbers, tangents = weight
    at = n * numbers.batch + place
    x = tl.load(numbers.data + at, mask=known, other=0)
    if LANES == 1:
        return (x,)
    else:
        return (x, tl.load(tangents.data + at, mask=known, other=0))


@triton.jit(do_not_specialize=["num_columns", "batch"])
def score_nodes(
    scores, message, weight, num_columns, batch,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, LANES: tl.constexpr,
    GROUP: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Both parts of the scores of ``GROUP`` heads; an entry's score sums two."""
    n, group, tile = work_of_program(batch, tl.cdiv(HEADS, GROUP))
    first = group * GROUP
    node = tile.to(tl.int64) * TILE + tl.arange(0, TILE)
    slot = tl.arange(0, GROUP * WIDTH)[None, :]
    head = first + slot // WIDTH
    target = zeros([TILE, GROUP * WIDTH], scores, LANES)
    source = zeros([TILE, GROUP * WIDTH], scores, LANES)
    for begin in range(0, CHANNELS, WIDTH):
        channel = begin + slot % WIDTH
        known = (head < HEADS) & (channel < CHANNELS)
        inside = (node < num_columns)[:, None] & known
        place = head * CHANNELS + channel
        x_at = at_rows(message, n, node[:, None], place)
        x = load_dual(x_at, message.lane, inside, LANES)
        to_target = load_weight(weight, n, 2 * place, known, LANES)
        target = gained(target, x, to_target)
        to_source = load_weight(weight, n, 2 * place + 1, known, LANES)
        source = gained(source, x, to_source)
    shape: tl.constexpr = [TILE, GROUP, WIDTH]
    head = first + tl.arange(0, GROUP)[None, :]
    inside = (node < num_columns)[:, None] & (head < HEADS)
    to = scores + (n * num_columns + node)[:, None] * (2 * LANES * HEADS) + head
    store_lanes(to, HEADS, folded(target, shape, 2), inside, LANES, False)
    to += LANES * HEADS
    store_lanes(to, HEADS, folded(source, shape, 2), inside, LANES, False)


@triton.jit
def _gather(
    segments, span, matrix, dense, target, ADD: tl.constexpr, HEADS: tl.constexpr,
    LANES: tl.constexpr, OUT_LANES: tl.constexpr, TILE: tl.constexpr,
    SHARED: tl.constexpr,
):  # fmt: skip
    """Sum ``TILE // SHARED`` segments; ``SHARED`` rows of the tile share a segment."""
    columns, entries, weighted = matrix
    x, x_row, x_lane, place, head, size = dense
    start, rank, length = read_segments(segments, span, TILE, SHARED)
    total = zeros([TILE, place.shape[1]], x, LANES)
    for offset in range(0, tl.max(length, 0), 2 * SHARED):
        for half in tl.static_range(2):
            own = offset + half * SHARED + rank
            stored = own < length
            column = tl.load(columns + start + own, mask=stored, other=0)
            entry = tl.load(entries + start + own, mask=stored, other=0)
            inside = stored[:, None] & (place < size)
            w_at = weighted + entry.to(tl.int64)[:, None] * (LANES * HEADS) + head
            x_at = x + column.to(tl.int64)[:, None] * x_row + place
            w = load_dual(w_at, HEADS, inside, LANES)
            total = gained(total, w, load_dual(x_at, x_lane, inside, LANES))
    total = folded(total, [TILE // SHARED, SHARED, place.shape[1]], 1)
    out, out_row, parts, part_row = target
    for lane in tl.static_range(OUT_LANES):
        to = (out + lane * size, out_row, parts + lane * size, part_row)
        found = total[LANES - OUT_LANES + lane]
        store_segments(segments, span, found, to, place, size, ADD)


@triton.jit(
    do_not_specialize=["num_wide", "num_segments", "num_parts", "num_entries", "batch"]
)
def gather_segments(
    segments, num_wide, num_segments, num_parts, parts,
    columns, entries, weighted, x, out, num_entries, size, batch,
    ADD: tl.constexpr, HEADS: tl.constexpr, CHANNELS: tl.constexpr,
    LANES: tl.constexpr, OUT_LANES: tl.constexpr,
    WIDTH: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Sum of the rows of ``x`` over each segment, weighted by attention.

    With one lane less in the result it is the tangent alone.
    """
    n, block, tile = work_of_program(batch, tl.cdiv(size, WIDTH))
    place = block * WIDTH + tl.arange(0, WIDTH)[None, :]
    matrix = (columns, entries, weighted + n * num_entries * (LANES * HEADS))
    dense = (x.data + n * x.batch, x.row, x.lane, place, place // CHANNELS, size)
    parts += n * num_parts * OUT_LANES * size
    target = (out.data + n * out.batch, out.row, parts, OUT_LANES * size)
    if tile < tl.cdiv(num_wide, TILES[0] // TILES[1]):
        span = wide_span(tile, num_wide, num_parts, TILES)
        _gather(
            segments, span, matrix, dense, target,
            ADD, HEADS, LANES, OUT_LANES, TILES[0], TILES[1],
        )  # fmt: skip
    else:
        span = short_span(tile, num_wide, num_segments, TILES)
        _gather(
            segments, span, matrix, dense, target,
            ADD, HEADS, LANES, OUT_LANES, TILES[0], TILES[2],
        )  # fmt: skip


@triton.jit(do_not_specialize=["num_entries", "batch"])
def dot_heads(
    index, grad, message, to_entries, num_entries, batch,
    HEADS: tl.constexpr, CHANNELS: tl.constexpr, LANES: tl.constexpr,
    GROUP: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """``<gradient of the row, message of the column>`` of entries, ``GROUP`` heads."""
    n, group, tile = work_of_program(batch, tl.cdiv(HEADS, GROUP))
    first = group * GROUP
    stored, row, column, entry = read_positions(index, tile, num_entries, TILE)
    slot = tl.arange(0, GROUP * WIDTH)[None, :]
    head = first + slot // WIDTH
    total = zeros([TILE, GROUP * WIDTH], to_entries, LANES)
    for begin in range(0, CHANNELS, WIDTH):
        channel = begin + slot % WIDTH
        inside = stored[:, None] & (head < HEADS) & (channel < CHANNELS)
        place = head * CHANNELS + channel
        g = load_dual(at_rows(grad, n, row, place), grad.lane, inside, LANES)
        x_at = at_rows(message, n, column, place)
        total = gained(total, g, load_dual(x_at, message.lane, inside, LANES))
    total = folded(total, [TILE, GROUP, WIDTH], 2)
    head = first + tl.arange(0, GROUP)[None, :]
    inside = stored[:, None] & (head < HEADS)
    to = to_entries + (n * num_entries + entry)[:, None] * (LANES * HEADS) + head
    store_lanes(to, HEADS, total, inside, LANES, False)


@triton.jit
def _to_target(sums, node, head, known, HEADS: tl.constexpr, LANES: tl.constexpr):
    """Gradient by a target's score: ``Σ s A d - (Σ A d) (Σ s A)``."""
    at = sums + node * (3 * LANES * HEADS) + head
    mean = load_dual(at, HEADS, known, LANES)
    sloped = load_dual(at + LANES * HEADS, HEADS, known, LANES)
    slopes = load_dual(at + 2 * LANES * HEADS, HEADS, known, LANES)
    return plus(sloped, times(times(mean, slopes), (-1,)))


@triton.jit(do_not_specialize=["num_rows", "num_columns", "chunks", "steps", "batch"])
def nodes_back(
    to_weight, message, weight, sums, to_source, to_message,
    num_rows, num_columns, chunks, steps, size, batch,
    ADD: tl.constexpr, HEADS: tl.constexpr, CHANNELS: tl.constexpr,
    LANES: tl.constexpr, OUT_LANES: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Gradient by the messages through the scores, and sums of that by the weight.

    Of ``steps`` tiles, one below the other. With tangents the sums are the tangents,
    and with one lane less in ``to_message`` it is the tangent alone.
    """
    n, block, chunk = work_of_program(batch, tl.cdiv(size, WIDTH))
    place = block * WIDTH + tl.arange(0, WIDTH)[None, :]
    chunk = chunk.to(tl.int64)
    head = place // CHANNELS
    in_size = place < size
    target = load_weight(weight, n, 2 * place, in_size, LANES)
    source = load_weight(weight, n, 2 * place + 1, in_size, LANES)
    sums += n * num_rows * (3 * LANES * HEADS)
    to_source += n * num_columns * (LANES * HEADS)
    by_target = tl.zeros([ROWS, WIDTH], dtype=to_weight.dtype.element_ty)
    by_source = tl.zeros([ROWS, WIDTH], dtype=to_weight.dtype.element_ty)
    for number in range(0, steps):
        node = (chunk * steps + number) * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (node < num_columns) & in_size
        known = (node < num_rows) & in_size
        t = _to_target(sums, node, head, known, HEADS, LANES)
        s_at = to_source + node * (LANES * HEADS) + head
        s = load_dual(s_at, HEADS, inside, LANES)
        x_at = at_rows(message, n, node, place)
        x = load_dual(x_at, message.lane, inside, LANES)
        to = at_rows(to_message, n, node, place)
        found = plus(times(t, target), times(s, source))
        store_lanes(to, to_message.lane, found, inside, OUT_LANES, ADD)
        by_target += last_product(t, x)
        by_source += last_product(s, x)
    to = to_weight + ((n * chunks + chunk) * size + place) * 2
    tl.store(to, tl.sum(by_target, 0)[None, :], mask=in_size)
    tl.store(to + 1, tl.sum(by_source, 0)[None, :], mask=in_size)
