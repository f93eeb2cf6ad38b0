"""A folder of tables: one for each type of nodes, and one for each relation.

``nodes.TYPE.csv`` has the nodes of a type and ``edges.SOURCE.NAME.TARGET.csv`` the
edges of a relation; other suffixes of tables will do. Each table is read as one of a
graph with one type.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from scipy.sparse import block_diag

from gsebo.data.datasets.registry import TABLES
from gsebo.data.formats.convert import end_columns
from gsebo.data.formats.node_table import NodeColumns, NodeTable, read_nodes
from gsebo.data.formats.table_ids import (
    Ids,
    Ints,
    NodeNumbers,
    NodeTexts,
    as_array,
    decided,
    named_nodes,
)
from gsebo.data.formats.table_rows import TableFile, open_table
from gsebo.data.formats.tables import (
    BLOCK_BYTES,
    EdgeRows,
    Features,
    Finder,
    bytes_to_read,
    distinct,
    finite_sums,
    no_progress,
    require_known,
    with_reverses,
)
from gsebo.errors import InvalidInput, escaped
from gsebo.graph.features import features_from_csr
from gsebo.graph.graph import Graph
from gsebo.memory import require_memory
from gsebo.sparse.types import Relation

_NODES, _EDGES, _REVERSED = "nodes", "edges", "rev_"
_WAY = "expected nodes.TYPE.csv, or edges.SOURCE.NAME.TARGET.csv"


def load_typed_tables(
    folder: str | PathLike[str],
    *,
    source: str | None = None,
    target: str | None = None,
    id: str | None = None,
    label: str | None = None,
    weight: str | None = None,
    delimiter: str | None = None,
    leave_out: Sequence[str] = (),
    directed: bool = False,
) -> Graph:
    """Read all tables of a folder whose names say which nodes or edges they have.

    A column that is named here is that of all tables which have one so called. Nodes
    are called ``"TYPE:id"``. See :func:`gsebo.load_data`.
    """
    files = _Files.of(Path(os.path.expanduser(folder)))
    paths = [*files.nodes.values(), *files.edges.values()]
    require_memory(
        bytes_to_read(paths),
        what=f"reading {len(paths)} tables whole",
        instead="smaller ones",
    )
    opened = {path: open_table(path, delimiter, BLOCK_BYTES) for path in paths}
    nodes = {kind: opened[path] for kind, path in files.nodes.items()}
    edges = {relation: opened[path] for relation, path in files.edges.items()}
    for name in (id, label, *leave_out):
        _require_somewhere(name, nodes.values(), folder)
    for name in (source, target, weight):
        _require_somewhere(name, edges.values(), folder)
    read_edges = {}
    for relation, table in edges.items():
        ends = end_columns(table, (_if_there(source, table), _if_there(target, table)))
        read_edges[relation] = EdgeRows(table, ends, _if_there(weight, table))
    read = _Read(
        {
            kind: _NodesOfType.read(
                table,
                NodeColumns(
                    _if_there(id, table),
                    _if_there(label, table),
                    None,
                    tuple(name for name in leave_out if name in table.columns),
                    usual_labels=label is None,
                ),
            )
            for kind, table in nodes.items()
        },
        read_edges,
    )
    graph = read.graph(directed)
    graph.meta["made_from"] = [escaped(path.name) for path in paths]
    return graph


def _if_there(name: str | None, table: TableFile) -> str | None:
    return name if name in table.columns else None


def _require_somewhere(
    name: str | None, tables: Any, folder: str | PathLike[str]
) -> None:
    columns = dict.fromkeys(column for table in tables for column in table.columns)
    if name is not None and name not in columns:
        raise InvalidInput(
            f"no table of {escaped(str(folder), longest=200)} has a column "
            f"{name!r:.40}: expected one of {escaped(', '.join(columns), longest=200)}."
        )


class _Files(NamedTuple):
    """Which file of a folder has what, in the order of their names."""

    nodes: dict[str, Path]
    edges: dict[Relation, Path]

    @classmethod
    def of(cls, folder: Path) -> _Files:
        found = cls({}, {})
        for path in sorted(folder.iterdir()):
            kind, *parts = path.name.split(".")
            suffix = path.suffix.lower()
            if kind not in (_NODES, _EDGES) or suffix not in TABLES:
                continue
            names = parts[:-1]
            wanted = 1 if kind == _NODES else 3
            if len(names) != wanted or not all(names):
                raise InvalidInput(
                    f"{escaped(path.name)} names {len(names)} parts: {_WAY}, with "
                    "names that have no full stop."
                )
            held: dict[Any, Path] = found.nodes if kind == _NODES else found.edges
            key: Any = names[0] if kind == _NODES else tuple(names)
            if key in held:
                raise InvalidInput(
                    f"{escaped(held[key].name)} and {escaped(path.name)} are called "
                    "alike: expected one table for each type and relation."
                )
            held[key] = path
        if not found.edges:
            raise InvalidInput(
                f"{escaped(str(folder), longest=200)} has no table of edges: {_WAY}."
            )
        return found


@final
@dataclass
class _NodesOfType:
    """The node table of a type, and its features, dense."""

    table: NodeTable
    file: TableFile
    features: NDArray[np.float32] | None

    @classmethod
    def read(cls, file: TableFile, columns: NodeColumns) -> _NodesOfType:
        features = Features()
        table = read_nodes(file, columns, features.begin, no_progress)
        blocks = features.blocks
        return cls(table, file, np.concatenate(blocks) if blocks else None)


class _Numbered(NamedTuple):
    """The nodes of a type: what they are called, and how they are found by that."""

    ids: Ids
    finder: Finder
    expected: str


@final
@dataclass
class _Read:
    """All tables as they were read, from which one graph is made."""

    nodes: dict[str, _NodesOfType]
    edges: dict[Relation, EdgeRows]

    def graph(self, directed: bool) -> Graph:
        """The graph; ``meta`` says how it came about."""
        ends = [end for relation in self.edges for end in relation[::2]]
        names = list(dict.fromkeys([*self.nodes, *sorted(set(ends))]))
        numbered: dict[str, _Numbered] = {}
        places = dict[tuple[Relation, int], Any]()
        for name in names:
            numbered[name], found = self._numbered(name)
            places |= found
        sizes = {name: len(numbered[name].ids) for name in names}
        starts = dict(
            zip(names, np.cumsum([0, *sizes.values()]).tolist(), strict=False)
        )
        joined = _Joined(sum(sizes.values()))
        for relation, rows in self.edges.items():
            joined.add(relation, rows, numbered, places, starts)
        joined.finish(directed)
        graph = joined.graph
        graph.node_type = torch.arange(len(names)).repeat_interleave(
            torch.tensor(list(sizes.values()))
        )
        graph.node_id = np.concatenate(
            [_called(name, numbered[name].ids) for name in names]
        )
        graph.meta["node_types"] = names
        graph.meta["columns_left_out"] = [
            f"{column} of {escaped(each.file.path.name)}"
            for each in self.nodes.values()
            for column in each.table.left_out
        ]
        self._set_features(graph, sizes)
        self._set_labels(graph, starts)
        return graph

    def _numbered(self, name: str) -> tuple[_Numbered, dict[tuple[Relation, int], Any]]:
        """The nodes of a type, and what edges call them at each end of that type."""
        sides = [
            (relation, side)
            for relation in self.edges
            for side in (0, 1)
            if relation[2 * side] == name
        ]
        columns = [self.edges[relation].ends[side] for relation, side in sides]
        own = self.nodes.get(name)
        if own is None:
            given = decided(columns)
            return _named_by_edges(given), dict(zip(sides, given, strict=True))
        count = own.table.num_nodes
        if own.table.ids is None:
            given = decided(columns)
            texts = [ids for ids in given if not isinstance(ids, np.ndarray)]
            if texts:
                raise InvalidInput(
                    f"edges call nodes of the type {escaped(name, longest=40)!r} by "
                    f"texts, such as {str(texts[0][0])!r:.40}, and "
                    f"{own.file.path} has no column 'id': expected one, or the name "
                    "of the column with the ids."
                )
            plain = np.arange(count)
            made = _Numbered(plain, NodeNumbers(plain), f"0 to {count - 1}")
            return made, dict(zip(sides, given, strict=True))
        ids, *given = decided([own.table.ids, *columns])
        finder = named_nodes(own.table.ids, ids) or NodeNumbers(ids)
        made = _Numbered(finder.ids, finder, f"an id of {own.file.path.name}")
        return made, dict(zip(sides, given, strict=True))

    def _set_features(self, graph: Graph, sizes: dict[str, int]) -> None:
        """Features of each type in columns of their own; none if no type has some."""
        given = {name: each.features for name, each in self.nodes.items()}
        graph.meta["feature_columns"] = {
            name: list(each.table.features) for name, each in self.nodes.items()
        }
        if all(x is None for x in given.values()):
            graph.num_nodes = sum(sizes.values())
            return
        blocks, columns, begin = [], [], 0
        for name, size in sizes.items():
            x = given.get(name)
            # What is known of a node without features is its type.
            blocks.append(np.ones((size, 1), np.float32) if x is None else x)
            columns.append([begin, begin + blocks[-1].shape[1]])
            begin = columns[-1][1]
        graph.x = features_from_csr(block_diag(blocks, format="csr", dtype=np.float32))
        graph.meta["columns"] = columns
        graph.meta["without_features"] = [n for n in sizes if given.get(n) is None]

    def _set_labels(self, graph: Graph, starts: dict[str, int]) -> None:
        """Labels and masks of the one type that has some."""
        tables = {name: each.table for name, each in self.nodes.items()}
        labelled = [name for name, table in tables.items() if table.y is not None]
        masked = [name for name, table in tables.items() if table.masks]
        told = dict.fromkeys([*labelled, *masked])
        if len(told) > 1:
            files = [escaped(self.nodes[name].file.path.name) for name in told]
            raise InvalidInput(
                f"{' and '.join(files)} have labels or splits: expected both in one "
                "node table, that of the nodes to classify; label names the column, "
                "and leave_out those to ignore."
            )
        if not told:
            return
        (name,) = told
        table, count = tables[name], int(graph.num_nodes)
        chosen = slice(starts[name], starts[name] + table.num_nodes)
        graph.meta["target"] = name
        if table.y is not None:
            graph.y = torch.full((count,), -1)
            graph.y[chosen] = torch.from_numpy(table.y)
        if table.classes is not None:
            graph.meta["classes"] = list(table.classes)
        for key, mask in table.masks.items():
            graph[key] = torch.zeros(count, dtype=torch.bool)
            graph[key][chosen] = torch.from_numpy(mask)


def _named_by_edges(given: Sequence[Any]) -> _Numbered:
    """Nodes of a type without a table: in the order of numbers; texts, as they come."""
    if isinstance(given[0], np.ndarray):
        numbers = np.unique(np.concatenate(given))
        return _Numbered(numbers, NodeNumbers(numbers), "a node")
    texts = as_array(pa.concat_arrays(given).dictionary_encode().dictionary)
    return _Numbered(texts, NodeTexts(texts), "a node")


def _called(kind: str, ids: Ids) -> NDArray[np.str_]:
    named: NDArray[np.str_] = np.char.add(f"{kind}:", ids.astype(np.str_))
    return named


@final
class _Joined:
    """Edges of all relations, each once, by the numbers of all nodes."""

    def __init__(self, num_nodes: int) -> None:
        self._num_nodes = num_nodes
        self._edges: dict[Relation, Ints] = {}
        self._weights: dict[Relation, NDArray[Any] | None] = {}
        self._rows: list[EdgeRows] = []
        self._read = self._loops = self._merged = 0
        self.graph = Graph(meta={})

    def add(
        self,
        relation: Relation,
        rows: EdgeRows,
        nodes: dict[str, _Numbered],
        ids: dict[tuple[Relation, int], Any],
        starts: dict[str, int],
    ) -> None:
        """Take the edges of a table; self-loops are left out."""
        one, other = nodes[relation[0]], nodes[relation[2]]
        called = ids[relation, 0], ids[relation, 1]
        finders = one.finder, other.finder
        ends = require_known(rows, called, finders, one.expected, other.expected)
        source, target = ends[0] + starts[relation[0]], ends[1] + starts[relation[2]]
        kept = source != target
        if not kept.any():
            raise InvalidInput(
                f"{rows.table.path} holds only self-loops: expected at least one edge."
            )
        weights = None if rows.weights is None else rows.weights[kept]
        edges, weights = distinct(source[kept], target[kept], self._num_nodes, weights)
        self._read += len(source)
        self._loops += len(source) - int(kept.sum())
        self._merged += int(kept.sum()) - edges.shape[1]
        if weights is not None:
            weights = finite_sums(weights, rows.table)
        self._edges[relation], self._weights[relation] = edges, weights
        self._rows.append(rows)

    def finish(self, directed: bool) -> None:
        """Add reverses unless edges go one way, and write it all into the graph."""
        reverses = [] if directed else self._add_reverses()
        graph, sizes = self.graph, [each.shape[1] for each in self._edges.values()]
        graph.edge_index = torch.from_numpy(
            np.concatenate(list(self._edges.values()), axis=1)
        )
        graph.edge_type = torch.arange(len(sizes)).repeat_interleave(
            torch.tensor(sizes)
        )
        if any(each is not None for each in self._weights.values()):
            parts = [
                np.ones(size, np.float32) if each is None else each
                for each, size in zip(self._weights.values(), sizes, strict=True)
            ]
            graph.edge_weight = torch.from_numpy(np.concatenate(parts))
        graph.meta |= {
            "edge_types": [list(relation) for relation in self._edges],
            "edges_read": self._read,
            "self_loops_dropped": self._loops,
            "duplicates_merged": self._merged,
            "reverse_edges_added": not directed,
            "reverse_relations": [name for _, name, _ in reverses],
            "edge_columns_left_out": [
                f"{column} of {escaped(rows.table.path.name)}"
                for rows in self._rows
                for column in rows.left_out
            ],
        }

    def _add_reverses(self) -> list[Relation]:
        """Let edges go both ways, and return the relations that were made for it.

        The reverse of a relation of a type with itself is in that relation. Nothing is
        added where another relation has all edges the other way.
        """
        added = []
        for relation in list(self._edges):
            edges, weights = self._edges[relation], self._weights[relation]
            if relation[0] == relation[2]:
                both = with_reverses(edges, self._num_nodes, weights)
                self._edges[relation], self._weights[relation] = both
                continue
            name = relation[1]
            reverse = (relation[2], f"{_REVERSED}{name}", relation[0])
            original = (relation[2], name.removeprefix(_REVERSED), relation[0])
            stated = {reverse, original} if original[1] != name else {reverse}
            if stated & self._edges.keys() or self._has_reverse(relation):
                continue
            self._edges[reverse] = edges[::-1].copy()
            self._weights[reverse] = weights
            added.append(reverse)
        return added

    def _has_reverse(self, relation: Relation) -> bool:
        wanted = np.sort(self._keys(self._edges[relation][::-1]))
        return any(
            each[::2] == relation[::-2]
            and np.array_equal(np.sort(self._keys(e)), wanted)
            for each, e in self._edges.items()
        )

    def _keys(self, edges: Ints) -> Ints:
        keys: Ints = edges[0] * self._num_nodes + edges[1]
        return keys
