"""The edge list: from batches of rows to a sorted graph in the folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gsebo.data.edge_sort import LARGEST_COUNT, EdgeSorter
from gsebo.data.folder_writer import FolderWriter
from gsebo.data.node_numbers import NodeNumbers
from gsebo.data.sizes import most_nodes
from gsebo.data.table_rows import INTEGER, Progress, RowBatch, TableFile, first_true
from gsebo.errors import InvalidInput

Ints = NDArray[np.int64]


@final
@dataclass
class EdgeCounts:
    """What became of the rows of an edge list.

    Attributes:
        rows: Rows read.
        self_loops: Rows that were left out because they join a node with itself.
        duplicates: Directed edges that were left out because they were there before.
        highest: Largest node number.
    """

    rows: int = 0
    self_loops: int = 0
    duplicates: int = 0
    highest: int = -1


@final
class EdgeReader:
    """Reads an edge list into a sorter.

    Args:
        table: The file.
        ends: Names of the columns with sources and targets; ``source`` and ``target``
            by default, where the file has names.
        num_nodes: Number of nodes, where it is known.
        numbers: Finds nodes by the ids of a node table; by default ids are numbers.
        undirected: Whether to add the reverse of each edge.
        refuse_duplicates: Whether an edge that is there twice is an error.
    """

    def __init__(
        self,
        table: TableFile,
        *,
        ends: tuple[str | None, str | None] = (None, None),
        num_nodes: int | None = None,
        numbers: NodeNumbers | None = None,
        undirected: bool = False,
        refuse_duplicates: bool = False,
    ) -> None:
        self._table = table
        self._ends = _end_columns(table, ends)
        self._num_nodes = num_nodes
        self._numbers = numbers
        self._undirected = undirected
        self._refuse_duplicates = refuse_duplicates
        self.counts = EdgeCounts()

    def read(self, scratch: Path, run_edges: int, progress: Progress) -> EdgeSorter:
        """Read everything.

        Raises:
            InvalidInput: A row does not fit; the message names it.
        """
        sorter = EdgeSorter(
            scratch, run_edges=run_edges, with_rows=self._refuse_duplicates
        )
        kinds = dict.fromkeys(self._ends, INTEGER)
        for batch in self._table.batches(kinds, progress):
            source, target = self._nodes(batch)
            kept = source != target
            self.counts.rows += batch.rows
            self.counts.self_loops += batch.rows - int(kept.sum())
            highest = max(int(source.max()), int(target.max()))
            self.counts.highest = max(self.counts.highest, highest)
            rows = None
            if self._refuse_duplicates:
                rows = np.arange(batch.first, batch.first + batch.rows)[kept]
            source, target = source[kept], target[kept]
            sorter.add(source, target, rows)
            if self._undirected:
                sorter.add(target, source, rows)
        if not sorter.added:
            raise InvalidInput(
                f"{self._table.path} holds only self-loops: expected at least one edge."
            )
        return sorter

    def count_nodes(self) -> int:
        """Number of nodes: as given, or the largest number of the rows plus one."""
        rows = self.counts.rows
        if self._num_nodes is not None:
            if self._numbers is None and self._num_nodes > most_nodes(rows):
                raise InvalidInput(
                    f"{self._num_nodes} nodes given for {rows} rows of "
                    f"{self._table.path}: expected up to {most_nodes(rows)}."
                )
            return self._num_nodes
        found = self.counts.highest + 1
        if found > most_nodes(rows):
            raise InvalidInput(
                f"{self._table.path} names node {found - 1} in {rows} rows: expected "
                "numbers from 0 without large gaps, a node table with ids, or the "
                "number of nodes."
            )
        return found

    def check_repetition(self, sorter: EdgeSorter) -> None:
        """Raise if edges may not repeat and one does; all must have been merged."""
        found = sorter.first_repetition
        if not self._refuse_duplicates or found is None:
            return
        unit = self._table.unit
        source, target = found.source, found.target
        if self._numbers is not None:
            source, target = (int(self._numbers.ids[end]) for end in (source, target))
        edge = f"from {source} to {target}"
        if self._undirected:
            edge = f"between {source} and {target}"
        raise InvalidInput(
            f"{unit} {found.row} of {self._table.path} repeats the edge {edge} of "
            f"{unit} {found.earlier}: expected each edge once."
        )

    def _nodes(self, batch: RowBatch) -> list[Ints]:
        """Node numbers of both ends, all of them in range."""
        found, faults = [], []
        end = LARGEST_COUNT if self._num_nodes is None else self._num_nodes
        expected = f"0 to {end - 1}"
        if self._numbers is not None:
            expected = "an id of the node table"
        for name, role in zip(self._ends, ("source", "target"), strict=True):
            ids = batch.numbers(name)
            nodes = ids if self._numbers is None else self._numbers.find(ids)
            bad = first_true((nodes < 0) | (nodes >= end))
            if bad is not None:
                fault = f"names node {ids[bad]} as its {role}: expected {expected}"
                faults.append((bad, fault))
            found.append(nodes)
        batch.refuse_first(faults)
        return found


def write_edges(
    sorter: EdgeSorter, num_nodes: int, writer: FolderWriter, progress: Progress
) -> NDArray[np.int64]:
    """Merge everything into ``source`` and ``indptr``; return the latter."""
    column = writer.array("source", np.int32)
    starts = np.zeros(num_nodes + 1, np.int64)
    for source, target in sorter.merged():
        column.append(source)
        low = int(target[0])
        counts = np.bincount(target - low)
        starts[low + 1 : low + 1 + len(counts)] += counts
        progress("merging", column.rows, sorter.added)
    np.cumsum(starts, out=starts)
    writer.array("indptr", np.int64).append(starts)
    return starts


def _end_columns(
    table: TableFile, ends: tuple[str | None, str | None]
) -> tuple[str, str]:
    """Names of the two columns to read."""
    if not table.named:
        if len(table.columns) != 2 or any(ends):
            wanted = "a line with their names" if any(ends) else "2 of them"
            raise InvalidInput(
                f"line 1 of {table.path} has {len(table.columns)} columns without "
                f"names: expected {wanted}."
            )
        return table.columns[0], table.columns[1]
    names = tuple(
        given or usual for given, usual in zip(ends, ("source", "target"), strict=True)
    )
    for name in names:
        if name not in table.columns:
            place = "line 1 of " if table.unit == "line" else ""
            raise InvalidInput(
                f"{place}{table.path} names the columns "
                f"{', '.join(table.columns):.80}: expected {names[0]} and {names[1]}"
                f"{', or two whole numbers' * (table.unit == 'line')}."
            )
    if names[0] == names[1]:
        raise InvalidInput(
            f"column {names[0]!r} is to hold both ends: expected two columns."
        )
    return names[0], names[1]


def counts_as_facts(counts: EdgeCounts) -> dict[str, Any]:
    """What the manifest says of the rows."""
    return {
        "edges_read": counts.rows,
        "self_loops_dropped": counts.self_loops,
        "duplicates_merged": counts.duplicates,
    }
