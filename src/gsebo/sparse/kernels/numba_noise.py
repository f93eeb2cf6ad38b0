"""The counter-based random numbers of ``gsebo.sparse.dropout``, inside CPU kernels.

The kernels that use these functions are cached on disk by their own files: after a
change here, those caches have to be removed by hand.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor


class Drop(NamedTuple):
    """Where the randomness of one dropout comes from.

    Seeds and step are tensors, so that a call that was bound once draws new masks when
    they change.

    Attributes:
        seeds: One seed per replica, int64 ``[replicas]``.
        step: Number of the training step, int64 ``[1]``.
        site: Number of the place in the network.
        rate: Probability of dropping.
        positions: Number of each row (or stored value) in the whole graph, int64.
    """

    seeds: Tensor
    step: Tensor
    site: int
    rate: float
    positions: Tensor

    @classmethod
    def none(cls, replicas: int, rows: int) -> Drop:
        """Something to hand over where nothing is dropped."""
        empty = torch.zeros(replicas, dtype=torch.int64)
        return cls(empty, empty[:1], 0, 0.0, torch.zeros(rows, dtype=torch.int64))

    @property
    def threshold(self) -> int:
        """A number is kept if its 32 random bits are below."""
        return max(round((1.0 - self.rate) * 2**32), 1)


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


def drop_arrays(drop: Drop, like: Tensor) -> tuple[Any, ...]:
    """A dropout as kernels take it, for numbers like these."""
    return (
        drop.seeds.numpy(),
        drop.step.numpy(),
        np.int64(drop.site),
        np.uint32(min(drop.threshold, 2**32 - 1)),
        like.numpy().dtype.type(2**32 / drop.threshold),
        drop.positions.numpy(),
    )
