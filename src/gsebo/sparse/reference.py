"""The kernels in plain torch: any device, any dtype, and the truth for the others."""

from collections.abc import Iterator

import torch
from torch import Tensor

from gsebo.sparse.backend import SparseKernels
from gsebo.sparse.pattern import Pattern
from gsebo.sparse.random_bits import draw

# Numbers that a kernel may hold per entry and channel at a time, over all replicas:
# a bound for graphs with more edges than would fit.
_CHUNK_NUMBERS = 2**26


def _hash_part(part: slice, keys: tuple[int, int], device: torch.device) -> Tensor:
    """Hash the positions in ``part`` to 32 bits each, as int64."""
    index = torch.arange(part.start, part.stop, device=device)
    hashed: Tensor = draw(*keys, index, index >> 32)  # type: ignore[no-untyped-call]
    return hashed


def _chunks(size: int, width: int) -> Iterator[slice]:
    """Cut ``size`` entries so that ``width`` numbers for each stay within the bound."""
    step = max(_CHUNK_NUMBERS // max(width, 1), 1)
    for start in range(0, size, step):
        yield slice(start, min(start + step, size))


def _to_entry_order(pattern: Pattern, stored: Tensor) -> Tensor:
    out = torch.empty_like(stored)
    return out.index_copy_(-1, pattern.entries.long(), stored)


class _ReferenceKernels(SparseKernels):
    """Plain torch."""

    def spmm(self, pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
        batch = max(values.shape[0], x.shape[0])
        out = x.new_zeros(batch, pattern.num_rows, x.shape[-1])
        for part in _chunks(pattern.num_entries, batch * x.shape[-1]):
            stored = values.index_select(-1, pattern.entries[part])
            messages = stored.unsqueeze(-1) * x.index_select(-2, pattern.columns[part])
            out.index_add_(-2, pattern.rows[part], messages)
        return out

    def sddmm(self, pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
        batch = max(a.shape[0], b.shape[0])
        out = a.new_empty(batch, pattern.num_entries)
        for part in _chunks(pattern.num_entries, batch * a.shape[-1]):
            left = a.index_select(-2, pattern.rows[part])
            right = b.index_select(-2, pattern.columns[part])
            out.index_copy_(-1, pattern.entries[part].long(), (left * right).sum(-1))
        return out

    def row_sum(self, pattern: Pattern, values: Tensor) -> Tensor:
        stored = values.index_select(-1, pattern.entries)
        out = values.new_zeros(values.shape[0], pattern.num_rows)
        return out.index_add_(-1, pattern.rows, stored)

    def row_expand(self, pattern: Pattern, x: Tensor) -> Tensor:
        return _to_entry_order(pattern, x.index_select(-1, pattern.rows))

    def edge_softmax(self, pattern: Pattern, scores: Tensor) -> Tensor:
        stored = scores.index_select(-1, pattern.entries)
        rows = pattern.rows.long().expand_as(stored)
        top = stored.new_full((stored.shape[0], pattern.num_rows), -torch.inf)
        top = top.scatter_reduce_(-1, rows, stored, "amax")
        weights = (stored - top.gather(-1, rows)).exp()
        total = weights.new_zeros(top.shape).index_add_(-1, pattern.rows, weights)
        return _to_entry_order(pattern, weights / total.gather(-1, rows))

    def keep_mask(
        self, size: int, threshold: int, keys: tuple[int, int], like: Tensor
    ) -> Tensor:
        out = like.new_empty(size)
        for part in _chunks(size, 1):
            kept = _hash_part(part, keys, like.device) < threshold
            out[part] = kept.to(like.dtype).mul_(2**32 / threshold)
        return out

    def uniform(
        self, size: int, bits: int, keys: tuple[int, int], like: Tensor
    ) -> Tensor:
        out = like.new_empty(size)
        for part in _chunks(size, 1):
            mixed = _hash_part(part, keys, like.device) >> (32 - bits)
            out[part] = (mixed.to(like.dtype) + 0.5) / 2**bits
        return out


REFERENCE_KERNELS = _ReferenceKernels()
