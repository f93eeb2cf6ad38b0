"""How segments of rows are dealt out to programs, and the sums that are made so."""

from typing import NamedTuple

import torch
from torch import Tensor

from gsebo.sparse.kernels import triton_tape_products
from gsebo.sparse.kernels.triton_schedule import Schedule
from gsebo.sparse.kernels.triton_tape_launch import (
    Call,
    bind,
    blocks_of,
    in_turn,
    registers_of,
    steps_of,
    tiles_of,
    width_of,
)

# Numbers that a program holds of each tensor where rows are many, and where they are
# few, with so many lanes to a row.
_MANY_ROWS, _FEW_ROWS, _FEW_ROWS_LANES = 512, 2048, 8
# Every thread holds the indices of several rows of a tile: more would not fit.
_TALLEST = 128
# As many programs run at once on a large device.
_AT_ONCE = 2048
# Numbers of parts that are summed at once.
_PARTS = 2048


class Tiling(NamedTuple):
    """Which segments a program takes.

    Attributes:
        tile: Rows of a tile.
        lanes: How many of them share a segment that is not long.
        programs: Number of programs.
        warps: Of each program.
    """

    tile: int
    lanes: int
    programs: int
    warps: int


def long_segments(schedule: Schedule) -> int:
    """How many segments are worth a program of their own; they come first."""
    return schedule.class_ends[1]


def tiling_of(schedule: Schedule, width: int, copies: int, held: int) -> Tiling:
    """Choose tiles for a kernel over the segments of a pattern.

    Where rows are many, the fewest lanes that read whole sectors of memory. Where they
    are few the device is not full anyway, and more lanes end sooner.

    Args:
        schedule: The segments.
        width: Channels of a tile.
        copies: How often all segments are worked on, for more channels and replicas.
        held: Registers that a program needs for each number of the tile.
    """
    wide = long_segments(schedule)
    short = schedule.class_ends[-1] - wide
    tile, lanes, warps = _FEW_ROWS // (width * held), _FEW_ROWS_LANES, 4
    if short * lanes * copies > _AT_ONCE * tile:
        tile, lanes, warps = _MANY_ROWS // (width * held), max(16 // width, 1), 2
    tile = min(max(tile, 1), _TALLEST)
    lanes = min(lanes, tile)
    programs = wide + tiles_of(short, tile // lanes)
    return Tiling(tile, lanes, programs * copies, warps)


def bind_sums(
    schedule: Schedule,
    columns: Tensor,
    entries: Tensor,
    values: Tensor | None,
    x: Tensor,
    out: Tensor,
) -> Call:
    """``out[row] = Σ values[entry] x[column]`` over the stored positions of each row.

    Args:
        schedule: Of the rows.
        columns: Row of ``x`` for each stored position.
        entries: Which value each of them takes.
        values: ``[replicas or 1, values]``, or None for ones.
        x: ``[replicas or 1, columns, channels]``, may be a slice with whole rows.
        out: ``[replicas, rows, channels]``, may be a slice with whole rows.
    """
    batch, _, channels = out.shape
    width = width_of(channels)
    tiling = tiling_of(schedule, width, blocks_of(channels) * batch, registers_of(x))
    parts = out.new_empty(batch, schedule.num_parts, channels)
    sums = bind(
        triton_tape_products.spmm_segments,
        tiling.programs,
        schedule.segments,
        columns,
        entries,
        x if values is None else values,
        x,
        steps_of(x),
        out,
        steps_of(out),
        parts,
        long_segments(schedule),
        schedule.class_ends[-1],
        schedule.num_parts,
        channels,
        0 if values is None else steps_of(values)[0],
        batch,
        WEIGHTED=values is not None,
        WIDTH=width,
        TILE=tiling.tile,
        LANES=tiling.lanes,
        num_warps=tiling.warps,
    )
    return in_turn(sums, bind_parts(schedule, parts, out))


def bind_parts(
    schedule: Schedule, parts: Tensor, out: Tensor, *, add: bool = False
) -> Call:
    """Sum the parts of each row that was cut, ``[replicas, parts, channels]``."""
    batch, _, channels = out.shape
    width = width_of(channels)
    return bind(
        triton_tape_products.add_parts,
        schedule.num_cut * blocks_of(channels) * batch,
        schedule.part_begin,
        schedule.segments.row,
        parts,
        out,
        steps_of(out),
        schedule.num_parts,
        channels,
        batch,
        ADD=add,
        WIDTH=width,
        TILE=_PARTS // width,
    )


def whole_rows(x: Tensor) -> Tensor:
    """Lanes side by side, ``[replicas, rows, lanes * channels]``, without a copy."""
    replicas, rows, lanes, channels = x.shape
    shape = replicas, rows, lanes * channels
    return torch.as_strided(x, shape, (x.stride(0), x.stride(1), 1), x.storage_offset())
