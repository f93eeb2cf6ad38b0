"""An attention step on CUDA: Triton programs over its entries, and all its calls.

Both ways take two passes over the entries: sums over each row, then what is left to do
for each entry. Heads lie side by side. Scores of nodes are ``[columns, 2, lanes,
heads]``, target and source; what belongs to entries is ``[entries, lanes, heads]``.

With ``q`` the gradient by the attention of an entry after dropout and strength, ``A``
its attention, ``K`` the mask, ``z`` the strength and ``s`` the slope of the leaky ReLU,

    d = K z q,    gradient by the score = s A (d - Σ A d)

where the sum is over the row, and numbers are duals where there are tangents. Sums over
rows are ``[rows, 3, lanes, heads]``: ``Σ A d``, ``Σ s A d`` and ``Σ s A``; the gradient
by a target's score follows from them.
"""

from functools import cached_property
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gsebo.sparse.backend import Call
from gsebo.sparse.pattern import Pattern
from gsebo.sparse.triton_cuda import bind_softmax_sums, score_entries
from gsebo.sparse.triton_random import drop_keys, drop_tensors, kept
from gsebo.sparse.triton_schedule import schedule_of
from gsebo.sparse.triton_segments import (
    bind_parts,
    bind_programs,
    bind_segments,
    bind_sums,
    blocks_of,
    folded,
    in_turn,
    is_aligned,
    last_product,
    load_dual,
    plus,
    read_positions,
    read_segments,
    registers_of,
    short_span,
    store_lanes,
    store_segments,
    strided,
    tile_width,
    tiles_of,
    times,
    wide_span,
    work_of_program,
    zeros,
)
from gsebo.tape.backend import AttentionStep, Gradients, StepKernels
from gsebo.tape.cuda_heads import dot_heads, gather_segments, nodes_back, score_nodes
from gsebo.tape.cuda_rows import bind_chunk_sums, chunks_of

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators


