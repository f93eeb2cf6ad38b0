"""The kernel calls of an attention step on the CPU.

Loops of an attention step on the CPU, backwards.

With ``g`` the gradient by the result, ``A`` the attention before dropout, ``K`` the
mask, ``z`` the strength and ``m`` the messages, an entry's share of the gradient is

    q = <g_i, m_j>,  d = K z q,  gradient by its score = (A d - A Σ A d) * slope,

and every product has the tangent that the rule for products gives it. The leaky ReLU
has no second derivative.
"""

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from gsebo.sparse.kernels.backend import Call
from gsebo.sparse.kernels.numba_compile import bind_kernel
from gsebo.sparse.kernels.random_bits import Drop, drop_arrays
from gsebo.sparse.pattern import Pattern
from gsebo.tape.backend import AttentionKernels, AttentionStep
from gsebo.tape.cpu.attention_loops import (
    CHANNELS,
    HEADS,
    LANES,
    SOURCE,
    SPAN,
    TARGET,
    attention_of_entries,
    compiled,
    load_channels,
    load_heads,
    repeat_heads,
    scores_of_nodes,
    spread_channels,
    spread_heads,
    total_by_head,
    weighted_sums,
)
from gsebo.tape.cpu.pack import fma, leaky_slope, store, total, without_first

# Nodes that one task takes. Sums over nodes are made chunk by chunk, so that they do
# not depend on the number of threads.
CHUNK = 256


def products_of_entries(indptr, columns, entries, grad, message, heads, to_entries):  # type: ignore[no-untyped-def]
    """``<g_i, m_j>`` of each entry and head, and its tangent."""
    replicas, rows, _, size = grad.shape
    num_entries, padded = to_entries.shape[1], to_entries.shape[3]
    channels = size // heads
    blocks = (SPAN * channels + CHANNELS - 1) // CHANNELS
    g_step = grad.strides[0] // grad.itemsize
    x_step = message.strides[0] // message.itemsize
    zero = grad.dtype.type(0)
    for task in prange(replicas * rows):
        r = task // rows
        i = task - r * rows
        g_at = r * g_step + i * LANES * size
        for k in range(indptr[i], indptr[i + 1]):
            x_at = r * x_step + columns[k] * LANES * size
            to = (r * num_entries + entries[k]) * LANES * padded
            for h in range(0, heads, SPAN):
                dot = spread_channels(zero)
                change = spread_channels(zero)
                for block in range(blocks):
                    # The last block may overlap the one before.
                    c = min(block * CHANNELS, SPAN * channels - CHANNELS)
                    seen = block * CHANNELS - c
                    c += h * channels
                    g = load_channels(grad, g_at + c)
                    if seen > 0:
                        g = without_first(g, seen)
                    x = load_channels(message, x_at + c)
                    dot = fma(g, x, dot)
                    if LANES == 2:
                        change = fma(g, load_channels(message, x_at + size + c), change)
                        g = load_channels(grad, g_at + size + c)
                        if seen > 0:
                            g = without_first(g, seen)
                        change = fma(g, x, change)
                store(to_entries, to + h, total_by_head(dot))
                if LANES == 2:
                    store(to_entries, to + padded + h, total_by_head(change))
            # What was here before may not be a number, and 0 times it neither.
            for h in range(heads, padded):
                for lane in range(LANES):
                    to_entries[r, entries[k], lane, h] = 0


def attention_back_of_entries(  # type: ignore[no-untyped-def]
    indptr,
    columns,
    entries,
    strength,
    scores,
    slope,
    keep,
    share,
    to_entries,
    to_scores,
    to_strength,
):
    """From gradients by ``K z A`` to those by scores of entries and of targets."""
    replicas, num_columns, _, _, padded = scores.shape
    num_entries = keep.shape[1]
    rows = indptr.shape[0] - 1
    zero = keep.dtype.type(0)
    for task in prange(replicas * rows):
        r = task // rows
        i = task - r * rows
        start, end = indptr[i], indptr[i + 1]
        for first in range(0, padded, HEADS):
            nodes_at = r * num_columns * LANES * 2 * padded + first
            entries_at = r * num_entries * LANES * padded + first
            mean = spread_heads(zero)
            mean_change = spread_heads(zero)
            for k in range(start, end):
                e = entries[k]
                at = entries_at + e * LANES * padded
                kept = load_heads(keep, (r * num_entries + e) * padded + first)
                a = load_heads(share, at)
                d = kept * load_heads(to_entries, at)
                by_strength = a * d
                z = spread_heads(strength[r, e])
                store(to_entries, at, d * z)
                mean = fma(by_strength, z, mean)
                if LANES == 2:
                    a_change = load_heads(share, at + padded)
                    d_change = kept * load_heads(to_entries, at + padded)
                    by_strength = fma(a, d_change, a_change * d)
                    store(to_entries, at + padded, d_change * z)
                    mean_change = fma(by_strength, z, mean_change)
                if to_strength.shape[1] > 0:
                    to_strength[r, e] += total(by_strength)
            t_at = nodes_at + i * LANES * 2 * padded
            to_target = spread_heads(zero)
            to_target_change = spread_heads(zero)
            for k in range(start, end):
                at = entries_at + entries[k] * LANES * padded
                s_at = nodes_at + columns[k] * LANES * 2 * padded + padded
                score = load_heads(scores, t_at) + load_heads(scores, s_at)
                slopes = leaky_slope(score, slope)
                a = load_heads(share, at) * slopes
                d = load_heads(to_entries, at) - mean
                to_score = a * d
                store(to_entries, at, to_score)
                to_target = to_target + to_score
                if LANES == 2:
                    a_change = load_heads(share, at + padded) * slopes
                    d_change = load_heads(to_entries, at + padded) - mean_change
                    to_score = fma(a, d_change, a_change * d)
                    store(to_entries, at + padded, to_score)
                    to_target_change = to_target_change + to_score
            store(to_scores, t_at, to_target)
            if LANES == 2:
                store(to_scores, t_at + 2 * padded, to_target_change)


