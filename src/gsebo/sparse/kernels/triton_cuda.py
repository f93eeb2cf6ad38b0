"""The kernels as Triton programs for CUDA, float32 and float64.

Nothing is added by atomics, so the same input gives the same bits every time. Once the
schedule of a pattern is known, no kernel waits for the device: a call can be captured
in a CUDA graph after one call outside of it. A captured ``keep_mask`` repeats its mask,
because the keys are numbers of the host.
"""

from typing import Any

import torch
import triton
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.sparse.kernels import triton_products, triton_rows, triton_softmax
from gsebo.sparse.kernels.reference import uniform as uniform
from gsebo.sparse.kernels.triton_schedule import (
    CLASSES,
    TILE,
    Schedule,
    entries_are_scattered,
    row_of_entry,
    schedule_of,
)
from gsebo.sparse.pattern import Pattern

# Entries, or numbers of a mask, that a program takes where nothing is summed.
_BLOCK = 2048
# Numbers of a dense row that a program takes at most.
_MOST_CHANNELS = 128
# Numbers of dense rows, or of parts of sums, that a program reads at once.
_SPMM_NUMBERS = 256
_SDDMM_NUMBERS = 2048
_PARTS_NUMBERS = 2048


def spmm(
    pattern: Pattern, values: Tensor, x: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """Sum ``values[entry] * x[column]`` over the entries of each row."""
    batch, channels = max(values.shape[0], x.shape[0]), x.shape[-1]
    out = _target(out, x, batch, pattern.num_rows, channels)
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


def sddmm(
    pattern: Pattern, a: Tensor, b: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """Dot product of ``a[row]`` and ``b[column]`` at each entry."""
    if entries_are_scattered(pattern) and not entries_are_scattered(pattern.T):
        # The same products, and written where they lie together.
        pattern, a, b = pattern.T, b, a
    batch, channels = max(a.shape[0], b.shape[0]), a.shape[-1]
    out = _target(out, a, batch, pattern.num_entries)
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


def row_sum(pattern: Pattern, values: Tensor) -> Tensor:
    """Sum of the values of each row."""
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


def row_expand(pattern: Pattern, x: Tensor) -> Tensor:
    """Value of its row at each entry."""
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


def edge_softmax(pattern: Pattern, scores: Tensor) -> Tensor:
    """Softmax over the entries of each row."""
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


def keep_mask(size: int, threshold: int, keys: tuple[int, int], like: Tensor) -> Tensor:
    """Mask of ``size`` numbers: inverse keep rate where hash < threshold, else 0."""
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


def _launch(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    """Start ``programs`` programs on the device of the tensors, if there are any."""
    if programs == 0:
        return
    device = next(each for each in arguments if isinstance(each, Tensor))
    with torch.cuda.device_of(device):  # type: ignore[no-untyped-call]
        kernel[(programs,)](*arguments, **constants)


def _add_parts(schedule: Schedule, parts: Tensor, out: Tensor) -> None:
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


def _target(out: Tensor | None, like: Tensor, *shape: int) -> Tensor:
    """Return ``out`` if it can be written to, or a new tensor."""
    if out is None:
        return like.new_empty(shape)
    if out.shape != shape or out.dtype != like.dtype or not out.is_contiguous():
        raise InvalidInput(
            f"out has shape {tuple(out.shape)} and {out.dtype}, expected a contiguous "
            f"tensor of shape {shape} and {like.dtype}"
        )
    return out
