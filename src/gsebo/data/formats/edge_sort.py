"""Sort more edges than fit in memory, by target and then source."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

LARGEST_COUNT = 2**31 - 1
"""Most nodes that a graph may have: two of their numbers fit in one of 64 bits."""
_BITS = 32


@final
class Repetition(NamedTuple):
    """A row that holds the same edge as an earlier one.

    Attributes:
        row: Number of the row.
        earlier: Number of the first row with this edge.
        source: Source of the edge.
        target: Its target.
    """

    row: int
    earlier: int
    source: int
    target: int


@final
class EdgeSorter:
    """Takes edges in any order, gives them sorted and each once.

    Sorted runs go to files; then all runs are merged, a little of each at a time.

    Args:
        folder: An existing folder for the runs.
        run_edges: Edges that are held in memory at once.
        with_rows: Whether to remember the row that each edge came from, which makes
            :attr:`first_repetition` known and takes twice the room.

    Attributes:
        added: Number of edges given.
        first_repetition: After :meth:`merged`, the first row that repeats another.
    """

    def __init__(
        self, folder: Path, *, run_edges: int = 2**22, with_rows: bool = False
    ) -> None:
        self._folder = folder
        self._keys: Ints = np.empty(run_edges, np.int64)
        self._rows: Ints | None = np.empty(run_edges, np.int64) if with_rows else None
        self._held = 0
        self._lengths: list[int] = []
        self._room = run_edges
        self.added = 0
        self.first_repetition: Repetition | None = None

    def add(self, source: Ints, target: Ints, row: Ints | None = None) -> None:
        """Take edges; ``row`` are the numbers of their rows, rising, if wanted."""
        keys = (target << _BITS) | source
        self.added += len(keys)
        begin = 0
        while begin < len(keys):
            count = min(len(keys) - begin, self._room - self._held)
            here = slice(self._held, self._held + count)
            self._keys[here] = keys[begin : begin + count]
            if self._rows is not None and row is not None:
                self._rows[here] = row[begin : begin + count]
            self._held += count
            begin += count
            if self._held == self._room:
                self._spill()

    def merged(self) -> Iterator[tuple[Ints, Ints]]:
        """Sources and targets of all distinct edges, in order, in pieces."""
        if self._held:
            self._spill()
        with_rows = self._rows is not None
        # What follows needs the memory.
        self._keys, self._rows = np.empty(0, np.int64), None
        at_once = max(self._room // max(len(self._lengths), 1), 1)
        runs = [
            _Run(self._folder, number, length, at_once, with_rows)
            for number, length in enumerate(self._lengths)
        ]
        while pieces := self._next_pieces(runs):
            keys = np.concatenate([piece for piece, _ in pieces])
            if with_rows:
                rows = np.concatenate([rows for _, rows in pieces])
                keys, _ = self._distinct(keys, rows)
            else:
                keys.sort()
                keys = keys[_firsts(keys)]
            yield keys & (2**_BITS - 1), keys >> _BITS

    def _next_pieces(self, runs: list["_Run"]) -> list[tuple[Ints, Ints]]:
        """The least keys of all runs, up to where every run is known."""
        for run in runs:
            run.refill()
        ends = [int(run.keys[-1]) for run in runs if run.has_more]
        pieces = [run.take(min(ends, default=None)) for run in runs]
        return [piece for piece in pieces if len(piece[0])]

    def _spill(self) -> None:
        """Write what is held as one sorted run without repetitions."""
        keys = self._keys[: self._held]
        path = self._folder / f"{len(self._lengths)}"
        if self._rows is None:
            keys.sort()
            keys = keys[_firsts(keys)]
        else:
            keys, rows = self._distinct(keys, self._rows[: self._held])
            rows.tofile(path.with_suffix(".rows"))
        keys.tofile(path.with_suffix(".keys"))
        self._lengths.append(len(keys))
        self._held = 0

    def _distinct(self, keys: Ints, rows: Ints) -> tuple[Ints, Ints]:
        """Sort by key, keep the first row of each, and notice the others.

        No repetition escapes: the first two rows of an edge are either in one run, or
        each is the first of its run and they meet when the runs are merged.
        """
        order = np.argsort(keys)
        found = keys[order]
        first = _firsts(found)
        if not first.all():
            # Many times slower, and needed only where the order of equals matters.
            order = np.lexsort((rows, keys))
            found = keys[order]
            groups = np.flatnonzero(first)
            again = np.flatnonzero(~first)
            place = int(again[np.argmin(rows[order[again]])])
            earlier = int(groups[np.searchsorted(groups, place) - 1])
            key = int(found[place])
            candidate = Repetition(
                int(rows[order[place]]),
                int(rows[order[earlier]]),
                key & (2**_BITS - 1),
                key >> _BITS,
            )
            known = self.first_repetition
            if known is None or candidate.row < known.row:
                self.first_repetition = candidate
        return found[first], rows[order[first]]


@final
class _Run:
    """A sorted run on disk, of which a part is in memory."""

    def __init__(
        self, folder: Path, number: int, length: int, at_once: int, with_rows: bool
    ) -> None:
        self._path = folder / f"{number}.keys"
        self._rows_path = folder / f"{number}.rows" if with_rows else None
        self._length, self._at_once, self._read = length, at_once, 0
        self.keys: Ints = np.empty(0, np.int64)
        self._rows: Ints = np.empty(0, np.int64)

    @property
    def has_more(self) -> bool:
        """Whether the part in memory is not the last."""
        return self._read < self._length

    def refill(self) -> None:
        """Read on if nothing is left in memory."""
        if len(self.keys) or not self.has_more:
            return
        count = min(self._at_once, self._length - self._read)
        self.keys = self._next(self._path, count)
        if self._rows_path is not None:
            self._rows = self._next(self._rows_path, count)
        self._read += count

    def _next(self, path: Path, count: int) -> Ints:
        return np.fromfile(path, np.int64, count, offset=8 * self._read)

    def take(self, end: int | None) -> tuple[Ints, Ints]:
        """Give away the keys up to and with ``end``, or all."""
        cut = len(self.keys)
        if end is not None:
            cut = int(np.searchsorted(self.keys, end, side="right"))
        piece = self.keys[:cut], self._rows[:cut]
        self.keys, self._rows = self.keys[cut:], self._rows[cut:]
        return piece


def _firsts(keys: Ints) -> NDArray[np.bool_]:
    """Which of sorted keys differ from the one before them."""
    first = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return first
