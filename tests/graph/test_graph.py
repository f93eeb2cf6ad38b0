"""Graphs of our own, and those of PyG at the border."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

import gsebo
from gsebo import InvalidInput
from gsebo.graph import Graph, as_graph
from gsebo.graph.graph import given_back

KEYS = ("x", "edge_index", "y", "train_mask", "node_id", "edge_weight", "my_own")


def some(keys: list[str]) -> dict[str, torch.Tensor]:
    made = {name: torch.arange(6.0) for name in keys}
    if "x" in made:
        made["x"] = torch.ones(3, 2)
    if "edge_index" in made:
        made["edge_index"] = torch.tensor([[0, 1, 2], [1, 2, 0]])
    return made


@given(st.lists(st.sampled_from(KEYS), unique=True), st.none() | st.integers(3, 9))
def test_there_and_back(keys: list[str], nodes: int | None) -> None:
    held = some(keys)
    stated = {} if nodes is None else {"num_nodes": nodes}
    graph = Graph(**held, **stated)
    data = graph.to_pyg()
    again = Graph.from_pyg(data)
    assert sorted(graph.keys()) == sorted(again.keys()) == sorted(data.keys())
    assert all(again[name] is graph[name] for name in graph.keys())  # noqa: SIM118
    if nodes is not None or "x" in keys:
        assert graph.num_nodes == again.num_nodes == data.num_nodes
    if "edge_index" in keys:
        assert graph.num_edges == data.num_edges
    assert graph.num_features == data.num_features


def test_what_is_not_there_is_none() -> None:
    graph = Graph(edge_index=torch.tensor([[0], [4]]), y=None)
    assert graph.x is None and graph.y is None and graph.train_mask is None
    assert "y" not in graph and "edge_index" in graph
    assert graph.num_nodes == 5 and Graph().num_nodes == 0
    assert graph.get("colour", "blue") == "blue"
    with pytest.raises(AttributeError, match="colour"):
        _ = graph.colour


def test_a_copy_is_a_graph_of_its_own() -> None:
    graph = Graph(torch.ones(2, 1), torch.tensor([[0], [1]]))
    other = copy.copy(graph)
    other.y = torch.zeros(2)
    assert "y" not in graph and other.x is graph.x
    deep = graph.clone()
    deep.x += 1
    assert torch.equal(graph.x, torch.ones(2, 1))
    assert graph.to("cpu").keys() == graph.keys()


def test_what_comes_in_goes_out_again() -> None:
    data = Data(torch.ones(3, 2), torch.tensor([[0], [1]]))
    graph = as_graph(data)
    assert isinstance(graph, Graph) and as_graph(graph) is graph
    assert given_back(graph, graph) is graph
    assert isinstance(given_back(graph, data), Data)
    assert as_graph(Batch.from_data_list([data, data])).num_nodes == 6


@pytest.mark.parametrize("given", [None, "cora", 3, {}, np.ones(3)])
def test_what_is_no_graph(given: object) -> None:
    with pytest.raises(InvalidInput, match=f"got {type(given).__name__}."):
        as_graph(given)


def test_a_fit_tells_in_the_kind_that_it_was_given() -> None:
    ours = gsebo.generate_graph(40, average_degree=4.0, seed=1)
    theirs = ours.to_pyg()
    models = [
        gsebo.GSEBO(max_outer_steps=2, random_state=0).fit(data)
        for data in (ours, theirs)
    ]
    assert isinstance(models[0].graph_, Graph) and isinstance(models[1].graph_, Data)
    assert torch.equal(models[0].strength_, models[1].strength_)
    assert torch.equal(models[0].graph_.edge_strength, models[1].graph_.edge_strength)
    probabilities = [models[0].predict_proba(data) for data in (ours, theirs)]
    assert torch.equal(*probabilities)
    assert models[0].score(ours) == models[1].score(theirs)
