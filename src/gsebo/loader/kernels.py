"""Random or chosen parts of the rows of a sparse matrix, as numba loops for the CPU.

Row ``i`` holds the positions ``indptr[i]`` to ``indptr[i + 1]`` of ``columns``, sorted,
each column once. The arrays may be mapped from files: work and memory grow with what is
asked for, not with the matrix.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from gsebo.errors import InvalidInput
from gsebo.sparse.numba_compile import (
    compile_kernel,
    compile_twice,
    run_kernel,
)
from gsebo.sparse.operators import Noise
from gsebo.sparse.random_bits import NUMBA_HASH

Integers = NDArray[np.int64]

# Each round halves what is left of the first order; so many mix more numbers than any
# memory holds.
_ROUNDS = 90
_LONGEST = 2**32
# A read at a random place of a large array takes as long as so many multiplications.
_WORK_PER_READ = 32
_draw = NUMBA_HASH.draw


def _keys(noise: Noise, site: int) -> tuple[np.uint32, ...]:
    """Four words for a place, of which the number after it is taken too."""
    words = (*noise.keys(site), *noise.keys(site + 1))
    return tuple(np.uint32(word) for word in words)


def shuffled(places: Integers, length: int, noise: Noise, site: int) -> Integers:
    """Numbers at some places of a random order of ``range(length)``.

    The order is a pure function of (seed, step, site, length), and only what is asked
    for is worked out ("swap or not": Hoang, Morris and Rogaway, CRYPTO 2012).

    >>> sorted(shuffled(np.arange(5), 5, Noise(0, 1), 3).tolist())
    [0, 1, 2, 3, 4]
    """
    if length > _LONGEST:
        raise InvalidInput(f"{length} things to shuffle; expected at most {_LONGEST}.")
    out = np.empty(len(places), np.int64)
    _shuffle(places, length, _keys(noise, site), out)
    return out


@compile_kernel
def _shuffle(places, length, keys, out):  # type: ignore[no-untyped-def]
    for k in range(places.shape[0]):
        number = np.int64(places[k])
        for turn in range(_ROUNDS):
            bits = _draw(keys[0], keys[1], np.uint32(turn), np.uint32(0))
            pivot = np.int64((np.uint64(bits) * np.uint64(length)) >> np.uint64(32))
            partner = pivot - number
            if partner < 0:
                partner += length
            # Both of a pair ask the same question, so they swap or neither moves.
            larger = np.uint32(max(number, partner))
            if _draw(keys[2], keys[3], larger, np.uint32(turn)) >> np.uint32(31):
                number = partner
        out[k] = number


class CSRRows(NamedTuple):
    """A sparse matrix as the loops read it."""

    indptr: Integers
    columns: NDArray[Any]

    @classmethod
    def of(cls, indptr: NDArray[Any], columns: NDArray[Any]) -> "CSRRows":
        """Views that are neither mapped nor writable, so that one loop serves all."""
        return cls(_plain(indptr), _plain(columns))

    def counts(self, rows: Integers) -> Integers:
        """Number of positions in some rows."""
        return self.indptr[rows + 1] - self.indptr[rows]


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def sample_rows(
    matrix: CSRRows, rows: Integers, counts: Integers, noise: Noise, site: int
) -> tuple[Integers, Integers]:
    """Draw so many positions from each row, uniformly and without replacement.

    What is drawn from a row is a pure function of (seed, step, site, row, count). The
    rows are different ones, and the counts at most what they hold. Found are positions
    in the matrix, row after row and ascending within each, and their columns.
    """
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    out = np.empty(total, np.int64), np.empty(total, np.int64)
    drawn = (rows, ends - counts, counts, _keys(noise, site))
    run_kernel(_sample, _WORK_PER_READ * total, *matrix, *drawn, *out)
    return out


@njit(inline="always")
def _below(keys, position, bound):  # type: ignore[no-untyped-def]
    """A number in [0, bound), bound at most 2^32: the high half of 64 bits times it."""
    low = np.uint32(position & 0xFFFFFFFF)
    high = np.uint32(position >> 32)
    upper = np.uint64(_draw(keys[0], keys[1], low, high)) * np.uint64(bound)
    lower = np.uint64(_draw(keys[2], keys[3], low, high)) * np.uint64(bound)
    return np.int64((upper + (lower >> np.uint64(32))) >> np.uint64(32))


@njit(inline="always")
def _place(ascending, begin, end, wanted):  # type: ignore[no-untyped-def]
    """The first place in a stretch that holds ``wanted`` or more, or its end."""
    low, high = begin, end
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compile_twice
def _sample(  # type: ignore[no-untyped-def]
    indptr, columns, rows, begins, counts, keys, out_positions, out_columns
):
    for k in prange(rows.shape[0]):
        first, begin, count = indptr[rows[k]], begins[k], counts[k]
        spare = indptr[rows[k] + 1] - first - count
        for number in range(count):
            end = begin + number
            # Robert Floyd's choice: so many draws as there are positions to choose,
            # whatever the length of the row. No two draws share a position as counter.
            last = first + spare + number
            place = end
            picked = last
            if spare > 0:
                drawn = first + _below(keys, first + number, spare + number + 1)
                found = _place(out_positions, begin, end, drawn)
                if found == end or out_positions[found] != drawn:
                    place, picked = found, drawn
            for moved in range(end, place, -1):
                out_positions[moved] = out_positions[moved - 1]
            out_positions[place] = picked
        for slot in range(begin, begin + count):
            out_columns[slot] = columns[out_positions[slot]]


class Induced(NamedTuple):
    """The positions of some rows whose columns are among the same numbers."""

    positions: Integers  # In the matrix, ascending.
    columns: Integers  # As places among the chosen numbers.
    counts: Integers  # Of each row.


def induced_rows(matrix: CSRRows, chosen: Integers) -> Induced:
    """Find the part of a square matrix whose rows and columns are chosen.

    The chosen numbers ascend, each once.
    """
    held = matrix.counts(chosen)
    begin = np.cumsum(held) - held
    total = int(held.sum())
    places, counts = np.empty(total, np.int64), np.empty(len(chosen), np.int64)
    arguments = (*matrix, chosen, begin, places, counts)
    run_kernel(_induced, _WORK_PER_READ * total, *arguments)
    found = np.flatnonzero(places >= 0)
    columns = places[found]
    found += np.repeat(matrix.indptr[chosen] - begin, counts)
    return Induced(found, columns, counts)


@compile_twice
def _induced(  # type: ignore[no-untyped-def]
    indptr, columns, chosen, begins, out_places, out_counts
):
    for k in prange(chosen.shape[0]):
        slot, low, count = begins[k], 0, 0
        for position in range(indptr[chosen[k]], indptr[chosen[k] + 1]):
            wanted = columns[position]
            # Columns ascend: the next one is not left of this one.
            low = _place(chosen, low, chosen.shape[0], wanted)
            if low < chosen.shape[0] and chosen[low] == wanted:
                out_places[slot] = low
                count += 1
            else:
                out_places[slot] = -1
            slot += 1
        out_counts[k] = count
