"""Random numbers that depend on the seed alone."""

from numbers import Integral

import numpy as np

from gsebo.errors import InvalidInput

_END = 2**63


def seeded_generator(seed: int) -> np.random.Generator:
    """Return a generator whose stream is the same on every machine."""
    whole = isinstance(seed, Integral) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < _END:
        raise InvalidInput(
            f"seed={seed!r:.40}: expected an integer from 0 to 2^63 - 1."
        )
    return np.random.Generator(np.random.PCG64(int(seed)))
