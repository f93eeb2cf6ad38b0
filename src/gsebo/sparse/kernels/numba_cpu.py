"""The kernels as numba loops for the CPU, float32 and float64.

Each row belongs to one task and is summed in stored order, so the result does not
depend on the number of threads. Every kernel exists twice, parallel and serial: below
a few hundred thousand multiplications, waking the threads costs more than it saves.
"""

from threading import Lock
from types import FunctionType
from typing import Any

import numpy as np
import torch
from numba import config, njit, prange, set_num_threads
from torch import Tensor

from gsebo.sparse.pattern import Pattern

# NaN and infinity must survive, because a diverging fit is recognised by them. A dot
# product may be reordered (that is what makes it a vector loop); sums over a row may
# not, or the serial and the parallel variant would round differently.
_FUSE = {"contract"}
_DOT = {"contract", "reassoc", "nsz"}
_PARALLEL_WORK = 300_000
_PARALLEL_LOCK = Lock()


def _twice(kernel: Any, fastmath: set[str]) -> tuple[Any, Any]:
    options = {"cache": True, "nogil": True, "fastmath": fastmath}
    # The cache on disk tells functions apart by name and not by options: under one
    # name, whichever variant was compiled first would be loaded for both.
    name = f"{kernel.__name__}_parallel"
    twin = FunctionType(kernel.__code__, kernel.__globals__, name)
    twin.__qualname__ = name
    return njit(**options)(kernel), njit(parallel=True, **options)(twin)


def _spmm(indptr, columns, entries, values, x, out):  # type: ignore[no-untyped-def]
    batch, num_rows, channels = out.shape
    for task in prange(batch * num_rows):
        b = task // num_rows
        i = task - b * num_rows
        vb = b if values.shape[0] > 1 else 0
        xb = b if x.shape[0] > 1 else 0
        out[b, i, :] = 0
        for k in range(indptr[i], indptr[i + 1]):
            weight = values[vb, entries[k]]
            j = columns[k]
            for c in range(channels):
                out[b, i, c] += weight * x[xb, j, c]


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


_SPMM = _twice(_spmm, _FUSE)
_SDDMM = _twice(_sddmm, _DOT)
_ROW_SUM = _twice(_row_sum, _FUSE)
_ROW_EXPAND = _twice(_row_expand, _FUSE)
_EDGE_SOFTMAX = _twice(_edge_softmax, _FUSE)
_KEEP_MASK = _twice(_keep_mask, _FUSE)


def _run(kernels: tuple[Any, Any], work: int, *arguments: Any) -> None:
    serial, parallel = kernels
    # One setting for both libraries: whoever limits torch's threads means these too.
    threads = min(torch.get_num_threads(), config.NUMBA_NUM_THREADS)
    if work <= _PARALLEL_WORK or threads == 1:
        serial(*arguments)
    # One parallel kernel at a time: numba's fallback thread pool ends the process when
    # two Python threads enter it, and a second one would find no idle core anyway.
    elif _PARALLEL_LOCK.acquire(blocking=False):
        try:
            set_num_threads(threads)
            parallel(*arguments)
        finally:
            _PARALLEL_LOCK.release()
    else:
        serial(*arguments)


def _array(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.detach().contiguous().numpy()


def spmm(pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
    """Sum ``values[entry] * x[column]`` over the entries of each row."""
    batch, channels = max(values.shape[0], x.shape[0]), x.shape[-1]
    out = x.new_empty(batch, pattern.num_rows, channels)
    work = batch * pattern.num_entries * channels
    _run(_SPMM, work, *pattern.arrays, _array(values), _array(x), out.numpy())
    return out


def sddmm(pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
    """Dot product of ``a[row]`` and ``b[column]`` at each entry."""
    batch = max(a.shape[0], b.shape[0])
    out = a.new_empty(batch, pattern.num_entries)
    work = batch * pattern.num_entries * a.shape[-1]
    _run(_SDDMM, work, *pattern.arrays, _array(a), _array(b), out.numpy())
    return out


def row_sum(pattern: Pattern, values: Tensor) -> Tensor:
    """Sum of the values of each row."""
    out = values.new_empty(values.shape[0], pattern.num_rows)
    indptr, _, entries = pattern.arrays
    _run(_ROW_SUM, values.numel(), indptr, entries, _array(values), out.numpy())
    return out


def row_expand(pattern: Pattern, x: Tensor) -> Tensor:
    """Value of its row at each entry."""
    out = x.new_empty(x.shape[0], pattern.num_entries)
    indptr, _, entries = pattern.arrays
    _run(_ROW_EXPAND, out.numel(), indptr, entries, _array(x), out.numpy())
    return out


def edge_softmax(pattern: Pattern, scores: Tensor) -> Tensor:
    """Softmax over the entries of each row."""
    out = torch.empty_like(scores, memory_format=torch.contiguous_format)
    indptr, _, entries = pattern.arrays
    # An exponential costs about as much as ten multiplications.
    work = 10 * scores.numel()
    _run(_EDGE_SOFTMAX, work, indptr, entries, _array(scores), out.numpy())
    return out


def keep_mask(size: int, threshold: int, keys: tuple[int, int], like: Tensor) -> Tensor:
    """Mask of ``size`` numbers: inverse keep rate where hash < threshold, else 0."""
    out = like.new_empty(size)
    array = out.numpy()
    scale = array.dtype.type(2**32 / threshold)
    key0, key1 = np.uint32(keys[0]), np.uint32(keys[1])
    _run(_KEEP_MASK, 8 * size, key0, key1, np.uint64(threshold), scale, array)
    return out
