"""An attention step on the CPU: loops over nodes and entries, forwards and backwards.

What belongs to nodes or entries has the heads side by side, filled up to whole packs:
``[replicas, entries, lanes, heads]``. The heads that fill up are computed like the
others, and read by nobody.

With ``g`` the gradient by the result, ``A`` the attention before dropout, ``K`` the
mask, ``z`` the strength and ``m`` the messages, an entry's share of the gradient is

    q = <g_i, m_j>,  d = K z q,  gradient by its score = (A d - A Σ A d) * slope,

and as numbers are duals where there are tangents, every product has the one that the
rule for products gives it. The leaky ReLU has no second derivative.
"""

# mypy: allow-untyped-defs, allow-untyped-calls

from functools import cache
from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from gsebo.sparse.backend import Call
from gsebo.sparse.numba_calls import bind_kernel
from gsebo.sparse.numba_compile import Variants, compile_twice
from gsebo.sparse.numba_pack import (
    dual,
    exponential,
    fma,
    fma_last,
    largest,
    last,
    leaky_slope,
    packs_of,
    store,
    store_dual,
    total,
    value,
    without_first,
)
from gsebo.sparse.pattern import Pattern
from gsebo.sparse.random_bits import NUMBA_HASH, drop_arrays
from gsebo.tape.backend import AttentionStep, Gradients, StepKernels

_TARGET, _SOURCE = 0, 1
# Nodes that one task takes. Sums over nodes are made chunk by chunk, so that they do
# not depend on the number of threads.
_CHUNK = 256
_draw, _site_keys = NUMBA_HASH
# Stand for what a loop is compiled for: how many lanes there are, how many heads go
# into a pack of one number each, how many channels of how many heads go into a pack,
# and what is asked of the sums over entries.
LANES, HEADS, CHANNELS, SPAN = 1, 1, 1, 1
BACKWARDS, TANGENT_ONLY = False, False
load_heads, load_dual_heads, spread_heads, zero_heads, *_ = packs_of(1)
load_channels, load_dual_channels, spread_channels, zero_channels, *_ = packs_of(1)
repeat_dual_channels, totals_channels = packs_of(1)[4:]


@cache
def _compiled(
    loop: Any, lanes: int, heads: int = 1, channels: int = 1, span: int = 1, **more: Any
) -> Variants:
    """Compile a loop for so many lanes and for packs of these sizes."""
    packs = {"heads": (heads, 1, lanes), "channels": (channels, span, lanes)}
    names = {
        f"{name}_{of}": function
        for of, sizes in packs.items()
        for name, function in packs_of(*sizes)._asdict().items()
    }
    names |= {"LANES": lanes, "HEADS": heads, "CHANNELS": channels, "SPAN": span}
    return compile_twice(loop, **names, **more)


def _scores_of_nodes(message, weight, tangent, rows, roles, scores):
    """Both parts of the scores; a score of an entry is the sum of two."""
    replicas, columns = scores.shape[:2]
    heads, channels = weight.shape[1:3]
    size, padded = heads * channels, scores.shape[4]
    step = message.strides[0] // message.itemsize
    blocks = (SPAN * channels + CHANNELS - 1) // CHANNELS
    zero = scores.dtype.type(0)
    for r in range(replicas):
        for role in range(2):
            for h in range(heads):
                for c in range(channels):
                    roles[r, 0, role, h * channels + c] = weight[r, h, c, role]
                    if LANES == 2:
                        roles[r, 1, role, h * channels + c] = tangent[r, h, c, role]
    for task in prange(replicas * columns):
        r = task // columns
        j = task - r * columns
        for role in range(_TARGET if j < rows else _SOURCE, 2):
            to = (task * LANES * 2 + role) * padded
            a_at = (r * LANES * 2 + role) * size
            x_at = r * step + j * LANES * size
            for h in range(0, heads, SPAN):
                score = zero_channels(zero)
                for block in range(blocks):
                    # The last block may overlap the one before.
                    c = min(block * CHANNELS, SPAN * channels - CHANNELS)
                    seen = block * CHANNELS - c
                    c += h * channels
                    a = load_dual_channels(roles, a_at + c, 2 * size)
                    if seen > 0:
                        a = without_first(a, seen)
                    score = fma(a, load_dual_channels(message, x_at + c, size), score)
                store_dual(scores, to + h, 2 * padded, totals_channels(score))


