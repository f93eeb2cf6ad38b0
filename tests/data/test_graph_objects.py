"""Graphs of networkx and frames of pandas go in as they are."""

from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

import gsebo
from gsebo.errors import InvalidInput
from gsebo.graph.graph import as_graph
from gsebo.graph.node_match import node_ids
from methods.auto_examples import auto


def named_edges(graph: gsebo.Graph) -> list[tuple[Any, Any]]:
    ids = graph.ids.tolist()
    return [(ids[a], ids[b]) for a, b in graph.edge_index.t().tolist()]


def club() -> nx.Graph:
    """The karate club, in which everybody has a name."""
    graph = nx.karate_club_graph()
    return nx.relabel_nodes(graph, {node: f"member {node}" for node in graph})


def test_five_lines() -> None:
    members = club()
    graph = gsebo.Graph.from_networkx(members, label="club")
    graph = gsebo.apply_split(graph, "ratio:50/25/25")
    model = auto(features="degree").fit(graph)
    assert model.classes_.tolist() == ["Mr. Hi", "Officer"]
    assert model.graph_.ids.tolist() == list(members)


def test_a_networkx_graph() -> None:
    drawn = nx.Graph(name="town")
    drawn.add_node("c", label="x", height=1.0, x=[1, 0], train_mask=True)
    drawn.add_node("a", height=2, x=[0.5, 1], val_mask=True)
    drawn.add_node("b", label="w", height=True, x=[2, 3])
    drawn.add_edge("a", "b", weight=0.5)
    drawn.add_edge("c", "b")
    drawn.add_edge("c", "c", weight=7)
    graph = gsebo.Graph.from_networkx(drawn)
    assert graph.ids.tolist() == ["c", "a", "b"]
    assert sorted(named_edges(graph)) == [
        *(("a", "b"), ("b", "a"), ("b", "c"), ("c", "b"))
    ]
    weights = dict(zip(named_edges(graph), graph.edge_weight.tolist(), strict=True))
    assert weights["b", "a"] == 0.5 and weights["b", "c"] == 1
    assert graph.y.tolist() == [1, -1, 0] and graph.class_names == ["w", "x"]
    assert graph.x.tolist() == [[1, 0], [0.5, 1], [2, 3]]
    assert graph.train_mask.tolist() == [True, False, False]
    assert graph.meta["name"] == "town"
    assert graph.meta["columns_left_out"] == ["height"]
    plain = gsebo.Graph.from_networkx(drawn, features=["height"], weight=None)
    assert plain.x.tolist() == [[1], [2], [1]] and "edge_weight" not in plain
    del drawn.nodes["a"]["x"]
    numbers = gsebo.Graph.from_networkx(drawn, features="height")
    assert numbers.x.tolist() == [[1], [2], [1]]


def test_directed_and_parallel_edges() -> None:
    drawn = nx.MultiDiGraph()
    drawn.add_edge(7, 3, weight=1)
    drawn.add_edge(7, 3, weight=2)
    graph = gsebo.Graph.from_networkx(drawn)
    assert named_edges(graph) == [(7, 3)] and graph.edge_weight.tolist() == [3]
    assert isinstance(graph.node_id, torch.Tensor)


KEYS = st.one_of(
    st.integers(), st.text(max_size=3), st.tuples(st.integers(0, 3)), st.booleans()
)


