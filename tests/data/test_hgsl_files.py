"""HGSL's published graphs, and files that are damaged or made up."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gsebo import InvalidInput, apply_split
from gsebo.data import DATASETS, content_digest, load, load_npz, save_npz, verify
from gsebo.data.datasets.hgsl import load_hgsl
from gsebo.data.relations import opposite_relations
from gsebo.data.validate import validate

PUBLISHED = {
    "dblp": (7305, {"a-p": 5580, "c-p": 4328}, (600, 300, 2057), "a", 334, 4),
    "yelp": (
        3913,
        {"b-l": 2614, "b-s": 2614, "b-u": 30838},
        (300, 300, 2014),
        "b",
        82,
        3,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_graph_has_what_it_is_known_for(shared: Path, name: str) -> None:
    nodes, sizes, counts, target, features, classes = PUBLISHED[name]
    if not (shared / "hetero" / DATASETS[name].file).is_file():
        pytest.skip(f"no {DATASETS[name].file} in the folder of datasets")
    graph = load(name, data_dir=shared)
    validate(graph)
    types = graph.types
    assert types is not None
    assert (graph.num_nodes, graph.num_features) == (nodes, features)
    assert graph.num_edges == 2 * sum(sizes.values())
    there = {each[1]: number for number, each in enumerate(types.edge_types)}
    for relation, size in sizes.items():
        assert int((types.edge_type == there[relation]).sum()) == size
    # Every relation is there both ways.
    back = [there["-".join(each[1].split("-")[::-1])] for each in types.edge_types]
    assert opposite_relations(graph.edge_index, types) == back
    masks = (graph.train_mask, graph.val_mask, graph.test_mask)
    assert tuple(int(mask.sum()) for mask in masks) == counts
    assert graph.meta["target"] == target
    labelled = torch.stack(masks).any(0)
    assert torch.equal(graph.y >= 0, labelled)
    assert torch.unique(graph.y[labelled]).tolist() == list(range(classes))
    assert set(types.node_type[labelled].tolist()) == {types.node_types.index(target)}
    embedded = [key for key, _ in graph if key.startswith("metapath:")]
    assert embedded and all(graph[key].shape == (nodes, 64) for key in embedded)
    assert ("edge_weight" in graph) is (name == "yelp")
    info = DATASETS[name]
    assert (info.num_nodes, info.num_edges) == (nodes, sum(sizes.values()))
    assert (info.num_features, info.num_classes) == (features, classes)
    assert verify(name, data_dir=shared).ok


def test_a_published_graph_is_the_same_in_a_file_of_ours(
    shared: Path, tmp_path: Path
) -> None:
    if not (shared / "hetero" / DATASETS["dblp"].file).is_file():
        pytest.skip("no dblp-hgsl.npz in the folder of datasets")
    # As well where the folder itself is named.
    graph = load("dblp", data_dir=shared / "hetero")
    save_npz(graph, tmp_path / "g.npz")
    again = load_npz(tmp_path / "g.npz")
    assert content_digest(again) == content_digest(graph) == DATASETS["dblp"].digest
    assert again.meta == graph.meta


def arrays(**changes: Any) -> dict[str, Any]:
    """A correct file's arrays with some replaced, or left out where ``None``."""
    held = {
        "num_nodes": np.array(6),
        "node_type": np.array([0, 0, 0, 1, 1, 1], np.int8),
        "node_type_names": np.array(["a", "p"]),
        "edge_index.a-p": np.array([[0, 1, 2, 0], [3, 4, 5, 4]]),
        "edge_index.p-a": np.array([[3, 4, 5, 4], [0, 1, 2, 0]]),
        "edge_weight.a-p": np.array([1.0, 2.0, 1.0, 1.0]),
        "x": np.eye(6, 2, dtype=np.float32),
        "metapath.apa": np.ones((6, 3)),
        "train_nodes": np.array([0]),
        "train_labels": np.array([0]),
        "val_nodes": np.array([1]),
        "val_labels": np.array([1]),
        "test_nodes": np.array([2]),
        "test_labels": np.array([1]),
        **changes,
    }
    return {key: value for key, value in held.items() if value is not None}


