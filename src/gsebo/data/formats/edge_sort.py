"""Sort more edges than fit in memory, by target and then source."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from gsebo.data.seeding import first_of_each

Ints = NDArray[np.int64]
# Keys of edges, and the rows that they came from where these are wanted.
Columns = list[Ints]

LARGEST_COUNT = 2**31 - 1
"""Most nodes that a graph may have: two of their numbers fit in one of 64 bits."""
_BITS = 32


@final
class Repetition(NamedTuple):
    """A row that holds the same edge as an earlier one."""

    row: int
    earlier: int
    source: int
    target: int


@final
class EdgeSorter:
    """Takes edges in any order, gives them sorted and each once.

    Sorted runs of ``run_edges`` go to files in an existing folder; then all runs are
    merged, a little of each at a time. ``with_rows`` remembers the row that each edge
    came from, which makes :attr:`first_repetition` known after :meth:`merged`, and
    takes twice the room. ``added`` is the number of edges given.
    """

    def __init__(
        self, folder: Path, *, run_edges: int = 2**22, with_rows: bool = False
    ) -> None:
        self._folder, self._room = folder, run_edges
        self._columns = [np.empty(run_edges, np.int64) for _ in range(1 + with_rows)]
        self._held = 0
        self._lengths: list[int] = []
        self.added = 0
        self.first_repetition: Repetition | None = None

    def add(self, source: Ints, target: Ints, row: Ints | None = None) -> None:
        """Take edges; ``row`` are the numbers of their rows, rising, if wanted."""
        given = [(target << _BITS) | source, *([] if row is None else [row])]
        self.added += len(source)
        begin = 0
        while begin < len(source):
            count = min(len(source) - begin, self._room - self._held)
            for column, values in zip(self._columns, given, strict=True):
                column[self._held : self._held + count] = values[begin : begin + count]
            self._held += count
            begin += count
            if self._held == self._room:
                self._spill()

    def merged(self) -> Iterator[tuple[Ints, Ints]]:
        """Sources and targets of all distinct edges, in order, in pieces."""
        if self._held:
            self._spill()
        width = len(self._columns)
        # What follows needs the memory.
        self._columns = []
        at_once = max(self._room // max(len(self._lengths), 1), 1)
        runs = [
            _Run([self._path(run, column) for column in range(width)], length, at_once)
            for run, length in enumerate(self._lengths)
        ]
        while pieces := self._next_pieces(runs):
            columns = [np.concatenate(parts) for parts in zip(*pieces, strict=True)]
            keys = self._distinct(columns)[0]
            yield keys & (2**_BITS - 1), keys >> _BITS

    def _next_pieces(self, runs: list["_Run"]) -> list[Columns]:
        """The least keys of all runs, up to where every run is known."""
        for run in runs:
            run.refill()
        ends = [int(run.columns[0][-1]) for run in runs if run.has_more]
        pieces = [run.take(min(ends, default=None)) for run in runs]
        return [piece for piece in pieces if len(piece[0])]

    def _path(self, run: int, column: int) -> Path:
        return self._folder / f"{run}.{column}"

    def _spill(self) -> None:
        """Write what is held as one sorted run without repetitions."""
        columns = self._distinct([column[: self._held] for column in self._columns])
        for number, column in enumerate(columns):
            column.tofile(self._path(len(self._lengths), number))
        self._lengths.append(len(columns[0]))
        self._held = 0

    def _distinct(self, columns: Columns) -> Columns:
        """Sort by key, keep the first row of each, and notice the others.

        No repetition escapes: the first two rows of an edge are either in one run, or
        each is the first of its run and they meet when the runs are merged.
        """
        if len(columns) == 1:
            columns[0].sort()
            return [columns[0][first_of_each(columns[0])]]
        keys, rows = columns
        order = np.argsort(keys)
        found = keys[order]
        first = first_of_each(found)
        if not first.all():
            # Many times slower, and needed only where the order of equals matters.
            order = np.lexsort((rows, keys))
            found = keys[order]
            groups = np.flatnonzero(first)
            again = np.flatnonzero(~first)
            place = int(again[np.argmin(rows[order[again]])])
            earlier = int(groups[np.searchsorted(groups, place) - 1])
            row, key = int(rows[order[place]]), int(found[place])
            known = self.first_repetition
            if known is None or row < known.row:
                ends = key & (2**_BITS - 1), key >> _BITS
                self.first_repetition = Repetition(
                    row, int(rows[order[earlier]]), *ends
                )
        return [found[first], rows[order[first]]]


@final
class _Run:
    """A sorted run on disk, a file for each column, of which a part is in memory."""

    def __init__(self, paths: list[Path], length: int, at_once: int) -> None:
        self._paths, self._length, self._at_once = paths, length, at_once
        self._read = 0
        self.columns: Columns = [np.empty(0, np.int64) for _ in paths]

    @property
    def has_more(self) -> bool:
        """Whether the part in memory is not the last."""
        return self._read < self._length

    def refill(self) -> None:
        """Read on if nothing is left in memory."""
        if len(self.columns[0]) or not self.has_more:
            return
        count = min(self._at_once, self._length - self._read)
        self.columns = [
            np.fromfile(path, np.int64, count, offset=8 * self._read)
            for path in self._paths
        ]
        self._read += count

    def take(self, end: int | None) -> Columns:
        """Give away the keys up to and with ``end``, or all."""
        cut = len(self.columns[0])
        if end is not None:
            cut = int(np.searchsorted(self.columns[0], end, side="right"))
        piece = [column[:cut] for column in self.columns]
        self.columns = [column[cut:] for column in self.columns]
        return piece
