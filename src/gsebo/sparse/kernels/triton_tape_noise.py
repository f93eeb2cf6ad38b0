"""The counter-based random numbers of ``gsebo.sparse.dropout``, inside GPU kernels."""

# mypy: allow-untyped-defs, allow-incomplete-defs
# mypy: allow-untyped-calls, allow-untyped-decorators
import triton
import triton.language as tl


@triton.jit
def mix(h):
    """Mix 32 bits."""
    h = h ^ (h >> 16)
    h = h * 0x7FEB352D
    h = h ^ (h >> 15)
    h = h * 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def _absorb(key, number):
    key = mix(key + number.to(tl.uint32) + 0x9E3779B9)
    return mix(key + (number >> 32).to(tl.uint32) + 0x9E3779B9)


@triton.jit
def site_keys(seeds, step, site, replica):
    """Two keys for one place in the network, as ``Noise.keys`` gives them."""
    key = tl.full([], 0x243F6A88, tl.uint32)
    key = _absorb(key, tl.load(seeds + replica))
    key = _absorb(key, tl.load(step))
    key = mix(key + site.to(tl.uint32) + 0x9E3779B9)
    return key, mix(key ^ 0x85A308D3)


@triton.jit
def kept(keys, position, threshold, like):
    """Inverse keep rate where the number at ``position`` is kept, 0 elsewhere.

    Args:
        keys: Of the place in the network.
        position: int64, of any shape.
        threshold: int64; kept is what draws fewer.
        like: Pointer to numbers of the wanted type.
    """
    key0, key1 = keys
    h = mix(position.to(tl.uint32) + key0)
    spread = (position >> 32).to(tl.uint32) * 0x9E3779B9
    h = mix(h ^ key1 ^ spread)
    # Computed here, because numbers of the host arrive in single precision.
    scale = (4294967296.0 / threshold.to(tl.float64)).to(like.dtype.element_ty)
    most = tl.minimum(threshold, 0xFFFFFFFF).to(tl.uint32)
    return tl.where(h < most, scale, 0)
