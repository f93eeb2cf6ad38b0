"""The kernel calls of ``gsebo.tape`` on CUDA.

A call starts its kernels and waits for nothing. It allocates nothing, so that it can be
captured in a CUDA graph, and adds nothing by atomics, so that it gives the same bits
every time.

Numbers are ``[replicas, rows, lanes, channels]``; lane 1 holds tangents. Distances
between replicas, rows and lanes come as one tuple per tensor. A mask is drawn where it
is used, so that none is stored.
"""

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from gsebo.sparse.kernels.backend import Call
from gsebo.sparse.kernels.random_bits import Drop
from gsebo.sparse.kernels.triton_random import drop_keys, drop_tensors, kept
from gsebo.sparse.kernels.triton_schedule import schedule_of
from gsebo.sparse.kernels.triton_segments import (
    bind_dots,
    bind_programs,
    bind_sums,
    blocks_of,
    in_turn,
    steps_of,
    tile_width,
    tiles_of,
)
from gsebo.sparse.pattern import Pattern
from gsebo.tape.backend import AttentionKernels, AttentionStep, TapeKernels
from gsebo.tape.cuda.attention_back import TritonAttention
from gsebo.tape.cuda.rows import (
    bind_chunk_sums,
    chunks_of,
    cross_entropy_rows,
    drop_stored,
    widen_rows,
)

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators


_PLAIN = ["site", "threshold", "rows", "steps", "batch", "bias_step"]


@triton.jit
def _dropped(keys, positions, row, inside_row, place, channels, threshold, like):
    """Inverse keep rate or 0 at each place of a tile."""
    number = tl.load(positions + row, mask=inside_row, other=0)
    return kept(keys, number * channels + place, threshold, like)


@triton.jit
def _exponential_less_one(x):
    """``exp(x) - 1`` for ``x <= 0``, also where the difference would cancel."""
    series = tl.full(x.shape, 1, x.dtype)
    for number in tl.static_range(12, 1, -1):
        series = 1 + series * x * (1 / number)
    return tl.where(x > -0.25, series * x, tl.exp(x) - 1)


