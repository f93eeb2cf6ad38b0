"""Random numbers that depend on the seed alone."""

import numpy as np

from gsebo.errors import InvalidInput


def seeded_generator(seed: int) -> np.random.Generator:
    """Return a generator whose stream is the same on every machine."""
    if seed < 0:
        raise InvalidInput(f"seed={seed}: expected 0 or more.")
    return np.random.Generator(np.random.PCG64(seed))
