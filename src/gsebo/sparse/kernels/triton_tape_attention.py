"""The attention step of ``gsebo.sparse.tape`` on CUDA, forwards."""

from typing import Any, NamedTuple

import triton
from torch import Tensor

from gsebo.sparse.kernels import triton_tape_heads, triton_tape_softmax
from gsebo.sparse.kernels.attention_step import AttentionStep
from gsebo.sparse.kernels.triton_schedule import schedule_of
from gsebo.sparse.kernels.triton_tape_launch import (
    Call,
    bind,
    blocks_of,
    drop_arguments,
    in_turn,
    is_aligned,
    registers_of,
    steps_of,
    tiles_of,
    width_of,
)
from gsebo.sparse.kernels.triton_tape_segments import (
    bind_parts,
    long_segments,
    tiling_of,
    whole_rows,
)
from gsebo.sparse.pattern import Pattern

# Numbers that a program holds of each tensor.
NUMBERS = 512
# Rows of a tile at most: every thread holds the indices of several.
TALLEST = 128
# Channels of all heads that a program takes together.
_GROUP_CHANNELS = 64


class AttentionMemory(NamedTuple):
    """What an attention step keeps from its way forwards for its way back.

    Attributes:
        scores: Of the nodes, ``[replicas, columns, 2, lanes, heads]``.
        share: Attention before dropout, ``[replicas, entries, lanes, heads]``, with a
            minus where the score was on the flat side of the leaky ReLU.
        weighted: Attention after dropout, times strength; of the same shape.
    """

    scores: Tensor
    share: Tensor
    weighted: Tensor


def attention_memory(step: AttentionStep) -> AttentionMemory:
    """Memory for one attention step, for both directions."""
    replicas, columns, lanes, _ = step.message.shape
    of_entries = replicas, step.pattern.num_entries, lanes, step.heads
    return AttentionMemory(
        step.message.new_empty(replicas, columns, 2, lanes, step.heads),
        step.message.new_empty(of_entries),
        step.message.new_empty(of_entries),
    )


def attention_forward(
    step: AttentionStep, memory: AttentionMemory, out: Tensor
) -> list[Call]:
    """Calls that compute an attention step.

    Args:
        step: What it reads.
        memory: Where it keeps what the way back needs.
        out: ``[replicas, rows, lanes, heads * channels]``.
    """
    replicas, columns, lanes, _ = step.message.shape
    tile = tile_of_groups(step)
    scores = bind(
        triton_tape_heads.score_nodes,
        tiles_of(columns, tile["TILE"]) * groups_of(step) * replicas,
        step.message,
        steps_of(step.message),
        step.weight,
        step.tangent,
        steps_of(step.weight)[0],
        memory.scores,
        columns,
        replicas,
        HEADS=step.heads,
        CHANNELS=step.channels,
        LANES=lanes,
        **tile,
    )
    return [
        scores,
        *_softmax(step, memory),
        gather(step.pattern, step, memory, step.message, out, add=False),
    ]


def gather(
    pattern: Pattern,
    step: AttentionStep,
    memory: AttentionMemory,
    x: Tensor,
    out: Tensor,
    *,
    add: bool,
) -> Call:
    """Sum ``x`` over the entries, weighted.

    Args:
        pattern: That of the step, or for the way back its transpose.
        step: The step.
        memory: With the weights.
        x: What to sum, ``[replicas, columns, lanes, heads * channels]``.
        out: Where to; with two lanes in ``x`` and one here, only the tangent.
        add: Whether to add to ``out``.
    """
    replicas, _, out_lanes, size = out.shape
    schedule = schedule_of(pattern)
    width = width_of(size)
    held = step.lanes * registers_of(x)
    tiling = tiling_of(schedule, width, blocks_of(size) * replicas, held)
    parts = out.new_empty(replicas, schedule.num_parts, out_lanes * size)
    sums = bind(
        triton_tape_heads.gather_segments,
        tiling.programs,
        schedule.segments,
        pattern.columns,
        pattern.entries,
        memory.weighted,
        x,
        steps_of(x),
        out,
        steps_of(out),
        parts,
        long_segments(schedule),
        schedule.class_ends[-1],
        schedule.num_parts,
        pattern.num_entries,
        size,
        replicas,
        ADD=add,
        HEADS=step.heads,
        CHANNELS=step.channels,
        LANES=step.lanes,
        OUT_LANES=out_lanes,
        WIDTH=width,
        TILE=tiling.tile,
        SHARED=tiling.lanes,
        num_warps=tiling.warps,
    )
    return in_turn(sums, bind_parts(schedule, parts, whole_rows(out), add=add))


