"""A graph comes back from its folder as it went in."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from data.folder.tables import canonical_edges, edge_rows, names_in
from gsebo.data import content_digest, load, load_npz
from gsebo.data.datasets.registry import is_graph_folder
from gsebo.data.formats.folder import GraphFolder, checksums, write_folder
from gsebo.errors import InvalidInput
from gsebo.graph import canonicalise
from gsebo.graph.arrays import CSRArrays, GraphArrays


def in_canonical_order(data: Data) -> Data:
    ordered = data.clone()
    ordered.edge_index = canonicalise(data).edge_index
    return ordered


@pytest.mark.parametrize("name", ["cora", "citeseer"])
def test_a_real_graph(name: str, tmp_path: Path) -> None:
    data = load(name)
    folder = write_folder(data, tmp_path / name)
    folder.verify()
    back = folder.to_data()
    assert content_digest(back) == content_digest(in_canonical_order(data))
    assert back.x.dtype == data.x.dtype and torch.equal(back.x, data.x)
    for key in ("y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(back[key], data[key])
    assert folder.manifest.num_classes == int(data.y.max()) + 1


def test_from_a_file_with_names_and_dense_features(graph: Data, tmp_path: Path) -> None:
    graph.node_id = torch.tensor([10, 5, 7, 2**40, -3, 0])
    folder = write_folder(graph, tmp_path / "g", facts={"from": "here"})
    assert folder.manifest.features == "dense"
    assert folder.manifest.facts["self_loops_dropped"] == 1
    assert folder.manifest.facts["duplicates_merged"] == 1
    assert folder.manifest.facts["from"] == "here"
    back = folder.to_data()
    assert torch.equal(back.x, graph.x)
    assert torch.equal(back.node_id, graph.node_id)
    assert back.meta["name"] == "g"


@settings(max_examples=20)
@given(rows=edge_rows, dense=st.booleans(), wide=st.booleans(), labels=st.booleans())
def test_arrays_are_those_in_memory(
    rows, dense, wide, labels, tmp_path_factory
) -> None:
    path = tmp_path_factory.mktemp("any") / "g"
    x = torch.rand(12, 6, dtype=torch.float64 if wide else torch.float32)
    x = x if dense else x * (x > 0.9)
    data = Data(x=x, edge_index=torch.tensor(rows).T)
    if labels:
        data.y = torch.arange(12) % 3
        data.train_mask = torch.arange(12) < 4
    folder = write_folder(data, path)
    folder.verify()
    expected, found = GraphArrays.of(data), folder.arrays()
    assert isinstance(found.x, CSRArrays) == isinstance(expected.x, CSRArrays)
    everything = np.arange(12)
    assert torch.equal(
        found.features(everything).to_dense(), expected.features(everything).to_dense()
    )
    np.testing.assert_array_equal(found.indptr, expected.indptr)
    np.testing.assert_array_equal(found.source, expected.source)
    assert (found.y is None) == (not labels) == (found.train is None)
    np.testing.assert_array_equal(
        folder.to_data().edge_index, canonical_edges(rows, 12)
    )
    assert folder.to_data().x.dtype == x.dtype
    stored = {name: entry.sha256 for name, entry in folder.manifest.arrays.items()}
    assert checksums(expected) == checksums(found) == stored


def test_arrays_can_be_copied_to_another_folder(graph: Data, tmp_path: Path) -> None:
    first = write_folder(graph, tmp_path / "first")
    second = write_folder(first.arrays(), tmp_path / "second")
    assert first.manifest.arrays == second.manifest.arrays


def test_nothing_is_read_before_it_is_asked_for(graph: Data, tmp_path: Path) -> None:
    arrays = write_folder(graph, tmp_path / "g").arrays()
    assert isinstance(arrays.source, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        arrays.source[0] = 1
    arrays.release()
    assert arrays.num_edges == 5


def test_a_graph_without_features_gets_one(graph: Data, tmp_path: Path) -> None:
    expected = torch.tensor([0, 1, 1, 1, 1, 1]).log1p().unsqueeze(1)
    del graph.x
    graph.num_nodes = 6
    folder = write_folder(graph, tmp_path / "g")
    assert torch.equal(folder.to_data().x, expected)
    assert "features_made" in folder.manifest.facts
    assert "x" not in graph


def test_test_labels_are_not_looked_at(graph: Data, tmp_path: Path) -> None:
    graph.y[graph.test_mask] = 5
    assert write_folder(graph, tmp_path / "g").manifest.num_classes == 2


def test_bad_graphs_are_refused_and_leave_nothing(graph: Data, tmp_path: Path) -> None:
    bad_edges, bad_mask = graph.clone(), graph.clone()
    bad_edges.edge_index = graph.edge_index + 3
    bad_mask.train_mask = torch.ones(4, dtype=torch.bool)
    cases = [(bad_edges, "edge_index"), (bad_mask, "train_mask")]
    for key, value in (
        ("x", graph.x.bfloat16()),
        ("y", graph.y.tolist()),
        ("y", graph.y.float()),
        ("y", graph.y.to_sparse()),
        ("y", graph.y[:, None]),
        ("val_mask", graph.val_mask.long()),
        ("node_id", graph.y),
    ):
        bad = graph.clone()
        bad[key] = value
        cases.append((bad, key))
    for bad, what in cases:
        with pytest.raises(InvalidInput, match=what):
            write_folder(bad, tmp_path / "g")
    assert names_in(tmp_path) == []


def test_an_existing_folder_is_not_touched(graph: Data, tmp_path: Path) -> None:
    (tmp_path / "g").mkdir()
    # An empty one is as good as none.
    write_folder(graph, tmp_path / "g")
    before = names_in(tmp_path / "g")
    with pytest.raises(InvalidInput, match="is there already"):
        write_folder(graph, tmp_path / "g")
    assert names_in(tmp_path / "g") == before
    assert names_in(tmp_path) == ["g"]
    assert is_graph_folder(tmp_path / "g") and not is_graph_folder(tmp_path)


def test_dense_features_of_a_real_graph(dataset_file, tmp_path: Path) -> None:
    data = load_npz(dataset_file("texas"))
    folder = write_folder(data, tmp_path / "texas")
    assert GraphFolder.open(tmp_path / "texas") == folder
    assert torch.equal(folder.to_data().x, data.x)
