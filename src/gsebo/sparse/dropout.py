"""Dropout whose mask is a pure function of (seed, step, site, position).

Nothing has to be stored to replay a training step, a run does not depend on the number
of threads, and every device draws the same mask.
"""

import math
from typing import NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.sparse.features import SparseFeatures
from gsebo.sparse.kernels import kernels_for
from gsebo.sparse.kernels.random_bits import site_keys
from gsebo.sparse.symbol import Dropout, Symbol

Numbers = TypeVar("Numbers", bound=Tensor | SparseFeatures)


class Noise(NamedTuple):
    """Names the randomness of one training step; ``None`` in its place means none."""

    seed: int
    step: int

    def keys(self, site: int) -> tuple[int, int]:
        """Two 32-bit keys for one place in the network."""
        keys = site_keys(self.seed, self.step, site)  # type: ignore[no-untyped-call]
        return cast(tuple[int, int], keys)


def dropout(x: Numbers, rate: float, noise: Noise | None, site: int) -> Numbers:
    """Zero each number with probability ``rate`` and scale the rest to keep the mean.

    Sparse features draw for their stored entries only: a zero stays zero either way.

    Args:
        x: Numbers to drop from.
        rate: Probability of dropping, in [0, 1).
        noise: Seed and step, or ``None`` for evaluation.
        site: Number of the place in the network, so that no two share a mask.
    """
    if noise is None or rate == 0.0:
        return x
    if isinstance(x, Symbol):
        return x.then(Dropout(x.node.channels, x.node, site, rate))
    if isinstance(x, SparseFeatures):
        values = x.values * keep_mask(x.values, rate, noise, site)
        return cast(Numbers, SparseFeatures(x.pattern, values))
    return cast(Numbers, x * keep_mask(x, rate, noise, site))


def keep_mask(x: Tensor, rate: float, noise: Noise, site: int) -> Tensor:
    """Mask like ``x``: 0 with probability ``rate``, else ``1 / (1 - rate)``."""
    if not 0.0 <= rate < 1.0:
        raise InvalidInput(f"dropout rate is {rate}, expected a number in [0, 1)")
    threshold = max(round((1.0 - rate) * 2**32), 1)
    mask = kernels_for(x).keep_mask(x.numel(), threshold, noise.keys(site), x)
    return mask.view(x.shape)


def uniform(shape: tuple[int, ...], noise: Noise, site: int, like: Tensor) -> Tensor:
    """Draw numbers in the open interval (0, 1), the same on every device.

    Args:
        shape: Of the result.
        noise: Seed and step.
        site: Number of the place, so that no two share their numbers.
        like: Gives device and type.

    >>> uniform((2,), Noise(0, 1), 3, torch.empty(0)) > 0
    tensor([True, True])
    """
    # The middles of 2^bits intervals are neither 0 nor 1. With one bit more, single
    # precision would round the largest up to 1.
    bits = 23 if like.dtype == torch.float32 else 32
    kernels = kernels_for(like)
    drawn = kernels.uniform(math.prod(shape), bits, noise.keys(site), like)
    return drawn.view(shape)
