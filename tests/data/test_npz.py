import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from gsebo.data import content_digest, load_npz, save_npz
from gsebo.errors import InvalidInput
from gsebo.graph import features, normalise_rows

Changes = dict[str, Any]


def _arrays(**changes: Any) -> Changes:
    """A correct file's arrays with some replaced, or left out where ``None``."""
    arrays = {
        "edge_index": np.array([[0, 1], [1, 2]], dtype=np.int32),
        "x_data": np.array([1.0, 2.0, 3.0], dtype=np.float32),
        "x_indices": np.array([0, 3, 1], dtype=np.int32),
        "x_indptr": np.array([0, 2, 2, 3], dtype=np.int32),
        "x_shape": np.array([3, 4]),
        "y": np.array([0, 1, 1]),
        "train_mask": np.array([True, False, False]),
        "meta": np.array(json.dumps({"name": "tiny"})),
        **changes,
    }
    return {key: array for key, array in arrays.items() if array is not None}


def test_csr_features_become_dense(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **_arrays())
    data = load_npz(tmp_path / "g.npz")
    assert data.x.tolist() == [[1, 0, 0, 2], [0, 0, 0, 0], [0, 3, 0, 0]]
    assert data.x.dtype == torch.float32
    assert data.edge_index.dtype == data.y.dtype == torch.int64
    assert data.train_mask.dtype == torch.bool
    assert data.meta == {"name": "tiny"}


def test_labels_masks_and_meta_are_optional(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **_arrays(y=None, train_mask=None, meta=None))
    data = load_npz(tmp_path / "g.npz")
    assert data.meta == {}
    assert "y" not in data


def test_features_too_large_to_be_dense_stay_sparse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "g.npz", **_arrays())
    dense = load_npz(tmp_path / "g.npz")
    monkeypatch.setattr(features, "LARGEST_DENSE", 11)
    sparse = load_npz(tmp_path / "g.npz")
    assert sparse.x.layout == torch.sparse_csr
    assert torch.equal(sparse.x.to_dense(), dense.x)
    assert content_digest(sparse) == content_digest(dense)
    normalised = normalise_rows(sparse.x)
    assert torch.equal(normalised.to_dense(), normalise_rows(dense.x))
    save_npz(sparse, tmp_path / "again.npz")
    assert content_digest(load_npz(tmp_path / "again.npz")) == content_digest(dense)


@pytest.mark.parametrize("density", [0.1, 0.9])
def test_saved_and_loaded_is_the_same(
    graph: Data, tmp_path: Path, density: float
) -> None:
    graph.x[torch.rand_like(graph.x) > density] = 0
    graph.train_masks = torch.eye(6, dtype=torch.bool)
    save_npz(graph, tmp_path / "g.npz", {"name": "path"})
    again = load_npz(tmp_path / "g.npz")
    for key in graph.keys():  # noqa: SIM118
        assert torch.equal(graph[key], again[key]), key
    assert again.meta == {"name": "path"}
    assert content_digest(again) == content_digest(graph)


def test_saving_twice_gives_the_same_bytes_and_nothing_else(
    graph: Data, tmp_path: Path
) -> None:
    save_npz(graph, tmp_path / "g.npz")
    first = (tmp_path / "g.npz").read_bytes()
    with pytest.raises(InvalidInput, match="is there already"):
        save_npz(graph, tmp_path / "g.npz")
    save_npz(load_npz(tmp_path / "g.npz"), tmp_path / "g.npz", overwrite=True)
    assert (tmp_path / "g.npz").read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == ["g.npz"]


