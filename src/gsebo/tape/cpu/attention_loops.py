"""Loops of an attention step on the CPU, forwards, and how all of them are compiled.

What belongs to nodes or entries has the heads side by side, filled up to whole packs:
``[replicas, entries, lanes, heads]``. The heads that fill up are computed like the
others, and read by nobody.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import prange

from gsebo.sparse.kernels.numba_compile import Variants, compile_twice
from gsebo.sparse.kernels.random_bits import NUMBA_HASH
from gsebo.tape.cpu.pack import (
    exponential,
    fma,
    largest,
    leaky_slope,
    packs_of,
    store,
    without_first,
)

TARGET, SOURCE = 0, 1
_draw, _site_keys = NUMBA_HASH
# Stand for what a loop is compiled for: how many lanes there are, how many heads go
# into a pack of one number each, how many channels of how many heads go into a pack,
# and what is asked of the sums over entries.
LANES, HEADS, CHANNELS, SPAN = 1, 1, 1, 1
BACKWARDS, TANGENT_ONLY = False, False
load_heads, spread_heads, _, _ = packs_of(1)
load_channels, spread_channels, repeat_heads, total_by_head = packs_of(1)


@cache
def compiled(
    loop: Any,
    *,
    lanes: int,
    heads: int = 1,
    channels: int = 1,
    span: int = 1,
    backwards: bool = False,
    tangent_only: bool = False,
) -> Variants:
    """Compile a loop for so many lanes and for packs of these sizes."""
    by_head, by_channel = packs_of(heads), packs_of(channels, span)
    return compile_twice(
        loop,
        LANES=lanes,
        HEADS=heads,
        CHANNELS=channels,
        SPAN=span,
        BACKWARDS=backwards,
        TANGENT_ONLY=tangent_only,
        load_heads=by_head.load,
        spread_heads=by_head.spread,
        load_channels=by_channel.load,
        spread_channels=by_channel.spread,
        repeat_heads=by_channel.repeat,
        total_by_head=by_channel.totals,
    )


def scores_of_nodes(message, weight, tangent, rows, roles, scores):  # type: ignore[no-untyped-def]
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
        for role in range(TARGET if j < rows else SOURCE, 2):
            to = (task * LANES * 2 + role) * padded
            a_at = (r * LANES * 2 + role) * size
            x_at = r * step + j * LANES * size
            for h in range(0, heads, SPAN):
                score = spread_channels(zero)
                change = spread_channels(zero)
                for block in range(blocks):
                    # The last block may overlap the one before.
                    c = min(block * CHANNELS, SPAN * channels - CHANNELS)
                    seen = block * CHANNELS - c
                    c += h * channels
                    a = load_channels(roles, a_at + c)
                    if seen > 0:
                        a = without_first(a, seen)
                    x = load_channels(message, x_at + c)
                    score = fma(a, x, score)
                    if LANES == 2:
                        y = load_channels(message, x_at + size + c)
                        change = fma(a, y, change)
                        a = load_channels(roles, a_at + 2 * size + c)
                        if seen > 0:
                            a = without_first(a, seen)
                        change = fma(a, x, change)
                store(scores, to + h, total_by_head(score))
                if LANES == 2:
                    store(scores, to + 2 * padded + h, total_by_head(change))


def attention_of_entries(  # type: ignore[no-untyped-def]
    indptr,
    columns,
    entries,
    strength,
    scores,
    slope,
    dropped,
    seeds,
    step,
    site,
    threshold,
    scale,
    positions,
    whole,
    keys,
    keep,
    share,
    weighted,
):
    """Attention before dropout, and with dropout and strength."""
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
                score = load_heads(scores, t_at) + load_heads(scores, s_at)
                slopes = leaky_slope(score, slope)
                score = score * slopes
                store(share, at, score)
                top = largest(score, top)
                if LANES == 2:
                    change = load_heads(scores, t_at + 2 * padded)
                    change = change + load_heads(scores, s_at + 2 * padded)
                    store(share, at + padded, change * slopes)
            norm = spread_heads(zero)
            mean = spread_heads(zero)
            for k in range(start, end):
                at = entries_at + entries[k] * LANES * padded
                power = exponential(load_heads(share, at) - top)
                store(share, at, power)
                norm = norm + power
                if LANES == 2:
                    mean = fma(power, load_heads(share, at + padded), mean)
            norm = spread_heads(one) / norm
            mean = mean * norm
            for k in range(start, end):
                e = entries[k]
                at = entries_at + e * LANES * padded
                factor = load_heads(keep, (r * num_entries + e) * padded + first)
                factor = factor * spread_heads(strength[r, e])
                part = load_heads(share, at) * norm
                store(share, at, part)
                store(weighted, at, part * factor)
                if LANES == 2:
                    change = part * (load_heads(share, at + padded) - mean)
                    store(share, at + padded, change)
                    store(weighted, at + padded, change * factor)


def weighted_sums(  # type: ignore[no-untyped-def]
    indptr, columns, entries, weighted, x, heads, roles, to_scores, accumulate, out
):
    """Weighted sums over entries; backwards also what comes through the scores.

    Without tangents ``Σ w x``, with them also ``Σ w' x + Σ w x'``.
    """
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
                        a = load_channels(roles, a_at)
                        d = repeat_heads(to_scores, d_at)
                        if not TANGENT_ONLY:
                            plain = fma(d, a, plain)
                        if LANES == 2:
                            right = fma(d, load_channels(roles, a_at + 2 * size), right)
                            d = repeat_heads(to_scores, d_at + 2 * padded)
                            left = fma(d, a, left)
                x_at = r * x_step + c
                for k in range(start, end):
                    at = w_at + entries[k] * LANES * padded
                    w = repeat_heads(weighted, at)
                    w_change = repeat_heads(weighted, at + (LANES - 1) * padded)
                    at = x_at + columns[k] * LANES * size
                    numbers = load_channels(x, at)
                    if not TANGENT_ONLY:
                        plain = fma(w, numbers, plain)
                    if LANES == 2:
                        left = fma(w_change, numbers, left)
                        right = fma(w, load_channels(x, at + size), right)
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
