"""Folders whose checksums fit and whose content does not: refused, nothing crashes."""

import hashlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cli.conftest import command as command
from cli.conftest import refused
from data.folder.tampering import change_array, edit, replace_array
from gsebo import GSEBO, Amortised, generate_graph
from gsebo.data.datasets.registry import MANIFEST, is_graph_folder
from gsebo.data.formats.folder import GraphFolder, write_folder
from gsebo.data.formats.npy_stream import header_of
from gsebo.errors import InvalidInput

NODES = 40
FIT = ("--method", "gsebo", "--batch-size", 16, "--device", "cpu")


def make(path: Path, kind: str = "dense") -> Path:
    data = generate_graph(NODES, average_degree=4.0, num_features=5)
    data.node_id = torch.arange(NODES) * 3
    data.edge_weight = torch.linspace(0, 2, data.num_edges)
    data.edge_attr = torch.ones(data.num_edges, 2)
    if kind == "sparse":
        data.x[:, 1:] = 0
    return write_folder(data, path).path


def first(folder: Path, mask: str) -> int:
    return int(np.flatnonzero(np.load(folder / f"{mask}_mask.npy"))[0])


ROWS: dict[str, list[Any]] = {
    "indptr": [(0, 1), (0, -1), (5, -(2**63)), (5, 2**62), (-1, 0), (-1, 10**6)],
    "source": [(3, NODES), (3, -1), (0, 2**31 - 1), (-1, -(2**31))],
    "x": [((3, 2), np.nan), ((0, 0), np.inf), ((-1, -1), -np.inf)],
    "y": [("train", 2), ("val", 10**9), ("train", -2), ("test", NODES), ("test", -9)],
    "train_mask": [(0, 2), (5, 255)],
    "node_id": [(4, 0), (0, 3)],
    "edge_weight": [(0, -1.0), (3, np.nan), (-1, np.inf), (2, 1e39)],
    "edge_attr": [((0, 1), np.nan), ((-1, 0), -np.inf)],
}
SPARSE: dict[str, list[Any]] = {
    "x_indptr": [(0, 1), (5, 2**62), (5, -1), (-1, 0), (-1, 10**6)],
    "x_columns": [(0, 5), (3, -1), (0, 2**31 - 1)],
    "x_values": [(0, np.nan), (2, -np.inf)],
}
CASES = [
    *(("dense", name, *case) for name, cases in ROWS.items() for case in cases),
    *(("sparse", name, *case) for name, cases in SPARSE.items() for case in cases),
]


@pytest.mark.parametrize(("kind", "name", "place", "value"), CASES)
def test_a_number_that_no_graph_holds(
    kind: str, name: str, place: Any, value: Any, tmp_path: Path
) -> None:
    folder = make(tmp_path / "g", kind)
    opened = GraphFolder.open(folder)
    if name == "y":
        place = first(folder, place)
    array = np.load(folder / f"{name}.npy")
    held = array.view(np.uint8) if array.dtype == np.bool_ else array
    held[place] = value
    replace_array(folder, name, array)
    with pytest.raises(InvalidInput) as refusal:
        GraphFolder.open(folder)
    assert f"{name}.npy" in str(refusal.value)
    assert "damaged" not in str(refusal.value)
    # One that was opened before does not read the new arrays either.
    for read in (opened.arrays, opened.to_data, opened.labels, opened.verify):
        with pytest.raises(InvalidInput, match=f"{name}.npy is damaged"):
            read()


def shuffled(values: np.ndarray) -> np.ndarray:
    return np.random.default_rng(0).permutation(values)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("indptr", shuffled),
        ("indptr", lambda a: a[::-1].copy()),
        ("indptr", np.zeros_like),
        ("indptr", lambda a: np.full_like(a, 2**62)),
        ("source", shuffled),
        ("source", lambda a: a + NODES),
        ("source", lambda a: np.full_like(a, -1)),
        ("source", lambda a: a.astype(np.int64) * 2**40),
        ("y", lambda a: a + 10**9),
        ("y", lambda a: a - 10),
        ("test_mask", np.ones_like),
        ("node_id", np.zeros_like),
        ("edge_weight", np.negative),
    ],
)
@pytest.mark.parametrize("estimator", [GSEBO, Amortised])
def test_an_array_of_another_graph(
    name: str, change: Callable[[np.ndarray], np.ndarray], estimator: Any, tmp_path
) -> None:
    folder = make(tmp_path / "g")
    opened = GraphFolder.open(folder)
    replace_array(folder, name, change(np.load(folder / f"{name}.npy")))
    with pytest.raises(InvalidInput, match=name):
        GraphFolder.open(folder)
    with pytest.raises(InvalidInput, match=rf"{name}\.npy (is damaged|holds)"):
        estimator(batch_size=16, device="cpu").fit(opened)


@pytest.mark.parametrize("classes", [3, 10**6, 2**31 - 1, 2**31, 10**18, 2**63])
def test_more_classes_than_there_are(
    classes: int, tmp_path: Path, command: Any
) -> None:
    folder = make(tmp_path / "g")
    edit(folder, lambda content: content.update(num_classes=classes))
    assert MANIFEST in refused(command("fit", folder, *FIT))
    with pytest.raises(InvalidInput, match=MANIFEST):
        GraphFolder.open(folder)
    # With a label to match it can be opened; still nobody allocates a network for it.
    if classes < 2**31:
        change_array(folder, "y", first(folder, "train"), classes - 1)
        assert GraphFolder.open(folder).manifest.num_classes == classes
        if classes > NODES:
            said = refused(command("fit", folder, *FIT))
            expected = f"{classes} classes for {NODES} nodes", "training takes about"
            assert any(words in said for words in expected)