def _attention_of_entries(
    index, strength, scores, slope, drop, whole, keys, keep, share, weighted
):
    """Attention before dropout, and with dropout and strength."""
    indptr, columns, entries = index
    dropped, seeds, step, site, threshold, scale, positions = drop
    replicas, num_columns, _, _, padded = scores.shape
    num_entries = keep.shape[1]
    rows = indptr.shape[0] - 1
    zero, one = keep.dtype.type(0), keep.dtype.type(1)
    for r in range(replicas):
        keys[r, 0], keys[r, 1] = _site_keys(seeds[r], step[0], site)
    for task in prange(replicas * rows):
        r = task // rows
        i = task - r * rows
        start, end = indptr[i], indptr[i + 1]
        if dropped:
            key0, key1 = keys[r, 0], keys[r, 1]
            for k in range(start, end):
                e = entries[k]
                for h in range(padded):
                    at = positions[e] + h * whole
                    bits = _draw(key0, key1, np.uint32(at), np.uint32(at >> 32))
                    keep[r, e, h] = scale if bits < threshold else zero
        for first in range(0, padded, HEADS):
            nodes_at = r * num_columns * LANES * 2 * padded + first
            entries_at = r * num_entries * LANES * padded + first
            t_at = nodes_at + i * LANES * 2 * padded
            top = spread_heads(keep.dtype.type(-np.inf))
            for k in range(start, end):
                s_at = nodes_at + columns[k] * LANES * 2 * padded + padded
                at = entries_at + entries[k] * LANES * padded
                score = load_dual_heads(scores, t_at, 2 * padded)
                score = score + load_dual_heads(scores, s_at, 2 * padded)
                score = score * leaky_slope(score, slope)
                store_dual(share, at, padded, score)
                top = largest(value(score), top)
            norm = spread_heads(zero)
            mean = spread_heads(zero)
            for k in range(start, end):
                at = entries_at + entries[k] * LANES * padded
                score = load_dual_heads(share, at, padded)
                power = exponential(value(score) - top)
                store(share, at, power)
                norm = norm + power
                if LANES == 2:
                    mean = fma(power, last(score), mean)
            norm = spread_heads(one) / norm
            mean = mean * norm
            for k in range(start, end):
                e = entries[k]
                at = entries_at + e * LANES * padded
                factor = load_heads(keep, (r * num_entries + e) * padded + first)
                factor = factor * spread_heads(strength[r, e])
                score = load_dual_heads(share, at, padded)
                part = value(score) * norm
                if LANES == 2:
                    attention = dual(part, part * (last(score) - mean))
                else:
                    attention = part
                store_dual(share, at, padded, attention)
                store_dual(weighted, at, padded, attention * factor)


def _weighted_sums(index, weighted, x, heads, roles, to_scores, accumulate, out):
    """Weighted sums over entries; backwards also what comes through the scores.

    Without tangents ``Σ w x``, with them also ``Σ w' x + Σ w x'``, in registers of
    their own, so that neither waits for the other.
    """
    indptr, columns, entries = index
    replicas, rows, out_lanes, size = out.shape
    num_entries, padded = weighted.shape[1], weighted.shape[3]
    channels = size // heads
    blocks = (SPAN * channels + CHANNELS - 1) // CHANNELS
    x_step, out_step = x.strides[0] // x.itemsize, out.strides[0] // out.itemsize
    zero = out.dtype.type(0)
    for task in prange(replicas * rows):
        r = task // rows
        i = task - r * rows
        start, end = indptr[i], indptr[i + 1]
        for h in range(0, heads, SPAN):
            w_at = r * num_entries * LANES * padded + h
            for block in range(blocks):
                # The last block may overlap the one before: those channels are summed
                # twice, to the same numbers.
                c = min(block * CHANNELS, SPAN * channels - CHANNELS)
                seen = block * CHANNELS - c
                c += h * channels
                plain = spread_channels(zero)
                left = spread_channels(zero)
                right = spread_channels(zero)
                if BACKWARDS:
                    for role in range(2):
                        a_at = (r * LANES * 2 + role) * size + c
                        d_at = (task * LANES * 2 + role) * padded + h
                        a = load_dual_channels(roles, a_at, 2 * size)
                        d = repeat_dual_channels(to_scores, d_at, 2 * padded)
                        if not TANGENT_ONLY:
                            plain = fma(value(d), value(a), plain)
                        if LANES == 2:
                            right = fma(value(d), last(a), right)
                            left = fma(last(d), value(a), left)
                x_at = r * x_step + c
                for k in range(start, end):
                    at = w_at + entries[k] * LANES * padded
                    w = repeat_dual_channels(weighted, at, padded)
                    at = x_at + columns[k] * LANES * size
                    numbers = load_dual_channels(x, at, size)
                    if not TANGENT_ONLY:
                        plain = fma(value(w), value(numbers), plain)
                    if LANES == 2:
                        left = fma(last(w), value(numbers), left)
                        right = fma(value(w), last(numbers), right)
                at = r * out_step + i * out_lanes * size + c
                if not TANGENT_ONLY:
                    if accumulate:
                        plain = load_channels(out, at) + without_first(plain, seen)
                    store(out, at, plain)
                if LANES == 2:
                    at += (out_lanes - 1) * size
                    left = left + right
                    if accumulate:
                        left = load_channels(out, at) + without_first(left, seen)
                    store(out, at, left)


