"""The random bits of ``random_bits`` inside Triton programs."""

from typing import Any

import torch
import triton
import triton.language as tl

from gsebo.sparse.kernels.random_bits import Drop, compiled_hash

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators


@triton.jit
def _word(number):
    return number.to(tl.uint32)


draw, site_keys = compiled_hash(triton.jit, tl.constexpr, word=_word, tl=tl)


@triton.jit
def drop_keys(seeds, step, site, replica):
    """Two keys for one place in the network, for one replica."""
    return site_keys(tl.load(seeds + replica), tl.load(step), site)


@triton.jit
def bits_at(keys, position):
    """32 random bits for each position, int64 of any shape."""
    key0, key1 = keys
    return draw(key0, key1, position.to(tl.uint32), (position >> 32).to(tl.uint32))


@triton.jit
def kept(keys, position, threshold, like):
    """Inverse keep rate where the number at ``position`` is kept, 0 elsewhere.

    Args:
        keys: Of the place in the network.
        position: int64, of any shape.
        threshold: int64; kept is what draws fewer.
        like: Pointer to numbers of the wanted type.
    """
    # Computed here, because numbers of the host arrive in single precision.
    scale = (4294967296.0 / threshold.to(tl.float64)).to(like.dtype.element_ty)
    most = tl.minimum(threshold, 0xFFFFFFFF).to(tl.uint32)
    return tl.where(bits_at(keys, position) < most, scale, 0)


def drop_tensors(drop: Drop | None, device: torch.device) -> tuple[Any, ...]:
    """Seeds, step, positions, site and threshold; anything where none is read."""
    if drop is None:
        unread = torch.zeros(1, dtype=torch.int64, device=device)
        return unread, unread, unread, 0, 1
    return drop.seeds, drop.step, drop.positions, drop.site, drop.threshold