def test_a_network_that_is_too_large_for_memory(tmp_path: Path) -> None:
    folder = make(tmp_path / "g", "sparse")
    edit(folder, lambda content: content.update(num_features=2**31 - 1))
    graph = GraphFolder.open(folder)
    with pytest.raises(InvalidInput, match=r"GB .*expected .* more memory"):
        GSEBO(batch_size=16, device="cpu").fit(graph)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def dangling(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def bound(path: Path) -> None:
    # Names of sockets have to be short.
    before = Path.cwd()
    os.chdir(path.parent)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(before)


@pytest.mark.parametrize("kind", [pipe, endless, dangling, bound, Path.mkdir])
@pytest.mark.parametrize("name", [MANIFEST, "source.npy", "y.npy"])
def test_what_is_no_file(
    kind: Callable[[Path], None], name: str, tmp_path: Path, command: Any
) -> None:
    folder = make(tmp_path / "g")
    opened = GraphFolder.open(folder)
    (folder / name).unlink()
    kind(folder / name)
    with pytest.raises(InvalidInput, match=name):
        GraphFolder.open(folder)
    if name != MANIFEST:
        with pytest.raises(InvalidInput, match=name):
            opened.arrays()
    assert name in refused(command("fit", folder, *FIT))
    assert command("data", "verify", folder).exit_code == 1


def with_header(folder: Path, name: str, old: bytes, new: bytes) -> None:
    """Change what a file says of itself and make the manifest's checksum fit."""
    path = folder / f"{name}.npy"
    content = path.read_bytes()
    assert old in content and len(old) == len(new)
    path.write_bytes(content.replace(old, new, 1))
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    edit(folder, lambda c: c["arrays"][name].update(sha256=found))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"False", b"True "),
        (b"'<i8'", b"'|O8'"),
        (b"'<i8'", b"'>i8'"),
        (b"(40,), }" + b" " * 9, b"(40" + b"0" * 9 + b",), }"),
        (b"(40,), }" + b" " * 30, b"(" * 38),
        (b"(40,)", b"(-1,)"),
        (b"\x01\x00v", b"\x02\x00v"),
        (b"v\x00", b"\xff\xff"),
    ],
)
def test_a_header_that_claims_something_else(
    old: bytes, new: bytes, tmp_path: Path
) -> None:
    folder = make(tmp_path / "g")
    assert old in header_of("<i8", (NODES,))
    with_header(folder, "y", old, new)
    with pytest.raises(InvalidInput, match=r"y\.npy does not begin as"):
        GraphFolder.open(folder)


def test_sizes_that_nothing_could_hold(tmp_path: Path) -> None:
    folder = make(tmp_path / "g")
    most = 2**31 - 1

    def claim(content: dict[str, Any]) -> None:
        content.update(num_nodes=most, num_features=most)
        of_edges = ("source", "edge_weight", "edge_attr")
        for name, entry in content["arrays"].items():
            if name in of_edges:
                continue
            rows = most + 1 if name == "indptr" else most
            entry["shape"] = [rows, most] if name == "x" else [rows]

    edit(folder, claim)
    with pytest.raises(InvalidInput, match="bytes: expected"):
        GraphFolder.open(folder)


@pytest.mark.parametrize(
    "name", ["g\x1b[2Jh", "g\x07", "gé", os.fsdecode(b"g\xff\xfe")]
)
def test_names_that_a_terminal_would_obey(
    name: str, tmp_path: Path, command: Any
) -> None:
    folder = make(tmp_path / name)
    done = command("data", "verify", folder)
    assert done.exit_code == 0 and "undamaged" in done.stdout
    assert done.stdout.replace("\n", "").isprintable()
    done.stdout.encode()
    change_array(folder, "source", 0, -1)
    done = command("fit", folder, *FIT)
    assert done.stderr.replace("\n", "").isprintable()
    assert "source.npy" in refused(done)


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3000, "a\0b", "~nobody-at-all/g"])
def test_names_that_cannot_be(name: str, command: Any) -> None:
    with pytest.raises(InvalidInput, match="there is no folder"):
        GraphFolder.open(name)
    assert not is_graph_folder(name)
    with pytest.raises(InvalidInput):
        make(Path("/dev/null") / name)
    if "\0" not in name:
        assert command("data", "verify", name).exit_code == 2


def test_a_name_that_is_just_short_enough(tmp_path: Path) -> None:
    folder = make(tmp_path / ("é" * 127))
    GraphFolder.open(folder).verify()


def test_nothing_is_left_of_a_graph_that_cannot_be_written(tmp_path: Path) -> None:
    data = generate_graph(NODES, average_degree=4.0, num_features=5)
    for facts in ({"a": np.zeros(3)}, {"a": float("nan")}, {"a": "\ud800"}):
        with pytest.raises(InvalidInput, match=r"cannot write .*graph\.json"):
            write_folder(data, tmp_path / "new" / "deep" / "g", facts=facts)
    data.y[0] = -7
    with pytest.raises(InvalidInput, match=r"deep/g/y\.npy holds -7"):
        write_folder(data, tmp_path / "new" / "deep" / "g")
    assert list(tmp_path.iterdir()) == []
