"""The kernel calls of ``gsebo.tape`` on CUDA.

A call starts its kernels and waits for nothing. It allocates nothing, so that it can be
captured in a CUDA graph, and adds nothing by atomics, so that it gives the same bits
every time.
"""

from functools import partial
from typing import final

import torch
import triton
from torch import Tensor

from gsebo.sparse.backend import Call
from gsebo.sparse.pattern import Pattern
from gsebo.sparse.random_bits import Drop
from gsebo.sparse.triton_random import drop_tensors
from gsebo.sparse.triton_schedule import schedule_of
from gsebo.sparse.triton_segments import (
    Strided,
    bind_dots,
    bind_programs,
    bind_sums,
    blocks_of,
    in_turn,
    strided,
    tile_width,
    tiles_of,
)
from gsebo.tape.backend import (
    AttentionStep,
    FeatureKernels,
    FeatureStep,
    Gradients,
    PointwiseStep,
    StandardiseStep,
    StepKernels,
    TapeKernels,
)
from gsebo.tape.composed_norm import ComposedNorm
from gsebo.tape.cuda_attention import TritonAttention
from gsebo.tape.cuda_graph import GraphOfCalls, make_calls, seconds_on_device
from gsebo.tape.cuda_rows import (
    bind_chunk_sums,
    chunks_of,
    cross_entropy_rows,
    drop_stored,
    pointwise_back_rows,
    pointwise_rows,
    widen_rows,
)

# Numbers that a program holds of each tensor: few where there is little to do, so that
# many programs share it, and more where starting programs would cost.
_FEW, _MANY = 512, 2048
_LITTLE = 2**20


def _numbers(x: Tensor) -> int:
    return _FEW if x.numel() <= _LITTLE else _MANY


