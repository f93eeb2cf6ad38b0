"""The kernel calls of ``gsebo.sparse.tape`` on CUDA.

Every function binds its tensors once and returns a call without arguments that starts
its kernels and waits for nothing. A call allocates nothing, so that it can be captured
in a CUDA graph, and adds nothing by atomics, so that it gives the same bits every time.
Results are ``[replicas, rows, lanes, channels]``: lane 0 holds numbers and lane 1,
where there is one, their tangents.
"""

from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor

from gsebo.sparse.kernels import (
    triton_tape_pointwise,
    triton_tape_products,
    triton_tape_rows,
)
from gsebo.sparse.kernels.drop import Drop
from gsebo.sparse.kernels.triton_schedule import schedule_of
from gsebo.sparse.kernels.triton_tape_attention import (
    attention_forward as attention_forward,
)
from gsebo.sparse.kernels.triton_tape_attention import (
    attention_memory as attention_memory,
)
from gsebo.sparse.kernels.triton_tape_attention_back import (
    attention_back as attention_back,
)
from gsebo.sparse.kernels.triton_tape_chunks import bind_chunk_sums, chunks_of
from gsebo.sparse.kernels.triton_tape_launch import (
    Call,
    bind,
    blocks_of,
    drop_arguments,
    in_turn,
    is_aligned,
    steps_of,
    tiles_of,
    width_of,
)
from gsebo.sparse.kernels.triton_tape_segments import bind_sums
from gsebo.sparse.pattern import Pattern

# Numbers that a program holds of each tensor: few where there is little to do, so that
# many programs share it, and more where starting programs would cost.
_FEW, _MANY = 512, 2048
_LITTLE = 2**20
# Every thread holds the indices of several rows of a tile: more would not fit.
_TALLEST = 128


def spmm(pattern: Pattern, values: Tensor, x: Tensor, out: Tensor) -> Call:
    """``out = (pattern, values) @ x``; both may be slices with whole rows."""
    schedule = schedule_of(pattern)
    return bind_sums(schedule, pattern.columns, pattern.entries, values, x, out)


def dots(pattern: Pattern, a: Tensor, b: Tensor, out: Tensor) -> Call:
    """Add ``a[row] . b[column]``, or with two lanes its tangent, to each entry."""
    replicas, _, lanes, channels = a.shape
    aligned = is_aligned(a) and is_aligned(b)
    width = min(width_of(channels), 32 if aligned else 16)
    tile = min((2 * _FEW if aligned else _FEW) // width, _TALLEST)
    return bind(
        triton_tape_products.dot_entries,
        tiles_of(pattern.num_entries, tile) * replicas,
        pattern.rows,
        pattern.columns,
        pattern.entries,
        a,
        steps_of(a),
        b,
        steps_of(b),
        out,
        pattern.num_entries,
        channels,
        replicas,
        LANES=lanes,
        WIDTH=width,
        TILE=tile,
    )


def widen(number: Tensor, tangent: Tensor, out: Tensor) -> Call:
    """Put numbers ``[replicas, rows, channels]`` and their tangents side by side."""
    replicas, rows, channels = number.shape
    width, tile = _tile(out)
    return bind(
        triton_tape_rows.widen_rows,
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


def drop_values(values: Tensor, drop: Drop, out: Tensor) -> Call:
    """``out[replica] = dropout(values)``, with a mask of its own for each replica."""
    replicas, size = out.shape
    block = _numbers(out)
    return bind(
        triton_tape_rows.drop_stored,
        tiles_of(size, block) * replicas,
        values,
        *drop_arguments(drop, out.device),
        out,
        size,
        replicas,
        BLOCK=block,
    )


def pointwise(
    kind: str,
    z: Tensor,
    bias: tuple[Tensor, Tensor] | None,
    drop: Drop | None,
    out: Tensor,
) -> Call:
    """``out = dropout(activation(z + bias))``.

    Args:
        kind: Name of the activation.
        z: What to compute it from.
        bias: The bias and its tangent, ``[replicas, channels]`` each.
        drop: The dropout.
        out: Where to write.
    """
    replicas, rows, lanes, channels = out.shape
    width, tile = _tile(out)
    return bind(
        triton_tape_pointwise.pointwise_rows,
        tiles_of(rows, tile) * blocks_of(channels) * replicas,
        z,
        steps_of(z),
        *_bias_arguments(bias, z),
        *drop_arguments(drop, z.device),
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
    """Pull ``grad_out`` back to ``grad_z`` (written or added) and the bias (added).

    ``grad_out`` may be the same memory as ``grad_z``. With two lanes it is the tangent
    of the bias's gradient that is added.
    """
    replicas, rows, lanes, channels = grad_out.shape
    width, tile = _tile(grad_out)
    chunks = chunks_of(rows, tile)
    # One chunk adds to the bias itself.
    sums = z.new_empty(replicas, chunks.number, channels)
    to_sums, add_sums = sums, False
    if grad_bias is not None and chunks.number == 1:
        to_sums, add_sums = grad_bias, True
    rows_back = bind(
        triton_tape_pointwise.pointwise_back_rows,
        chunks.number * blocks_of(channels) * replicas,
        z,
        steps_of(z),
        *_bias_arguments(bias, z),
        *drop_arguments(drop, z.device),
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
    logits: Tensor, labels: Tensor, scale: float, grad: Tensor, loss: Tensor
) -> Call:
    """``loss = scale * sum of the cross-entropies``, and its gradient by ``logits``."""
    replicas, rows, lanes, classes = logits.shape
    width: int = triton.next_power_of_2(classes)
    tile = max(_MANY // width, 1)
    chunks = tiles_of(rows, tile)
    losses = loss if chunks == 1 else loss.new_empty(replicas, chunks)
    each = bind(
        triton_tape_rows.cross_entropy_rows,
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


def matmul(a: Tensor, b: Tensor, out: Tensor, *, add: bool = False) -> list[Call]:
    """``out = a @ b``, or ``out += a @ b``, for all replicas in one product."""
    if add:
        return [partial(out.baddbmm_, a, b)]
    return [partial(torch.bmm, a, b, out=out)]


def _bias_arguments(bias: tuple[Tensor, Tensor] | None, like: Tensor) -> Any:
    """Bias, tangent and the distance between replicas; anything where none is read."""
    if bias is None:
        return like, like, 0
    return *bias, steps_of(bias[0])[0]


def _numbers(x: Tensor) -> int:
    return _FEW if x.numel() <= _LITTLE else _MANY


def _tile(x: Tensor) -> tuple[int, int]:
    """Channels and rows of a tile over numbers with so many channels."""
    width = width_of(x.shape[-1])
    return width, _numbers(x) // width