@triton.jit(
    do_not_specialize=["whole", "num_entries", "num_rows", "num_columns", "batch"]
)
def attend_entries(
    index, scores, sums, strength, drop, whole: tl.int64,
    share, weighted, num_entries, num_rows, num_columns, batch,
    HEADS: tl.constexpr, SLOPE: tl.constexpr, LANES: tl.constexpr,
    WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Attention of each entry before dropout, and after it, times strength.

    Attention is never negative, so its sign is free to say on which side of the leaky
    ReLU the score was: it is stored with a minus where the slope applied.
    """
    n, _, tile = work_of_program(batch, 1)
    stored, row, column, entry = read_positions(index, tile, num_entries, TILE)
    place = tl.arange(0, WIDTH)[None, :]
    inside = stored[:, None] & (place < HEADS)
    scores += n * num_columns * (2 * LANES * HEADS)
    x, slope = score_entries(scores, row, column, place, inside, HEADS, SLOPE, LANES)
    in_sums = sums + (n * num_rows + row) * (3 * HEADS) + place
    top = tl.load(in_sums, mask=inside, other=0)
    norm = tl.load(in_sums + HEADS, mask=inside, other=1)
    part = tl.exp(x[0] - top) / norm
    factor = tl.load(strength + n * num_entries + entry, mask=stored, other=0)[:, None]
    if drop is not None:
        position = tl.load(drop.positions + entry, mask=stored, other=0)[:, None]
        factor = factor * kept(drop_keys(drop, n), position + place * whole, share)
    to = (n * num_entries + entry)[:, None] * (LANES * HEADS) + place
    tl.store(share + to, tl.where(slope == 1, part, -part), mask=inside)
    tl.store(weighted + to, part * factor, mask=inside)
    if LANES == 2:
        mean = tl.load(in_sums + 2 * HEADS, mask=inside, other=0) / norm
        change = part * (x[1] - mean)
        tl.store(share + to + HEADS, change, mask=inside)
        tl.store(weighted + to + HEADS, change * factor, mask=inside)


@triton.jit
def _read(share, at, inside, HEADS: tl.constexpr, SLOPE, LANES: tl.constexpr):
    """Attention and the slope: see ``attend_entries`` for the sign."""
    a = load_dual(share + at, HEADS, inside, LANES)
    slope = tl.where(a[0] < 0, SLOPE, tl.full(a[0].shape, 1, a[0].dtype))
    if LANES == 1:
        return (tl.abs(a[0]),), slope
    else:
        return (tl.abs(a[0]), a[1]), slope


@triton.jit
def _sum_segments(
    segments, span, entries, tensors, drop, target, HEADS: tl.constexpr,
    SLOPE: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr,
    TILE: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    strength, share, to_entries = tensors
    drop, n, whole = drop
    start, rank, length = read_segments(segments, span, TILE, SHARED)
    place = tl.arange(0, WIDTH)[None, :]
    mean = zeros([TILE, WIDTH], share, LANES)
    sloped = zeros([TILE, WIDTH], share, LANES)
    slopes = zeros([TILE, WIDTH], share, LANES)
    if drop is not None:
        keys = drop_keys(drop, n)
    for offset in range(0, tl.max(length, 0), SHARED):
        stored = offset + rank < length
        entry = tl.load(entries + start + offset + rank, mask=stored, other=0)
        entry = entry.to(tl.int64)
        inside = stored[:, None] & (place < HEADS)
        at = entry[:, None] * (LANES * HEADS) + place
        a, slope = _read(share, at, inside, HEADS, SLOPE, LANES)
        factor = tl.load(strength + entry, mask=stored, other=0)[:, None]
        if drop is not None:
            position = tl.load(drop.positions + entry, mask=stored, other=0)[:, None]
            factor = factor * kept(keys, position + place * whole, share)
        d = times(load_dual(to_entries + at, HEADS, inside, LANES), (factor,))
        both = times(a, d)
        mean = plus(mean, both)
        sloped = plus(sloped, times(both, (slope,)))
        slopes = plus(slopes, times(a, (slope,)))
    out, out_row, parts, part_row = target
    found = (mean, sloped, slopes)
    for which in tl.static_range(3):
        total = folded(found[which], [TILE // SHARED, SHARED, WIDTH], 1)
        for lane in tl.static_range(LANES):
            shift = (which * LANES + lane) * HEADS
            to = (out + shift, out_row, parts + shift, part_row)
            store_segments(segments, span, total[lane], to, place, HEADS, False)


@triton.jit(
    do_not_specialize=[
        "num_wide", "num_segments", "num_parts", "whole", "num_entries", "num_rows",
        "batch",
    ]
)  # fmt: skip
def softmax_back_segments(
    segments, num_wide, num_segments, num_parts, parts,
    entries, strength, share, to_entries, drop, whole: tl.int64,
    sums, num_entries, num_rows, batch,
    HEADS: tl.constexpr, SLOPE: tl.constexpr, LANES: tl.constexpr,
    WIDTH: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """The three sums over each segment."""
    n, _, tile = work_of_program(batch, 1)
    first = n * num_entries
    share += first * (LANES * HEADS)
    tensors = (strength + first, share, to_entries + first * (LANES * HEADS))
    drop = (drop, n, whole)
    size = 3 * LANES * HEADS
    target = (sums + n * num_rows * size, size, parts + n * num_parts * size, size)
    if tile < tl.cdiv(num_wide, TILES[0] // TILES[1]):
        span = wide_span(tile, num_wide, num_parts, TILES)
        _sum_segments(
            segments, span, entries, tensors, drop, target, HEADS,
            SLOPE, LANES, WIDTH, TILES[0], TILES[1],
        )  # fmt: skip
    else:
        span = short_span(tile, num_wide, num_segments, TILES)
        _sum_segments(
            segments, span, entries, tensors, drop, target, HEADS,
            SLOPE, LANES, WIDTH, TILES[0], TILES[2],
        )  # fmt: skip


@triton.jit(do_not_specialize=["whole", "num_entries", "num_rows", "batch"])
def attend_back_entries(
    index, strength, share, to_entries, drop, whole: tl.int64,
    sums, to_strength, num_entries, num_rows, batch,
    HEADS: tl.constexpr, SLOPE: tl.constexpr, LANES: tl.constexpr,
    WIDTH: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Gradients by scores in the place of ``q``, and, if asked, those by strengths."""
    n, _, tile = work_of_program(batch, 1)
    stored, row, _column, entry = read_positions(index, tile, num_entries, TILE)
    place = tl.arange(0, WIDTH)[None, :]
    inside = stored[:, None] & (place < HEADS)
    to = (n * num_entries + entry)[:, None] * (LANES * HEADS) + place
    a, slope = _read(share, to, inside, HEADS, SLOPE, LANES)
    d = load_dual(to_entries + to, HEADS, inside, LANES)
    if drop is not None:
        position = tl.load(drop.positions + entry, mask=stored, other=0)[:, None]
        d = times(d, (kept(drop_keys(drop, n), position + place * whole, share),))
    by_strength = last_product(a, d)
    z = tl.load(strength + n * num_entries + entry, mask=stored, other=0)[:, None]
    in_sums = sums + (n * num_rows + row) * (3 * LANES * HEADS) + place
    mean = load_dual(in_sums, HEADS, inside, LANES)
    d = plus(times(d, (z,)), times(mean, (-1,)))
    store_lanes(
        to_entries + to, HEADS, times(times(a, d), (slope,)), inside, LANES, False
    )
    if to_strength is not None:
        place_of = to_strength + n * num_entries + entry
        found = tl.sum(tl.where(inside, by_strength, 0), 1)
        found += tl.load(place_of, mask=stored, other=0)
        tl.store(place_of, found, mask=stored)


# Numbers that a program holds of each tensor.
_NUMBERS = 512
# Rows of a tile at most: every thread holds the indices of several.
_TALLEST = 128
# Channels of all heads that a program takes together.
_GROUP_CHANNELS = 64


class TritonAttention(StepKernels):
    """An attention step on CUDA.

    It keeps the scores of nodes ``[replicas, columns, 2, lanes, heads]``, and attention
    before dropout, with a minus where the score was on the flat side of the leaky ReLU,
    and after it times strength, ``[replicas, entries, lanes, heads]`` each.
    """

    def __init__(self, step: AttentionStep) -> None:
        self._step = step
        replicas, columns, lanes, _ = step.message.shape
        of_entries = replicas, step.pattern.num_entries, lanes, step.heads
        new = step.message.new_empty
        self._scores = new(replicas, columns, 2, lanes, step.heads)
        self._share, self._weighted = new(of_entries), new(of_entries)
        pattern = step.pattern
        self._index = pattern.rows, pattern.columns, pattern.entries
        self._weight = strided(step.weight), strided(step.tangent)
        self._mask = drop_tensors(step.drop), step.whole_entries
        # Constants of programs over messages, and of those over all heads of entries.
        shared = {"HEADS": step.heads, "LANES": lanes}
        self._of_messages = {**shared, "CHANNELS": step.channels}
        width = triton.next_power_of_2(step.heads)
        self._of_heads = {**shared, "SLOPE": step.slope, "WIDTH": width}

    @cached_property
    def _groups(self) -> tuple[int, dict[str, int]]:
        """Groups of heads so large that their rows are read at once, and their tile."""
        step, heads = self._step, self._of_heads["WIDTH"]
        # Without alignment every number needs an address of its own.
        aligned = step.channels % 4 == 0 and is_aligned(step.message)
        width = min(tile_width(step.channels), 32 if aligned else 16)
        group = max(min(heads, _GROUP_CHANNELS // width), 1)
        rows = (2 * _NUMBERS if aligned else _NUMBERS) // (width * group)
        tile = {"GROUP": group, "WIDTH": width, "TILE": min(rows, _TALLEST)}
        return tiles_of(step.heads, group), tile

    def forward(self, out: Tensor) -> list[Call]:
        step, pattern, scores = self._step, self._step.pattern, self._scores
        replicas, columns, lanes, _ = step.message.shape
        groups, tile = self._groups
        sums = scores.new_empty(replicas, pattern.num_rows, 3 * step.heads)
        return [
            bind_programs(
                score_nodes,
                tiles_of(columns, tile["TILE"]) * groups * replicas,
                *(scores, strided(step.message), self._weight, columns, replicas),
                **self._of_messages,
                **tile,
            ),
            bind_softmax_sums(
                pattern, pattern.columns, scores, sums, lanes=lanes, slope=step.slope
            ),
            self._bind_entries(
                attend_entries,
                *(self._index, scores, sums, step.strength, *self._mask),
                *(self._share, self._weighted),
                *(pattern.num_entries, pattern.num_rows, columns, replicas),
            ),
            self._bind_gather(pattern, step.message, out, add=False),
        ]

    def back(self, gradients: Gradients) -> list[Call]:
        step, pattern, turned = self._step, self._step.pattern, self._step.pattern.T
        replicas, columns, lanes, _ = step.message.shape
        grad_out, to_message, to_weight, to_strength, accumulate = gradients
        assert to_weight is not None
        to_entries = torch.empty_like(self._share)
        size = 3 * lanes * step.heads
        sums = to_entries.new_empty(replicas, pattern.num_rows, size)
        to_source = to_entries.new_empty(replicas, columns, lanes * step.heads)
        schedule = schedule_of(pattern)
        parts = sums.new_empty(replicas, schedule.num_parts, size)
        groups, tile = self._groups
        read = (step.strength, self._share, to_entries, *self._mask)
        counts = (pattern.num_entries, pattern.num_rows, replicas)
        over_segments = bind_segments(
            softmax_back_segments,
            schedule,
            parts,
            *(pattern.entries, *read, sums, *counts),
            width=self._of_heads["WIDTH"],
            copies=replicas,
            held=lanes * sums.element_size() // 4,
            **self._of_heads,
        )
        return [
            bind_programs(
                dot_heads,
                tiles_of(pattern.num_entries, tile["TILE"]) * groups * replicas,
                *(self._index, strided(grad_out), strided(step.message), to_entries),
                *(pattern.num_entries, replicas),
                **self._of_messages,
                **tile,
            ),
            in_turn(over_segments, bind_parts(schedule, parts, sums)),
            self._bind_entries(
                attend_back_entries,
                *(self._index, *read, sums, to_strength, *counts),
            ),
            bind_sums(
                schedule_of(turned),
                turned.entries,
                turned.entries,
                None,
                to_entries.flatten(2),
                to_source,
            ),
            self._bind_nodes_back(sums, to_source, to_message, to_weight, accumulate),
            self._bind_gather(turned, grad_out, to_message, add=True),
        ]

    def _bind_entries(self, kernel: Any, *arguments: Any) -> Call:
        """Bind a kernel over all heads of the entries."""
        tile = min(max(_NUMBERS // self._of_heads["WIDTH"], 1), _TALLEST)
        entries, replicas = self._step.pattern.num_entries, self._share.shape[0]
        programs = tiles_of(entries, tile) * replicas
        return bind_programs(kernel, programs, *arguments, **self._of_heads, TILE=tile)

    def _bind_gather(
        self, pattern: Pattern, x: Tensor, out: Tensor, *, add: bool
    ) -> Call:
        """Sum ``x`` over the entries, weighted; with one lane less only the tangent."""
        replicas, _, out_lanes, size = out.shape
        schedule = schedule_of(pattern)
        width = tile_width(size)
        parts = out.new_empty(replicas, schedule.num_parts, out_lanes * size)
        sums = bind_segments(
            gather_segments,
            schedule,
            parts,
            *(pattern.columns, pattern.entries, self._weighted),
            *(strided(x), strided(out), pattern.num_entries, size, replicas),
            width=width,
            copies=blocks_of(size) * replicas,
            held=self._step.lanes * registers_of(x),
            ADD=add,
            OUT_LANES=out_lanes,
            WIDTH=width,
            **self._of_messages,
        )
        return in_turn(sums, bind_parts(schedule, parts, out.flatten(2), add=add))

    def _bind_nodes_back(
        self,
        sums: Tensor,
        to_source: Tensor,
        to_message: Tensor,
        to_weight: Tensor,
        add: bool,
    ) -> Call:
        """From gradients by scores of nodes to those by messages and weight."""
        replicas, columns, out_lanes, size = to_message.shape
        width = tile_width(size)
        tile = min(_NUMBERS // width, _TALLEST)
        chunks, steps = chunks_of(columns, tile)
        parts = to_weight.new_empty(replicas, chunks, size * 2)
        nodes = bind_programs(
            nodes_back,
            chunks * blocks_of(size) * replicas,
            *(parts, strided(self._step.message), self._weight, sums, to_source),
            *(strided(to_message), self._step.pattern.num_rows, columns),
            *(chunks, steps, size, replicas),
            ADD=add,
            OUT_LANES=out_lanes,
            ROWS=tile,
            WIDTH=width,
            **self._of_messages,
        )
        return in_turn(nodes, bind_chunk_sums(parts, to_weight.flatten(1), add=True))
