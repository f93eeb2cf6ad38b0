"""From the ids of a node table to positions in it."""

from typing import final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# Ids up to so many times the number of nodes are looked up in a plain table.
_TABLE_PER_NODE = 8


@final
class NodeNumbers:
    """Finds the position of each id; memory grows with the number of nodes only.

    Args:
        ids: Distinct integers.
    """

    def __init__(self, ids: Ints) -> None:
        self.ids = ids
        self._low = int(ids.min())
        span = int(ids.max()) - self._low + 1
        self._table: NDArray[np.int32] | None = None
        if span <= _TABLE_PER_NODE * len(ids):
            self._table = np.full(span, -1, np.int32)
            self._table[ids - self._low] = np.arange(len(ids), dtype=np.int32)
        else:
            self._order = np.argsort(ids)
            self._sorted = ids[self._order]

    def find(self, wanted: Ints) -> Ints:
        """Positions of ids, -1 for those that nobody has."""
        if self._table is not None:
            inside = (wanted >= self._low) & (wanted - self._low < len(self._table))
            places = self._table[np.where(inside, wanted - self._low, 0)]
            return np.where(inside, places, -1).astype(np.int64)
        near = np.searchsorted(self._sorted, wanted).clip(max=len(self.ids) - 1)
        return np.where(self._sorted[near] == wanted, self._order[near], -1)


def first_repeated(ids: Ints) -> tuple[int, int] | None:
    """Position of the first id that was there before, and where it was."""
    order = np.argsort(ids, kind="stable")
    later = np.flatnonzero(ids[order[1:]] == ids[order[:-1]])
    if not len(later):
        return None
    place = int(order[1:][later].min())
    return place, int(np.flatnonzero(ids[:place] == ids[place])[0])
