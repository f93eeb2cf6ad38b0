"""Edge lists and node tables, read whole into a graph in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from gsebo.data.formats.convert import end_columns
from gsebo.data.formats.node_table import NodeColumns, NodeTable, read_nodes
from gsebo.data.formats.table_ids import (
    Faults,
    IdColumn,
    Ids,
    Ints,
    NodeNumbers,
    NodeTexts,
    as_array,
    decided,
    named_nodes,
)
from gsebo.data.formats.table_rows import (
    ColumnKind,
    RowBatch,
    TableFile,
    first_true,
    open_table,
)
from gsebo.errors import InvalidInput, escaped
from gsebo.graph.graph import Graph
from gsebo.memory import require_memory

Floats = NDArray[np.float32]
Finder = NodeNumbers | NodeTexts

BLOCK_BYTES = 2**23
# A field of a text file is held as text, as a number, and in what is made of it.
_COPIES_OF_FILE = 4
_WEIGHT = "weight"
_NUMBERS = (ColumnKind.INTEGER, ColumnKind.NUMBER, ColumnKind.TRUTH)


def load_tables(
    edges: str | PathLike[str],
    *,
    nodes: str | PathLike[str] | None = None,
    source: str | None = None,
    target: str | None = None,
    id: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    delimiter: str | None = None,
    leave_out: Sequence[str] = (),
    directed: bool = False,
) -> Graph:
    """Read an edge list, and what a node table says: text files or Parquet.

    See :func:`gsebo.load_data` for what the columns are and become.
    """
    files = [Path(os.path.expanduser(file)) for file in (edges, nodes) if file]
    require_memory(
        bytes_to_read(files),
        what=f"reading {' and '.join(escaped(file.name) for file in files)} whole",
        instead="gsebo data convert --edges, which reads them in parts",
    )
    tables = [open_table(file, delimiter, BLOCK_BYTES) for file in files]
    graph = graph_of(
        tables[0],
        tables[1] if nodes else None,
        ends=(source, target),
        columns=NodeColumns(id, label, None, tuple(leave_out)),
        weight=weight,
        directed=directed,
    )
    graph.meta["made_from"] = [escaped(file.name) for file in files]
    return graph


def bytes_to_read(files: Iterable[Path]) -> int:
    """Memory that reading such files whole takes."""
    return _COPIES_OF_FILE * sum(f.stat().st_size for f in files if f.is_file())


def graph_of(
    edges: TableFile,
    nodes: TableFile | None,
    *,
    ends: tuple[str | None, str | None] = (None, None),
    columns: NodeColumns | None = None,
    weight: str | None = None,
    directed: bool = False,
) -> Graph:
    """The graph of an edge list and a node table; ``meta`` says how it came about."""
    read = EdgeRows(edges, end_columns(edges, ends), weight)
    features = Features()
    table = None
    if nodes is not None:
        wanted = columns or NodeColumns()
        table = read_nodes(nodes, wanted, features.begin, no_progress)
    num_nodes, ids, (source, target) = _numbered(read, table)
    kept = source != target
    pairs = source[kept], target[kept]
    weights = None if read.weights is None else read.weights[kept]
    if not len(pairs[0]):
        raise InvalidInput(
            f"{edges.path} holds only self-loops: expected at least one edge."
        )
    edge_index, weights = distinct(*pairs, num_nodes, weights)
    merged = len(pairs[0]) - edge_index.shape[1]
    if not directed:
        edge_index, weights = with_reverses(edge_index, num_nodes, weights)
    facts = {
        "edges_read": len(source),
        "self_loops_dropped": len(source) - len(pairs[0]),
        "duplicates_merged": merged,
        "reverse_edges_added": not directed,
        "edge_columns_left_out": list(read.left_out),
    }
    graph = Graph(edge_index=torch.from_numpy(edge_index), meta=facts)
    if weights is not None:
        graph.edge_weight = torch.from_numpy(finite_sums(weights, edges))
    if ids is not None:
        graph.node_id = ids if ids.dtype.kind == "U" else torch.from_numpy(ids)
    if features.blocks:
        graph.x = torch.from_numpy(np.concatenate(features.blocks))
    else:
        graph.num_nodes = num_nodes
    if table is not None:
        _add_node_facts(graph, table)
    return graph


def no_progress(what: str, done: int, end: int) -> None:
    """Tables that fit into memory are read in no time."""


def _add_node_facts(graph: Graph, table: NodeTable) -> None:
    """Labels, masks and names, as the node table has them."""
    if table.y is not None:
        graph.y = torch.from_numpy(table.y)
    if table.classes is not None:
        graph.meta["classes"] = list(table.classes)
    for name, mask in table.masks.items():
        graph[name] = torch.from_numpy(mask)
    graph.meta["feature_columns"] = list(table.features)
    graph.meta["columns_left_out"] = list(table.left_out)


@final
class Features:
    """Rows of features in memory."""

    def __init__(self) -> None:
        self.blocks: list[Floats] = []

    def begin(self, columns: int) -> Features:
        return self

    def append(self, rows: Floats) -> None:
        self.blocks.append(rows)


@final
class EdgeRows:
    """All rows of an edge list: what both ends are called, and weights if any."""

    def __init__(
        self, table: TableFile, ends: tuple[str, str], weight: str | None
    ) -> None:
        self.table = table
        self.ends = [IdColumn(table, name) for name in ends]
        weight = _weight_column(table, ends, weight)
        kinds = {end.name: end.kind for end in self.ends}
        if weight is not None:
            kinds[weight] = ColumnKind.NUMBER
        self.left_out = tuple(name for name in table.columns if name not in kinds)
        parts: list[Floats] = []
        for batch in table.batches(kinds, no_progress):
            faults: Faults = []
            for end in self.ends:
                end.add(batch, faults)
            if weight is not None:
                parts.append(_checked_weights(batch, weight, faults))
            batch.refuse_first(faults)
        self.weights = np.concatenate(parts) if parts else None


def _weight_column(
    table: TableFile, ends: tuple[str, str], given: str | None
) -> str | None:
    """The column of weights: the one that was named, or the usual one, if any."""
    kinds = table.kinds()
    if given is None:
        usual = _WEIGHT not in ends and kinds.get(_WEIGHT) in _NUMBERS
        return _WEIGHT if usual else None
    if given not in kinds or given in ends:
        raise InvalidInput(
            f"{table.path} has the columns {', '.join(kinds):.80}, and weights are to "
            f"be in {given!r:.40}: expected one of them that is neither end."
        )
    return given


def _checked_weights(batch: RowBatch, name: str, faults: Faults) -> Floats:
    weights: Floats = batch.numbers(name)
    bad = first_true(~(np.isfinite(weights) & (weights >= 0)))
    if bad is not None:
        held = f"holds {weights[bad]} as {name}"
        faults.append((bad, f"{held}: expected a finite number, 0 or more"))
    return weights


class _Numbered(NamedTuple):
    num_nodes: int
    ids: Ids | None  # Unless they are just 0, 1, 2 and so on.
    ends: tuple[Ints, Ints]


def _numbered(read: EdgeRows, table: NodeTable | None) -> _Numbered:
    """Numbers of the nodes at both ends of all edges, and what nodes are called."""
    if table is None:
        return _named_by_edges(*decided(read.ends))
    if table.ids is None:
        source, target = decided(read.ends)
        if not isinstance(source, np.ndarray):
            raise InvalidInput(
                f"{read.table.path} calls nodes by texts, such as "
                f"{str(source[0])!r:.40}, and the node table has no column 'id': "
                "expected one, or the name of the column with the ids."
            )
        named: Finder = NodeNumbers(np.arange(table.num_nodes))
        expected = f"0 to {table.num_nodes - 1}"
        require_known(read, (source, target), (named, named), expected, expected)
        return _Numbered(table.num_nodes, None, (source, target))
    ids, source, target = decided([table.ids, *read.ends])
    found = named_nodes(table.ids, ids)
    named = found or NodeNumbers(ids)
    expected = "an id of the node table"
    ends = require_known(read, (source, target), (named, named), expected, expected)
    return _Numbered(table.num_nodes, None if found is None else found.ids, ends)


def require_known(
    read: EdgeRows, ends: tuple[Any, Any], named: tuple[Finder, Finder], *expected: str
) -> tuple[Ints, Ints]:
    """Find both ends of all edges among the nodes; the first that is none raises.

    What is expected of each end is said then.
    """
    found = named[0].find(ends[0]), named[1].find(ends[1])
    bad = first_true((found[0] < 0) | (found[1] < 0))
    if bad is not None:
        role = 0 if found[0][bad] < 0 else 1
        held, table = str(ends[role][bad])[:40], read.table
        raise InvalidInput(
            f"{table.unit} {read.ends[0].first + bad} of {table.path} names node "
            f"{held} as its {('source', 'target')[role]}: expected "
            f"{expected[role]}."
        )
    return found


def _named_by_edges(source: Any, target: Any) -> _Numbered:
    """Nodes in the order of their numbers; texts, as they come."""
    count = len(source)
    if isinstance(source, np.ndarray):
        numbers, places = np.unique(
            np.concatenate([source, target]), return_inverse=True
        )
        plain = np.array_equal(numbers, np.arange(len(numbers)))
        ends = places[:count], places[count:]
        return _Numbered(len(numbers), None if plain else numbers, ends)
    row_by_row = np.stack([np.arange(count), np.arange(count, 2 * count)], axis=1)
    both = pa.concat_arrays([source, target]).take(pa.array(row_by_row.reshape(-1)))
    encoded = both.dictionary_encode()
    pairs = encoded.indices.to_numpy().astype(np.int64).reshape(-1, 2)
    ids = as_array(encoded.dictionary)
    return _Numbered(len(ids), ids, (pairs[:, 0].copy(), pairs[:, 1].copy()))


def distinct(
    source: Ints, target: Ints, num_nodes: int, weights: Floats | None
) -> tuple[Ints, NDArray[Any] | None]:
    """Each edge once, in the order of the rows that name it first; weights add up."""
    keys = source * num_nodes + target
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    chosen = first[order]
    edges = np.stack([source[chosen], target[chosen]])
    if weights is None:
        return edges, None
    return edges, np.bincount(place, weights, len(first))[order]


def with_reverses(
    edges: Ints, num_nodes: int, weights: NDArray[Any] | None
) -> tuple[Ints, NDArray[Any] | None]:
    """Add the reverse of each edge, behind all others, where it is not there yet."""
    keys, reverse = (a * num_nodes + b for a, b in (edges, edges[::-1]))
    missing = ~np.isin(reverse, keys)
    edges = np.concatenate([edges, edges[::-1, missing]], axis=1)
    if weights is not None:
        weights = np.concatenate([weights, weights[missing]])
    return edges, weights


def finite_sums(weights: NDArray[Any], edges: TableFile) -> Floats:
    """Weights in single precision, if it can hold them."""
    with np.errstate(over="ignore"):
        found: Floats = weights.astype(np.float32)
    if not np.isfinite(found).all():
        raise InvalidInput(
            f"weights of an edge that {edges.path} repeats add up to more than single "
            "precision holds: expected smaller ones."
        )
    return found
