"""The attention step of ``gsebo.tape`` on CUDA, backwards.

Triton programs for the way back through the attention of entries.

With ``q`` the gradient by the attention of an entry after dropout and strength, ``A``
its attention, ``K`` the mask, ``z`` the strength and ``s`` the slope of the leaky ReLU,

    d = K z q,    gradient by the score = s A (d - Σ A d)

where the sum is over the row, and every product has the tangent that the rule for
products gives it. Sums over rows are ``[rows, 3, lanes, heads]``: ``Σ A d``,
``Σ s A d`` and ``Σ s A``; the gradient by a target's score follows from them.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from gsebo.sparse.kernels.backend import Call
from gsebo.sparse.kernels.triton_random import drop_keys, kept
from gsebo.sparse.kernels.triton_schedule import schedule_of
from gsebo.sparse.kernels.triton_segments import (
    bind_parts,
    bind_programs,
    bind_sums,
    blocks_of,
    in_turn,
    long_segments,
    read_segments,
    steps_of,
    store_segments,
    tile_width,
    tiles_of,
    tiling_of,
)
from gsebo.tape.backend import AttentionKernels, AttentionStep
from gsebo.tape.cuda.attention import (
    NUMBERS,
    TALLEST,
    AttentionMemory,
    attention_forward,
    bind_gather,
    groups_of,
    mask_arguments,
    tile_of_groups,
    tile_of_heads,
    width_of_heads,
)
from gsebo.tape.cuda.heads import dot_heads
from gsebo.tape.cuda.rows import bind_chunk_sums, chunks_of

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators


@triton.jit
def _to_target(sums, node, head, known, HEADS: tl.constexpr, LANES: tl.constexpr):
    """Gradient by a target's score: ``Σ s A d - (Σ A d) (Σ s A)``, and its tangent."""
    at = sums + node * (3 * LANES * HEADS) + head
    mean = tl.load(at, mask=known, other=0)
    slopes = tl.load(at + 2 * LANES * HEADS, mask=known, other=0)
    plain = tl.load(at + LANES * HEADS, mask=known, other=0) - mean * slopes
    change = plain
    if LANES == 2:
        change = tl.load(at + 3 * HEADS, mask=known, other=0)
        change -= tl.load(at + HEADS, mask=known, other=0) * slopes
        change -= tl.load(at + 5 * HEADS, mask=known, other=0) * mean
    return plain, change


_COUNTS = ["num_rows", "num_columns", "chunks", "steps", "batch", "weight_step"]


@triton.jit(do_not_specialize=_COUNTS)
def nodes_back(
    message,
    message_steps,
    weight,
    tangent,
    weight_step,
    sums,
    to_source,
    to_message,
    to_steps,
    to_weight,
    num_rows,
    num_columns,
    chunks,
    steps,
    size,
    batch,
    ADD: tl.constexpr,
    HEADS: tl.constexpr,
    CHANNELS: tl.constexpr,
    LANES: tl.constexpr,
    OUT_LANES: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Gradient by the messages through the scores, and sums of that by the weight.

    Of ``steps`` tiles, one below the other. With tangents the sums are the tangents,
    and with one lane less in ``to_message`` it is the tangent alone.
    """
    blocks = tl.cdiv(size, WIDTH)
    work = tl.program_id(0)
    n = (work % batch).to(tl.int64)
    chunk = (work // batch // blocks).to(tl.int64)
    place = (work // batch) % blocks * WIDTH + tl.arange(0, WIDTH)[None, :]
    head = place // CHANNELS
    in_size = place < size
    at = n * weight_step + 2 * place
    target, source = (
        tl.load(weight + at, mask=in_size, other=0),
        tl.load(weight + at + 1, mask=in_size, other=0),
    )
    message += n * message_steps[0]
    to_message += n * to_steps[0]
    sums += n * num_rows * (3 * LANES * HEADS)
    to_source += n * num_columns * (LANES * HEADS)
    by_target = tl.zeros([ROWS, WIDTH], dtype=to_weight.dtype.element_ty)
    by_source = tl.zeros([ROWS, WIDTH], dtype=to_weight.dtype.element_ty)
    for number in range(0, steps):
        node = (chunk * steps + number) * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (node < num_columns) & in_size
        known = (node < num_rows) & in_size
        t, t_change = _to_target(sums, node, head, known, HEADS, LANES)
        s_at = to_source + node * (LANES * HEADS) + head
        s = tl.load(s_at, mask=inside, other=0)
        x = tl.load(message + node * message_steps[1] + place, mask=inside, other=0)
        to = to_message + node * to_steps[1] + place
        if OUT_LANES == LANES:
            found = t * target + s * source
            if ADD:
                found += tl.load(to, mask=inside, other=0)
            tl.store(to, found, mask=inside)
        if LANES == 1:
            by_target += t * x
            by_source += s * x
        else:
            s_change = tl.load(s_at + HEADS, mask=inside, other=0)
            found = t_change * target + s_change * source
            change = tl.load(tangent + at, mask=in_size, other=0)
            found += t * change
            change = tl.load(tangent + at + 1, mask=in_size, other=0)
            found += s * change
            to += (OUT_LANES - 1) * to_steps[2]
            if ADD:
                found += tl.load(to, mask=inside, other=0)
            tl.store(to, found, mask=inside)
            y_at = message + node * message_steps[1] + message_steps[2] + place
            y = tl.load(y_at, mask=inside, other=0)
            by_target += t * y + t_change * x
            by_source += s * y + s_change * x
    to = to_weight + ((n * chunks + chunk) * size + place) * 2
    tl.store(to, tl.sum(by_target, 0)[None, :], mask=in_size)
    tl.store(to + 1, tl.sum(by_source, 0)[None, :], mask=in_size)


# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators


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
        keys = drop_keys(seeds, step, site, n)
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
        keys = drop_keys(seeds, step, site, n)
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


class TritonAttention(AttentionKernels):
    """An attention step on CUDA."""

    def __init__(self, step: AttentionStep) -> None:
        self._step = step
        self._memory = AttentionMemory.of(step)

    def forward(self, out: Tensor) -> list[Call]:
        """Calls that compute the step."""
        return attention_forward(self._step, self._memory, out)

    def back(
        self,
        grad_out: Tensor,
        to_message: Tensor,
        to_weight: Tensor,
        to_strength: Tensor | None,
        *,
        accumulate: bool,
    ) -> list[Call]:
        """Calls that pull a gradient back through the step."""
        step, memory = self._step, self._memory
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
            bind_gather(turned, step, memory, grad_out, to_message, add=True),
        ]


def _dots(step: AttentionStep, grad_out: Tensor, to_entries: Tensor) -> Call:
    """Gradients by the attention after dropout and strength."""
    pattern, replicas = step.pattern, grad_out.shape[0]
    tile = tile_of_groups(step)
    return bind_programs(
        dot_heads,
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
    over_segments = bind_programs(
        softmax_back_segments,
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
    of_entries = bind_programs(
        attend_back_entries,
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
    width = tile_width(size)
    tile = min(NUMBERS // width, TALLEST)
    chunks = chunks_of(columns, tile)
    parts = to_weight.new_empty(replicas, chunks.number, size * 2)
    nodes = bind_programs(
        nodes_back,
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
