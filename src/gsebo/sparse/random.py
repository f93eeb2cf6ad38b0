"""Uniform numbers that are a pure function of (seed, step, site, position)."""

import math

import torch
from torch import Tensor

from gsebo.sparse.dropout import Noise
from gsebo.sparse.kernels import kernels_for


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
    drawn: Tensor = kernels.uniform(math.prod(shape), bits, noise.keys(site), like)
    return drawn.view(shape)
