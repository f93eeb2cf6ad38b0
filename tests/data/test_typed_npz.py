"""Graphs with types in ``.npz`` files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import HeteroData

from data.typed import typed_graph
from gsebo import Graph, InvalidInput
from gsebo.data import content_digest, load_npz, save_npz
from gsebo.data.validate import require_graph
from gsebo.graph import as_graph

META: dict[str, Any] = {
    "node_types": ["a", "b"],
    "edge_types": [["a", "to", "b"], ["b", "back", "a"]],
    "columns": [[0, 2], [2, 3]],
    "edge_columns": [[0, 1], [1, 1]],
    "without_features": ["b"],
    "target": "a",
}


def arrays(meta: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A correct file's arrays with some replaced, or left out where ``None``."""
    text = json.dumps({**META, **(meta or {})})
    held = {
        "edge_index": np.array([[0, 1, 2, 3], [2, 3, 0, 1]]),
        "x": np.array([[1, 2, 0], [3, 4, 0], [0, 0, 1], [0, 0, 1]], np.float32),
        "y": np.array([0, 1, -1, -1]),
        "node_type": np.array([0, 0, 1, 1], np.int8),
        "edge_type": np.array([0, 0, 1, 1], np.uint16),
        "edge_attr": np.array([[1.0], [2], [0], [0]]),
        "metapath:aba": np.ones((4, 2)),
        "meta": np.array(text),
        **changes,
    }
    return {key: value for key, value in held.items() if value is not None}


def read(folder: Path, **changes: Any) -> Graph:
    np.savez(folder / "g.npz", **arrays(**changes))
    return load_npz(folder / "g.npz")


def test_a_file_is_read_as_it_is_meant(tmp_path: Path) -> None:
    graph = read(tmp_path)
    assert graph.meta == META
    assert graph.node_type.dtype == graph.edge_type.dtype == torch.int64
    types = graph.types
    assert types is not None and types.classified == 0
    assert types.edge_types == (("a", "to", "b"), ("b", "back", "a"))
    back = graph.to_pyg()
    assert isinstance(back, HeteroData)
    assert back["a"].x.tolist() == [[1, 2], [3, 4]] and "x" not in back["b"]
    assert back["a", "to", "b"].edge_attr.tolist() == [[1], [2]]
    assert "edge_attr" not in back["b", "back", "a"]
    assert content_digest(as_graph(back)) == content_digest(graph)


def test_names_of_types_are_optional(tmp_path: Path) -> None:
    types = without_meta(tmp_path).types
    assert types is not None and types.node_types == ("0", "1")
    assert types.edge_types == (("0", "0", "1"), ("1", "1", "0"))
    types = without_meta(tmp_path, edge_type=None).types
    assert types is not None
    assert types.edge_types == (("0", "to", "1"), ("1", "to", "0"))
    # Without types of nodes all are of one.
    types = without_meta(tmp_path, node_type=None).types
    assert types is not None and types.node_types == ("0",)
    assert types.edge_types == (("0", "0", "0"), ("0", "1", "0"))


def without_meta(folder: Path, **changes: Any) -> Graph:
    held = arrays(**changes)
    del held["meta"]
    np.savez(folder / "g.npz", **held)
    return load_npz(folder / "g.npz")


