"""The kernels as Triton programs for CUDA, float32 and float64.

Nothing is added by atomics, so the same input gives the same bits every time. Once the
schedule of a pattern is known, no kernel waits for the device: a call can be captured
in a CUDA graph after one call outside of it. A captured ``keep_mask`` repeats its mask,
because the keys are numbers of the host.

A softmax takes maximum and sum of each row, and then a second pass over the entries in
their own order: where they are scattered, as in a transposed pattern, writing them row
by row costs eight times their size.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from gsebo.sparse.backend import Call, SparseKernels
from gsebo.sparse.pattern import Pattern
from gsebo.sparse.reference import REFERENCE_KERNELS
from gsebo.sparse.triton_random import bits_at
from gsebo.sparse.triton_schedule import (
    entries_are_scattered,
    row_of_entry,
    schedule_of,
)
from gsebo.sparse.triton_segments import (
    bind_dots,
    bind_programs,
    bind_segments,
    bind_sums,
    in_turn,
    load_dual,
    plus,
    read_segments,
    short_span,
    store_segments,
    tiles_of,
    times,
    wide_span,
    work_of_program,
)

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators

# Entries, or numbers of a mask, that a program takes where nothing is summed.
_BLOCK = 2048
# Parts of rows that were cut, joined at a time.
_PARTS = 128


@triton.jit(do_not_specialize=["num_rows", "batch"])
def _expand_entries(
    row_of_entry, x, out, num_rows, num_entries, batch, BLOCK: tl.constexpr
):
    """Value of its row at each entry."""
    n, _, tile = work_of_program(batch, 1)
    entry = tile.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < num_entries
    row = tl.load(row_of_entry + entry, mask=inside, other=0)
    value = tl.load(x + n * num_rows + row, mask=inside, other=0)
    tl.store(out + n * num_entries + entry, value, mask=inside)


@triton.jit(do_not_specialize=["key0", "key1", "threshold"])
def _mask_positions(
    out, size, key0: tl.int64, key1: tl.int64, threshold: tl.int64, BLOCK: tl.constexpr
):
    """Inverse keep rate where the hash of the position is below threshold, else 0."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    keys = (key0.to(tl.uint32), key1.to(tl.uint32))
    h = bits_at(keys, start + lane)
    scale = 4294967296.0 / threshold.to(tl.float64)
    value = tl.where(h.to(tl.int64) < threshold, scale.to(out.dtype.element_ty), 0)
    tl.store(out + start + lane, value, mask=start + lane < size)


@triton.jit
def _finite(top):
    """What to subtract: without any finite score, differences would be NaN."""
    return tl.where(top == -float("inf"), 0, top)


@triton.jit
def score_entries(
    scores, row, column, place, inside, HEADS: tl.constexpr, SLOPE, LANES: tl.constexpr
):
    """Score of each entry, and the slope that was taken.

    It is the leaky ReLU of the sum of a score of the row and one of the column.
    """
    target = scores + row * (2 * LANES * HEADS) + place
    source = scores + (column * 2 + 1) * (LANES * HEADS) + place
    x = load_dual(target, HEADS, inside, LANES)
    x = plus(x, load_dual(source, HEADS, inside, LANES))
    slope = tl.where(x[0] > 0, tl.full(x[0].shape, 1, x[0].dtype), SLOPE)
    return times(x, (slope,)), slope


@triton.jit
def _join(top, norm, mean):
    """Join sums along axis 1 that were taken relative to different maxima."""
    most = tl.max(top, 1)
    scale = tl.exp(top - _finite(most)[:, None, :])
    return most, tl.sum(norm * scale, 1), tl.sum(mean * scale, 1)


