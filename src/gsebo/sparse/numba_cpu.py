"""The kernels as numba loops for the CPU, float32 and float64.

Each row belongs to one task and is summed in stored order, so the result does not
depend on the number of threads. Every kernel exists twice, parallel and serial: below
about a million multiplications, waking the threads costs more than it saves.

The sparse-dense product keeps a block of channels in registers: numba's own loop over
channels checks for aliasing and for a remainder at every entry, which makes it two to
four times slower where a row has 16 channels. So the loop over the entries of a row is
written as vector instructions.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from torch import Tensor

from gsebo.sparse.backend import SparseKernels
from gsebo.sparse.numba_compile import Variants, compile_twice, run_kernel
from gsebo.sparse.numba_pack import constant, everywhere
from gsebo.sparse.pattern import Pattern
from gsebo.sparse.random_bits import NUMBA_HASH

_WIDTHS = (32, 16, 8, 4, 1)
# A product and a sum may be fused. The order of the sum stays that of the entries.
_FUSED = ("contract", "nsz")


def spmm_kernel(channels: int) -> Variants:
    """Return the kernel with the widest block that fits into a row."""
    return _KERNELS[next(width for width in _WIDTHS if width <= max(channels, 1))]


def _make_weighted_sum(width: int) -> Any:
    """Make ``out[block] = sum of values[entry] * x[column, block]`` over one row.

    Places count numbers from the start of the memory; a block is ``width`` channels.
    """

    @intrinsic
    def weighted_sum(
        typing_context, columns, entries, start, end, values, value_at, x, x_at,
        x_stride, out, out_at,
    ):  # fmt: skip
        word = types.intp
        kinds = columns, entries, word, word, values, word, x, word, word, out, word

        def generate(context, builder, signature, given):
            memory = [
                make_array(kind)(context, builder, each).data
                for kind, each in zip(kinds, given, strict=True)
                if isinstance(kind, types.Array)
            ]
            _, _, start, end, _, value_at, _, x_at, x_stride, _, out_at = given
            rows = (value_at, x_at, x_stride, out_at)
            _write_loop(builder, memory, start, end, rows, width)
            return context.get_dummy_value()

        return types.void(*kinds), generate

    return weighted_sum


def _write_loop(
    builder: Any, memory: Any, start: Any, end: Any, rows: Any, width: int
) -> None:
    """Write the instructions of ``weighted_sum``: all else is ordinary numba."""
    columns, entries, values, x, out = memory
    value_at, x_at, x_stride, out_at = rows
    number, word = x.type.pointee, start.type
    vector = ir.VectorType(number, width)
    align = 8 if isinstance(number, ir.DoubleType) else 4
    total = cgutils.alloca_once_value(builder, constant(vector, 0.0))

    def index(array: Any, position: Any) -> Any:
        found = builder.load(builder.gep(array, [position]))
        return found if found.type == word else builder.sext(found, word)

    def block(array: Any, position: Any) -> Any:
        return builder.bitcast(builder.gep(array, [position]), vector.as_pointer())

    with cgutils.for_range_slice(builder, start, end, word(1)) as (position, _):
        entry = builder.add(value_at, index(entries, position))
        weight = builder.load(builder.gep(values, [entry]))
        row = builder.mul(index(columns, position), x_stride)
        numbers = builder.load(block(x, builder.add(x_at, row)), align=align)
        product = builder.fmul(everywhere(builder, weight, width), numbers, _FUSED)
        product = builder.fadd(builder.load(total), product, flags=_FUSED)
        builder.store(product, total)
    builder.store(builder.load(total), block(out, out_at), align=align)


# Stand for what the kernel is compiled for.
WIDTH, weighted_sum = 1, _make_weighted_sum(1)


def _spmm(indptr, columns, entries, values, x, out):
    batch, num_rows, channels = out.shape
    # Rows may lie apart (a slice of something wider), the channels of one may not.
    value_step = values.strides[0] // values.itemsize if values.shape[0] > 1 else 0
    x_step = x.strides[0] // x.itemsize if x.shape[0] > 1 else 0
    x_stride = x.strides[1] // x.itemsize
    out_step = out.strides[0] // out.itemsize
    out_stride = out.strides[1] // out.itemsize
    for task in prange(batch * num_rows):
        b = task // num_rows
        i = task - b * num_rows
        start, end = indptr[i], indptr[i + 1]
        for block in range((channels + WIDTH - 1) // WIDTH):
            # The last block may overlap the one before: those channels are summed
            # twice, to the same numbers.
            c = min(block * WIDTH, channels - WIDTH)
            x_at, out_at = b * x_step + c, b * out_step + i * out_stride + c
            weighted_sum(
                columns, entries, start, end, values, b * value_step, x, x_at,
                x_stride, out, out_at,
            )  # fmt: skip


_KERNELS = {
    width: compile_twice(_spmm, WIDTH=width, weighted_sum=_make_weighted_sum(width))
    for width in _WIDTHS
}


# NaN and infinity must survive, because a diverging fit is recognised by them. A dot
# product may be reordered (that is what makes it a vector loop); sums over a row may
# not, or the serial and the parallel variant would round differently.
_FUSE = {"contract"}
_DOT = {"contract", "reassoc", "nsz"}
_draw = NUMBA_HASH.draw


def _sddmm(indptr, columns, entries, a, b, out):
    batch = out.shape[0]
    num_rows = indptr.shape[0] - 1
    channels = a.shape[2]
    for task in prange(batch * num_rows):
        n = task // num_rows
        i = task - n * num_rows
        na = n if a.shape[0] > 1 else 0
        nb = n if b.shape[0] > 1 else 0
        for k in range(indptr[i], indptr[i + 1]):
            j = columns[k]
            total = out.dtype.type(0)
            for c in range(channels):
                total += a[na, i, c] * b[nb, j, c]
            out[n, entries[k]] = total


def _row_sum(indptr, entries, values, out):
    batch, num_rows = out.shape
    for task in prange(batch * num_rows):
        b = task // num_rows
        i = task - b * num_rows
        total = out.dtype.type(0)
        for k in range(indptr[i], indptr[i + 1]):
            total += values[b, entries[k]]
        out[b, i] = total


def _row_expand(indptr, entries, x, out):
    batch, num_rows = x.shape
    for task in prange(batch * num_rows):
        b = task // num_rows
        i = task - b * num_rows
        for k in range(indptr[i], indptr[i + 1]):
            out[b, entries[k]] = x[b, i]


def _edge_softmax(indptr, entries, scores, out):
    batch = scores.shape[0]
    num_rows = indptr.shape[0] - 1
    for task in prange(batch * num_rows):
        b = task // num_rows
        i = task - b * num_rows
        start, end = indptr[i], indptr[i + 1]
        if start == end:
            continue
        top = scores[b, entries[start]]
        for k in range(start + 1, end):
            top = max(top, scores[b, entries[k]])
        total = out.dtype.type(0)
        for k in range(start, end):
            weight = np.exp(scores[b, entries[k]] - top)
            out[b, entries[k]] = weight
            total += weight
        for k in range(start, end):
            out[b, entries[k]] /= total


def _keep_mask(key0, key1, threshold, scale, out):
    for index in prange(out.shape[0]):
        h = _draw(key0, key1, np.uint32(index), np.uint32(index >> 32))
        out[index] = scale if h < threshold else 0


def _uniform(key0, key1, shift, scale, out):
    for index in prange(out.shape[0]):
        h = _draw(key0, key1, np.uint32(index), np.uint32(index >> 32))
        out[index] = (np.float64(h >> shift) + 0.5) * scale


_SDDMM = compile_twice(_sddmm, fastmath=_DOT)
_ROW_SUM = compile_twice(_row_sum, fastmath=_FUSE)
_ROW_EXPAND = compile_twice(_row_expand, fastmath=_FUSE)
_EDGE_SOFTMAX = compile_twice(_edge_softmax, fastmath=_FUSE)
_KEEP_MASK = compile_twice(_keep_mask, fastmath=_FUSE)
_UNIFORM = compile_twice(_uniform, fastmath=_FUSE)


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().contiguous().numpy()


class _NumbaKernels(SparseKernels):
    """Loops of numba."""

    def spmm(self, pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
        batch, channels = max(values.shape[0], x.shape[0]), x.shape[-1]
        out = x.new_empty(batch, pattern.num_rows, channels)
        work = batch * pattern.num_entries * channels
        arrays = (*pattern.arrays, _array(values), _array(x), out.numpy())
        run_kernel(spmm_kernel(channels), work, *arrays)
        return out

    def sddmm(self, pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
        batch = max(a.shape[0], b.shape[0])
        out = a.new_empty(batch, pattern.num_entries)
        work = batch * pattern.num_entries * a.shape[-1]
        run_kernel(_SDDMM, work, *pattern.arrays, _array(a), _array(b), out.numpy())
        return out

    def row_sum(self, pattern: Pattern, values: Tensor) -> Tensor:
        out = values.new_empty(values.shape[0], pattern.num_rows)
        arrays = (*pattern.arrays[::2], _array(values), out.numpy())
        run_kernel(_ROW_SUM, values.numel(), *arrays)
        return out

    def row_expand(self, pattern: Pattern, x: Tensor) -> Tensor:
        out = x.new_empty(x.shape[0], pattern.num_entries)
        arrays = (*pattern.arrays[::2], _array(x), out.numpy())
        run_kernel(_ROW_EXPAND, out.numel(), *arrays)
        return out

    def edge_softmax(self, pattern: Pattern, scores: Tensor) -> Tensor:
        out = torch.empty_like(scores, memory_format=torch.contiguous_format)
        arrays = (*pattern.arrays[::2], _array(scores), out.numpy())
        # An exponential costs about as much as ten multiplications.
        run_kernel(_EDGE_SOFTMAX, 10 * scores.numel(), *arrays)
        return out

    def keep_mask(
        self, size: int, threshold: int, keys: tuple[int, int], like: Tensor
    ) -> Tensor:
        out = like.new_empty(size)
        array = out.numpy()
        scale = array.dtype.type(2**32 / threshold)
        key0, key1 = np.uint32(keys[0]), np.uint32(keys[1])
        run_kernel(_KEEP_MASK, 8 * size, key0, key1, np.uint64(threshold), scale, array)
        return out

    def uniform(
        self, size: int, bits: int, keys: tuple[int, int], like: Tensor
    ) -> Tensor:
        out = like.new_empty(size)
        key0, key1 = np.uint32(keys[0]), np.uint32(keys[1])
        shift, scale = np.uint32(32 - bits), np.float64(2.0**-bits)
        run_kernel(_UNIFORM, 8 * size, key0, key1, shift, scale, out.numpy())
        return out


NUMBA_KERNELS = _NumbaKernels()