def mask_arguments(step: AttentionStep) -> tuple[Any, ...]:
    """What the kernels over entries want to know of dropout."""
    return *drop_arguments(step.drop, step.message.device), step.whole_entries


def width_of_heads(step: AttentionStep) -> int:
    """Width of a tile that holds all heads."""
    power: int = triton.next_power_of_2(step.heads)
    return power


def tile_of_heads(width: int) -> int:
    """Rows of a tile that holds all heads."""
    return min(max(NUMBERS // width, 1), TALLEST)


def tile_of_groups(step: AttentionStep) -> dict[str, int]:
    """Tile over the channels of so many heads that their rows are read at once."""
    # Without alignment every number needs an address of its own.
    aligned = step.channels % 4 == 0 and is_aligned(step.message)
    width = min(width_of(step.channels), 32 if aligned else 16)
    group = max(min(width_of_heads(step), _GROUP_CHANNELS // width), 1)
    rows = (2 * NUMBERS if aligned else NUMBERS) // (width * group)
    return {"GROUP": group, "WIDTH": width, "TILE": min(rows, TALLEST)}


def groups_of(step: AttentionStep) -> int:
    """Number of groups of heads."""
    return tiles_of(step.heads, tile_of_groups(step)["GROUP"])


def _softmax(step: AttentionStep, memory: AttentionMemory) -> list[Call]:
    """Sums over rows, then the attention of each entry."""
    pattern, heads = step.pattern, step.heads
    replicas, columns, lanes, _ = step.message.shape
    schedule = schedule_of(pattern)
    width = width_of_heads(step)
    tile = tile_of_heads(width)
    held = memory.scores.element_size() // 4
    tiling = tiling_of(schedule, width, replicas, held)
    sums = memory.scores.new_empty(replicas, pattern.num_rows, 3 * heads)
    parts = memory.scores.new_empty(replicas, schedule.num_parts, 3 * heads)
    over_segments = bind(
        triton_tape_softmax.softmax_segments,
        tiling.programs,
        schedule.segments,
        pattern.columns,
        memory.scores,
        sums,
        parts,
        long_segments(schedule),
        schedule.class_ends[-1],
        schedule.num_parts,
        pattern.num_rows,
        columns,
        replicas,
        HEADS=heads,
        SLOPE=step.slope,
        LANES=lanes,
        WIDTH=width,
        TILE=tiling.tile,
        SHARED=tiling.lanes,
        num_warps=tiling.warps,
    )
    over_parts = bind(
        triton_tape_softmax.join_parts,
        schedule.num_cut * replicas,
        schedule.part_begin,
        schedule.segments.row,
        parts,
        sums,
        schedule.num_parts,
        pattern.num_rows,
        replicas,
        HEADS=heads,
        WIDTH=width,
        TILE=tile,
    )
    of_entries = bind(
        triton_tape_softmax.attend_entries,
        tiles_of(pattern.num_entries, tile) * replicas,
        pattern.rows,
        pattern.columns,
        pattern.entries,
        memory.scores,
        sums,
        step.strength,
        *mask_arguments(step),
        memory.share,
        memory.weighted,
        pattern.num_entries,
        pattern.num_rows,
        columns,
        replicas,
        HEADS=heads,
        SLOPE=step.slope,
        DROPPED=step.drop is not None,
        LANES=lanes,
        WIDTH=width,
        TILE=tile,
    )
    return [in_turn(over_segments, over_parts), of_entries]
