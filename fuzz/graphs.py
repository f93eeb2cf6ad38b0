"""Graphs in files that users bring: .npz files, tables of text or Parquet."""

import csv
import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from hypothesis import strategies as st
from torch_geometric.data import Data

from fuzz.damage import FLAT, NUMBERS, array_damage, bytes_damage, tree_damage
from fuzz.folders import FolderContent
from fuzz.target import Draw, Target, require
from gsebo import Vanilla, generate_graph, load_data
from gsebo.data import (
    content_digest,
    load_npz,
    save_npz,
    validate,
)
from gsebo.data.formats.convert import TableOptions, convert_tables
from gsebo.data.formats.folder import with_log_degree
from gsebo.data.formats.node_table import NodeColumns
from gsebo.data.formats.typed_tables import load_typed_tables
from gsebo.errors import InvalidInput
from gsebo.graph import Graph, as_graph


def small_graph() -> Data:
    """What is damaged: a graph that everything reads."""
    return generate_graph(30, average_degree=4.0, num_features=4, seed=2)


def _sparse_graph() -> Data:
    data = small_graph()
    data.x = (data.x > 1.0).float()
    return data


def _parts(data: Data) -> dict[str, Any]:
    return {
        key: value.numpy() if isinstance(value, torch.Tensor) else value
        for key, value in data
    }


@final
class NpzBytes(Target):
    """A .npz file with any damage: refused, or what is read is the same."""

    name, share = "npz-bytes", 2

    def prepare(self, folder: Path) -> None:
        """Save two graphs."""
        save_npz(small_graph(), folder / "dense.npz", {"name": "g"})
        save_npz(_sparse_graph(), folder / "sparse.npz", {"name": "g"})

    def begin(self, folder: Path) -> None:
        """Read them."""
        files = sorted(folder.glob("*.npz"))
        self._files = {path.name: path.read_bytes() for path in files}
        self._whole = {path.name: _told(load_npz(path)) for path in files}

    def draw(self, draw: Draw) -> Any:
        """Draw a file and its bytes."""
        name = draw(st.sampled_from(sorted(self._files)))
        return name, bytes_damage(draw, self._files[name])

    def write(self, case: Any, place: Path) -> None:
        """Write the file."""
        (place / "g.npz").write_bytes(case[1])

    def read(self, case: Any, place: Path) -> None:
        """Read the graph."""
        found = _told(load_npz(place / "g.npz"))
        require(found == self._whole[case[0]], "what was saved")


def _told(data: Data) -> dict[str, Any]:
    return {
        key: content_digest(data) if isinstance(value, torch.Tensor) else value
        for key, value in data
    }


