from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.conftest import SHORT, Command, refused, small_graph


def arrays() -> dict[str, Any]:
    graph = small_graph()
    masks = {key: graph[key].numpy() for key in ("train_mask", "val_mask", "test_mask")}
    plain = {key: graph[key].numpy() for key in ("x", "edge_index", "y")}
    return {**plain, **masks}


def with_value(key: str, index: Any, value: object) -> dict[str, Any]:
    changed = arrays()
    changed[key] = changed[key].copy()
    changed[key][index] = value
    return changed


def without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in arrays().items() if key not in keys}


BAD_GRAPHS: dict[str, dict[str, Any]] = {
    "object arrays": {**arrays(), "y": np.array([{}] * 40)},
    "no edges array": without("edge_index"),
    "no labels": without("y"),
    "no validation mask": without("val_mask"),
    "edge out of range": with_value("edge_index", (0, 0), 40),
    "negative edge": with_value("edge_index", (1, 0), -1),
    "float edges": {**arrays(), "edge_index": arrays()["edge_index"] / 1.0},
    "edges in columns": {**arrays(), "edge_index": arrays()["edge_index"].T},
    "flat features": {**arrays(), "x": arrays()["x"].ravel()},
    "no feature columns": {**arrays(), "x": np.zeros((40, 0))},
    "short labels": {**arrays(), "y": arrays()["y"][:-1]},
    "float labels": {**arrays(), "y": arrays()["y"] + 0.5},
    "short mask": {**arrays(), "val_mask": arrays()["val_mask"][:-1]},
    "integer mask": {**arrays(), "train_mask": arrays()["train_mask"].astype(int)},
    "empty graph": {
        "x": np.zeros((0, 3)),
        "edge_index": np.zeros((2, 0), dtype=int),
        "y": np.zeros(0, dtype=int),
    },
    "no edges": {**arrays(), "edge_index": np.zeros((2, 0), dtype=int)},
    "NaN": with_value("x", (0, 0), np.nan),
    "infinite": with_value("x", (3, 1), np.inf),
    "empty training mask": with_value("train_mask", slice(None), False),
    "empty validation mask": with_value("val_mask", slice(None), False),
    "overlapping masks": with_value("val_mask", slice(None), True),
    "one class only": with_value("y", slice(None), 0),
    "negative label": with_value("y", arrays()["train_mask"], -3),
    "text meta": {**arrays(), "meta": np.array("not json")},
}


@pytest.mark.parametrize("case", BAD_GRAPHS)
@pytest.mark.parametrize("noise", [0, 2])
def test_bad_graphs(command: Command, tmp_path: Path, case: str, noise: int) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, **BAD_GRAPHS[case])
    options = (*SHORT, "--noise", noise, "--out", "m", "--json")
    refused(command("fit", path, *options))
    assert list(Path.cwd().iterdir()) == []


def test_no_file(command: Command, tmp_path: Path) -> None:
    assert "nowhere.npz" in refused(command("fit", "nowhere.npz", "--out", "m"))
    refused(command("fit", tmp_path, "--out", "m"))
    assert not Path("m").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not really", b"a,b\n1,2\n"])
def test_not_an_npz(command: Command, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.npz"
    path.write_bytes(content)
    refused(command("fit", path, "--out", "m"))
    assert not Path("m").exists()


def test_truncated_npz(command: Command, graph_file: Path) -> None:
    content = graph_file.read_bytes()
    graph_file.write_bytes(content[: len(content) // 2])
    refused(command("fit", graph_file, "--out", "m"))
    assert not Path("m").exists()
