"""A folder that is not as it was written is found out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_geometric.data import Data

from gsebo import generate_graph
from gsebo.data.arrays import CSRArrays, GraphArrays
from gsebo.data.folder import GraphFolder
from gsebo.data.folder_arrays import write_folder
from gsebo.data.folder_manifest import MANIFEST, Manifest
from gsebo.errors import InvalidInput


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = generate_graph(40, average_degree=4.0, num_features=5)
    return write_folder(data, tmp_path / "g").path


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads((folder / MANIFEST).read_text())
    change(content)
    (folder / MANIFEST).write_text(json.dumps(content))


@pytest.mark.parametrize("name", ["indptr", "source", "x", "y", "train_mask"])
def test_every_byte_counts(folder: Path, name: str) -> None:
    path = folder / f"{name}.npy"
    good = path.read_bytes()
    for place in (len(good) - 1, 130):
        bad = bytearray(good)
        bad[place] ^= 1
        path.write_bytes(bytes(bad))
        opened = GraphFolder.open(folder)
        with pytest.raises(InvalidInput, match=f"{name}.npy is damaged"):
            opened.verify()
    path.write_bytes(good)
    GraphFolder.open(folder).verify()


@pytest.mark.parametrize("length", [0, 5, 100, -1])
def test_a_file_that_was_cut_off(folder: Path, length: int) -> None:
    path = folder / "source.npy"
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InvalidInput, match=r"source\.npy"):
        GraphFolder.open(folder)


def test_a_file_that_grew_or_is_gone_or_is_another(folder: Path) -> None:
    path = folder / "y.npy"
    good = path.read_bytes()
    path.write_bytes(good + b"\0")
    with pytest.raises(InvalidInput, match="bytes: expected"):
        GraphFolder.open(folder)
    path.unlink()
    with pytest.raises(InvalidInput, match="there is no file"):
        GraphFolder.open(folder)
    np.save(path, np.zeros(41, np.int64))
    with pytest.raises(InvalidInput, match=r"holds <i8 \[41\]: expected <i8 \[40\]"):
        GraphFolder.open(folder)
    np.save(path, np.array([{"a": 1}] * 40), allow_pickle=True)
    with pytest.raises(InvalidInput, match="plain numbers"):
        GraphFolder.open(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.update(format="zip"), "format 'zip'"),
        (lambda c: c.update(version=2), "version 2: expected 1"),
        (lambda c: c.update(num_nodes=41), "expected [42]"),
        (lambda c: c.update(num_edges=-1), "-1 is no size"),
        (lambda c: c.update(num_nodes=True), "True is no size"),
        (lambda c: c.update(num_features=6), "expected [40, 6]"),
        (lambda c: c.update(dtype="float64"), "expected 'float32'"),
        (lambda c: c.update(features="odd"), "not dense or sparse"),
        (lambda c: c.update(features="sparse"), "names no array 'x_columns'"),
        (lambda c: c.update(facts=[]), "facts are no object"),
        (lambda c: c.pop("num_classes"), "num_classes"),
        (lambda c: c["arrays"].pop("source"), "names no array 'source'"),
        (lambda c: c["arrays"]["y"].update(file="../y.npy"), "not in y.npy"),
        (lambda c: c["arrays"]["y"].update(dtype="|O"), "type '|O'"),
        (lambda c: c["arrays"]["y"].update(shape="wide"), "is no size"),
        (lambda c: c["arrays"].update(z=c["arrays"]["y"]), "not in z.npy"),
        (
            lambda c: c["arrays"].update(z={**c["arrays"]["y"], "file": "z.npy"}),
            "names an array 'z'",
        ),
    ],
)
def test_a_manifest_that_is_wrong(folder: Path, change: Any, said: str) -> None:
    edit(folder, change)
    with pytest.raises(InvalidInput) as refused:
        GraphFolder.open(folder)
    assert said in str(refused.value) and MANIFEST in str(refused.value)


def test_what_is_no_graph_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no folder"):
        GraphFolder.open(tmp_path / "g")
    with pytest.raises(InvalidInput, match=r"has no graph\.json"):
        GraphFolder.open(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(InvalidInput, match="damaged"):
        GraphFolder.open(tmp_path)


def _arrays(**changes: Any) -> GraphArrays:
    fields = {
        "indptr": np.array([0, 2, 3, 3]),
        "source": np.array([1, 2, 0]),
        "x": np.ones((3, 2), np.float32),
        **changes,
    }
    return GraphArrays(**fields)


def sparse(indptr: list[int], columns: list[int], values: list[float]) -> CSRArrays:
    whole = np.array(indptr), np.array(columns, np.int64)
    return CSRArrays(*whole, np.array(values, np.float32), 2)


TRUTH = np.array([True, False, False])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"indptr": np.array([0, 2, 1, 3])}, "indptr.npy falls after position 1"),
        ({"indptr": np.array([1, 2, 3, 3])}, "runs from 1 to 3: expected 0 to 3"),
        ({"source": np.array([1, 3, 0])}, "holds 3 at position 1: expected 0 to 2"),
        ({"source": np.array([1, 2, -1])}, "holds -1 at position 2: expected 0 to 2"),
        ({"source": np.array([1, 2, 1])}, "position 2: expected no self-loop"),
        ({"source": np.array([2, 1, 0])}, "sources of node 0 in rising order"),
        ({"source": np.array([2, 2, 0])}, "sources of node 0 in rising order"),
        ({"x": np.array([[1, 2], [0, np.nan], [0, 0]])}, "holds nan at position 1"),
        ({"x": sparse([0, 1, 2, 2], [1, 2], [1, 1])}, "x_columns.npy holds 2"),
        ({"x": sparse([0, 2, 2, 2], [1, 0], [1, 1])}, "columns of node 0 in rising"),
        ({"x": sparse([0, 1, 2, 2], [1, 1], [1, np.inf])}, "x_values.npy holds inf"),
        ({"x": sparse([0, 2, 1, 2], [0, 1], [1, 1])}, "x_indptr.npy falls"),
        ({"y": np.array([0, -2, 1])}, "y.npy holds -2 at position 1"),
        ({"train": TRUTH, "test": TRUTH}, "train_mask.npy holds true at position 0"),
        ({"node_id": np.array([4, 5, 4])}, "node_id.npy holds 4 at position 2"),
    ],
)
def test_arrays_that_are_no_graph(
    changes: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(_arrays(**changes), tmp_path / "g")
    for at_once in (1, 2, 2**20):
        monkeypatch.setattr("gsebo.data.folder_verify._VALUES_AT_ONCE", at_once)
        with pytest.raises(InvalidInput) as refused:
            folder.verify()
        assert said in str(refused.value)


def test_the_undamaged_pass(tmp_path: Path, graph: Data) -> None:
    write_folder(_arrays(), tmp_path / "g").verify()
    x = sparse([0, 0, 2, 2], [0, 1], [1, 1])
    write_folder(_arrays(x=x), tmp_path / "h").verify()
    empty = sparse([0, 0, 0, 0], [], [])
    folder = write_folder(_arrays(x=empty), tmp_path / "i")
    folder.verify()
    assert not folder.to_data().x.any()


def test_the_manifest_says_what_it_read(folder: Path) -> None:
    manifest = GraphFolder.open(folder).manifest
    assert isinstance(manifest, Manifest)
    assert (folder / MANIFEST).read_text() == manifest.text()