@final
class NpzContent(Target):
    """Whole archives of arrays that are no graph, or headers that lie."""

    name, share = "npz", 3

    def begin(self, folder: Path) -> None:
        """Make the arrays of two graphs."""
        del folder
        sparse = _parts(_sparse_graph())
        x = torch.from_numpy(sparse.pop("x")).to_sparse_csr()
        sparse["x_data"] = x.values().numpy()
        sparse["x_indices"] = x.col_indices().numpy()
        sparse["x_indptr"] = x.crow_indices().numpy()
        sparse["x_shape"] = np.array(x.shape)
        self._graphs = [_parts(small_graph()), sparse]
        for arrays in self._graphs:
            arrays.pop("meta", None)
            arrays["meta"] = np.array('{"name": "g"}')
            arrays["node_id"] = np.arange(30)
            edges = arrays["edge_index"].shape[1]
            arrays["edge_weight"] = np.linspace(0, 2, edges)
            arrays["edge_attr"] = np.ones((edges, 2), np.float32)
        typed = dict(self._graphs[0])
        ends = typed["edge_index"] % 2
        typed["node_type"] = np.arange(30) % 2
        typed["edge_type"] = 2 * ends[0] + ends[1]
        typed["metapath:aba"] = np.ones((30, 2), np.float32)
        typed["meta"] = np.array(json.dumps(_TYPED_META))
        typed["x"] = np.where(np.arange(4) // 2 == np.arange(30)[:, None] % 2, 1.0, 0)
        self._graphs.append(typed)

    def draw(self, draw: Draw) -> Any:
        """Draw arrays, of which some are spoilt."""
        arrays = dict(draw(st.sampled_from(self._graphs)))
        header = None
        for _ in range(draw(st.integers(1, 2))):
            name = draw(st.sampled_from(sorted(arrays)))
            how = draw(st.sampled_from(["spoil", "spoil", "out", "other", "header"]))
            if how == "spoil" and arrays[name].dtype.kind == "U":
                told = tree_damage(draw, json.loads(str(arrays[name])))
                arrays[name] = np.array(json.dumps(told))
            elif how == "spoil":
                arrays[name] = array_damage(draw, arrays[name])
            elif how == "out" and len(arrays) > 1:
                del arrays[name]
            elif how == "other":
                arrays[name] = arrays[draw(st.sampled_from(sorted(arrays)))]
            elif how == "header":
                header = name, draw(_HEADERS)
        return arrays, header

    def write(self, case: Any, place: Path) -> None:
        """Write the archive; one header may be made up."""
        arrays, header = case
        with zipfile.ZipFile(place / "g.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            for name, array in arrays.items():
                buffer = io.BytesIO()
                np.save(buffer, array)
                content = buffer.getvalue()
                if header is not None and header[0] == name:
                    content = _with_header(content, header[1])
                archive.writestr(f"{name}.npy", content)

    def read(self, case: Any, place: Path) -> None:
        """Read the graph, check what it has to be, and fit for a step."""
        data = load_npz(place / "g.npz")
        edges = data.edge_index
        require(edges.dim() == 2 and edges.shape[0] == 2, "pairs of nodes")
        nodes = data.num_nodes
        require(bool(((edges >= 0) & (edges < nodes)).all()), "nodes that there are")
        validate(data)
        Vanilla(max_epochs=1, hidden_channels=3, random_state=0).fit(data)


_TYPED_META = {
    "node_types": ["a", "b"],
    "edge_types": [[one, "to", other] for one in "ab" for other in "ab"],
    "columns": [[0, 2], [2, 4]],
}
_SHAPES = st.lists(NUMBERS, max_size=3).map(tuple)
_HEADERS = st.one_of(
    st.binary(max_size=80),
    st.builds(
        lambda descr, order, shape: repr(
            {"descr": descr, "fortran_order": order, "shape": shape}
        ).encode("utf-8", "replace"),
        st.sampled_from(["<f4", "<i8", "|O", "<f16", "|V8", [("a", "<f4")]]) | FLAT,
        st.booleans() | FLAT,
        _SHAPES | FLAT,
    ),
)


def _with_header(content: bytes, header: bytes) -> bytes:
    length = struct.unpack("<H", content[8:10])[0]
    begin = content[:8] + struct.pack("<H", len(header))
    return begin + header + content[10 + length :]


# --- tables --------------------------------------------------------------------------

_CELLS = st.integers(0, 12).map(str)
_ODD = ["", "-1", "1.5", "nan", "inf", "1e400", "0x10", "1_000", "٣", "a", '"', "'"]
_ODD += ["9" * 30, "x" * 140_000, "\x00", " 3 ", "+3", "true", "train", "\ufeff", ","]
_ODD_CELLS = st.sampled_from(_ODD) | st.text(max_size=4)
_ENDS = st.sampled_from([("source", "target"), ("target", "source"), ("a", "b")])
_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "undirected": st.booleans(),
        "num_nodes": st.sampled_from([1, 13, 20, 10**6, 10**15]) | FLAT,
        "duplicates": st.sampled_from(["merge", "error", "x"]),
        "delimiter": st.sampled_from([",", "\t", ";", " ", "", "ab", "\n", '"', "é"]),
        "ends": _ENDS,
        "split": st.sampled_from(["random:20/30/50", "ratio:50/25/25", "file", "x"]),
        "seed": st.integers(0, 3),
        "run_edges": st.sampled_from([1, 3, 100, 2**62]) | FLAT,
        "block_bytes": st.sampled_from([1, 2, 7, 64, 2**62]) | FLAT,
    },
)


