"""A random order of any length that is never laid out, as a numba loop for the CPU."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from gsebo.errors import InvalidInput
from gsebo.sparse.dropout import Noise
from gsebo.sparse.kernels.numba_noise import draw

# Each round halves what is left of the first order; so many mix more numbers than any
# memory holds.
_ROUNDS = 90
_LONGEST = 2**32


def shuffled(
    places: NDArray[np.int64], length: int, noise: Noise, site: int
) -> NDArray[np.int64]:
    """Numbers at some places of a random order of ``range(length)``.

    The order is a pure function of (seed, step, site, length), and only what is asked
    for is worked out ("swap or not": Hoang, Morris and Rogaway, CRYPTO 2012).

    >>> sorted(shuffled(np.arange(5), 5, Noise(0, 1), 3).tolist())
    [0, 1, 2, 3, 4]

    Args:
        places: Where to look, in ``[0, length)``.
        length: Of the order.
        noise: Seed and step.
        site: Number of the place; the one after it is taken too.
    """
    if length > _LONGEST:
        raise InvalidInput(f"{length} things to shuffle; expected at most {_LONGEST}.")
    words = (*noise.keys(site), *noise.keys(site + 1))
    out = np.empty(len(places), np.int64)
    _shuffle(places, length, tuple(np.uint32(word) for word in words), out)
    return out


@njit(cache=True, nogil=True)
def _shuffle(places, length, keys, out):  # type: ignore[no-untyped-def]
    for k in range(places.shape[0]):
        number = np.int64(places[k])
        for turn in range(_ROUNDS):
            bits = draw(keys[0], keys[1], np.uint32(turn), np.uint32(0))
            pivot = np.int64((np.uint64(bits) * np.uint64(length)) >> np.uint64(32))
            partner = pivot - number
            if partner < 0:
                partner += length
            # Both of a pair ask the same question, so they swap or neither moves.
            larger = np.uint32(max(number, partner))
            if draw(keys[2], keys[3], larger, np.uint32(turn)) >> np.uint32(31):
                number = partner
        out[k] = number