def test_a_small_file_is_read_as_it_is_meant(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **arrays())
    graph = load_hgsl(tmp_path / "g.npz")
    assert graph.meta == {
        "node_types": ["a", "p"],
        "edge_types": [["a", "a-p", "p"], ["p", "p-a", "a"]],
        "target": "a",
    }
    assert graph.edge_type.tolist() == [0] * 4 + [1] * 4
    # A relation without weights weighs one.
    assert graph.edge_weight.tolist() == [1, 2, 1, 1, 1, 1, 1, 1]
    assert graph.y.tolist() == [0, 1, 1, -1, -1, -1]
    assert graph["metapath:apa"].dtype == torch.float32
    assert "edge_weight" not in load_of(tmp_path, **{"edge_weight.a-p": np.ones(4)})


def load_of(folder: Path, **changes: Any) -> Any:
    np.savez(folder / "changed.npz", **arrays(**changes))
    return load_hgsl(folder / "changed.npz")


CSR = {
    "x": None,
    "x_data": np.ones(2),
    "x_indices": np.array([0, 1]),
    "x_indptr": np.array([0, 1, 2, 2, 2, 2, 2]),
    "x_shape": np.array([6, 2]),
}
EMPTY = np.zeros((2, 0), np.int64)
DAMAGED: list[tuple[dict[str, Any], str]] = [
    ({"num_nodes": None}, "lacks 'num_nodes': expected one of HGSL's files"),
    ({"num_nodes": np.array(6.0)}, "num_nodes .* expected integers"),
    ({"num_nodes": np.array([6])}, r"num_nodes .* shape \[\]"),
    ({"num_nodes": np.array(0)}, "has 0 nodes and 8 edges: expected a graph"),
    ({"num_nodes": np.array(10**12)}, "has 1000000000000 nodes and 8 edges"),
    ({"num_nodes": np.array(5)}, "names node 5: expected 0 to 4"),
    ({"num_nodes": np.array(7)}, r"node_type .* shape \[7\]"),
    ({"node_type": None}, "lacks 'node_type'"),
    ({"node_type": np.zeros(6)}, "node_type of .* expected integers"),
    ({"node_type": np.array([0, 0, 0, 1, 1, 2])}, "node_type of .* holds 2: expected"),
    ({"node_type": np.array([0, 0, 0, 1, 1, -1])}, "node_type of .* holds -1"),
    ({"node_type": np.array([0, 0, 1, 1, 1, 1])}, "edge 2 of .* from a node of the ty"),
    ({"node_type_names": None}, "lacks 'node_type_names'"),
    ({"node_type_names": np.array([1, 2])}, "node_type_names .* expected text"),
    ({"node_type_names": np.array(["a", "a"])}, "another text for each type"),
    ({"node_type_names": np.array(["a", ""])}, "another text for each type"),
    ({"node_type_names": np.array(["a", "q"])}, "joins nodes of the type 'p'"),
    ({"node_type_names": np.array([["a", "p"]])}, r"expected shape \[any\]"),
    ({"edge_index.a-p": EMPTY, "edge_index.p-a": EMPTY}, "6 nodes and 0 edges"),
    ({"edge_index.a-p": None, "edge_index.p-a": None}, "6 nodes and 0 edges"),
    ({"edge_index.a-p": np.ones((3, 4), int)}, r"expected shape \[2, any\]"),
    ({"edge_index.a-p": np.ones((2, 4))}, "expected integers"),
    ({"edge_index.a-p": np.array([[0], [9]])}, "names node 9: expected 0 to 5"),
    ({"edge_index.a-p": np.array([[-1], [3]])}, "names node -1: expected 0 to 5"),
    ({"edge_index.ap": EMPTY}, "relation called 'ap': expected two types and a hyphen"),
    ({"edge_index.a-p-a": EMPTY}, "relation called 'a-p-a'"),
    ({"edge_index.a-z": EMPTY}, "joins nodes of the type 'z'"),
    ({"edge_weight.a-p": np.ones(3)}, r"edge_weight .* shape \[4\]"),
    ({"edge_weight.a-p": -np.ones(4)}, "edge_weight .* expected .*0 or more"),
    ({"edge_weight.a-p": np.full(4, np.nan)}, "edge_weight .* finite"),
    ({"x": None}, "has no features"),
    ({"x": np.ones((5, 2))}, "no row for each of 6 nodes: expected features"),
    ({"x": np.ones((6, 0))}, "x of .* has no columns"),
    ({**CSR, "x_indptr": np.array([0, 2, 1, 2, 2, 2, 2])}, "x_indptr .* inconsistent"),
    ({**CSR, "x_indices": np.array([0, 2])}, "x_indices .* inconsistent"),
    ({**CSR, "x_shape": np.array([5, 2])}, "x_indptr"),
    ({"metapath.apa": np.ones((5, 3))}, "metapath.apa .* shape"),
    ({"metapath.apa": np.full((6, 3), np.inf)}, "metapath.apa .* not finite"),
    ({"train_nodes": None}, "lacks 'train_nodes'"),
    ({"val_labels": None}, "lacks 'val_labels'"),
    ({"train_labels": np.array([0, 1])}, r"train_labels .* shape \[1\]"),
    ({"train_nodes": np.array([6])}, "train_nodes and train_labels .* 0 to 5"),
    ({"train_labels": np.array([-1])}, "train_nodes and train_labels .* 0 to 5"),
    ({"train_labels": np.array([9])}, "train_nodes and train_labels .* 0 to 5"),
    ({"val_nodes": np.array([0])}, "val_nodes .* holds a node that is in a set alrea"),
    (
        {"test_nodes": np.array([2, 2]), "test_labels": np.array([1, 1])},
        "test_nodes .* holds a node that is in a set already",
    ),
    ({"test_nodes": np.array([3])}, "nodes of 2 types .* have labels: expected one"),
]