@final
class Tables(Target):
    """Edge lists and node tables, as text or Parquet."""

    name, share = "tables", 4

    def draw(self, draw: Draw) -> Any:
        """Draw two tables and how to read them."""
        edges = _drawn_table(draw, ["source", "target"], _CELLS, 15)
        nodes = None
        if draw(st.booleans()):
            heads = draw(
                st.lists(
                    st.sampled_from(["id", "label", "split", "f0", "f1", "y", ""]),
                    max_size=5,
                    unique=True,
                )
            )
            splits = st.sampled_from(["train", "val", "test", ""])
            nodes = _drawn_table(draw, heads, _CELLS | splits, 13)
        options = draw(_OPTIONS) if draw(st.booleans()) else {}
        if nodes is not None and draw(st.booleans()):
            options.pop("num_nodes", None)
        columns = (
            {}
            if draw(st.booleans())
            else draw(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "id": st.sampled_from(["id", "f0", "x"]),
                        "label": st.sampled_from(["label", "f1", "x"]),
                        "left_out": st.just(("f0",)),
                    },
                )
            )
        )
        return edges, nodes, options, columns

    def write(self, case: Any, place: Path) -> None:
        """Write the files."""
        edges, nodes, _, _ = case
        _write_table(edges, place / "edges")
        if nodes is not None:
            _write_table(nodes, place / "nodes")

    def read(self, case: Any, place: Path) -> None:
        """Convert them, and read what became of them."""
        edges, nodes, given, columns = case
        options = TableOptions(**given, nodes=NodeColumns(**columns))
        try:
            convert_tables(
                _table_path(edges, place / "edges"),
                place / "copy",
                nodes=None if nodes is None else _table_path(nodes, place / "nodes"),
                options=options,
            )
        except InvalidInput:
            require(not (place / "copy").exists(), "whole or nothing")
            raise
        FolderContent().read(("table", False), place)


@final
class TablesInMemory(Target):
    """The same tables, straight into a graph."""

    name, share = "tables-in-memory", 3
    may_leave = frozenset({"g.npz"})

    def draw(self, draw: Draw) -> Any:
        """Draw two tables and how to read them."""
        edges, nodes, _, columns = Tables().draw(draw)
        options = {"directed": draw(st.booleans())}
        if draw(st.booleans()):
            heads = ["source", "target", draw(st.sampled_from(["weight", "w"]))]
            cells = _CELLS | st.sampled_from(["a", "b1", "007"])
            edges = _drawn_table(draw, heads, _CELLS if nodes else cells, 15)
            options["weight"] = draw(st.sampled_from([None, "weight", "w"]))
        if "left_out" in columns:
            options["leave_out"] = columns.pop("left_out")
        return edges, nodes, {**options, **columns}

    def write(self, case: Any, place: Path) -> None:
        """Write the files."""
        Tables().write((*case, None), place)

    def read(self, case: Any, place: Path) -> None:
        """Read the graph, and check what it has to be."""
        edges, nodes, options = case
        table = None if nodes is None else _table_path(nodes, place / "nodes")
        data = load_data(_table_path(edges, place / "edges"), nodes=table, **options)
        pairs = data.edge_index
        require(bool((pairs[0] != pairs[1]).all()), "no self-loops")
        require(torch.unique(pairs, dim=1).shape == pairs.shape, "each edge once")
        require(len(set(data.ids.tolist())) == data.num_nodes, "an id for each node")
        validate(data, labels_needed=False, features_needed=False)
        save_npz(with_log_degree(data), place / "g.npz")
        require(load_npz(place / "g.npz").ids.tolist() == data.ids.tolist(), "its ids")


@final
class TypedTables(Target):
    """A folder with a table for each type of nodes and each relation."""

    name, share = "typed-tables", 3

    def draw(self, draw: Draw) -> Any:
        """Draw tables by the names of their files, and how to read them."""
        files = dict(_TYPED_FILES)
        for _ in range(draw(st.sampled_from([0, 1, 1, 2]))):
            name = draw(st.sampled_from(sorted(files)))
            how = draw(st.sampled_from(["bytes", "bytes", "table", "name", "out"]))
            content = files.pop(name)
            if how == "bytes":
                files[name] = bytes_damage(draw, content)
            elif how == "name":
                files[f"{draw(st.sampled_from(_NAMES_OF_TABLES))}.csv"] = content
            elif how == "table":
                heads = content.splitlines()[0].decode().split(",")
                kind, drawn = _drawn_table(draw, heads, _CELLS, 13)
                files[f"{name.removesuffix('.csv')}.{kind}"] = drawn
        options = {"directed": draw(st.booleans())}
        if not draw(st.integers(0, 3)):
            chosen = draw(st.sampled_from(["id", "label", "weight"]))
            options[chosen] = draw(st.sampled_from(["id", "f0", "weight", "x"]))
        return files, options

    def write(self, case: Any, place: Path) -> None:
        """Write the files."""
        for name, content in case[0].items():
            (place / name).write_bytes(content)

    def read(self, case: Any, place: Path) -> None:
        """Read the graph, check what it has to be, and hand it on to PyG and back."""
        # Without any file that is called so it is no folder of tables.
        data = load_typed_tables(place, **case[1])
        validate(data, labels_needed=False, features_needed=False)
        require_relations(data)
        pairs = torch.vstack([data.edge_index, data.edge_type])
        require(bool((pairs[0] != pairs[1]).all()), "no self-loops")
        require(torch.unique(pairs, dim=1).shape == pairs.shape, "each edge once")
        if "x" in data:
            back = as_graph(data.to_pyg())
            require(content_digest(back) == content_digest(data), "the same in PyG")