@triton.jit(do_not_specialize=_PLAIN)
def pointwise_rows(
    z,
    z_steps,
    bias,
    bias_tangent,
    bias_step,
    seeds,
    step,
    positions,
    site: tl.int64,
    threshold: tl.int64,
    out,
    out_steps,
    rows,
    channels,
    batch,
    KIND: tl.constexpr,
    LANES: tl.constexpr,
    BIASED: tl.constexpr,
    DROPPED: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """One tile of the result."""
    work = tl.program_id(0)
    blocks = tl.cdiv(channels, WIDTH)
    n = (work % batch).to(tl.int64)
    place = (work // batch) % blocks * WIDTH + tl.arange(0, WIDTH)[None, :]
    row = (work // batch // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    inside = (row < rows) & (place < channels)
    at = z + n * z_steps[0] + row * z_steps[1] + place
    x = tl.load(at, mask=inside, other=0)
    if BIASED:
        x += tl.load(bias + n * bias_step + place, mask=place < channels, other=0)
    y = x
    slope = tl.full(x.shape, 1, x.dtype)
    if KIND == "relu":
        # Not the larger of x and 0: NaN has to stay.
        y = tl.where(x <= 0, 0, x)
        slope = tl.where(x <= 0, 0, slope)
    elif KIND == "elu":
        y = tl.where(x <= 0, _exponential_less_one(x), x)
        slope = tl.where(x <= 0, tl.exp(x), slope)
    if DROPPED:
        keys = drop_keys(seeds, step, site, n)
        factor = _dropped(
            keys, positions, row, row < rows, place, channels, threshold, out
        )
        y *= factor
        slope *= factor
    to = out + n * out_steps[0] + row * out_steps[1] + place
    tl.store(to, y, mask=inside)
    if LANES == 2:
        t = tl.load(at + z_steps[2], mask=inside, other=0)
        if BIASED:
            tangent = bias_tangent + n * bias_step + place
            t += tl.load(tangent, mask=place < channels, other=0)
        tl.store(to + out_steps[2], t * slope, mask=inside)


@triton.jit(do_not_specialize=[*_PLAIN, "sum_step"])
def pointwise_back_rows(
    z,
    z_steps,
    bias,
    bias_tangent,
    bias_step,
    seeds,
    step,
    positions,
    site: tl.int64,
    threshold: tl.int64,
    grad,
    grad_steps,
    to_z,
    to_steps,
    sums,
    sum_step,
    rows,
    channels,
    steps,
    batch,
    KIND: tl.constexpr,
    LANES: tl.constexpr,
    BIASED: tl.constexpr,
    DROPPED: tl.constexpr,
    ADD: tl.constexpr,
    ADD_SUMS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """``steps`` tiles of the gradient by ``z``, one below the other, and their sums.

    ``to_z`` may be the memory of ``grad``.
    """
    work = tl.program_id(0)
    blocks = tl.cdiv(channels, WIDTH)
    n = (work % batch).to(tl.int64)
    place = (work // batch) % blocks * WIDTH + tl.arange(0, WIDTH)[None, :]
    chunk = (work // batch // blocks).to(tl.int64)
    keys = (tl.full([], 0, tl.uint32), tl.full([], 0, tl.uint32))
    if DROPPED:
        keys = drop_keys(seeds, step, site, n)
    total = tl.zeros([ROWS, WIDTH], dtype=grad.dtype.element_ty)
    for number in range(0, steps):
        row = (chunk * steps + number) * ROWS + tl.arange(0, ROWS)[:, None]
        inside = (row < rows) & (place < channels)
        g_at = grad + n * grad_steps[0] + row * grad_steps[1] + place
        to = to_z + n * to_steps[0] + row * to_steps[1] + place
        g = tl.load(g_at, mask=inside, other=0)
        slope = tl.full(g.shape, 1, g.dtype)
        if LANES == 2:
            change = tl.load(g_at + grad_steps[2], mask=inside, other=0)
        if DROPPED:
            factor = _dropped(
                keys, positions, row, row < rows, place, channels, threshold, grad
            )
            g *= factor
            if LANES == 2:
                change *= factor
        if KIND != "identity":
            z_at = z + n * z_steps[0] + row * z_steps[1] + place
            x = tl.load(z_at, mask=inside, other=0)
            at_bias = n * bias_step + place
            if BIASED:
                x += tl.load(bias + at_bias, mask=place < channels, other=0)
            if KIND == "relu":
                slope = tl.where(x <= 0, 0, slope)
            else:
                slope = tl.where(x <= 0, tl.exp(x), slope)
            if LANES == 2:
                change *= slope
                if KIND == "elu":
                    t = tl.load(z_at + z_steps[2], mask=inside, other=0)
                    if BIASED:
                        tangent = bias_tangent + at_bias
                        t += tl.load(tangent, mask=place < channels, other=0)
                    change += tl.where(x <= 0, g * slope * t, 0)
        g *= slope
        last = g
        if LANES == 2:
            last = change
            if ADD:
                change += tl.load(to + to_steps[2], mask=inside, other=0)
            tl.store(to + to_steps[2], change, mask=inside)
        if BIASED:
            total += last
        if ADD:
            g += tl.load(to, mask=inside, other=0)
        tl.store(to, g, mask=inside)
    if BIASED:
        found = tl.sum(total, 0)[None, :]
        to_sums = sums + n * sum_step + chunk * channels + place
        if ADD_SUMS:
            found += tl.load(to_sums, mask=place < channels, other=0)
        tl.store(to_sums, found, mask=place < channels)


# Numbers that a program holds of each tensor: few where there is little to do, so that
# many programs share it, and more where starting programs would cost.
_FEW, _MANY = 512, 2048
_LITTLE = 2**20


def _bias_arguments(bias: tuple[Tensor, Tensor] | None, like: Tensor) -> Any:
    """Bias, tangent and the distance between replicas; anything where none is read."""
    if bias is None:
        return like, like, 0
    return *bias, steps_of(bias[0])[0]


def _numbers(x: Tensor) -> int:
    return _FEW if x.numel() <= _LITTLE else _MANY


def _tile(x: Tensor) -> tuple[int, int]:
    """Channels and rows of a tile over numbers with so many channels."""
    width = tile_width(x.shape[-1])
    return width, _numbers(x) // width


class _TritonTape(TapeKernels):
    """Triton programs."""

    def spmm(self, pattern: Pattern, values: Tensor, x: Tensor, out: Tensor) -> Call:
        schedule = schedule_of(pattern)
        return bind_sums(schedule, pattern.columns, pattern.entries, values, x, out)

    def dots(self, pattern: Pattern, a: Tensor, b: Tensor, out: Tensor) -> Call:
        return bind_dots(pattern, a, b, out, add=True)

    def widen(self, number: Tensor, tangent: Tensor, out: Tensor) -> Call:
        replicas, rows, channels = number.shape
        width, tile = _tile(out)
        return bind_programs(
            widen_rows,
            tiles_of(rows, tile) * blocks_of(channels) * replicas,
            number,
            steps_of(number),
            tangent,
            steps_of(tangent),
            out,
            rows,
            channels,
            replicas,
            ROWS=tile,
            WIDTH=width,
        )

    def drop_values(self, values: Tensor, drop: Drop, out: Tensor) -> Call:
        replicas, size = out.shape
        block = _numbers(out)
        return bind_programs(
            drop_stored,
            tiles_of(size, block) * replicas,
            values,
            *drop_tensors(drop, out.device),
            out,
            size,
            replicas,
            BLOCK=block,
        )

    def pointwise(
        self,
        kind: str,
        z: Tensor,
        bias: tuple[Tensor, Tensor] | None,
        drop: Drop | None,
        out: Tensor,
    ) -> Call:
        replicas, rows, lanes, channels = out.shape
        width, tile = _tile(out)
        return bind_programs(
            pointwise_rows,
            tiles_of(rows, tile) * blocks_of(channels) * replicas,
            z,
            steps_of(z),
            *_bias_arguments(bias, z),
            *drop_tensors(drop, z.device),
            out,
            steps_of(out),
            rows,
            channels,
            replicas,
            KIND=kind,
            LANES=lanes,
            BIASED=bias is not None,
            DROPPED=drop is not None,
            ROWS=tile,
            WIDTH=width,
        )

    def pointwise_back(
        self,
        kind: str,
        z: Tensor,
        bias: tuple[Tensor, Tensor] | None,
        drop: Drop | None,
        grad_out: Tensor,
        grad_z: Tensor,
        grad_bias: Tensor | None,
        *,
        accumulate: bool,
    ) -> Call:
        replicas, rows, lanes, channels = grad_out.shape
        width, tile = _tile(grad_out)
        chunks = chunks_of(rows, tile)
        # One chunk adds to the bias itself.
        sums = z.new_empty(replicas, chunks.number, channels)
        to_sums, add_sums = sums, False
        if grad_bias is not None and chunks.number == 1:
            to_sums, add_sums = grad_bias, True
        rows_back = bind_programs(
            pointwise_back_rows,
            chunks.number * blocks_of(channels) * replicas,
            z,
            steps_of(z),
            *_bias_arguments(bias, z),
            *drop_tensors(drop, z.device),
            grad_out,
            steps_of(grad_out),
            grad_z,
            steps_of(grad_z),
            to_sums,
            steps_of(to_sums)[0],
            rows,
            channels,
            chunks.steps,
            replicas,
            KIND=kind,
            LANES=lanes,
            BIASED=grad_bias is not None,
            DROPPED=drop is not None,
            ADD=accumulate and grad_z.data_ptr() != grad_out.data_ptr(),
            ADD_SUMS=add_sums,
            ROWS=tile,
            WIDTH=width,
        )
        if grad_bias is None or add_sums:
            return rows_back
        return in_turn(rows_back, bind_chunk_sums(sums, grad_bias, add=True))

    def cross_entropy(
        self, logits: Tensor, labels: Tensor, scale: float, grad: Tensor, loss: Tensor
    ) -> Call:
        replicas, rows, lanes, classes = logits.shape
        width: int = triton.next_power_of_2(classes)
        tile = max(_MANY // width, 1)
        chunks = tiles_of(rows, tile)
        losses = loss if chunks == 1 else loss.new_empty(replicas, chunks)
        each = bind_programs(
            cross_entropy_rows,
            chunks * replicas,
            logits,
            steps_of(logits),
            labels,
            # As a tensor, because numbers of the host arrive in single precision.
            logits.new_full((1,), scale),
            grad,
            steps_of(grad),
            losses,
            rows,
            classes,
            chunks,
            replicas,
            LANES=lanes,
            ROWS=tile,
            WIDTH=width,
            num_warps=8,
        )
        if chunks == 1:
            return each
        sums = bind_chunk_sums(losses.unsqueeze(2), loss.unsqueeze(1), add=False)
        return in_turn(each, sums)

    def matmul(
        self, a: Tensor, b: Tensor, out: Tensor, *, add: bool = False
    ) -> list[Call]:
        if add:
            return [partial(out.baddbmm_, a, b)]
        return [partial(torch.bmm, a, b, out=out)]

    def attention(self, step: AttentionStep) -> AttentionKernels:
        return TritonAttention(step)


TRITON_TAPE = _TritonTape()