def _tile(x: Tensor) -> dict[str, int]:
    """Channels and rows of a tile over numbers with so many channels."""
    width = tile_width(x.shape[-1])
    return {"WIDTH": width, "ROWS": _numbers(x) // width}


def _bias(step: PointwiseStep) -> tuple[Strided, ...] | None:
    return None if step.bias is None else tuple(map(strided, step.bias))


@final
class TritonFeatures(FeatureKernels):
    """The values that are kept, beside zeros, and the transpose of the pattern."""

    def __init__(self, kernels: TapeKernels, step: FeatureStep) -> None:
        self._kernels, self._step = kernels, step
        self._values = step.values.unsqueeze(0)
        if step.drop is not None:
            self._values = step.values.new_empty(step.replicas, step.values.numel())

    def drawn(self) -> list[Tensor]:
        return [] if self._step.drop is None else [self._values]

    def draw(self) -> list[Call]:
        values, drop = self._step.values, self._step.drop
        return [] if drop is None else [drop_values(values, drop, self._values)]

    def times(self, pair: tuple[Tensor, Tensor], out: Tensor) -> list[Call]:
        calls, weight = [], pair[0]
        if out.shape[2] == 2:
            weight = torch.stack(pair, 2)
            calls.append(self._kernels.widen(*pair, weight))
        pattern, values = self._rows(out.shape[1])
        x, to = weight.flatten(2), out.flatten(2)
        return [*calls, self._kernels.spmm(pattern, values, x, to)]

    def turned_times(self, x: Tensor, out: Tensor) -> list[Call]:
        pattern, values = self._rows(x.shape[1])
        return [self._kernels.spmm(pattern.T, values, x, out)]

    def _rows(self, rows: int) -> tuple[Pattern, Tensor]:
        pattern = self._step.leading(rows)
        return pattern, self._values[:, : pattern.num_entries]


def drop_values(values: Tensor, drop: Drop, out: Tensor) -> Call:
    """``out[replica] = dropout(values)``, with a mask of its own for each."""
    replicas, size = out.shape
    block = _numbers(out)
    programs = tiles_of(size, block) * replicas
    arguments = values, drop_tensors(drop), out, size, replicas
    return bind_programs(drop_stored, programs, *arguments, BLOCK=block)


class _TritonTape(TapeKernels):
    """Triton programs."""

    def spmm(self, pattern: Pattern, values: Tensor, x: Tensor, out: Tensor) -> Call:
        schedule = schedule_of(pattern)
        return bind_sums(schedule, pattern.columns, pattern.entries, values, x, out)

    def dots(self, pattern: Pattern, a: Tensor, b: Tensor, out: Tensor) -> Call:
        return bind_dots(pattern, a, b, out, add=True)

    def widen(self, number: Tensor, tangent: Tensor, out: Tensor) -> Call:
        replicas, rows, channels = number.shape
        tile = _tile(out)
        programs = tiles_of(rows, tile["ROWS"]) * blocks_of(channels) * replicas
        arguments = out, strided(number), strided(tangent), rows, channels, replicas
        return bind_programs(widen_rows, programs, *arguments, **tile)

    def features(self, step: FeatureStep) -> FeatureKernels:
        return TritonFeatures(self, step)

    def pointwise(self, step: PointwiseStep, out: Tensor) -> Call:
        replicas, rows, lanes, channels = out.shape
        tile = _tile(out)
        return bind_programs(
            pointwise_rows,
            tiles_of(rows, tile["ROWS"]) * blocks_of(channels) * replicas,
            *(strided(step.z), _bias(step), drop_tensors(step.drop), strided(out)),
            *(rows, channels, replicas),
            KIND=step.kind,
            LANES=lanes,
            **tile,
        )

    def pointwise_back(
        self, step: PointwiseStep, out: Tensor, gradients: Gradients
    ) -> Call:
        grad, to_z, to_bias, _, accumulate = gradients
        replicas, rows, lanes, channels = grad.shape
        tile = _tile(grad)
        chunks, steps = chunks_of(rows, tile["ROWS"])
        # One chunk adds to the bias itself.
        add_sums = to_bias is not None and chunks == 1
        sums = grad.new_empty(replicas, chunks, channels)
        to_sums = to_bias.unsqueeze(1) if to_bias is not None and add_sums else sums
        rows_back = bind_programs(
            pointwise_back_rows,
            chunks * blocks_of(channels) * replicas,
            *(strided(step.z), _bias(step), drop_tensors(step.drop), strided(grad)),
            *(strided(to_z), None if to_bias is None else strided(to_sums)),
            *(rows, channels, steps, replicas),
            KIND=step.kind,
            LANES=lanes,
            ADD=accumulate and to_z.data_ptr() != grad.data_ptr(),
            ADD_SUMS=add_sums,
            **tile,
        )
        if to_bias is None or add_sums:
            return rows_back
        return in_turn(rows_back, bind_chunk_sums(sums, to_bias, add=True))

    def cross_entropy(
        self, logits: Tensor, labels: Tensor, scale: float, grad: Tensor, loss: Tensor
    ) -> Call:
        replicas, rows, lanes, classes = logits.shape
        width: int = triton.next_power_of_2(classes)
        tile = max(_MANY // width, 1)
        chunks = tiles_of(rows, tile)
        losses = loss if chunks == 1 else loss.new_empty(replicas, chunks)
        # As a tensor, because numbers of the host arrive in single precision.
        number = logits.new_full((1,), scale)
        each = bind_programs(
            cross_entropy_rows,
            chunks * replicas,
            *(strided(logits), labels, number, strided(grad), losses),
            *(rows, classes, chunks, replicas),
            LANES=lanes,
            ROWS=tile,
            WIDTH=width,
            num_warps=8,
        )
        if chunks == 1:
            return each
        sums = bind_chunk_sums(losses.unsqueeze(2), loss.unsqueeze(1), add=False)
        return in_turn(each, sums)

    def zero(self, out: Tensor) -> Call:
        return partial(out.zero_)

    def scaled(self, x: Tensor, factor: float, out: Tensor, *, add: bool) -> Call:
        if add:
            return partial(out.add_, x, alpha=factor)
        return partial(torch.mul, x, factor, out=out)

    def matmul(self, a: Tensor, b: Tensor, out: Tensor, *, add: bool = False) -> Call:
        return partial(out.baddbmm_, a, b) if add else partial(torch.bmm, a, b, out=out)

    def penalty(
        self, weights: Tensor, factor: float, found: Tensor, out: Tensor, loss: Tensor
    ) -> Call:
        decay = partial(torch.add, found, weights, alpha=factor, out=out)
        if not loss.numel():
            return decay
        squares, sums = torch.empty_like(weights), torch.empty_like(loss)
        return in_turn(
            decay,
            partial(torch.mul, weights, weights, out=squares),
            partial(torch.sum, squares, 1, out=sums),
            partial(loss.add_, sums, alpha=factor / 2),
        )

    def attention(self, step: AttentionStep) -> StepKernels:
        return TritonAttention(step)

    def standardise(self, step: StandardiseStep) -> StepKernels:
        return ComposedNorm(step)

    def together(self, calls: list[Call], device: torch.device) -> Call:
        if device.type != "cuda":
            # In the interpreter of Triton.
            return partial(make_calls, calls)
        return GraphOfCalls(calls, device)

    def seconds(self, call: Call, device: torch.device, repeats: int) -> float:
        return seconds_on_device(call, device, repeats)


TRITON_TAPE = _TritonTape()
