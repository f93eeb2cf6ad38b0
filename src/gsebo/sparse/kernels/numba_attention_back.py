"""Loops of an attention step on the CPU, backwards.

With ``g`` the gradient by the result, ``A`` the attention before dropout, ``K`` the
mask, ``z`` the strength and ``m`` the messages, an entry's share of the gradient is

    q = <g_i, m_j>,  d = K z q,  gradient by its score = (A d - A Σ A d) * slope,

and every product has the tangent that the rule for products gives it. The leaky ReLU
has no second derivative.
"""

from numba import prange

from gsebo.sparse.kernels.numba_attention_loops import (
    CHANNELS,
    HEADS,
    LANES,
    SOURCE,
    SPAN,
    TARGET,
    load_channels,
    load_heads,
    repeat_heads,
    spread_channels,
    spread_heads,
    total_by_head,
)
from gsebo.sparse.kernels.numba_pack import (
    fma,
    leaky_slope,
    store,
    total,
    without_first,
)

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
