"""The kernels in plain torch: any device, any dtype, and the truth for the others.

Every kernel takes batched operands: values ``[B, entries]`` and matrices
``[B, rows, channels]``, where a batch of one broadcasts against the other operand.
"""

import torch
from torch import Tensor

from gsebo.sparse.pattern import Pattern


def spmm(pattern: Pattern, values: Tensor, x: Tensor) -> Tensor:
    """Sum ``values[entry] * x[column]`` over the entries of each row."""
    stored = values.index_select(-1, pattern.entries)
    messages = stored.unsqueeze(-1) * x.index_select(-2, pattern.columns)
    out = messages.new_zeros(messages.shape[0], pattern.num_rows, x.shape[-1])
    return out.index_add_(-2, pattern.rows, messages)


def sddmm(pattern: Pattern, a: Tensor, b: Tensor) -> Tensor:
    """Dot product of ``a[row]`` and ``b[column]`` at each entry."""
    left = a.index_select(-2, pattern.rows)
    right = b.index_select(-2, pattern.columns)
    return _to_entry_order(pattern, (left * right).sum(-1))


def row_sum(pattern: Pattern, values: Tensor) -> Tensor:
    """Sum of the values of each row."""
    stored = values.index_select(-1, pattern.entries)
    out = values.new_zeros(values.shape[0], pattern.num_rows)
    return out.index_add_(-1, pattern.rows, stored)


def row_expand(pattern: Pattern, x: Tensor) -> Tensor:
    """Value of its row at each entry."""
    return _to_entry_order(pattern, x.index_select(-1, pattern.rows))


def edge_softmax(pattern: Pattern, scores: Tensor) -> Tensor:
    """Softmax over the entries of each row."""
    stored = scores.index_select(-1, pattern.entries)
    rows = pattern.rows.long().expand_as(stored)
    top = stored.new_full((stored.shape[0], pattern.num_rows), -torch.inf)
    top = top.scatter_reduce_(-1, rows, stored, "amax")
    weights = (stored - top.gather(-1, rows)).exp()
    total = weights.new_zeros(top.shape).index_add_(-1, pattern.rows, weights)
    return _to_entry_order(pattern, weights / total.gather(-1, rows))


def keep_mask(size: int, threshold: int, keys: tuple[int, int], like: Tensor) -> Tensor:
    """Mask of ``size`` numbers: the inverse keep rate where hash < threshold, else 0.

    The hash is two rounds of a 32-bit mixer on the position, written with 64-bit
    integers because torch has no full set of unsigned operations.
    """
    index = torch.arange(size, device=like.device)
    low, high = index & 0xFFFFFFFF, index >> 32
    mixed = _mix((low + keys[0]) & 0xFFFFFFFF)
    mixed = _mix(mixed ^ keys[1] ^ ((high * 0x9E3779B9) & 0xFFFFFFFF))
    return (mixed < threshold).to(like.dtype).mul_(2**32 / threshold)


def _mix(h: Tensor) -> Tensor:
    h = h ^ (h >> 16)
    h = (h * 0x7FEB352D) & 0xFFFFFFFF
    h = h ^ (h >> 15)
    h = (h * 0x846CA68B) & 0xFFFFFFFF
    return h ^ (h >> 16)


def _to_entry_order(pattern: Pattern, stored: Tensor) -> Tensor:
    out = torch.empty_like(stored)
    return out.index_copy_(-1, pattern.entries.long(), stored)