def test_saved_and_loaded_is_the_same(tmp_path: Path) -> None:
    graph = typed_graph(tmp_path / "g")
    graph["metapath:apa"] = torch.randn(graph.num_nodes, 3)
    save_npz(graph, tmp_path / "a.npz")
    again = load_npz(tmp_path / "a.npz")
    assert again.meta == graph.meta and again.ids.tolist() == graph.ids.tolist()
    for key in ("x", "y", "edge_index", "node_type", "edge_type", "edge_weight"):
        assert torch.equal(again[key], graph[key]), key
    assert torch.equal(again["metapath:apa"], graph["metapath:apa"])
    assert content_digest(again) == content_digest(graph)
    save_npz(again, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_other_meta_keeps_the_names_of_types(tmp_path: Path) -> None:
    graph = typed_graph(tmp_path / "g")
    save_npz(graph, tmp_path / "a.npz", {"name": "x"})
    again = load_npz(tmp_path / "a.npz")
    assert again.types is not None and graph.types is not None
    assert again.types.names == graph.types.names and again.meta["name"] == "x"
    assert again.types.classified == graph.types.classified
    assert "edges_read" not in again.meta
    # What could not be read again is not written.
    for meta in ({"node_types": ["a"]}, {"target": "z"}, {"edge_types": [["a"]]}):
        with pytest.raises(InvalidInput):
            save_npz(graph, tmp_path / "b.npz", meta)
    assert not (tmp_path / "b.npz").exists()


def test_a_heterodata_is_saved_as_it_is(tmp_path: Path) -> None:
    graph = typed_graph(tmp_path / "g")
    save_npz(graph.to_pyg(), tmp_path / "a.npz")
    again = load_npz(tmp_path / "a.npz")
    assert content_digest(again) == content_digest(graph)


def test_meta_of_a_graph_without_types_may_hold_anything(tmp_path: Path) -> None:
    meta = {"node_types": 3, "edge_types": "x", "columns": [], "target": 7}
    plain = {"node_type": None, "edge_type": None, "edge_attr": None}
    graph = read(tmp_path, meta=meta, **plain)
    assert graph.types is None and graph.meta["node_types"] == 3


TYPES = {"node_types": ["a", "b"], "edge_types": [["a", "to", "b"], ["b", "back", "a"]]}
LONG = ["x" * 5000, "b"]
HOSTILE: list[tuple[dict[str, Any], str]] = [
    ({"node_type": np.zeros(3, int)}, r"node_type .* shape \[4\]"),
    ({"node_type": np.zeros(4)}, "node_type .* expected integers"),
    ({"node_type": np.zeros((4, 1), int)}, r"node_type .* shape \[4\]"),
    (
        {"node_type": np.array([0, 0, 1, 2])},
        "node_type .* holds 2: expected 0 to 1, as",
    ),
    ({"node_type": np.array([0, 0, 1, -1])}, "node_type .* holds -1: expected 0 to 1"),
    ({"node_type": np.full(4, 2**63, np.uint64)}, "expected numbers below"),
    ({"node_type": np.array([0, 1, 1, 1])}, "edge 1 .* from a node of the type 'b' to"),
    ({"node_type": None}, "names 2 types, and it has no node_type: expected a number"),
    ({"edge_type": np.zeros(3, int)}, r"edge_type .* shape \[4\]"),
    ({"edge_type": np.ones(4) * 1j}, "edge_type .* expected integers"),
    ({"edge_type": np.array([0, 0, 1, 2])}, "edge_type .* holds 2: expected 0 to 1"),
    (
        {"edge_type": np.array([0, 1, 1, 1])},
        "edge 1 .* the relation 'b' 'back' 'a' and",
    ),
    ({"edge_type": None}, "names 2 relations, and it has no edge_type"),
    ({"edge_type": np.array([{}] * 4)}, "without Python objects"),
    ({"metapath:aba": np.ones((3, 2))}, r"metapath:aba .* shape \[4, any\]"),
    ({"metapath:aba": np.ones((4, 0))}, "metapath:aba .* has 0 columns"),
    ({"metapath:aba": np.full((4, 2), np.nan)}, "metapath:aba .* not finite"),
    ({"x": np.ones((4, 3), np.float32)}, "holds a number in column 2 of node 0: exp"),
    ({"meta": {"node_types": ["a"]}}, "holds 1: expected 0 to 0, as meta names 1"),
    ({"meta": {"node_types": ["a", "a"]}}, "another text for each type of nodes"),
    ({"meta": {"node_types": ["a", ""]}}, "another text for each type of nodes"),
    ({"meta": {"node_types": "ab"}}, "node_types .* is 'ab': expected another text"),
    ({"meta": {"node_types": {"a": 1, "b": 2}}}, "another text for each type"),
    ({"meta": {"node_types": [["a"], ["b"]]}}, "another text for each type"),
    ({"meta": {"node_types": LONG}}, "joins nodes of the type 'a': expected one of x"),
    ({"meta": {"edge_types": [["a", "to", "b"]]}}, "edge_type .* holds 1: expected 0"),
    ({"meta": {"edge_types": [["a", "to", "b"]] * 2}}, "another type of the source"),
    ({"meta": {"edge_types": [["a", "b"], ["b", "a"]]}}, "another type of the source"),
    ({"meta": {"edge_types": 7}}, "edge_types in meta .* is 7: expected for each"),
    ({"meta": {"edge_types": [7, 8]}}, "expected for each relation another type"),
    (
        {"meta": {"edge_types": [["a", "to", "z"], ["b", "back", "a"]]}},
        "relation 'a' 'to' 'z' .* joins nodes of the type 'z': expected one of a, b",
    ),
    (
        {
            "meta": {
                "node_types": None,
                "edge_types": [["0", "r", "1"], ["z", "s", "0"]],
            }
        },
        "joins nodes of the type 'z': expected one of 0, 1",
    ),
    ({"meta": {"target": "z"}}, "target in meta .* is 'z': expected one of a, b"),
    ({"meta": {"target": ["a"]}}, r"target in meta .* is \['a'\]"),
    ({"meta": {"without_features": ["z"]}}, "without_features .* expected a list of"),
    ({"meta": {"without_features": "a"}}, "without_features .* is 'a': expected a l"),
    ({"meta": {"columns": [[0, 2]]}}, "columns .* first and end for each type"),
    ({"meta": {"columns": [[0, 2], [2, 4]]}}, "columns .* 3 columns in all"),
    ({"meta": {"columns": [[0, 3], [3, 3]]}}, "columns .* first and end for each type"),
    ({"meta": {"columns": [[0, 2], [1, 3]]}}, "columns .* each in one of them"),
    ({"meta": {"columns": [[0, 2], [2, 3.0]]}}, "columns .* first and end for each"),
    ({"meta": {"columns": [[False, 2], [2, 3]]}}, "columns .* first and end for each"),
    ({"meta": {"columns": {"a": [0, 2], "b": [2, 3]}}}, "columns .* first and end"),
    ({"meta": {"columns": [[0, 10**15], [2, 3]]}}, "columns .* first and end for"),
    ({"meta": {"columns": [[2, 3], [0, 2]]}}, "number in column 0 of node 0: expected"),
    ({"meta": {"edge_columns": [[0, 1]]}}, "edge_columns .* for each of 2 relations"),
    ({"meta": {"edge_columns": [[0, 1], [0, 1]]}}, "edge_columns .* in one of them"),
    ({"meta": {"edge_columns": 1}}, "edge_columns .* is 1: expected first and end"),
]


@pytest.mark.parametrize(("changes", "says"), HOSTILE)
def test_what_does_not_fit_is_refused_in_one_sentence(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInput, match=says) as caught:
        read(tmp_path, **changes)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


LEAF = st.none() | st.booleans() | st.integers(-2, 4) | st.sampled_from(["a", "b", ""])
TREES = st.recursive(
    LEAF,
    lambda each: (
        st.lists(each, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b"]), each, max_size=2)
    ),
    max_leaves=8,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(st.sampled_from(sorted(META)), TREES, max_size=3),
    st.lists(st.integers(-1, 3), min_size=4, max_size=4),
    st.lists(st.integers(-1, 3), min_size=4, max_size=4),
    st.sampled_from(["node_type", "edge_type", "edge_attr", "nothing"]),
)
def test_whatever_is_said_of_types_is_right_or_refused(
    tmp_path: Path, meta: dict[str, Any], nodes: list[int], edges: list[int], out: str
) -> None:
    changes = {"node_type": np.array(nodes), "edge_type": np.array(edges), out: None}
    try:
        graph = read(tmp_path, meta=meta, **changes)
    except InvalidInput as error:
        assert "\n" not in str(error)
        return
    require_graph(graph)
    types = graph.one_or_more_types()
    for number, ends in zip(types.edge_type.tolist(), graph.edge_index.T, strict=True):
        one, other = types.node_type[ends].tolist()
        said = types.edge_types[number]
        assert (types.node_types[one], types.node_types[other]) == (said[0], said[2])
    # What is read can be handed on, and be saved again.
    assert as_graph(graph.to_pyg()).num_nodes == 4
    save_npz(graph, tmp_path / "again.npz", overwrite=True)
    assert content_digest(load_npz(tmp_path / "again.npz")) == content_digest(graph)
