"""The kernels as numba loops for the CPU, float32 and float64.

Each row belongs to one task and is summed in stored order, so the result does not
depend on the number of threads. Every kernel exists twice, parallel and serial: below
about a million multiplications, waking the threads costs more than it saves.
"""

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from gsebo.sparse.kernels.numba_compile import compile_twice, run_kernel
from gsebo.sparse.kernels.numba_spmm import spmm_kernel
from gsebo.sparse.pattern import Pattern

# NaN and infinity must survive, because a diverging fit is recognised by them. A dot
# product may be reordered (that is what makes it a vector loop); sums over a row may
# not, or the serial and the parallel variant would round differently.
_FUSE = {"contract"}
_DOT = {"contract", "reassoc", "nsz"}


def _sddmm(indptr, columns, entries, a, b, out):  # type: ignore[no-untyped-def]
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


def _row_sum(indptr, entries, values, out):  # type: ignore[no-untyped-def]
    batch, num_rows = out.shape
    for task in prange(batch * num_rows):
        b = task // num_rows
        i = task - b * num_rows
        total = out.dtype.type(0)
        for k in range(indptr[i], indptr[i + 1]):
            total += values[b, entries[k]]
        out[b, i] = total


def _row_expand(indptr, entries, x, out):  # type: ignore[no-untyped-def]
    batch, num_rows = x.shape
    for task in prange(batch * num_rows):
        b = task // num_rows
        i = task - b * num_rows
        for k in range(indptr[i], indptr[i + 1]):
            out[b, entries[k]] = x[b, i]


def _edge_softmax(indptr, entries, scores, out):  # type: ignore[no-untyped-def]
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


@njit(cache=True, nogil=True)
def _mix(h):  # type: ignore[no-untyped-def]
    # numba widens every sum and product to 64 bits; the casts fold it back.
    h = np.uint32(h ^ (h >> np.uint32(16)))
    h = np.uint32(h * np.uint32(0x7FEB352D))
    h = np.uint32(h ^ (h >> np.uint32(15)))
    h = np.uint32(h * np.uint32(0x846CA68B))
    return np.uint32(h ^ (h >> np.uint32(16)))


def _keep_mask(key0, key1, threshold, scale, out):  # type: ignore[no-untyped-def]
    for index in prange(out.shape[0]):
        low = np.uint32(index)
        high = np.uint32(np.uint32(index >> 32) * np.uint32(0x9E3779B9))
        h = _mix(np.uint32(low + key0))
        h = _mix(np.uint32(h ^ key1 ^ high))
        out[index] = scale if h < threshold else 0


def _uniform(key0, key1, shift, scale, out):  # type: ignore[no-untyped-def]
    for index in prange(out.shape[0]):
        low = np.uint32(index)
        high = np.uint32(np.uint32(index >> 32) * np.uint32(0x9E3779B9))
        h = _mix(np.uint32(low + key0))
        h = _mix(np.uint32(h ^ key1 ^ high))
        out[index] = (np.float64(h >> shift) + 0.5) * scale


_SDDMM = compile_twice(_sddmm, fastmath=_DOT)
_ROW_SUM = compile_twice(_row_sum, fastmath=_FUSE)
_ROW_EXPAND = compile_twice(_row_expand, fastmath=_FUSE)
_EDGE_SOFTMAX = compile_twice(_edge_softmax, fastmath=_FUSE)
_KEEP_MASK = compile_twice(_keep_mask, fastmath=_FUSE)
_UNIFORM = compile_twice(_uniform, fastmath=_FUSE)


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().contiguous().numpy()


def spmm(pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
    """Sum ``values[entry] * x[column]`` over the entries of each row."""
    batch, channels = max(values.shape[0], x.shape[0]), x.shape[-1]
    out = x.new_empty(batch, pattern.num_rows, channels)
    work = batch * pattern.num_entries * channels
    kernel = spmm_kernel(channels)
    run_kernel(kernel, work, *pattern.arrays, _array(values), _array(x), out.numpy())
    return out


def sddmm(pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
    """Dot product of ``a[row]`` and ``b[column]`` at each entry."""
    batch = max(a.shape[0], b.shape[0])
    out = a.new_empty(batch, pattern.num_entries)
    work = batch * pattern.num_entries * a.shape[-1]
    run_kernel(_SDDMM, work, *pattern.arrays, _array(a), _array(b), out.numpy())
    return out


def row_sum(pattern: Pattern, values: Tensor) -> Tensor:
    """Sum of the values of each row."""
    out = values.new_empty(values.shape[0], pattern.num_rows)
    indptr, _, entries = pattern.arrays
    run_kernel(_ROW_SUM, values.numel(), indptr, entries, _array(values), out.numpy())
    return out


def row_expand(pattern: Pattern, x: Tensor) -> Tensor:
    """Value of its row at each entry."""
    out = x.new_empty(x.shape[0], pattern.num_entries)
    indptr, _, entries = pattern.arrays
    run_kernel(_ROW_EXPAND, out.numel(), indptr, entries, _array(x), out.numpy())
    return out


def edge_softmax(pattern: Pattern, scores: Tensor) -> Tensor:
    """Softmax over the entries of each row."""
    out = torch.empty_like(scores, memory_format=torch.contiguous_format)
    indptr, _, entries = pattern.arrays
    # An exponential costs about as much as ten multiplications.
    work = 10 * scores.numel()
    run_kernel(_EDGE_SOFTMAX, work, indptr, entries, _array(scores), out.numpy())
    return out


def keep_mask(size: int, threshold: int, keys: tuple[int, int], like: Tensor) -> Tensor:
    """Mask of ``size`` numbers: inverse keep rate where hash < threshold, else 0."""
    out = like.new_empty(size)
    array = out.numpy()
    scale = array.dtype.type(2**32 / threshold)
    key0, key1 = np.uint32(keys[0]), np.uint32(keys[1])
    run_kernel(_KEEP_MASK, 8 * size, key0, key1, np.uint64(threshold), scale, array)
    return out


def uniform(size: int, bits: int, keys: tuple[int, int], like: Tensor) -> Tensor:
    """Numbers in (0, 1) from the first ``bits`` of the hash of each position."""
    out = like.new_empty(size)
    key0, key1 = np.uint32(keys[0]), np.uint32(keys[1])
    shift, scale = np.uint32(32 - bits), np.float64(2.0**-bits)
    run_kernel(_UNIFORM, 8 * size, key0, key1, shift, scale, out.numpy())
    return out
