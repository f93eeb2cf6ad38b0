"""The random bits of ``random_bits`` inside Triton programs."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from gsebo.sparse.random_bits import Drop, compiled_hash

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators


@triton.jit
def _word(number):
    return number.to(tl.uint32)


draw, site_keys = compiled_hash(triton.jit, tl.constexpr, word=_word, tl=tl)


class DropTensors(NamedTuple):
    """A dropout as programs take it, in one argument; ``place`` is site, threshold."""

    seeds: Tensor
    step: Tensor
    place: Tensor
    positions: Tensor


def drop_tensors(drop: Drop | None) -> DropTensors | None:
    """Put the numbers of a dropout where programs read them."""
    if drop is None:
        return None
    place = torch.tensor([drop.site, drop.threshold], device=drop.seeds.device)
    return DropTensors(drop.seeds, drop.step, place, drop.positions)


@triton.jit
def drop_keys(drop, replica):
    """Two keys for one place in the network, for one replica, and the threshold."""
    seed, step = tl.load(drop.seeds + replica), tl.load(drop.step)
    return site_keys(seed, step, tl.load(drop.place)), tl.load(drop.place + 1)


@triton.jit
def bits_at(keys, position):
    """32 random bits for each position, int64 of any shape."""
    key0, key1 = keys
    return draw(key0, key1, position.to(tl.uint32), (position >> 32).to(tl.uint32))


@triton.jit
def kept(keys, position, like):
    """Inverse keep rate where the number at ``position`` is kept, 0 elsewhere.

    Positions are int64 of any shape; ``like`` points to numbers of the wanted type.
    """
    keys, threshold = keys
    # Computed here, because numbers of the host arrive in single precision.
    scale = (4294967296.0 / threshold.to(tl.float64)).to(like.dtype.element_ty)
    most = tl.minimum(threshold, 0xFFFFFFFF).to(tl.uint32)
    return tl.where(bits_at(keys, position) < most, scale, 0)
