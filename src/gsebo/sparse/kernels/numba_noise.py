"""The counter-based random numbers of ``gsebo.sparse.dropout``, inside CPU kernels.

The kernels that use these functions are cached on disk by their own files: after a
change here, those caches have to be removed by hand.
"""

from typing import Any

import numpy as np
from numba import njit
from torch import Tensor

from gsebo.sparse.kernels.drop import Drop

_INLINED: dict[str, Any] = {"cache": True, "nogil": True, "inline": "always"}


@njit(**_INLINED)
def mix(h):  # type: ignore[no-untyped-def]
    """Mix 32 bits."""
    # numba widens every sum and product to 64 bits; the casts fold it back.
    h = np.uint32(h ^ (h >> np.uint32(16)))
    h = np.uint32(h * np.uint32(0x7FEB352D))
    h = np.uint32(h ^ (h >> np.uint32(15)))
    h = np.uint32(h * np.uint32(0x846CA68B))
    return np.uint32(h ^ (h >> np.uint32(16)))


@njit(**_INLINED)
def draw(key0, key1, low, high):  # type: ignore[no-untyped-def]
    """32 random bits for a position that is given as two words."""
    h = mix(np.uint32(low + key0))
    spread = np.uint32(high * np.uint32(0x9E3779B9))
    return mix(np.uint32(h ^ key1 ^ spread))


@njit(cache=True, nogil=True)
def site_keys(seed, step, site):  # type: ignore[no-untyped-def]
    """Two keys for one place in the network, as ``Noise.keys`` gives them."""
    key = np.uint32(0x243F6A88)
    for number in (seed, seed >> 32, step, step >> 32, np.int64(site)):
        word = np.uint32(number & 0xFFFFFFFF)
        key = mix(np.uint32(key + word + np.uint32(0x9E3779B9)))
    return key, mix(np.uint32(key ^ np.uint32(0x85A308D3)))


def drop_arguments(drop: Drop, like: Tensor) -> tuple[Any, ...]:
    """A dropout as kernels take it, for numbers like these."""
    return (
        drop.seeds.numpy(),
        drop.step.numpy(),
        np.int64(drop.site),
        np.uint32(min(drop.threshold, 2**32 - 1)),
        like.numpy().dtype.type(2**32 / drop.threshold),
        drop.positions.numpy(),
    )