def _products_of_entries(index, grad, message, heads, to_entries):
    """``<g_i, m_j>`` of each entry and head."""
    indptr, columns, entries = index
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
                dot = zero_channels(zero)
                for block in range(blocks):
                    # The last block may overlap the one before.
                    c = min(block * CHANNELS, SPAN * channels - CHANNELS)
                    seen = block * CHANNELS - c
                    c += h * channels
                    g = load_dual_channels(grad, g_at + c, size)
                    if seen > 0:
                        g = without_first(g, seen)
                    dot = fma(g, load_dual_channels(message, x_at + c, size), dot)
                store_dual(to_entries, to + h, padded, totals_channels(dot))
            # What was here before may not be a number, and 0 times it neither.
            for h in range(heads, padded):
                for lane in range(LANES):
                    to_entries[r, entries[k], lane, h] = 0


def _attention_back_of_entries(
    index, strength, scores, slope, keep, share, to_entries, to_scores, to_strength
):
    """From gradients by ``K z A`` to those by scores of entries and of targets."""
    indptr, columns, entries = index
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
            mean = zero_heads(zero)
            for k in range(start, end):
                e = entries[k]
                at = entries_at + e * LANES * padded
                kept = load_heads(keep, (r * num_entries + e) * padded + first)
                d = kept * load_dual_heads(to_entries, at, padded)
                by_strength = load_dual_heads(share, at, padded) * d
                z = spread_heads(strength[r, e])
                store_dual(to_entries, at, padded, d * z)
                mean = fma(by_strength, z, mean)
                if to_strength.shape[1] > 0:
                    to_strength[r, e] += total(last(by_strength))
            t_at = nodes_at + i * LANES * 2 * padded
            to_target = zero_heads(zero)
            for k in range(start, end):
                at = entries_at + entries[k] * LANES * padded
                s_at = nodes_at + columns[k] * LANES * 2 * padded + padded
                score = load_heads(scores, t_at) + load_heads(scores, s_at)
                a = load_dual_heads(share, at, padded) * leaky_slope(score, slope)
                to_score = a * (load_dual_heads(to_entries, at, padded) - mean)
                store_dual(to_entries, at, padded, to_score)
                to_target = to_target + to_score
            store_dual(to_scores, t_at, 2 * padded, to_target)


def _source_sums(indptr, entries, to_entries, to_scores):
    """From gradients by scores of entries to those by scores of sources."""
    replicas, num_columns, _, _, padded = to_scores.shape
    num_entries = to_entries.shape[1]
    zero = to_scores.dtype.type(0)
    for task in prange(replicas * num_columns):
        r = task // num_columns
        j = task - r * num_columns
        for first in range(0, padded, HEADS):
            sums = zero_heads(zero)
            for k in range(indptr[j], indptr[j + 1]):
                at = (r * num_entries + entries[k]) * LANES * padded + first
                sums = sums + load_dual_heads(to_entries, at, padded)
            at = (task * LANES * 2 + _SOURCE) * padded + first
            store_dual(to_scores, at, 2 * padded, sums)


def _weight_sums(message, to_scores, chunk_sums, to_weight):
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
        start = (task - r * chunks) * _CHUNK
        for h in range(0, heads, SPAN):
            for block in range(blocks):
                c = h * channels + min(block * CHANNELS, SPAN * channels - CHANNELS)
                target = spread_channels(zero)
                source = spread_channels(zero)
                for j in range(start, min(start + _CHUNK, num_columns)):
                    x_at = r * step + j * LANES * size + c
                    x = load_dual_channels(message, x_at, size)
                    at = (r * num_columns + j) * LANES * 2 * padded + h
                    by_target = repeat_dual_channels(to_scores, at, 2 * padded)
                    target = fma_last(x, by_target, target)
                    by_source = repeat_dual_channels(to_scores, at + padded, 2 * padded)
                    source = fma_last(x, by_source, source)
                store(chunk_sums, (task * 2 + _TARGET) * size + c, target)
                store(chunk_sums, (task * 2 + _SOURCE) * size + c, source)
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