@pytest.mark.parametrize(("changes", "says"), DAMAGED)
def test_what_is_damaged_is_refused_in_one_sentence(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInput, match=says) as caught:
        load_of(tmp_path, **changes)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


ODD = st.sampled_from(
    [np.array(-1), np.array("a"), np.array([]), np.array([[{}]]), np.ones((2, 2, 2))]
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_array_may_be_another(tmp_path: Path, data: st.DataObject) -> None:
    held = arrays()
    for name in data.draw(st.lists(st.sampled_from(sorted(held)), max_size=2)):
        others = st.sampled_from(list(held.values())) | ODD
        held[name] = data.draw(others)
        if data.draw(st.booleans()) and held[name].size and held[name].dtype != object:
            at = data.draw(st.integers(0, held[name].size - 1))
            held[name] = held[name].copy()
            number = data.draw(st.sampled_from([-1, 0, 1, 5, 6, 100]))
            held[name].reshape(-1)[at] = number
    np.savez(tmp_path / "g.npz", **held)
    try:
        graph = load_hgsl(tmp_path / "g.npz")
    except InvalidInput as error:
        assert "\n" not in str(error)
        return
    types = graph.types
    assert types is not None
    validate(graph, labels_needed=False)
    for number, (one, _, other) in enumerate(types.edge_types):
        ends = graph.edge_index[:, types.edge_type == number]
        kinds = [types.node_types[kind] for kind in types.node_type[ends].flatten()]
        half = len(kinds) // 2
        assert set(kinds[:half]) <= {one} and set(kinds[half:]) <= {other}


def test_a_file_is_found_where_it_is_kept(own_cache: Path) -> None:
    own_cache.mkdir()
    np.savez(own_cache / "dblp-hgsl.npz", **arrays())
    assert load("dblp").meta["name"] == "dblp"
    # Another graph than the published one.
    assert not verify("dblp").ok
    split = apply_split(load("DBLP"), "random:40/40/20")
    assert split.train_mask[:3].any() and not split.train_mask[3:].any()
    with pytest.raises(InvalidInput, match=r"expected yelp-hgsl\.npz in a folder"):
        load("yelp")
