"""``dropout(activation(z + bias))`` and its way back, on the CPU, in one pass each.

Arrays are ``[replicas, rows, lanes, channels]``; lane 1 holds tangents. A mask is drawn
where it is used, so that none is stored.
"""

from typing import Any

import numpy as np
from numba import prange

from gsebo.sparse.kernels.numba_compile import Variants, compile_twice
from gsebo.sparse.kernels.numba_exponential import exponential_of
from gsebo.sparse.kernels.numba_noise import draw, site_keys

# Rows that one task takes. Sums over rows are made chunk by chunk, so that they do not
# depend on the number of threads.
CHUNK = 1024
_RELU, _ELU = 1, 2
_KINDS = {"identity": 0, "relu": _RELU, "elu": _ELU}
# What happens with the gradient by z: it is where that by the result was, or it is
# written somewhere else, or it is added there.
IN_PLACE, WRITE, ADD = 0, 1, 2
# Stands for whichever of them a kernel is compiled for.
_KIND = 0


def _pointwise(  # type: ignore[no-untyped-def]
    z, bias, bias_tangent, dropped, seeds, step, site, threshold, scale, positions, out
):
    replicas, rows, lanes, channels = out.shape
    chunks = (rows + CHUNK - 1) // CHUNK
    zero, one = out.dtype.type(0), out.dtype.type(1)
    biased = bias.shape[1] > 0
    for task in prange(replicas * chunks):
        r = task // chunks
        start = (task - r * chunks) * CHUNK
        key0, key1 = site_keys(seeds[r], step[0], site)
        for i in range(start, min(start + CHUNK, rows)):
            first = positions[i] * channels
            for c in range(channels):
                factor = one
                if dropped:
                    at = first + c
                    bits = draw(key0, key1, np.uint32(at), np.uint32(at >> 32))
                    factor = scale if bits < threshold else zero
                x = z[r, i, 0, c]
                if biased:
                    x += bias[r, c]
                slope, y = one, x
                if _KIND == _RELU:
                    # Not max(x, 0): NaN has to stay.
                    y = zero if x <= 0 else x
                    slope = zero if x <= 0 else one
                elif _KIND == _ELU:
                    power = exponential_of(min(x, zero))
                    slope = power if x <= 0 else one
                    y = power - one if x <= 0 else x
                out[r, i, 0, c] = y * factor
                if lanes == 2:
                    t = z[r, i, 1, c]
                    if biased:
                        t += bias_tangent[r, c]
                    out[r, i, 1, c] = t * slope * factor


def _pointwise_back(  # type: ignore[no-untyped-def]
    z,
    bias,
    bias_tangent,
    dropped,
    seeds,
    step,
    site,
    threshold,
    scale,
    positions,
    grad,
    mode,
    grad_z,
    chunk_sums,
    grad_bias,
):
    replicas, rows, lanes, channels = grad.shape
    chunks = (rows + CHUNK - 1) // CHUNK
    zero, one = grad.dtype.type(0), grad.dtype.type(1)
    biased = bias.shape[1] > 0
    for task in prange(replicas * chunks):
        r = task // chunks
        chunk = task - r * chunks
        key0, key1 = site_keys(seeds[r], step[0], site)
        sums = chunk_sums[r, chunk]
        sums[:] = 0
        for i in range(chunk * CHUNK, min((chunk + 1) * CHUNK, rows)):
            first = positions[i] * channels
            # Nobody reads the gradient of the result again: it is overwritten.
            for c in range(channels):
                factor = one
                if dropped:
                    at = first + c
                    bits = draw(key0, key1, np.uint32(at), np.uint32(at >> 32))
                    factor = scale if bits < threshold else zero
                x = z[r, i, 0, c]
                if biased:
                    x += bias[r, c]
                slope = one
                if _KIND == _RELU:
                    slope = zero if x <= 0 else one
                elif _KIND == _ELU:
                    power = exponential_of(min(x, zero))
                    slope = power if x <= 0 else one
                g = grad[r, i, 0, c] * factor
                if lanes == 2:
                    last = grad[r, i, 1, c] * factor * slope
                    if _KIND == _ELU:
                        t = z[r, i, 1, c]
                        if biased:
                            t += bias_tangent[r, c]
                        last += g * t * (slope if x <= 0 else zero)
                    grad[r, i, 1, c] = last
                grad[r, i, 0, c] = g * slope
            if mode != IN_PLACE:
                for lane in range(lanes):
                    for c in range(channels):
                        before = grad_z[r, i, lane, c] if mode == ADD else zero
                        grad_z[r, i, lane, c] = before + grad[r, i, lane, c]
            if biased:
                last_lane = grad[r, i, lanes - 1]
                for c in range(channels):
                    sums[c] += last_lane[c]
    if biased:
        for r in range(replicas):
            for c in range(channels):
                total = zero
                for chunk in range(chunks):
                    total += chunk_sums[r, chunk, c]
                grad_bias[r, c] += total


def _for_each_kind(kernel: Any) -> dict[str, Variants]:
    # Without any liberty for the compiler: whether it fuses a product and a sum may
    # depend on the layout of the arrays, and a replica has to equal its run alone.
    return {
        name: compile_twice(kernel, f"_{name}", _KIND=kind)
        for name, kind in _KINDS.items()
    }


POINTWISE = _for_each_kind(_pointwise)
POINTWISE_BACK = _for_each_kind(_pointwise_back)
