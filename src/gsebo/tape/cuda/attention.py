"""The attention step of ``gsebo.tape`` on CUDA, forwards.

Triton programs for the attention of entries, forwards and backwards.

Both ways take two passes over the entries: sums over each row, then what is left to do
for each entry. Heads lie side by side. Scores of nodes are ``[columns, 2, lanes,
heads]``, target and source; what belongs to entries is ``[entries, lanes, heads]``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from gsebo.sparse.kernels.backend import Call
from gsebo.sparse.kernels.triton_random import drop_keys, drop_tensors, kept
from gsebo.sparse.kernels.triton_schedule import schedule_of
from gsebo.sparse.kernels.triton_segments import (
    bind_parts,
    bind_programs,
    blocks_of,
    in_turn,
    is_aligned,
    long_segments,
    registers_of,
    steps_of,
    tile_width,
    tiles_of,
    tiling_of,
    whole_rows,
)
from gsebo.sparse.kernels.triton_softmax import bind_softmax_sums, score_entries
from gsebo.sparse.pattern import Pattern
from gsebo.tape.backend import AttentionStep
from gsebo.tape.cuda.heads import gather_segments, score_nodes

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators


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
    x, slope, change = score_entries(
        scores, row, column, place, inside, HEADS, SLOPE, LANES
    )
    in_sums = sums + (n * num_rows + row) * (3 * HEADS) + place
    top = tl.load(in_sums, mask=inside, other=0)
    norm = tl.load(in_sums + HEADS, mask=inside, other=1)
    part = tl.exp(x - top) / norm
    factor = tl.load(strength + n * num_entries + entry, mask=stored, other=0)[:, None]
    if DROPPED:
        keys = drop_keys(seeds, step, site, n)
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

    @classmethod
    def of(cls, step: AttentionStep) -> AttentionMemory:
        """Allocate it, for both directions."""
        replicas, columns, lanes, _ = step.message.shape
        of_entries = replicas, step.pattern.num_entries, lanes, step.heads
        return cls(
            step.message.new_empty(replicas, columns, 2, lanes, step.heads),
            step.message.new_empty(of_entries),
            step.message.new_empty(of_entries),
        )


def attention_forward(
    step: AttentionStep, memory: AttentionMemory, out: Tensor
) -> list[Call]:
    """Calls that compute an attention step."""
    replicas, columns, lanes, _ = step.message.shape
    tile = tile_of_groups(step)
    scores = bind_programs(
        score_nodes,
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
        bind_gather(step.pattern, step, memory, step.message, out, add=False),
    ]


def bind_gather(
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
    width = tile_width(size)
    held = step.lanes * registers_of(x)
    tiling = tiling_of(schedule, width, blocks_of(size) * replicas, held)
    parts = out.new_empty(replicas, schedule.num_parts, out_lanes * size)
    sums = bind_programs(
        gather_segments,
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
    return *drop_tensors(step.drop, step.message.device), step.whole_entries


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
    width = min(tile_width(step.channels), 32 if aligned else 16)
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
    width = width_of_heads(step)
    tile = tile_of_heads(width)
    sums = memory.scores.new_empty(replicas, pattern.num_rows, 3 * heads)
    over_rows = bind_softmax_sums(
        pattern, pattern.columns, memory.scores, sums, lanes=lanes, slope=step.slope
    )
    of_entries = bind_programs(
        attend_entries,
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
    return [over_rows, of_entries]
