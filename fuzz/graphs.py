"""Graphs that users bring: .npz files, tables of text or Parquet, objects of Python."""

import csv
import io
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from hypothesis import strategies as st
from torch_geometric.data import Data

from fuzz.damage import FLAT, JUNK, NUMBERS, array_damage, bytes_damage
from fuzz.folders import FolderContent
from fuzz.target import Draw, Target, require
from gsebo import GSEBO, Vanilla, generate_graph, load_data
from gsebo.data import (
    apply_noise,
    apply_split,
    content_digest,
    load_npz,
    save_npz,
    validate,
)
from gsebo.data.formats.convert import TableOptions, convert_tables
from gsebo.data.formats.folder import with_log_degree, write_folder
from gsebo.data.formats.node_table import NodeColumns
from gsebo.errors import InvalidInput


def _graph() -> Data:
    return generate_graph(30, average_degree=4.0, num_features=4, seed=2)


def _sparse_graph() -> Data:
    data = _graph()
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
        save_npz(_graph(), folder / "dense.npz", {"name": "g"})
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
        self._graphs = [_parts(_graph()), sparse]
        for arrays in self._graphs:
            arrays.pop("meta", None)
            arrays["meta"] = np.array('{"name": "g"}')
            arrays["node_id"] = np.arange(30)
            edges = arrays["edge_index"].shape[1]
            arrays["edge_weight"] = np.linspace(0, 2, edges)
            arrays["edge_attr"] = np.ones((edges, 2), np.float32)

    def draw(self, draw: Draw) -> Any:
        """Draw arrays, of which some are spoilt."""
        arrays = dict(draw(st.sampled_from(self._graphs)))
        header = None
        for _ in range(draw(st.integers(1, 2))):
            name = draw(st.sampled_from(sorted(arrays)))
            how = draw(st.sampled_from(["spoil", "spoil", "out", "other", "header"]))
            if how == "spoil":
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


# --- objects -------------------------------------------------------------------------

_FIELDS = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask", "num_nodes")
_OF_EDGES = ("edge_weight", "edge_attr")
_CALLS = ("validate", "fit", "gsebo", "digest", "noise", "split", "save", "folder")
_NOISES = ("labels:20", "random:5", "removed:20", "features:30", "inter_class:4")
_SPLITS = ("random:20/30/50", "ratio:50/25/25", "planetoid:2/5/5", "halves", "unseen")
_FORMS = ("meta", "sparse", "csr", "nested", "conj", "expand", "numpy", "list", "grad")


@final
class Objects(Target):
    """Graphs in memory with fields of any type, shape and kind."""

    name, share = "objects", 4

    def draw(self, draw: Draw) -> Any:
        """Draw a field, what it becomes, and who gets the graph."""
        changes = {}
        for _ in range(draw(st.sampled_from([1, 1, 2]))):
            key = draw(st.sampled_from([*_FIELDS, "node_id", *_OF_EDGES]))
            count = _graph().num_edges if key in _OF_EDGES else 30
            value = _graph()[key] if key in _graph() else torch.arange(count)
            how = draw(st.sampled_from(["array", "array", "form", "junk", "out"]))
            if how == "array" and isinstance(value, torch.Tensor):
                found = how, array_damage(draw, value.numpy())
            elif how == "form":
                found = how, draw(st.sampled_from(_FORMS))
            elif how == "out":
                found = how, None
            else:
                found = "junk", draw(JUNK)
            changes[key] = found
        call = draw(st.sampled_from(_CALLS))
        detail = draw(st.sampled_from(_NOISES if call == "noise" else _SPLITS))
        return changes, call, detail

    def read(self, case: Any, place: Path) -> None:
        """Hand the graph to who was drawn."""
        changes, call, detail = case
        data = _graph()
        for key, (how, value) in changes.items():
            try:
                data[key] = _as_object(data, key, how, value)
            except (LookupError, RuntimeError, TypeError, ValueError):
                return  # Neither torch nor PyG makes such a thing.
        _handed(data, call, detail, place)


def _as_object(data: Data, key: str, how: str, value: Any) -> Any:
    if how == "array":
        return torch.from_numpy(np.ascontiguousarray(value))
    if how != "form":
        return value
    count = data.num_edges if key in _OF_EDGES else 30
    given = data[key] if key in data else torch.arange(count)
    given = torch.as_tensor(given)
    made = {
        "meta": lambda: given.to("meta"),
        "sparse": lambda: given.to_sparse(),
        "csr": lambda: given.to_sparse_csr(),
        "nested": lambda: torch.nested.nested_tensor([given, given]),
        "conj": lambda: torch.complex(given.float(), given.float()).conj().imag,
        "expand": lambda: given.reshape(-1)[:1].expand(10**13),
        "numpy": lambda: given.numpy(),
        "list": lambda: given.tolist(),
        "grad": lambda: given.float().requires_grad_(),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return made[value]()


def _handed(data: Data, call: str, detail: str, place: Path) -> None:
    if call == "validate":
        validate(data)
    elif call == "fit":
        Vanilla(max_epochs=1, hidden_channels=3, random_state=0).fit(data)
    elif call == "gsebo":
        GSEBO(max_outer_steps=1, inner_steps=1, random_state=0).fit(data)
    elif call == "digest":
        content_digest(data)
    elif call == "noise":
        apply_noise(data, detail)
    elif call == "split":
        apply_split(data, detail)
    elif call == "save":
        save_npz(data, place / "g.npz")
        load_npz(place / "g.npz")
    else:
        write_folder(data, place / "folder")