@given(
    keys=st.lists(KEYS, min_size=2, max_size=8, unique_by=str),
    pairs=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1),
)
def test_any_keys(keys: list[Any], pairs: list[tuple[int, int]]) -> None:
    drawn = nx.Graph()
    drawn.add_nodes_from(keys)
    # True is the same key as 1.
    keys = list(drawn)
    drawn.add_edges_from((keys[a % len(keys)], keys[b % len(keys)]) for a, b in pairs)
    try:
        graph = as_graph(drawn)
    except InvalidInput as error:
        named = all(str(key) and "\0" not in str(key) for key in keys)
        loops = all(a == b for a, b in drawn.edges)
        assert loops or not named, error
        return
    assert [str(one) for one in graph.ids] == [str(key) for key in keys]
    expected = {(str(a), str(b)) for a, b in drawn.edges if a != b}
    expected |= {(b, a) for a, b in expected}
    assert {(str(a), str(b)) for a, b in named_edges(graph)} == expected


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (lambda g: g.add_edge(1, "1"), {}, "look alike as texts"),
        (lambda g: g.clear(), {}, "0 nodes and 0 edges"),
        (lambda g: g.clear_edges(), {}, "0 edges: expected"),
        (lambda g: None, {"label": "no"}, "label='no' given, which no node"),
        (lambda g: None, {"features": ["no"]}, "features='no' given, which no"),
        (lambda g: None, {"features": "label"}, "no vector of the same length"),
        (lambda g: g.add_edge("a", "b", weight="x"), {}, "weight of the edges"),
        (lambda g: g.add_edge("a", "b", weight=-1), {}, "expected a finite number"),
        (lambda g: g.add_node("a", train_mask="x"), {}, "train_mask of node 1"),
        (lambda g: g.add_node("a", split="x"), {}, "'x' as split"),
        (lambda g: g.add_node("a", x=[1, float("nan")]), {"features": "x"}, "vector"),
    ],
)
def test_what_is_refused(change: Any, options: dict[str, Any], said: str) -> None:
    drawn = nx.Graph([("a", "b"), ("b", "c")])
    nx.set_node_attributes(drawn, {"a": "k", "b": "k", "c": "l"}, "label")
    change(drawn)
    with pytest.raises(InvalidInput) as caught:
        gsebo.Graph.from_networkx(drawn, **options)
    assert said in str(caught.value)


ODD: list[Any] = [None, "", "x", 0, 1, -1, 0.5, True, float("nan"), float("inf"), "\0"]
ODD += [10**400, [], [1], [1, 2], {}, b"x", np.float32(3), np.arange(2), object()]
JUNK = st.sampled_from([*ODD, torch.ones(2)])
ATTRIBUTES = st.dictionaries(
    st.sampled_from(["label", "y", "x", "split", "train_mask", "f", "weight", ""]), JUNK
)


@given(nodes=st.lists(ATTRIBUTES, min_size=2, max_size=4), edge=ATTRIBUTES)
def test_any_attributes(nodes: list[dict[str, Any]], edge: dict[str, Any]) -> None:
    drawn = nx.path_graph(len(nodes))
    drawn.add_edge(0, 1, **edge)
    for node, attributes in enumerate(nodes):
        drawn.add_node(node, **attributes)
    frame = pd.DataFrame([{"source": 0, "target": 1, **one} for one in nodes])
    for make in (lambda: as_graph(drawn), lambda: as_graph(frame)):
        try:
            graph = make()
        except InvalidInput as error:
            assert "\n" not in str(error)
            continue
        assert graph.num_edges % 2 == 0
        assert "x" not in graph or bool(graph.x.isfinite().all())
        assert "edge_weight" not in graph or bool((graph.edge_weight >= 0).all())


def test_frames() -> None:
    edges = pd.DataFrame(
        {"a": ["u", "v", "u"], "b": ["v", "w", "v"], "w": [1.0, 2.0, 3.0]}
    )
    nodes = pd.DataFrame(
        {
            "who": pd.Categorical(["w", "u", "v"]),
            "kind": ["k", None, "j"],
            "f": [1, 2, 3],
            "train_mask": [True, False, False],
            "when": pd.to_datetime(["2020-01-01"] * 3),
        }
    )
    columns = {"source": "a", "target": "b", "id": "who", "label": "kind"}
    graph = gsebo.Graph.from_pandas(edges, nodes, **columns, weight="w")
    assert graph.ids.tolist() == ["w", "u", "v"]
    assert named_edges(graph) == [("u", "v"), ("v", "w"), ("v", "u"), ("w", "v")]
    assert graph.edge_weight.tolist() == [4, 2, 4, 2]
    assert graph.y.tolist() == [1, -1, 0] and graph.class_names == ["j", "k"]
    assert graph.x.tolist() == [[1], [2], [3]]
    assert graph.train_mask.tolist() == [True, False, False]
    assert graph.meta["columns_left_out"] == ["when"]


