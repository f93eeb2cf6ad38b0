"""The kernels as Triton programs for CUDA, float32 and float64.

Nothing is added by atomics, so the same input gives the same bits every time. Once the
schedule of a pattern is known, no kernel waits for the device: a call can be captured
in a CUDA graph after one call outside of it. A captured ``keep_mask`` repeats its mask,
because the keys are numbers of the host.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from gsebo.sparse.kernels.backend import Call, SparseKernels
from gsebo.sparse.kernels.reference import REFERENCE_KERNELS
from gsebo.sparse.kernels.triton_random import bits_at
from gsebo.sparse.kernels.triton_schedule import (
    entries_are_scattered,
    row_of_entry,
    schedule_of,
)
from gsebo.sparse.kernels.triton_segments import (
    bind_dots,
    bind_programs,
    bind_sums,
    tiles_of,
)
from gsebo.sparse.kernels.triton_softmax import bind_softmax_sums
from gsebo.sparse.pattern import Pattern

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators

# Entries, or numbers of a mask, that a program takes where nothing is summed.
_BLOCK = 2048


@triton.jit(do_not_specialize=["num_rows", "batch"])
def _expand_entries(
    row_of_entry, x, out, num_rows, num_entries, batch, BLOCK: tl.constexpr
):
    """Value of its row at each entry."""
    n = (tl.program_id(0) % batch).to(tl.int64)
    entry = (tl.program_id(0) // batch).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < num_entries
    row = tl.load(row_of_entry + entry, mask=inside, other=0)
    value = tl.load(x + n * num_rows + row, mask=inside, other=0)
    tl.store(out + n * num_entries + entry, value, mask=inside)


@triton.jit(do_not_specialize=["key0", "key1", "threshold"])
def _mask_positions(
    out, size, key0: tl.int64, key1: tl.int64, threshold: tl.int64, BLOCK: tl.constexpr
):
    """Inverse keep rate where the hash of the position is below threshold, else 0."""
    start = tl.program_id(0).to(tl.int64) * BLOCK
    lane = tl.arange(0, BLOCK)
    keys = (key0.to(tl.uint32), key1.to(tl.uint32))
    h = bits_at(keys, start + lane)
    scale = 4294967296.0 / threshold.to(tl.float64)
    value = tl.where(h.to(tl.int64) < threshold, scale.to(out.dtype.element_ty), 0)
    tl.store(out + start + lane, value, mask=start + lane < size)


@triton.jit(do_not_specialize=["num_rows", "batch"])
def _softmax_entries(
    row_of_entry, scores, out, sums, num_rows, num_entries, batch, BLOCK: tl.constexpr
):
    """Softmax of all entries, from the maximum and the sum of their rows."""
    n = (tl.program_id(0) % batch).to(tl.int64)
    entry = (tl.program_id(0) // batch).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = entry < num_entries
    row = n * num_rows + tl.load(row_of_entry + entry, mask=inside, other=0)
    score = tl.load(scores + n * num_entries + entry, mask=inside, other=0)
    top = tl.load(sums + 3 * row, mask=inside, other=0)
    total = tl.load(sums + 3 * row + 1, mask=inside, other=1)
    tl.store(out + n * num_entries + entry, tl.exp(score - top) / total, mask=inside)


def _bind_entries(kernel: Any, pattern: Pattern, x: Tensor, *tensors: Tensor) -> Call:
    """Bind a kernel over all entries in their own order."""
    batch, size = x.shape[0], pattern.num_entries
    arguments = row_of_entry(pattern), x, *tensors, pattern.num_rows, size, batch
    return bind_programs(
        kernel, tiles_of(size, _BLOCK) * batch, *arguments, BLOCK=_BLOCK
    )


class _TritonKernels(SparseKernels):
    """Triton programs."""

    def spmm(self, pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
        batch = max(values.shape[0], x.shape[0])
        out = x.new_empty(batch, pattern.num_rows, x.shape[-1])
        index = schedule_of(pattern), pattern.columns, pattern.entries
        bind_sums(*index, values.contiguous(), x.contiguous(), out)()
        return out

    def sddmm(self, pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
        if entries_are_scattered(pattern) and not entries_are_scattered(pattern.T):
            # The same products, and written where they lie together.
            pattern, a, b = pattern.T, b, a
        out = a.new_empty(max(a.shape[0], b.shape[0]), pattern.num_entries)
        left, right = (each.contiguous().unsqueeze(2) for each in (a, b))
        bind_dots(pattern, left, right, out, add=False)()
        return out

    def row_sum(self, pattern: Pattern, values: Tensor) -> Tensor:
        out = values.new_empty(values.shape[0], pattern.num_rows, 1)
        schedule, entries = schedule_of(pattern), pattern.entries
        each = values.contiguous().unsqueeze(2)
        bind_sums(schedule, entries, entries, None, each, out)()
        return out.squeeze(2)

    def row_expand(self, pattern: Pattern, x: Tensor) -> Tensor:
        out = x.new_empty(x.shape[0], pattern.num_entries)
        _bind_entries(_expand_entries, pattern, x.contiguous(), out)()
        return out

    def edge_softmax(self, pattern: Pattern, scores: Tensor) -> Tensor:
        scores, out = scores.contiguous(), scores.new_empty(scores.shape)
        sums = scores.new_empty(scores.shape[0], pattern.num_rows, 3)
        bind_softmax_sums(pattern, pattern.entries, scores, sums, lanes=0)()
        _bind_entries(_softmax_entries, pattern, scores, out, sums)()
        return out

    def keep_mask(
        self, size: int, threshold: int, keys: tuple[int, int], like: Tensor
    ) -> Tensor:
        out = like.new_empty(size)
        programs = tiles_of(size, _BLOCK)
        bind_programs(
            _mask_positions, programs, out, size, *keys, threshold, BLOCK=_BLOCK
        )()
        return out

    def uniform(
        self, size: int, bits: int, keys: tuple[int, int], like: Tensor
    ) -> Tensor:
        return REFERENCE_KERNELS.uniform(size, bits, keys, like)


TRITON_KERNELS = _TritonKernels()