@triton.jit
def _softmax_segments(
    segments, span, indices, scores, target, HEADS: tl.constexpr, SLOPE: tl.constexpr,
    LANES: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    first, last = span[0], span[1]
    out, out_row, parts, part_row = target
    start, rank, length = read_segments(segments, span, TILE, SHARED)
    segment = first + tl.arange(0, TILE) // SHARED
    row = tl.load(segments.row + segment, mask=segment < last, other=0)
    row = row.to(tl.int64)[:, None]
    place = tl.arange(0, WIDTH)[None, :]
    top = tl.full([TILE, WIDTH], -float("inf"), scores.dtype.element_ty)
    norm = tl.zeros([TILE, WIDTH], dtype=scores.dtype.element_ty)
    mean = tl.zeros([TILE, WIDTH], dtype=scores.dtype.element_ty)
    for offset in range(0, tl.max(length, 0), SHARED):
        stored = offset + rank < length
        index = tl.load(indices + start + offset + rank, mask=stored, other=0)
        index = index.to(tl.int64)[:, None]
        inside = stored[:, None] & (place < HEADS)
        if LANES == 0:
            score = (tl.load(scores + index * HEADS + place, mask=inside, other=0),)
        else:
            score, _slope = score_entries(
                scores, row, index, place, inside, HEADS, SLOPE, LANES
            )
        x = tl.where(inside, score[0], -float("inf"))
        most = tl.maximum(top, x)
        shift = _finite(most)
        power = tl.where(inside, tl.exp(x - shift), 0)
        scale = tl.exp(top - shift)
        norm = norm * scale + power
        if LANES == 2:
            mean = mean * scale + power * score[LANES - 1]
        top = most
    shape: tl.constexpr = [TILE // SHARED, SHARED, WIDTH]
    top, norm, mean = _join(
        tl.reshape(top, shape), tl.reshape(norm, shape), tl.reshape(mean, shape)
    )
    found = (top, norm, mean)
    for which in tl.static_range(3):
        to = (out + which * HEADS, out_row, parts + which * HEADS, part_row)
        store_segments(segments, span, found[which], to, place, HEADS, False)


@triton.jit(
    do_not_specialize=[
        "num_wide", "num_segments", "num_parts", "num_rows", "score_step", "batch"
    ]
)  # fmt: skip
def softmax_segments(
    segments, num_wide, num_segments, num_parts, parts,
    indices, scores, sums, num_rows, score_step, batch,
    HEADS: tl.constexpr, SLOPE: tl.constexpr, LANES: tl.constexpr,
    WIDTH: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """Maximum, sum of exponentials, and sum of tangents so weighted of each segment.

    Scores are those of nodes, with so many lanes, and ``indices`` are columns; or, with
    ``LANES`` 0, they are those of entries, and ``indices`` are these.
    """
    n, _, tile = work_of_program(batch, 1)
    scores += n * score_step
    sums += n * num_rows * (3 * HEADS)
    parts += n * num_parts * (3 * HEADS)
    target = (sums, 3 * HEADS, parts, 3 * HEADS)
    if tile < tl.cdiv(num_wide, TILES[0] // TILES[1]):
        span = wide_span(tile, num_wide, num_parts, TILES)
        _softmax_segments(
            segments, span, indices, scores, target, HEADS,
            SLOPE, LANES, WIDTH, TILES[0], TILES[1],
        )  # fmt: skip
    else:
        span = short_span(tile, num_wide, num_segments, TILES)
        _softmax_segments(
            segments, span, indices, scores, target, HEADS,
            SLOPE, LANES, WIDTH, TILES[0], TILES[2],
        )  # fmt: skip


@triton.jit(do_not_specialize=["num_parts", "num_rows", "batch"])
def join_parts(
    part_begin, row_of_segment, parts, sums, num_parts, num_rows, batch,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The same for the rows that were cut, from their parts."""
    n, _, cut = work_of_program(batch, 1)
    start, stop = tl.load(part_begin + cut), tl.load(part_begin + cut + 1)
    parts += n * num_parts * (3 * HEADS)
    place = tl.arange(0, WIDTH)[None, :]
    top = tl.full([TILE, WIDTH], -float("inf"), sums.dtype.element_ty)
    norm = tl.zeros([TILE, WIDTH], dtype=sums.dtype.element_ty)
    mean = tl.zeros([TILE, WIDTH], dtype=sums.dtype.element_ty)
    for first in range(start, stop, TILE):
        part = (first + tl.arange(0, TILE)).to(tl.int64)[:, None]
        inside = (part < stop) & (place < HEADS)
        at = parts + part * (3 * HEADS) + place
        found = tl.load(at, mask=inside, other=-float("inf"))
        most = tl.maximum(top, found)
        shift = _finite(most)
        scale, new = tl.exp(top - shift), tl.exp(found - shift)
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


def bind_softmax_sums(
    pattern: Pattern,
    indices: Tensor,
    scores: Tensor,
    sums: Tensor,
    *,
    lanes: int,
    slope: float = 1.0,
) -> Call:
    """Maximum, sum of exponentials and weighted tangents of each row.

    Each stored position has its score at ``indices``: its column, for scores of nodes
    ``[replicas, columns, 2, lanes, heads]``, or its entry, for those of entries
    ``[replicas, entries]``, with ``lanes`` 0. The sums are ``[replicas, rows, 3 *
    heads]``.
    """
    replicas, num_rows, heads = sums.shape
    heads //= 3
    schedule = schedule_of(pattern)
    width: int = triton.next_power_of_2(heads)
    parts = scores.new_empty(replicas, schedule.num_parts, 3 * heads)
    sizes = {"HEADS": heads, "WIDTH": width}
    over_segments = bind_segments(
        softmax_segments,
        schedule,
        parts,
        *(indices, scores, sums, num_rows, scores[0].numel(), replicas),
        width=width,
        copies=replicas,
        held=scores.element_size() // 4,
        SLOPE=slope,
        LANES=lanes,
        **sizes,
    )
    index = schedule.part_begin, schedule.segments.row
    over_parts = bind_programs(
        join_parts,
        schedule.num_cut * replicas,
        *(*index, parts, sums, schedule.num_parts, num_rows, replicas),
        **sizes,
        TILE=max(_PARTS // width, 1),
    )
    return in_turn(over_segments, over_parts)


@triton.jit(do_not_specialize=["num_rows", "batch"])
def _softmax_entries(
    row_of_entry, scores, out, sums, num_rows, num_entries, batch, BLOCK: tl.constexpr
):
    """Softmax of all entries, from the maximum and the sum of their rows."""
    n, _, tile = work_of_program(batch, 1)
    entry = tile.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < num_entries
    row = n * num_rows + tl.load(row_of_entry + entry, mask=inside, other=0)
    score = tl.load(scores + n * num_entries + entry, mask=inside, other=0)
    top = tl.load(sums + 3 * row, mask=inside, other=0)
    total = tl.load(sums + 3 * row + 1, mask=inside, other=1)
    tl.store(out + n * num_entries + entry, tl.exp(score - top) / total, mask=inside)


def _bind_entries(kernel: Any, pattern: Pattern, x: Tensor, *tensors: Tensor) -> Call:
    """Bind a kernel over all entries in their own order."""
    batch, size = x.shape[0], pattern.num_entries
    arguments = row_of_entry(pattern), x, *tensors, pattern.num_rows, size, batch
    return bind_programs(
        kernel, tiles_of(size, _BLOCK) * batch, *arguments, BLOCK=_BLOCK
    )


class _TritonKernels(SparseKernels):
    """Triton programs."""

    def spmm(self, pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
        batch = max(values.shape[0], x.shape[0])
        out = x.new_empty(batch, pattern.num_rows, x.shape[-1])
        index = schedule_of(pattern), pattern.columns, pattern.entries
        bind_sums(*index, values.contiguous(), x.contiguous(), out)()
        return out

    def sddmm(self, pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
        if entries_are_scattered(pattern) and not entries_are_scattered(pattern.T):
            # The same products, and written where they lie together.
            pattern, a, b = pattern.T, b, a
        out = a.new_empty(max(a.shape[0], b.shape[0]), pattern.num_entries)
        left, right = (each.contiguous().unsqueeze(2) for each in (a, b))
        bind_dots(pattern, left, right, out, add=False)()
        return out

    def row_sum(self, pattern: Pattern, values: Tensor) -> Tensor:
        out = values.new_empty(values.shape[0], pattern.num_rows, 1)
        schedule, entries = schedule_of(pattern), pattern.entries
        each = values.contiguous().unsqueeze(2)
        bind_sums(schedule, entries, entries, None, each, out)()
        return out.squeeze(2)

    def row_expand(self, pattern: Pattern, x: Tensor) -> Tensor:
        out = x.new_empty(x.shape[0], pattern.num_entries)
        _bind_entries(_expand_entries, pattern, x.contiguous(), out)()
        return out

    def edge_softmax(self, pattern: Pattern, scores: Tensor) -> Tensor:
        scores, out = scores.contiguous(), scores.new_empty(scores.shape)
        sums = scores.new_empty(scores.shape[0], pattern.num_rows, 3)
        bind_softmax_sums(pattern, pattern.entries, scores, sums, lanes=0)()
        _bind_entries(_softmax_entries, pattern, scores, out, sums)()
        return out

    def keep_mask(
        self, size: int, threshold: int, keys: tuple[int, int], like: Tensor
    ) -> Tensor:
        out = like.new_empty(size)
        programs = tiles_of(size, _BLOCK)
        bind_programs(
            _mask_positions, programs, out, size, *keys, threshold, BLOCK=_BLOCK
        )()
        return out

    def uniform(
        self, size: int, bits: int, keys: tuple[int, int], like: Tensor
    ) -> Tensor:
        return REFERENCE_KERNELS.uniform(size, bits, keys, like)


TRITON_KERNELS = _TritonKernels()