class NumbaAttention(StepKernels):
    """An attention step on the CPU.

    It keeps the weight ``[replicas, lanes, 2, heads * channels]``, the scores of nodes
    ``[replicas, columns, lanes, 2, heads]``, the mask ``[replicas, entries, heads]``,
    and attention before dropout, and after it times strength, ``[replicas, entries,
    lanes, heads]`` each.
    """

    def __init__(self, step: AttentionStep) -> None:
        replicas, columns, lanes, size = step.message.shape
        entries = step.pattern.num_entries
        # Packs of heads; and of channels, or of all channels of several heads.
        self._heads = {"heads": min(1 << (step.heads - 1).bit_length(), 8)}
        self._packs = _packs_of_channels(step)
        width = self._heads["heads"]
        padded = -(-step.heads // width) * width
        new = step.message.new_empty
        self._step = step
        self._roles = new(replicas, lanes, 2, size)
        self._scores = step.message.new_zeros(replicas, columns, lanes, 2, padded)
        self._keep = step.message.new_ones(replicas, entries, padded)
        self._share = new(replicas, entries, lanes, padded)
        self._weighted = new(replicas, entries, lanes, padded)

    def forward(self, out: Tensor) -> list[Call]:
        step, pattern, scores = self._step, self._step.pattern, self._scores
        slope = self._keep.numpy().dtype.type(step.slope)
        drop = drop_arrays(step.drop, step.strength), np.int64(step.whole_entries)
        keys = np.empty((step.strength.shape[0], 2), np.uint32)
        return [
            bind_kernel(
                _compiled(_scores_of_nodes, step.lanes, **self._packs),
                2 * step.message.numel(),
                *(step.message, step.weight, step.tangent, pattern.num_rows),
                *(self._roles, scores),
            ),
            bind_kernel(
                _compiled(_attention_of_entries, step.lanes, **self._heads),
                _SOFTMAX * self._share.numel(),
                *(pattern.arrays, step.strength, scores, slope, *drop),
                *(keys, self._keep, self._share, self._weighted),
            ),
            self._bind_sums(pattern, step.message, scores, out, accumulate=False),
        ]

    def back(self, gradients: Gradients) -> list[Call]:
        step, pattern = self._step, self._step.pattern
        grad_out, to_message, to_weight, to_strength, accumulate = gradients
        replicas, columns, _, size = step.message.shape
        to_entries = torch.empty_like(self._share)
        # Nodes that are no target keep their 0.
        to_scores = torch.zeros_like(self._scores)
        chunk_sums = self._roles.new_empty(replicas, -(-columns // _CHUNK), 2, size)
        if to_strength is None:
            to_strength = step.strength.new_empty(replicas, 0)
        slope = self._keep.numpy().dtype.type(step.slope)
        return [
            bind_kernel(
                _compiled(_products_of_entries, step.lanes, **self._packs),
                to_entries.numel() * step.channels,
                *(pattern.arrays, grad_out, step.message, step.heads, to_entries),
            ),
            bind_kernel(
                _compiled(_attention_back_of_entries, step.lanes, **self._heads),
                _SOFTMAX * to_entries.numel(),
                *(pattern.arrays, step.strength, self._scores, slope, self._keep),
                *(self._share, to_entries, to_scores, to_strength),
            ),
            bind_kernel(
                _compiled(_source_sums, step.lanes, **self._heads),
                to_entries.numel(),
                *(*pattern.T.arrays[::2], to_entries, to_scores),
            ),
            self._bind_sums(
                pattern.T, grad_out, to_scores, to_message, accumulate=accumulate
            ),
            bind_kernel(
                _compiled(_weight_sums, step.lanes, **self._packs),
                2 * step.message.numel(),
                *(step.message, to_scores, chunk_sums, to_weight),
            ),
        ]

    def _bind_sums(
        self,
        pattern: Pattern,
        x: Tensor,
        scores: Tensor,
        out: Tensor,
        *,
        accumulate: bool,
    ) -> Call:
        """Sum ``x`` over the entries, weighted; with one lane less only the tangent.

        On the way back, over those of the transpose, the gradient by the scores is
        pulled back to ``out`` too.
        """
        step, weighted = self._step, self._weighted
        asked = {
            "BACKWARDS": pattern is not step.pattern,
            "TANGENT_ONLY": out.shape[2] < step.lanes,
        }
        return bind_kernel(
            _compiled(_weighted_sums, step.lanes, **self._packs, **asked),
            weighted.numel() * step.channels,
            *(pattern.arrays, weighted, x, step.heads, self._roles, scores),
            *(accumulate, out),
        )


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
