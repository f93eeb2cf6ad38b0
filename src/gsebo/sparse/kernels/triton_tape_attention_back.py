"""The attention step of ``gsebo.sparse.tape`` on CUDA, backwards."""

import torch
from torch import Tensor

from gsebo.sparse.kernels import (
    triton_tape_heads,
    triton_tape_nodes_back,
    triton_tape_softmax_back,
)
from gsebo.sparse.kernels.attention_step import AttentionStep
from gsebo.sparse.kernels.triton_schedule import schedule_of
from gsebo.sparse.kernels.triton_tape_attention import (
    NUMBERS,
    TALLEST,
    AttentionMemory,
    gather,
    groups_of,
    mask_arguments,
    tile_of_groups,
    tile_of_heads,
    width_of_heads,
)
from gsebo.sparse.kernels.triton_tape_chunks import bind_chunk_sums, chunks_of
from gsebo.sparse.kernels.triton_tape_launch import (
    Call,
    bind,
    blocks_of,
    in_turn,
    steps_of,
    tiles_of,
    width_of,
)
from gsebo.sparse.kernels.triton_tape_segments import (
    bind_parts,
    bind_sums,
    long_segments,
    tiling_of,
)


def attention_back(
    step: AttentionStep,
    memory: AttentionMemory,
    grad_out: Tensor,
    to_message: Tensor,
    to_weight: Tensor,
    to_strength: Tensor | None,
    *,
    accumulate: bool,
) -> list[Call]:
    """Calls that pull a gradient back through an attention step.

    With two lanes, it is the tangents of the gradients by weight and strength that are
    added.

    Args:
        step: What the step reads.
        memory: What it has kept.
        grad_out: Gradient by its result, ``[replicas, rows, lanes, heads * channels]``.
        to_message: Gradient by the messages, written or added. With one lane less than
            the messages it is the tangent alone.
        to_weight: Gradient by the weight, added.
        to_strength: Gradient by the strengths, added, or None if nobody asks.
        accumulate: Whether to add to ``to_message``.
    """
    replicas, columns, lanes, _ = step.message.shape
    turned = step.pattern.T
    to_entries = torch.empty_like(memory.share)
    shape = replicas, step.pattern.num_rows, 3 * lanes * step.heads
    sums = to_entries.new_empty(shape)
    to_source = to_entries.new_empty(replicas, columns, lanes * step.heads)
    return [
        _dots(step, grad_out, to_entries),
        *_softmax_back(step, memory, to_entries, sums, to_strength),
        bind_sums(
            schedule_of(turned),
            turned.entries,
            turned.entries,
            None,
            to_entries.flatten(2),
            to_source,
        ),
        _nodes_back(step, sums, to_source, to_message, to_weight, add=accumulate),
        gather(turned, step, memory, grad_out, to_message, add=True),
    ]


def _dots(step: AttentionStep, grad_out: Tensor, to_entries: Tensor) -> Call:
    """Gradients by the attention after dropout and strength."""
    pattern, replicas = step.pattern, grad_out.shape[0]
    tile = tile_of_groups(step)
    return bind(
        triton_tape_heads.dot_heads,
        tiles_of(pattern.num_entries, tile["TILE"]) * groups_of(step) * replicas,
        pattern.rows,
        pattern.columns,
        pattern.entries,
        grad_out,
        steps_of(grad_out),
        step.message,
        steps_of(step.message),
        to_entries,
        pattern.num_entries,
        replicas,
        HEADS=step.heads,
        CHANNELS=step.channels,
        LANES=step.lanes,
        **tile,
    )


def _softmax_back(
    step: AttentionStep,
    memory: AttentionMemory,
    to_entries: Tensor,
    sums: Tensor,
    to_strength: Tensor | None,
) -> list[Call]:
    """Sums over rows, then the gradients by the scores of entries."""
    pattern, replicas = step.pattern, sums.shape[0]
    schedule = schedule_of(pattern)
    width = width_of_heads(step)
    tile = tile_of_heads(width)
    held = step.lanes * sums.element_size() // 4
    tiling = tiling_of(schedule, width, replicas, held)
    parts = sums.new_empty(replicas, schedule.num_parts, sums.shape[2])
    read = (step.strength, memory.share, to_entries, *mask_arguments(step))
    over_segments = bind(
        triton_tape_softmax_back.softmax_back_segments,
        tiling.programs,
        schedule.segments,
        pattern.entries,
        *read,
        sums,
        parts,
        long_segments(schedule),
        schedule.class_ends[-1],
        schedule.num_parts,
        pattern.num_entries,
        pattern.num_rows,
        replicas,
        HEADS=step.heads,
        SLOPE=step.slope,
        DROPPED=step.drop is not None,
        LANES=step.lanes,
        WIDTH=width,
        TILE=tiling.tile,
        SHARED=tiling.lanes,
        num_warps=tiling.warps,
    )
    of_entries = bind(
        triton_tape_softmax_back.attend_back_entries,
        tiles_of(pattern.num_entries, tile) * replicas,
        pattern.rows,
        pattern.entries,
        *read,
        sums,
        sums if to_strength is None else to_strength,
        pattern.num_entries,
        pattern.num_rows,
        replicas,
        HEADS=step.heads,
        SLOPE=step.slope,
        DROPPED=step.drop is not None,
        ASKED=to_strength is not None,
        LANES=step.lanes,
        WIDTH=width,
        TILE=tile,
    )
    return [in_turn(over_segments, bind_parts(schedule, parts, sums)), of_entries]


def _nodes_back(
    step: AttentionStep,
    sums: Tensor,
    to_source: Tensor,
    to_message: Tensor,
    to_weight: Tensor,
    *,
    add: bool,
) -> Call:
    """From gradients by scores of nodes to those by messages and weight."""
    replicas, columns, out_lanes, size = to_message.shape
    width = width_of(size)
    tile = min(NUMBERS // width, TALLEST)
    chunks = chunks_of(columns, tile)
    parts = to_weight.new_empty(replicas, chunks.number, size * 2)
    nodes = bind(
        triton_tape_nodes_back.nodes_back,
        chunks.number * blocks_of(size) * replicas,
        step.message,
        steps_of(step.message),
        step.weight,
        step.tangent,
        steps_of(step.weight)[0],
        sums,
        to_source,
        to_message,
        steps_of(to_message),
        parts,
        step.pattern.num_rows,
        columns,
        chunks.number,
        chunks.steps,
        size,
        replicas,
        ADD=add,
        HEADS=step.heads,
        CHANNELS=step.channels,
        LANES=step.lanes,
        OUT_LANES=out_lanes,
        ROWS=tile,
        WIDTH=width,
    )
    return in_turn(nodes, bind_chunk_sums(parts, to_weight.flatten(1), add=True))