_TYPED_FILES = {
    "nodes.a.csv": b"id,label,split,f0\n0,x,train,1\n1,y,train,2\n2,x,val,3\n3,y,,4\n",
    "nodes.b.csv": b"id,f0,f1\n0,1,2\n1,3,4\nc 2,5,0\n",
    "edges.a.r.b.csv": b"source,target,weight\n0,1,1\n1,c 2,2\n3,0,1\n2,1,1\n",
    "edges.b.s.b.csv": b"source,target\n0,1\n1,c 2\n",
    "edges.b.t.c.csv": b"source,target\n0,8\n1,9\n",
}
_NAMES_OF_TABLES = ("edges.a.r", "edges", "nodes", "nodes.", "nodes.a.b", "edges...")
_NAMES_OF_TABLES += ("edges.b.rev_r.a", "edges.a.r.c", "nodes.c", "nodes.\x1b[2J")


def require_relations(data: Graph) -> None:
    """Raise unless each edge joins nodes of the types that its relation says."""
    types = data.one_or_more_types()
    ends = types.node_type[data.edge_index]
    for number, (one, _, other) in enumerate(types.edge_types):
        chosen = ends[:, types.edge_type == number]
        expected = [[types.node_types.index(one)], [types.node_types.index(other)]]
        require(bool((chosen == torch.tensor(expected)).all()), "ends of a relation")


def _drawn_table(draw: Draw, heads: list[str], cells: Any, most: int) -> Any:
    """Draw (format, heads, rows, damage)."""
    kind = draw(st.sampled_from(["csv", "csv", "csv", "parquet"]))
    width = len(heads)
    rows = draw(
        st.lists(st.lists(cells, min_size=width, max_size=width), max_size=most)
    )
    if draw(st.booleans()):
        # As somebody would write it: nodes are called by their numbers.
        rows = [
            [str(number) if head == "id" else cell for head, cell in pairs]
            for number, row in enumerate(rows)
            for pairs in [list(zip(heads, row, strict=True))]
        ]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        if rows and width:
            row = draw(st.integers(0, len(rows) - 1))
            if draw(st.integers(0, 4)):
                column = draw(st.integers(0, max(len(rows[row]) - 1, 0)))
                rows[row][column : column + 1] = [draw(_ODD_CELLS)]
            else:
                rows[row] = rows[row][:-1] or [*rows[row], "1"]
    if not draw(st.integers(0, 4)):
        heads = [*heads, draw(st.sampled_from(["source", "id", "f0", "\x1b[2J", "é"]))]
    spoilt = not draw(st.integers(0, 5))
    content = _content(kind, heads, rows)
    return kind, bytes_damage(draw, content) if spoilt else content


def _content(kind: str, heads: list[str], rows: list[list[str]]) -> bytes:
    if kind == "csv":
        text = io.StringIO()
        csv.writer(text).writerows([heads, *rows])
        return text.getvalue().encode("utf-8", "surrogatepass")
    columns = []
    for number in range(len(heads)):
        values = [row[number] if number < len(row) else None for row in rows]
        columns.append(_column([_cell(value) for value in values]))
    buffer = io.BytesIO()
    names = [head.encode("utf-8", "replace").decode() for head in heads]
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, names), buffer)
    return buffer.getvalue()


def _cell(value: str | None) -> int | float | str | None:
    for kind in (int, float):
        try:
            return kind(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
    return None if value is None else value.encode("utf-8", "replace").decode()


def _column(values: list[Any]) -> Any:
    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError):
        return pyarrow.array([None if v is None else str(v) for v in values])


def _table_path(table: Any, path: Path) -> Path:
    return path.with_suffix(f".{table[0]}")


def _write_table(table: Any, path: Path) -> None:
    _table_path(table, path).write_bytes(table[1])
