"""A folder that is not as it was written is found out."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_geometric.data import Data

from data.folder.tables import names_in
from data.folder.tampering import edit, everything
from gsebo import generate_graph
from gsebo.data.datasets.registry import MANIFEST
from gsebo.data.formats.folder import GraphFolder, write_folder
from gsebo.data.formats.manifest import Manifest
from gsebo.errors import InvalidInput
from gsebo.graph.arrays import CSRArrays, GraphArrays

FLIPS = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = generate_graph(40, average_degree=4.0, num_features=5)
    return write_folder(data, tmp_path / "g").path


@pytest.mark.parametrize("dense", [True, False])
def test_every_byte_counts(dense: bool, tmp_path: Path) -> None:
    data = generate_graph(40, average_degree=4.0, num_features=5)
    if not dense:
        data.x[:, 1:] = 0
    folder = write_folder(data, tmp_path / "g").path
    manifest, parts = everything(folder)
    assert manifest.features == ("dense" if dense else "sparse")
    refusals = 0
    # Small files, such as the manifest, get as many flips as large ones.
    for number in range(FLIPS):
        chance = random.Random(number)
        path = folder / sorted(names_in(folder))[number % len(names_in(folder))]
        good = path.read_bytes()
        bad = bytearray(good)
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(bad))
        try:
            assert everything(folder) == (manifest, parts)
        except InvalidInput as refused:
            assert path.name in str(refused) and str(refused).isprintable()
            refusals += 1
        path.write_bytes(good)
    assert refusals == FLIPS
    assert everything(folder) == (manifest, parts)


@pytest.mark.parametrize("name", ["indptr", "source", "x", "y", "train_mask"])
def test_damage_is_called_damage(folder: Path, name: str) -> None:
    path = folder / f"{name}.npy"
    good = path.read_bytes()
    opened = GraphFolder.open(folder)
    # The last byte of a number is its largest, too: out of every range.
    for place in (len(good) - 1, 130):
        bad = bytearray(good)
        bad[place] ^= 64
        path.write_bytes(bytes(bad))
        for read in (GraphFolder.verify, GraphFolder.arrays, GraphFolder.to_data):
            with pytest.raises(InvalidInput, match=f"{name}.npy is damaged"):
                read(opened)
        with pytest.raises(InvalidInput, match=f"{name}.npy is damaged"):
            GraphFolder.open(folder)
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
    with pytest.raises(InvalidInput, match=r"bytes: expected .* <i8 \[40\]"):
        GraphFolder.open(folder)
    path.unlink()
    with pytest.raises(InvalidInput, match="there is no such file"):
        GraphFolder.open(folder)
    np.save(path, np.zeros(41, np.int64))
    with pytest.raises(InvalidInput, match=r"bytes: expected .* <i8 \[40\]"):
        GraphFolder.open(folder)
    for other in (np.zeros(40, np.uint64), np.zeros((8, 5), np.int64)):
        np.save(path, other)
        with pytest.raises(InvalidInput, match=r"not begin as .* <i8 \[40\]"):
            GraphFolder.open(folder)
    np.save(path, np.array([{"a": 1}] * 40), allow_pickle=True)
    with pytest.raises(InvalidInput, match=r"<i8 \[40\]"):
        GraphFolder.open(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.update(format="zip"), "format 'zip'"),
        (lambda c: c.update(format=["\x1b[2J"]), r"format ['\x1b[2J']"),
        (lambda c: c.update(version=1), "expected 2, the only one"),
        (lambda c: c.update(version=1), "convert or generate the graph again"),
        (lambda c: c.update(version=3), "version 3: expected 2"),
        (lambda c: c.update(num_nodes=41), "expected [42]"),
        (lambda c: c.update(num_nodes=0), "num_nodes"),
        (lambda c: c.update(num_nodes=10**18), "num_nodes"),
        (lambda c: c.update(num_edges=-1), "num_edges"),
        (lambda c: c.update(num_nodes=True), "num_nodes"),
        (lambda c: c.update(num_nodes=40.0), "num_nodes"),
        (lambda c: c.update(num_features=6), "expected [40, 6]"),
        (lambda c: c.update(dtype="float64"), "dtype"),
        (lambda c: c.update(features="odd"), "odd"),
        (lambda c: c.update(features="sparse"), "names no array 'x_columns'"),
        (lambda c: c.update(facts=[]), "facts"),
        (lambda c: c.update(facts={"a": float("nan")}), "no JSON"),
        (lambda c: c.update(facts={"a": 10**30}), "64 bits"),
        (lambda c: c.update(facts={"a": nested(40)}), "deep"),
        (lambda c: c.update(num_classes=None), "is None with labels"),
        (lambda c: c.update(num_classes=10**18), "num_classes"),
        (lambda c: c.update(num_classes=10**6), "num_classes"),
        (lambda c: c.update(num_classes=3), "2 at most"),
        (lambda c: c.update(classes=["a"]), "expected one name for each of 2"),
        (lambda c: c.update(classes="ab"), "classes"),
        (lambda c: c.pop("num_classes"), "num_classes"),
        (lambda c: c.update(arrays=None), "arrays"),
        (lambda c: c.update(arrays=[]), "arrays"),
        (lambda c: c["arrays"].pop("source"), "names no array 'source'"),
        (lambda c: c["arrays"]["y"].update(file="../y.npy"), "file"),
        (lambda c: c["arrays"]["y"].update(dtype="|O"), "|O"),
        (lambda c: c["arrays"]["y"].update(dtype="<f4"), "type '<f4'"),
        (lambda c: c["arrays"]["y"].update(shape="wide"), "shape"),
        (lambda c: c["arrays"]["y"].update(shape=[]), "shape"),
        (lambda c: c["arrays"]["y"].update(shape=[2**62]), "shape"),
        (lambda c: c["arrays"]["y"].update(sha256="0" * 63), "sha256"),
        (lambda c: c["arrays"]["y"].update(sha256=None), "sha256"),
        (lambda c: c["arrays"].update(z=c["arrays"]["y"]), "names an array 'z'"),
    ],
)
def test_a_manifest_that_is_wrong(folder: Path, change: Any, said: str) -> None:
    edit(folder, change)
    with pytest.raises(InvalidInput) as refused:
        GraphFolder.open(folder)
    assert said in str(refused.value) and MANIFEST in str(refused.value)
    assert str(refused.value).isprintable()


def nested(depth: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", "3", '"a"', "[" * 10**5, "\0", '{"format": null}']
)
def test_a_manifest_of_another_shape(folder: Path, text: str) -> None:
    (folder / MANIFEST).write_text(text)
    with pytest.raises(InvalidInput, match=MANIFEST):
        GraphFolder.open(folder)


def test_a_manifest_that_says_the_same_in_other_words(folder: Path) -> None:
    path = folder / MANIFEST
    good = path.read_text()
    content = json.loads(good)
    doubled = good.replace('"num_nodes": 40,', '"num_nodes": 41,\n  "num_nodes": 40,')
    for other in (json.dumps(content), good + " ", good.rstrip("\n"), doubled):
        path.write_text(other)
        with pytest.raises(InvalidInput, match=r"graph\.json is damaged"):
            GraphFolder.open(folder)
    del content["sha256"]
    path.write_text(json.dumps(content, indent=2) + "\n")
    with pytest.raises(InvalidInput, match=r"graph\.json is damaged"):
        GraphFolder.open(folder)


def test_what_is_no_graph_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="there is no folder"):
        GraphFolder.open(tmp_path / "g")
    with pytest.raises(InvalidInput, match=r"has no graph\.json"):
        GraphFolder.open(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(InvalidInput, match="no JSON"):
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
        ({"indptr": np.array([1, 2, 3, 3])}, "holds 1 at position 0: expected 0"),
        ({"indptr": np.array([0, 2, 2, 2])}, "holds 2 at position 3: expected 3"),
        ({"indptr": np.array([0, 2, 3, 4])}, "holds 4 at position 3: expected 3"),
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
    for at_once in (1, 2, 2**20):
        monkeypatch.setattr("gsebo.data.formats.folder_check._VALUES_AT_ONCE", at_once)
        with pytest.raises(InvalidInput) as refused:
            write_folder(_arrays(**changes), tmp_path / "new" / "g")
        assert said in str(refused.value) and ".partial" not in str(refused.value)
    assert names_in(tmp_path) == []


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