def source_sums(indptr, entries, to_entries, to_scores):  # type: ignore[no-untyped-def]
    """From gradients by scores of entries to those by scores of sources."""
    replicas, num_columns, _, _, padded = to_scores.shape
    num_entries = to_entries.shape[1]
    zero = to_scores.dtype.type(0)
    for task in prange(replicas * num_columns):
        r = task // num_columns
        j = task - r * num_columns
        for lane in range(LANES):
            for first in range(0, padded, HEADS):
                sums = spread_heads(zero)
                for k in range(indptr[j], indptr[j + 1]):
                    e = r * num_entries + entries[k]
                    at = (e * LANES + lane) * padded + first
                    sums = sums + load_heads(to_entries, at)
                at = ((task * LANES + lane) * 2 + SOURCE) * padded + first
                store(to_scores, at, sums)


def weight_sums(message, to_scores, chunk_sums, to_weight):  # type: ignore[no-untyped-def]
    """Gradient by the weight, or with tangents the tangent of it."""
    replicas, heads, channels = to_weight.shape[:3]
    num_columns, padded = to_scores.shape[1], to_scores.shape[4]
    size = heads * channels
    blocks = (SPAN * channels + CHANNELS - 1) // CHANNELS
    chunks = chunk_sums.shape[1]
    step = message.strides[0] // message.itemsize
    zero = to_scores.dtype.type(0)
    for task in prange(replicas * chunks):
        r = task // chunks
        start = (task - r * chunks) * CHUNK
        for h in range(0, heads, SPAN):
            for block in range(blocks):
                c = h * channels + min(block * CHANNELS, SPAN * channels - CHANNELS)
                target = spread_channels(zero)
                source = spread_channels(zero)
                for j in range(start, min(start + CHUNK, num_columns)):
                    # With tangents, those of the gradients go with the plain message.
                    x = load_channels(message, r * step + j * LANES * size + c)
                    at = ((r * num_columns + j) * LANES + LANES - 1) * 2 * padded + h
                    target = fma(repeat_heads(to_scores, at), x, target)
                    source = fma(repeat_heads(to_scores, at + padded), x, source)
                    if LANES == 2:
                        x = load_channels(message, r * step + (2 * j + 1) * size + c)
                        at -= 2 * padded
                        target = fma(repeat_heads(to_scores, at), x, target)
                        source = fma(repeat_heads(to_scores, at + padded), x, source)
                store(chunk_sums, (task * 2 + TARGET) * size + c, target)
                store(chunk_sums, (task * 2 + SOURCE) * size + c, source)
    for r in range(replicas):
        for chunk in range(chunks):
            for h in range(heads):
                for c in range(channels):
                    for role in range(2):
                        part = chunk_sums[r, chunk, role, h * channels + c]
                        to_weight[r, h, c, role] += part


# A number of a softmax costs about as much as so many multiplications.
_SOFTMAX = 20
# Bytes in the largest pack; sums of three of them are made at a time, in registers.
_PACK_BYTES = 256