def test_a_failed_write_leaves_the_old_file(
    graph: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_npz(graph, tmp_path / "g.npz")
    before = (tmp_path / "g.npz").read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(InvalidInput, match="No space left"):
        save_npz(graph, tmp_path / "g.npz", overwrite=True)
    assert (tmp_path / "g.npz").read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["g.npz"]


def test_what_cannot_be_saved(graph: Data, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no folder"):
        save_npz(graph, tmp_path / "absent" / "g.npz")
    with pytest.raises(InvalidInput, match="JSON"):
        save_npz(graph, tmp_path / "g.npz", {"set": {1}})
    with pytest.raises(InvalidInput, match="no x"):
        save_npz(Data(edge_index=graph.edge_index), tmp_path / "g.npz")
    assert list(tmp_path.iterdir()) == []


def test_features_may_be_missing_where_labels_count_the_nodes(
    graph: Data, tmp_path: Path
) -> None:
    bare = Data(edge_index=graph.edge_index, y=graph.y, train_mask=graph.train_mask)
    save_npz(bare, tmp_path / "g.npz")
    loaded = load_npz(tmp_path / "g.npz")
    assert "x" not in loaded and loaded.num_nodes == graph.num_nodes
    assert torch.equal(loaded.edge_index, graph.edge_index)


def test_names_of_nodes_are_kept(graph: Data, tmp_path: Path) -> None:
    graph.node_id = torch.tensor([7, -3, 2**40, 0, 1, 5])
    save_npz(graph, tmp_path / "g.npz")
    loaded = load_npz(tmp_path / "g.npz").node_id
    assert torch.equal(loaded, graph.node_id) and loaded.dtype == torch.int64


CSR = ("x_data", "x_indices", "x_indptr", "x_shape")
BROKEN: list[tuple[Changes, str]] = [
    ({"node_id": np.array([0.0, 1.0, 2.0])}, "node_id of .* expected integers"),
    ({"node_id": np.arange(4)}, r"node_id of .* shape \[3\]"),
    ({"edge_index": None}, "expected an array 'edge_index'"),
    ({"edge_index": np.ones((2, 2))}, "edge_index of .* expected integers"),
    ({"edge_index": np.ones((3, 2), dtype=int)}, r"shape \[2, any\]"),
    ({"edge_index": np.ones(2, dtype=int)}, r"shape \[2, any\]"),
    ({"edge_index": np.array([[{}], [[]]], dtype=object)}, "without Python objects"),
    (dict.fromkeys((*CSR, "y")), "no features"),
    ({**dict.fromkeys(CSR), "y": np.ones((3, 2), dtype=int)}, r"y of .* shape \[any\]"),
    ({"x_indptr": None}, "lacks 'x_indptr'"),
    ({"x_shape": np.array([3, 4, 5])}, r"shape \[2\]"),
    ({"x_shape": np.array([-3, 4])}, "negative"),
    ({"x_shape": np.array([4, 4])}, r"shape \[5\]"),
    ({"x_shape": np.array([3, 3])}, "columns 0 to 2"),
    ({"x_indices": np.array([0, -1, 1])}, "columns 0 to 3"),
    ({"x_indices": np.array([0, 1])}, r"shape \[3\]"),
    ({"x_indptr": np.array([0, 3, 2, 3])}, "inconsistent"),
    ({"x_indptr": np.array([0, 2, 2, 2])}, "inconsistent"),
    ({"x_data": np.array(["a", "b", "c"])}, "real numbers"),
    ({"x": np.ones(3)}, r"shape \[any, any\]"),
    ({"x": np.ones((3, 1), dtype=complex)}, "real numbers"),
    ({"y": np.ones(3)}, "expected integers"),
    ({"y": np.ones(4, dtype=int)}, r"shape \[3\]"),
    ({"train_mask": np.ones(3)}, "expected bool"),
    ({"train_mask": np.ones(2, dtype=bool)}, r"shape \[3\]"),
    ({"val_masks": np.ones(3, dtype=bool)}, r"shape \[any, 3\]"),
    ({"meta": np.array("{")}, "no JSON"),
    ({"meta": np.array("[1]")}, "JSON object"),
]


@pytest.mark.parametrize(("changes", "message"), BROKEN)
def test_broken_file_is_refused_in_one_sentence(
    tmp_path: Path, changes: Changes, message: str
) -> None:
    np.savez(tmp_path / "g.npz", **_arrays(**changes))
    with pytest.raises(InvalidInput, match=message) as caught:
        load_npz(tmp_path / "g.npz")
    assert "\n" not in str(caught.value)


def test_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file"):
        load_npz(tmp_path / "absent.npz")
    with pytest.raises(InvalidInput, match="folder"):
        load_npz(tmp_path)
    np.save(tmp_path / "one.npy", np.ones(3))
    with pytest.raises(InvalidInput, match="one array"):
        load_npz(tmp_path / "one.npy")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=200), st.binary().map(lambda b: b"PK\x03\x04" + b)))
def test_garbage_is_refused(tmp_path: Path, payload: bytes) -> None:
    (tmp_path / "g.npz").write_bytes(payload)
    with pytest.raises(InvalidInput):
        load_npz(tmp_path / "g.npz")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_file_is_refused_or_whole(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "g.npz"
    np.savez_compressed(path, **_arrays())
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(data.draw(st.sampled_from([whole[:place], bytes(damaged)])))
    try:
        assert load_npz(path).x.shape == (3, 4)
    except InvalidInput as error:
        assert "\n" not in str(error)
