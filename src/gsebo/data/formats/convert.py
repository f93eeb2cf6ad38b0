"""From edge lists and node tables to graph folders, in bounded memory."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import torch

from gsebo.data.formats.edge_sort import LARGEST_COUNT, EdgeSorter
from gsebo.data.formats.folder import (
    LOG_DEGREE,
    FolderWriter,
    GraphFolder,
    count_classes,
    log_degree,
    new_folder,
    stored_ids,
)
from gsebo.data.formats.node_table import (
    Masks,
    NodeColumns,
    NodeTable,
    read_nodes,
)
from gsebo.data.formats.table_ids import (
    Faults,
    Ids,
    Ints,
    NodeNumbers,
    NodeTexts,
    decided,
    id_texts,
    named_nodes,
)
from gsebo.data.formats.table_rows import (
    ColumnKind,
    Progress,
    RowBatch,
    TableFile,
    first_true,
    open_table,
)
from gsebo.data.seeding import require
from gsebo.data.splits import apply_split, require_split_name
from gsebo.data.validate import MASKS, most_nodes
from gsebo.errors import InputWarning, InvalidInput, escaped
from gsebo.graph.graph import Graph
from gsebo.memory import require_memory

_ENDS = ("source", "target")
_ROWS_AT_ONCE = 2**20
# Of edges that are held and merged.
_BYTES_PER_EDGE = 8


@final
class _EdgeList:
    """Reads an edge list into a sorter, and counts what becomes of its rows."""

    def __init__(
        self,
        table: TableFile,
        options: TableOptions,
        num_nodes: int | None,
        named: NodeNumbers | NodeTexts | None,
    ) -> None:
        self._table = table
        self._ends = end_columns(table, options.ends)
        self._undirected = options.undirected
        self._run_edges = options.run_edges
        self._refuse_duplicates = options.duplicates == "error"
        self._num_nodes = options.num_nodes if num_nodes is None else num_nodes
        # Finds nodes by the ids of a node table; without, ids are numbers.
        self._named = named
        self.rows = self.self_loops = 0
        self._highest = -1

    def read(self, scratch: Path, progress: Progress) -> EdgeSorter:
        """Read everything, or raise for the first row that does not fit."""
        sorter = EdgeSorter(
            scratch, run_edges=self._run_edges, with_rows=self._refuse_duplicates
        )
        texts = isinstance(self._named, NodeTexts)
        held = self._table.kinds()
        if self._num_nodes is None and {held[end] for end in self._ends} == {
            ColumnKind.TEXT
        }:
            raise InvalidInput(
                f"{self._table.path} calls nodes by texts: expected whole numbers, a "
                "node table with these ids, or gsebo data convert "
                f"{self._table.path.name}, which reads the edges whole."
            )
        kind = ColumnKind.TEXT if texts else ColumnKind.INTEGER
        kinds = dict.fromkeys(self._ends, kind)
        for batch in self._table.batches(kinds, progress):
            source, target = self._nodes(batch)
            kept = source != target
            self.rows += batch.rows
            self.self_loops += batch.rows - int(kept.sum())
            self._highest = max(self._highest, int(source.max()), int(target.max()))
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
        most = most_nodes(self.rows)
        if self._num_nodes is not None:
            if self._named is None and self._num_nodes > most:
                raise InvalidInput(
                    f"{self._num_nodes} nodes given for {self.rows} rows of "
                    f"{self._table.path}: expected up to {most}."
                )
            return self._num_nodes
        if self._highest + 1 > most:
            raise InvalidInput(
                f"{self._table.path} names node {self._highest} in {self.rows} rows: "
                "expected numbers from 0 without large gaps, a node table with ids, or "
                "the number of nodes."
            )
        return self._highest + 1

    def check_repetition(self, sorter: EdgeSorter) -> None:
        """Raise if edges may not repeat and one does; all must have been merged."""
        found = sorter.first_repetition
        if not self._refuse_duplicates or found is None:
            return
        unit = self._table.unit
        source, target = found.source, found.target
        ends: list[object] = [source, target]
        if self._named is not None:
            ends = [self._named.ids[end] for end in (source, target)]
        edge = f"from {ends[0]} to {ends[1]}"
        if self._undirected:
            edge = f"between {ends[0]} and {ends[1]}"
        raise InvalidInput(
            f"{unit} {found.row} of {self._table.path} repeats the edge {edge} of "
            f"{unit} {found.earlier}: expected each edge once."
        )

    def tell_of_weights(self) -> None:
        """Warn if there seem to be weights, which are not read."""
        if "weight" in self._table.columns and "weight" not in self._ends:
            warnings.warn(
                f"the column 'weight' of {self._table.path} is left out: a conversion "
                "reads no weights.",
                InputWarning,
                stacklevel=3,
            )

    def _nodes(self, batch: RowBatch) -> list[Ints]:
        """Node numbers of both ends, all of them in range."""
        found: list[Ints] = []
        faults: Faults = []
        end = LARGEST_COUNT if self._num_nodes is None else self._num_nodes
        expected = f"0 to {end - 1}"
        if self._named is not None:
            expected = "an id of the node table"
        for name, role in zip(self._ends, _ENDS, strict=True):
            if isinstance(self._named, NodeTexts):
                ids: Any = id_texts(batch, name, faults)
            else:
                ids = batch.numbers(name)
            nodes = ids if self._named is None else self._named.find(ids)
            bad = first_true((nodes < 0) | (nodes >= end))
            if bad is not None:
                held = str(ids[bad])[:40]
                fault = f"names node {held} as its {role}: expected {expected}"
                faults.append((bad, fault))
            found.append(nodes)
        batch.refuse_first(faults)
        return found


def write_edges(
    sorter: EdgeSorter, num_nodes: int, writer: FolderWriter, progress: Progress
) -> Ints:
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


def end_columns(
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
    names = tuple(given or usual for given, usual in zip(ends, _ENDS, strict=True))
    for name in names:
        if name not in table.columns:
            place = "line 1 of " if table.unit == "line" else ""
            raise InvalidInput(
                f"{place}{table.path} names the columns "
                f"{', '.join(table.columns):.80}: expected {names[0]} and {names[1]}"
                f"{', or two whole numbers' * (table.unit == 'line')}; --source and "
                "--target name others."
            )
    if names[0] == names[1]:
        raise InvalidInput(
            f"column {names[0]!r} is to hold both ends: expected two columns."
        )
    return names[0], names[1]


@final
@dataclass(frozen=True)
class TableOptions:
    """How to read an edge list and a node table."""

    # Whether to add the reverse of each edge.
    undirected: bool = False
    # By default what the node table has, or the largest number of an edge plus one.
    num_nodes: int | None = None
    duplicates: Literal["merge", "error"] = "merge"
    # Of text files; detected in the first line by default.
    delimiter: str | None = None
    # Columns of the edge list with sources and targets, and columns of the node table.
    ends: tuple[str | None, str | None] = (None, None)
    nodes: NodeColumns = field(default_factory=NodeColumns)
    # A split to draw, as for `apply_split`, where no column has one.
    split: str | None = None
    seed: int = 0
    # Edges that are held in memory at once, eight bytes each, and about four times as
    # much while they are merged; and how much of a text file to read at once.
    run_edges: int = 2**22
    block_bytes: int = 2**23

    def __post_init__(self) -> None:
        known = self.duplicates in ("merge", "error")
        require(known, f"duplicates={self.duplicates!r}", "merge or error")
        counts = {"run_edges": self.run_edges, "block_bytes": self.block_bytes}
        if self.num_nodes is not None:
            counts["num_nodes"] = self.num_nodes
        for name, value in counts.items():
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            fits = whole and 0 < value <= LARGEST_COUNT
            require(fits, f"{name}={value!r:.40}", f"1 to {LARGEST_COUNT}")
        require_memory(
            _BYTES_PER_EDGE * self.run_edges + 2 * self.block_bytes,
            what=f"reading {self.run_edges} edges and {self.block_bytes} bytes at once",
            instead="fewer run_edges or block_bytes",
        )
        if self.split is not None:
            require_split_name(self.split)


def convert_tables(
    edges: str | PathLike[str],
    path: str | PathLike[str],
    *,
    nodes: str | PathLike[str] | None = None,
    options: TableOptions | None = None,
    progress: Progress | None = None,
) -> GraphFolder:
    """Write an edge list, and what a node table says, as a new graph folder.

    Both are text or Parquet files; the first row that does not fit is named in the
    error. Memory grows with the number of nodes (tens of bytes each), not with the
    edges or the features. Without feature columns, the logarithm of one plus the edges
    into the node is the one feature.
    """
    options = options or TableOptions()
    progress = progress or (lambda what, done, end: None)
    if nodes is not None and options.num_nodes is not None:
        raise InvalidInput(
            f"both a node table and num_nodes={options.num_nodes} were given: "
            "expected one of them."
        )
    with new_folder(path) as writer:
        text = (options.delimiter, options.block_bytes)
        table = None
        if nodes is not None:
            file = open_table(nodes, *text)
            table = read_nodes(
                file,
                options.nodes,
                lambda columns: writer.array("x", np.float32, (columns,)),
                progress,
            )
        named = None
        if table is not None and table.ids is not None:
            named = named_nodes(table.ids, decided([table.ids])[0])
        num_nodes = None if table is None else table.num_nodes
        reader = _EdgeList(open_table(edges, *text), options, num_nodes, named)
        sorter = reader.read(writer.scratch, progress)
        starts = write_edges(sorter, reader.count_nodes(), writer, progress)
        reader.check_repetition(sorter)
        reader.tell_of_weights()
        facts: dict[str, Any] = {
            "made_from": [escaped(Path(file).name) for file in (edges, nodes) if file],
            "edges_read": reader.rows,
            "self_loops_dropped": reader.self_loops,
            "duplicates_merged": sorter.added - int(starts[-1]),
            "reverse_edges_added": options.undirected,
        }
        ids = None if named is None else named.ids
        _finish(writer, table, ids, starts, facts, options)
    return GraphFolder.open(path)


def _finish(
    writer: FolderWriter,
    table: NodeTable | None,
    ids: Ids | None,
    starts: Ints,
    facts: dict[str, Any],
    options: TableOptions,
) -> None:
    """Write what there is of one number per node, and the manifest."""
    num_nodes = len(starts) - 1
    table = table or NodeTable(num_nodes, None, None, None, {}, (), ())
    if not table.features:
        facts["features_made"] = LOG_DEGREE
        x = writer.array("x", np.float32, (1,))
        for begin in range(0, num_nodes, _ROWS_AT_ONCE):
            degree = np.diff(starts[begin : begin + _ROWS_AT_ONCE + 1])
            x.append(log_degree(degree))
    masks = table.masks
    if options.split is not None:
        masks = _drawn(table, options.split, options.seed)
        facts["split"] = {"name": options.split, "seed": options.seed}
    facts |= {"feature_columns": list(table.features)} if table.features else {}
    facts |= {"columns_left_out": list(table.left_out)} if table.left_out else {}
    ids = None if ids is None else stored_ids(ids)
    for name, values in {"y": table.y, **masks, "node_id": ids}.items():
        if values is not None:
            writer.array(name, values.dtype).append(values)
    num_classes = count_classes(table.y, *(masks.get(mask) for mask in MASKS[:2]))
    writer.finish(num_classes, facts, classes=table.classes)


def _drawn(table: NodeTable, split: str, seed: int) -> Masks:
    if table.y is None or table.masks:
        held = "no labels" if table.y is None else "masks of its own"
        raise InvalidInput(
            f"split {split!r} for a node table with {held}: expected labels and no "
            "masks."
        )
    data = Graph(y=torch.from_numpy(table.y), num_nodes=len(table.y))
    drawn = apply_split(data, split, seed)
    return {mask: drawn[mask].numpy() for mask in MASKS if mask in drawn}
