"""Edges with what a model says of them, as CSV, Parquet or GraphML."""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gsebo.data.formats.npy_stream import write_columns
from gsebo.errors import InvalidInput, escaped
from gsebo.files import write_atomically
from gsebo.methods.edges import EdgeTable, NodeNames

if TYPE_CHECKING:
    from networkx import DiGraph
    from pandas import DataFrame

Array = NDArray[Any]
Tables = Callable[[], Iterable[EdgeTable]]
"""Goes through all edges in their order, some at a time."""

_SUFFIXES = (".csv", ".parquet", ".graphml")
# What no XML file can hold, however it is written.
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class EdgeFile(NamedTuple):
    """Where edges go, in the format that the name says."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> "EdgeFile":
        """A file whose format is known."""
        if path.suffix not in _SUFFIXES:
            raise InvalidInput(
                f"--export {path} given; expected a file that ends in .csv, .parquet "
                "or .graphml."
            )
        return cls(path)

    def write(self, tables: Tables, ids: Array | None, names: NodeNames | None) -> None:
        """Write every edge, in the user's order, with nodes called by their ids.

        GraphML holds one edge for each direction and relation, with nodes and their
        classes; the others a row for each edge, and for each layer where layers have
        strengths of their own.
        """
        relations = None if names is None else names.relations
        if self.path.suffix == ".csv":
            write_atomically(self.path, _csv(_pieces(tables, ids, relations)))
        elif self.path.suffix == ".parquet":
            write_columns(self.path, _pieces(tables, ids, relations))
        else:
            write_atomically(self.path, _graphml(tables, names))

    def write_rows(self, rows: "DataFrame", ends: Array, nodes: "DataFrame") -> None:
        """Write a table with a row for each edge, whose nodes have a table too.

        Columns keep their names; ``ends`` has the numbers of the nodes of each row.
        """
        if self.path.suffix == ".csv":
            write_atomically(self.path, _csv([rows.to_dict("series")]))
        elif self.path.suffix == ".parquet":
            out = io.BytesIO()
            rows.to_parquet(out, index=False)
            write_atomically(self.path, out.getvalue())
        else:
            write_atomically(self.path, _rows_as_graphml(rows, ends, nodes))


def _rows_as_graphml(rows: "DataFrame", ends: Array, nodes: "DataFrame") -> bytes:
    import networkx

    graph = networkx.Graph()
    ids = [_xml(each) for each in nodes["id"].tolist()]
    for one, said in zip(ids, _records(nodes.drop(columns="id")), strict=True):
        graph.add_node(one, **said)
    values = _records(rows.drop(columns=["source", "target"]))
    for source, target, said in zip(*ends.tolist(), values, strict=True):
        graph.add_edge(ids[source], ids[target], **said)
    out = io.BytesIO()
    networkx.write_graphml(graph, out)
    return out.getvalue()


def _records(table: "DataFrame") -> Iterator[dict[str, Any]]:
    """Each row by the names of its columns, without what is not known."""
    columns = {name: column.tolist() for name, column in table.items()}
    for number in range(len(table)):
        found = {str(name): column[number] for name, column in columns.items()}
        yield {
            name: _xml(each)
            for name, each in found.items()
            if each is not None and each == each
        }


def _pieces(
    tables: Tables, ids: Array | None, relations: Array | None
) -> Iterator[dict[str, Array]]:
    """Named columns of some rows at a time, of one layer after another."""
    layers, number = 1, 0
    while number < layers:
        for table in tables():
            layers = max(table.by_layer.shape[1], 1)
            yield _columns(table, number, ids, relations)
        number += 1


def _columns(
    table: EdgeTable, number: int, ids: Array | None, relations: Array | None
) -> dict[str, Array]:
    ends = [table.source, table.target]
    if ids is not None:
        ends = [ids[end] for end in ends]
    more: dict[str, Array] = {}
    if relations is not None:
        more["relation"] = relations[table.relation].astype(np.str_)
    if table.by_layer.shape[1]:
        more["layer"] = np.full(len(table.start), number)
        table = table.of_layer(number)
    return {
        "source": ends[0],
        "target": ends[1],
        **more,
        "start": table.start,
        "strength": table.strength,
        "ratio": table.ratio,
        "agreement": table.agreement,
        "weight": table.weight,
    }


def _csv(pieces: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    from pandas import DataFrame

    for number, piece in enumerate(pieces):
        text = DataFrame(piece).to_csv(
            index=False, header=number == 0, float_format="%.9g", lineterminator="\n"
        )
        # An id may hold half of a character, which no text in UTF-8 can.
        yield str(text).encode(errors="backslashreplace")


def _graphml(tables: Tables, names: NodeNames | None) -> bytes:
    if names is None:
        raise InvalidInput(
            "a .graphml file asked for the edges of a graph folder, which stay on "
            "disk; expected .csv or .parquet."
        )
    import networkx

    graph = _as_networkx(tables, names)
    out = io.BytesIO()
    networkx.write_graphml(graph, out)
    return out.getvalue()


def _as_networkx(tables: Tables, names: NodeNames) -> "DiGraph":
    import networkx

    relations = names.relations
    graph = networkx.DiGraph() if relations is None else networkx.MultiDiGraph()
    ids = [_xml(each) for each in names.ids.tolist()]
    for one, label, known in zip(ids, names.classes, names.known, strict=True):
        kind = _xml(label) if label is None or isinstance(label, str) else int(label)
        said = {} if kind is None else {"class": kind}
        graph.add_node(one, **said, class_known=bool(known))
    for table in tables():
        columns = {
            name: column.tolist()
            for name, column in table.frame(names).items()
            if column.dtype.kind == "f" and name != "source" and name != "target"
        }
        for row, (source, target) in enumerate(
            zip(table.source.tolist(), table.target.tolist(), strict=True)
        ):
            found = {name: column[row] for name, column in columns.items()}
            # What is not a number is left out.
            said = {name: each for name, each in found.items() if each == each}
            if relations is not None:
                said["relation"] = _xml(relations[table.relation[row]])
            graph.add_edge(ids[source], ids[target], **said)
    return graph


def _xml(name: Any) -> Any:
    """A number, or a text that XML can hold."""
    if not isinstance(name, str):
        return name
    if _NOT_IN_XML.search(name):
        raise InvalidInput(
            f"the name {escaped(name, longest=80)!r} has characters that XML cannot "
            "hold; expected other names, or a .csv or .parquet file."
        )
    return name
