"""The kernels as Triton programs for CUDA, float32 and float64.

Nothing is added by atomics, so the same input gives the same bits every time. Once the
schedule of a pattern is known, no kernel waits for the device: a call can be captured
in a CUDA graph after one call outside of it. A captured ``keep_mask`` repeats its mask,
because the keys are numbers of the host.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gsebo.sparse.kernels import triton_cuda as triton_products
from gsebo.sparse.kernels import triton_softmax
from gsebo.sparse.kernels import triton_softmax as triton_rows
from gsebo.sparse.kernels.backend import SparseKernels
from gsebo.sparse.kernels.reference import REFERENCE_KERNELS
from gsebo.sparse.kernels.triton_schedule import (
    CLASSES,
    TILE,
    SegmentSchedule,
    entries_are_scattered,
    row_of_entry,
    schedule_of,
)
from gsebo.sparse.pattern import Pattern

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators

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


# Entries, or numbers of a mask, that a program takes where nothing is summed.
_BLOCK = 2048
# Numbers of a dense row that a program takes at most.
_MOST_CHANNELS = 128
# Numbers of dense rows, or of parts of sums, that a program reads at once.
_SPMM_NUMBERS = 256
_SDDMM_NUMBERS = 2048
_PARTS_NUMBERS = 2048


def _launch(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    """Start ``programs`` programs on the device of the tensors, if there are any."""
    if programs == 0:
        return
    device = next(each for each in arguments if isinstance(each, Tensor))
    with torch.cuda.device_of(device):
        kernel[(programs,)](*arguments, **constants)


def _add_parts(schedule: SegmentSchedule, parts: Tensor, out: Tensor) -> None:
    """Second pass of a sum: the rows that were cut."""
    batch, num_rows, channels = out.shape
    width = _width(channels)
    _launch(
        triton_products.add_parts,
        schedule.num_cut * triton.cdiv(channels, width) * batch,
        schedule.part_begin,
        schedule.segments.row,
        parts,
        out,
        schedule.num_parts,
        num_rows,
        channels,
        batch,
        WIDTH=width,
        TILE=_PARTS_NUMBERS // width,
    )


def _width(channels: int) -> int:
    power: int = triton.next_power_of_2(max(channels, 1))
    return min(power, _MOST_CHANNELS)


def _step(operand: Tensor) -> int:
    """Numbers from one operand of a batch to the next; none if it is broadcast."""
    return operand.shape[1:].numel() if operand.shape[0] > 1 else 0


class _TritonKernels(SparseKernels):
    """Triton programs."""

    def spmm(self, pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
        batch, channels = max(values.shape[0], x.shape[0]), x.shape[-1]
        out = x.new_empty(batch, pattern.num_rows, channels)
        schedule = schedule_of(pattern)
        parts = x.new_empty(batch, schedule.num_parts, channels)
        width = _width(channels)
        tile = _SPMM_NUMBERS // width
        copies = triton.cdiv(channels, width) * batch
        wide, num_segments = schedule.num_long, schedule.class_ends[-1]
        # Lanes that share a short row: where channels are few, one by itself would read
        # four bytes here and four bytes there.
        lanes = max(16 // width, 1)
        tiles = wide + triton.cdiv(num_segments - wide, tile // lanes)
        _launch(
            triton_products.spmm_segments,
            tiles * copies,
            schedule.segments,
            pattern.columns,
            pattern.entries,
            values.contiguous(),
            x.contiguous(),
            out,
            parts,
            wide,
            num_segments,
            schedule.num_parts,
            pattern.num_rows,
            channels,
            _step(values),
            _step(x),
            batch,
            WIDTH=width,
            TILE=tile,
            LANES=lanes,
            num_warps=2,
        )
        _add_parts(schedule, parts, out)
        return out

    def sddmm(self, pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
        if entries_are_scattered(pattern) and not entries_are_scattered(pattern.T):
            # The same products, and written where they lie together.
            pattern, a, b = pattern.T, b, a
        batch, channels = max(a.shape[0], b.shape[0]), a.shape[-1]
        out = a.new_empty(batch, pattern.num_entries)
        width = _width(channels)
        tile = _SDDMM_NUMBERS // width
        _launch(
            triton_products.sddmm_entries,
            triton.cdiv(pattern.num_entries, tile) * batch,
            pattern.rows,
            pattern.columns,
            pattern.entries,
            a.contiguous(),
            b.contiguous(),
            out,
            pattern.num_entries,
            channels,
            _step(a),
            _step(b),
            batch,
            WIDTH=width,
            TILE=tile,
        )
        return out

    def row_sum(self, pattern: Pattern, values: Tensor) -> Tensor:
        batch = values.shape[0]
        schedule = schedule_of(pattern)
        out = values.new_empty(batch, pattern.num_rows, 1)
        parts = values.new_empty(batch, schedule.num_parts, 1)
        _launch(
            triton_rows.row_sum_segments,
            schedule.tiles.first.numel() * batch,
            schedule.tiles,
            schedule.segments,
            pattern.entries,
            values.contiguous(),
            out,
            parts,
            schedule.num_parts,
            pattern.num_rows,
            pattern.num_entries,
            batch,
            CLASSES=CLASSES,
            TILE=TILE,
            num_warps=1,
        )
        _add_parts(schedule, parts, out)
        return out.squeeze(-1)

    def row_expand(self, pattern: Pattern, x: Tensor) -> Tensor:
        batch = x.shape[0]
        out = x.new_empty(batch, pattern.num_entries)
        _launch(
            triton_rows.expand_entries,
            triton.cdiv(pattern.num_entries, _BLOCK) * batch,
            row_of_entry(pattern),
            x.contiguous(),
            out,
            pattern.num_rows,
            pattern.num_entries,
            batch,
            BLOCK=_BLOCK,
        )
        return out

    def edge_softmax(self, pattern: Pattern, scores: Tensor) -> Tensor:
        batch, num_entries = scores.shape
        schedule, scattered = schedule_of(pattern), entries_are_scattered(pattern)
        sizes = (pattern.num_rows, num_entries, batch)
        scores, out = scores.contiguous(), scores.new_empty(scores.shape)
        # Maximum and sum of each row and of each part of a row that was cut.
        stats = scores.new_empty(batch, pattern.num_rows, 2)
        part_stats = scores.new_empty(batch, schedule.num_parts, 2)
        _launch(
            triton_softmax.softmax_segments,
            schedule.tiles.first.numel() * batch,
            schedule.tiles,
            schedule.segments,
            pattern.entries,
            scores,
            out,
            stats,
            part_stats,
            schedule.num_parts,
            *sizes,
            CLASSES=CLASSES,
            TILE=TILE,
            num_warps=1,
            SCATTERED=scattered,
        )
        _launch(
            triton_softmax.softmax_cut_rows,
            schedule.num_cut * batch,
            schedule.part_begin,
            schedule.segments.row,
            part_stats,
            stats,
            schedule.num_parts,
            pattern.num_rows,
            batch,
            TILE=CLASSES[0],
        )
        if scattered:
            _launch(
                triton_softmax.softmax_entries,
                triton.cdiv(num_entries, _BLOCK) * batch,
                row_of_entry(pattern),
                scores,
                out,
                stats,
                *sizes,
                BLOCK=_BLOCK,
            )
        else:
            _launch(
                triton_softmax.softmax_parts,
                schedule.num_parts * batch,
                schedule.segments,
                pattern.entries,
                scores,
                out,
                stats,
                schedule.num_parts,
                *sizes,
                LENGTH=CLASSES[0],
                num_warps=1,
            )
        return out

    def keep_mask(
        self, size: int, threshold: int, keys: tuple[int, int], like: Tensor
    ) -> Tensor:
        out = like.new_empty(size)
        _launch(
            triton_rows.mask_positions,
            triton.cdiv(size, _BLOCK),
            out,
            size,
            *keys,
            threshold,
            BLOCK=_BLOCK,
        )
        return out

    def uniform(
        self, size: int, bits: int, keys: tuple[int, int], like: Tensor
    ) -> Tensor:
        return REFERENCE_KERNELS.uniform(size, bits, keys, like)


TRITON_KERNELS = _TritonKernels()