class NumbaAttention(AttentionKernels):
    """An attention step on the CPU.

    It keeps the weight ``[replicas, lanes, 2, heads * channels]``, the scores of nodes
    ``[replicas, columns, lanes, 2, heads]``, the mask ``[replicas, entries, heads]``,
    and attention before dropout, and after it times strength, ``[replicas, entries,
    lanes, heads]`` each.
    """

    def __init__(self, step: AttentionStep) -> None:
        replicas, columns, lanes, size = step.message.shape
        entries = step.pattern.num_entries
        width = _heads_in_pack(step)
        padded = -(-step.heads // width) * width
        new = step.message.new_empty
        self._step = step
        self._roles = new(replicas, lanes, 2, size)
        self._scores = step.message.new_zeros(replicas, columns, lanes, 2, padded)
        self._keep = step.message.new_ones(replicas, entries, padded)
        self._share = new(replicas, entries, lanes, padded)
        self._weighted = new(replicas, entries, lanes, padded)

    def forward(self, out: Tensor) -> list[Call]:
        """Calls that compute the step."""
        step, lanes, pattern = self._step, self._step.lanes, self._step.pattern
        packs = _packs_of_channels(step)
        keep = self._keep.numpy()
        keys = np.empty((keep.shape[0], 2), np.uint32)
        return [
            bind_kernel(
                compiled(scores_of_nodes, lanes=lanes, **packs),
                2 * step.message.numel(),
                step.message.numpy(),
                step.weight.numpy(),
                step.tangent.numpy(),
                pattern.num_rows,
                self._roles.numpy(),
                self._scores.numpy(),
            ),
            bind_kernel(
                compiled(attention_of_entries, lanes=lanes, heads=_heads_in_pack(step)),
                _SOFTMAX * self._share.numel(),
                *pattern.arrays,
                step.strength.numpy(),
                self._scores.numpy(),
                keep.dtype.type(step.slope),
                *_drop_arguments(step),
                keys,
                keep,
                self._share.numpy(),
                self._weighted.numpy(),
            ),
            self._weighted_sums(pattern, step.message, out),
        ]

    def back(
        self,
        grad_out: Tensor,
        to_message: Tensor,
        to_weight: Tensor,
        to_strength: Tensor | None,
        *,
        accumulate: bool,
    ) -> list[Call]:
        """Calls that pull a gradient back through the step."""
        step, lanes, pattern = self._step, self._step.lanes, self._step.pattern
        heads, packs = _heads_in_pack(step), _packs_of_channels(step)
        replicas, columns, _, size = step.message.shape
        to_entries = torch.empty_like(self._share)
        # Nodes that are no target keep their 0.
        to_scores = torch.zeros_like(self._scores)
        chunk_sums = self._roles.new_empty(replicas, -(-columns // CHUNK), 2, size)
        if to_strength is None:
            to_strength = step.strength.new_empty(replicas, 0)
        message, keep = step.message.numpy(), self._keep.numpy()
        return [
            bind_kernel(
                compiled(products_of_entries, lanes=lanes, **packs),
                to_entries.numel() * step.channels,
                *pattern.arrays,
                grad_out.numpy(),
                message,
                step.heads,
                to_entries.numpy(),
            ),
            bind_kernel(
                compiled(attention_back_of_entries, lanes=lanes, heads=heads),
                _SOFTMAX * to_entries.numel(),
                *pattern.arrays,
                step.strength.numpy(),
                self._scores.numpy(),
                keep.dtype.type(step.slope),
                keep,
                self._share.numpy(),
                to_entries.numpy(),
                to_scores.numpy(),
                to_strength.numpy(),
            ),
            bind_kernel(
                compiled(source_sums, lanes=lanes, heads=heads),
                to_entries.numel(),
                pattern.T.arrays[0],
                pattern.T.arrays[2],
                to_entries.numpy(),
                to_scores.numpy(),
            ),
            self._weighted_sums(
                pattern.T, grad_out, to_message, to_scores, accumulate=accumulate
            ),
            bind_kernel(
                compiled(weight_sums, lanes=lanes, **packs),
                2 * step.message.numel(),
                message,
                to_scores.numpy(),
                chunk_sums.numpy(),
                to_weight.numpy(),
            ),
        ]

    def _weighted_sums(
        self,
        pattern: Pattern,
        x: Tensor,
        out: Tensor,
        to_scores: Tensor | None = None,
        *,
        accumulate: bool = False,
    ) -> Call:
        """Sum ``x`` over the entries, weighted.

        Args:
            pattern: That of the step, or for the way back its transpose.
            x: What to sum.
            out: Where to; with two lanes in ``x`` and one here, only the tangent.
            to_scores: For the way back, the gradient by the scores, which are pulled
                back to ``out`` too.
            accumulate: Whether to add to ``out``.
        """
        step = self._step
        kernel = compiled(
            weighted_sums,
            lanes=step.lanes,
            **_packs_of_channels(step),
            backwards=to_scores is not None,
            tangent_only=out.shape[2] < step.lanes,
        )
        return bind_kernel(
            kernel,
            self._weighted.numel() * step.channels,
            *pattern.arrays,
            self._weighted.numpy(),
            x.numpy(),
            step.heads,
            self._roles.numpy(),
            (self._scores if to_scores is None else to_scores).numpy(),
            accumulate,
            out.numpy(),
        )


def _heads_in_pack(step: AttentionStep) -> int:
    """Size of the packs of heads."""
    return next(width for width in (1, 2, 4, 8) if width >= min(step.heads, 8))


def _packs_of_channels(step: AttentionStep) -> dict[str, int]:
    """Size of the packs of channels, and of how many heads a pack holds all channels.

    Where a head has few channels, a pack takes several heads, if they fill it up.
    """
    most = _PACK_BYTES // step.message.element_size()
    channels = 1
    while 2 * channels <= min(step.channels, most):
        channels *= 2
    span = 1
    while channels == step.channels and 2 * span <= most // channels:
        if step.heads % (2 * span):
            break
        span *= 2
    return {"channels": span * channels, "span": span}


def _drop_arguments(step: AttentionStep) -> Any:
    replicas, entries = step.strength.shape
    drop = step.drop or Drop.none(replicas, entries)
    return (
        step.drop is not None,
        *drop_arrays(drop, step.strength),
        np.int64(step.whole_entries),
    )