def test_ids_may_be_the_index() -> None:
    edges = pd.DataFrame({"source": ["u", "v"], "target": ["v", "w"]})
    nodes = pd.DataFrame({"f": [1, 2, 3]}, index=["w", "u", "v"])
    assert gsebo.Graph.from_pandas(edges, nodes).ids.tolist() == ["w", "u", "v"]
    nodes.index.name = "who"
    graph = gsebo.Graph.from_pandas(edges, nodes, id="who")
    assert graph.ids.tolist() == ["w", "u", "v"] and graph.x.tolist() == [[1], [2], [3]]
    nodes["id"] = ["u", "v", "w"]
    assert gsebo.Graph.from_pandas(edges, nodes).ids.tolist() == ["u", "v", "w"]


@pytest.mark.parametrize(
    ("source", "target", "ids"),
    [
        ([5, 7], [7, 9], [5, 7, 9]),
        ([5.0, 7.0], [7, 9], [5, 7, 9]),
        # Texts that look like numbers were meant as texts.
        (["5", "7"], ["7", "9"], ["5", "7", "9"]),
        ([5, "x"], ["x", 9], ["5", "x", "9"]),
        ([5, 7], ["x", "5"], ["5", "x", "7"]),
    ],
)
def test_ids_of_frames(source: list[Any], target: list[Any], ids: list[Any]) -> None:
    graph = as_graph(pd.DataFrame({"source": source, "target": target}))
    assert graph.ids.tolist() == ids
    unnamed = gsebo.Graph.from_pandas(
        pd.DataFrame(list(zip(source, target, strict=True)))
    )
    assert unnamed.ids.tolist() == ids


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (pd.DataFrame({"source": [1.5], "target": [2]}), "expected a whole number"),
        (pd.DataFrame({"source": [1, None], "target": [2, 3]}), "has no source"),
        (pd.DataFrame({"source": ["a", None], "target": ["b", "c"]}), "has no source"),
        (pd.DataFrame({"source": [], "target": []}), "is empty"),
        (pd.DataFrame({"a": [1], "b": [2]}), "expected source and target"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns 'a'"),
        (pd.DataFrame({"source": [[1]], "target": [2]}), "names nothing"),
        ([(1, 2)], "expected a pandas DataFrame"),
    ],
)
def test_frames_that_are_refused(frame: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        gsebo.Graph.from_pandas(frame)
    assert said in str(caught.value)


@pytest.mark.parametrize("kind", [list, np.array, lambda ids: pd.Series(ids).values])
def test_pyg_with_texts(kind: Any) -> None:
    data = gsebo.generate_graph(30, seed=1).to_pyg()
    data.node_id = kind([f"n{i}" for i in range(30)])
    model = gsebo.Vanilla(max_epochs=2, random_state=0).fit(data)
    assert isinstance(model.graph_, Data)
    assert as_graph(model.graph_).ids.tolist() == [f"n{i}" for i in range(30)]
    assert torch.equal(model.predict(data), model.transduction_)
    found = node_ids(as_graph(data))
    assert isinstance(found, np.ndarray) and found.dtype.kind == "U"


def test_what_is_no_graph() -> None:
    with pytest.raises(InvalidInput, match="a networkx graph or a pandas DataFrame"):
        as_graph({"a": ["b"]})


def test_recognising_a_graph_imports_nothing() -> None:
    class Graph:
        """Called as networkx calls its own."""

    with pytest.raises(InvalidInput, match="got Graph"):
        as_graph(Graph())
