"""Random bits as a pure function of where they are used: a hash of names and counters.

The formula is written once, in Python, for whole numbers and for torch's integers. All
that a language has to say is how it cuts a number to 32 bits: with its own ``word``,
numba and Triton compile the same source.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

# Without types: Triton would evaluate them.
# mypy: allow-untyped-defs, allow-untyped-calls


def word(number):
    """The last 32 bits of a number."""
    return number & 0xFFFFFFFF


# Of the mixer, of the counter's other half, and where keys begin.
FIRST, SECOND, GOLDEN = 0x7FEB352D, 0x846CA68B, 0x9E3779B9
BEGIN, OTHER = 0x243F6A88, 0x85A308D3
HALF, LESS = 16, 15


def mix(h):
    """Mix 32 bits."""
    h = word(h ^ (h >> HALF))
    h = word(h * FIRST)
    h = word(h ^ (h >> LESS))
    h = word(h * SECOND)
    return word(h ^ (h >> HALF))


def draw(key0, key1, low, high):
    """32 random bits for a position that is given as two words."""
    h = mix(word(low + key0))
    return mix(word(h ^ key1 ^ word(high * GOLDEN)))


def absorb(key, number):
    """The key with the last 32 bits of a number mixed into it."""
    return mix(word(word(number) + key + GOLDEN))


def site_keys(seed, step, site):
    """Two keys for one place in the network, from 64 bits of seed and of step."""
    key = absorb(BEGIN, seed)
    key = absorb(key, seed >> 32)
    key = absorb(key, step)
    key = absorb(key, step >> 32)
    key = absorb(key, site)
    return key, mix(word(key ^ OTHER))


class Hash(NamedTuple):
    """The formula in one language."""

    draw: Any
    site_keys: Any


def compiled_hash(
    compiler: Callable[[Any], Any], constant: Callable[[int], Any], **names: Any
) -> Hash:
    """Compile the formula, with ``constant`` making a word of its language of a number.

    Among the global ``names`` is ``word``, which cuts a number to 32 bits.
    """
    names["__name__"] = __name__
    for name in ("FIRST", "SECOND", "GOLDEN", "BEGIN", "OTHER", "HALF", "LESS"):
        names[name] = constant(globals()[name])
    for function in (mix, draw, absorb, site_keys):
        copy = FunctionType(function.__code__, names, function.__name__)
        names[function.__name__] = compiler(copy)
    return Hash(names["draw"], names["site_keys"])


def _inlined(function: Any) -> Any:
    # Both keys are made once for many numbers: only what is in the loop is inlined.
    inline = "always" if function.__name__ in ("mix", "draw") else "never"
    return njit(cache=True, nogil=True, inline=inline)(function)


# numba widens every sum and product to 64 bits; the casts fold it back.
NUMBA_HASH = compiled_hash(_inlined, np.uint32, word=np.uint32)


class Drop(NamedTuple):
    """Where the randomness of one dropout comes from.

    Seeds and step are tensors, so that a call that was bound once draws new masks when
    they change.
    """

    seeds: Tensor  # one per replica, int64
    step: Tensor  # number of the training step, int64 [1]
    site: int  # number of the place in the network
    rate: float  # probability of dropping
    positions: Tensor  # of each row, or stored value, in the whole graph, int64

    @property
    def threshold(self) -> int:
        """A number is kept if its 32 random bits are below."""
        return max(round((1.0 - self.rate) * 2**32), 1)


def drop_arrays(drop: Drop | None, like: Tensor) -> tuple[Any, ...]:
    """A dropout of numbers like these, as kernels of the CPU take it.

    First comes whether there is any.
    """
    if drop is None:
        zeros = (torch.zeros(size, dtype=torch.int64) for size in (*like.shape[:2], 1))
        seeds, positions, step = zeros
        return False, *drop_arrays(Drop(seeds, step, 0, 0.0, positions), like)[1:]
    return (
        True,
        drop.seeds.numpy(),
        drop.step.numpy(),
        np.int64(drop.site),
        np.uint32(min(drop.threshold, 2**32 - 1)),
        like.numpy().dtype.type(2**32 / drop.threshold),
        drop.positions.numpy(),
    )
