"""What a user calls nodes and classes stays with a model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gsebo
from gsebo.data.formats.folder import GraphFolder, write_folder
from gsebo.graph import Graph, canonicalise
from gsebo.graph.node_match import NodeKeys
from gsebo.model.state import GraphFacts, Parts
from methods.examples import NAMES, quick
from methods.saved import (
    assert_refused,
    change_facts,
    change_tensors,
    facts_of,
)

CLASSES = ["cat", "dog", "eel", "never trained on"]


def plain_graph() -> Graph:
    return gsebo.generate_graph(
        40, num_classes=3, average_degree=4.0, split="random:40/30/30", seed=2
    )


def named_graph() -> Graph:
    graph = plain_graph()
    graph.node_id = np.array([f"n{place}é" for place in range(40)])
    graph.meta = {"classes": CLASSES}
    return graph


def shuffled(graph: Graph, order: torch.Tensor) -> Graph:
    """The same graph with its nodes in another order."""
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    return Graph(
        graph.x[order],
        place[graph.edge_index],
        graph.y[order],
        node_id=graph.ids[order.numpy()],
        train_mask=graph.train_mask[order],
        val_mask=graph.val_mask[order],
        test_mask=graph.test_mask[order],
        meta=graph.meta,
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_method_keeps_names(name: str, tmp_path: Path) -> None:
    graph = named_graph()
    model = quick(name).fit(graph)
    assert model.classes_.tolist() == CLASSES[:3]
    model.save(tmp_path)
    loaded = gsebo.load_model(tmp_path)
    assert loaded.classes_.tolist() == CLASSES[:3]
    assert loaded.graph_.ids.tolist() == graph.ids.tolist()
    assert loaded.graph_.class_names == CLASSES
    assert torch.equal(loaded.predict(graph), model.transduction_)


def test_classes_without_names_are_numbers(tmp_path: Path) -> None:
    model = quick("vanilla").fit(plain_graph())
    assert model.classes_.tolist() == [0, 1, 2]
    model.save(tmp_path)
    assert gsebo.load_model(tmp_path).classes_.tolist() == [0, 1, 2]


def test_texts_match_nodes_in_any_order(tmp_path: Path) -> None:
    graph = named_graph()
    model = quick("gsebo").fit(graph)
    model.save(tmp_path)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    other = shuffled(graph, order)
    for each in (model, gsebo.load_model(tmp_path)):
        found = each.predict_proba(other)
        torch.testing.assert_close(found, model.probability_[order])
        assert each.model_.new_in(other) == (0, 0)
        assert each.score(other) == model.score(graph)


# What numpy cannot hold, and what no file of text can.
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@given(ids=st.lists(TEXTS, min_size=2, unique=True))
def test_any_text_is_kept(ids: list[str]) -> None:
    graph = Graph(edge_index=torch.tensor([[0], [1]]), num_nodes=len(ids))
    keys = NodeKeys(len(ids), node_id=np.array(ids))
    facts, tensors = GraphFacts.of(canonicalise(graph), keys)
    _, found = facts.take(Parts(tensors, "a model"))
    assert isinstance(found.node_id, np.ndarray)
    assert found.node_id.tolist() == ids


def test_a_graph_that_numbers_its_classes_otherwise() -> None:
    graph = named_graph()
    model = quick("gsebo").fit(graph)
    # No cat was seen there, and something else was.
    other = shuffled(graph, torch.arange(40))
    other.meta = {"classes": ["bat", "dog", "eel"]}
    other.y = torch.where(graph.y == 0, -1, graph.y)
    other.y[0] = 0
    labels = model.labels_of(other)
    assert labels[1:].tolist() == other.y[1:].tolist()
    assert labels[0] >= len(model.classes_)
    other.meta = {"classes": ["eel", "dog", "cat"]}
    other.y = torch.tensor([2, 1, 0])[graph.y]
    assert model.score(other) == model.score(graph)
    assert torch.equal(model.labels_of(other), graph.y)


def test_folders_keep_names(tmp_path: Path) -> None:
    folder = write_folder(named_graph(), tmp_path / "g")
    graph = named_graph()
    assert folder.ids().tolist() == graph.ids.tolist()
    assert folder.manifest.classes == tuple(CLASSES)
    assert folder.manifest.arrays["node_id"].dtype == "|S5"
    assert folder.to_data().ids.tolist() == graph.ids.tolist()
    assert folder.to_data().class_names == CLASSES
    model = quick("gsebo", batch_size=8).fit(folder)
    assert model.classes_.tolist() == CLASSES[:3]
    model.save(tmp_path / "m")
    assert gsebo.load_model(tmp_path / "m").classes_.tolist() == CLASSES[:3]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff\xff\0\0\0", "no text: expected UTF-8"),
        (b"\0\0\0\0\0", "expected a name for each node"),
        ("n1é".encode() + b"\0", "expected another name for each node"),
    ],
)
def test_folders_whose_names_are_none(
    tmp_path: Path, content: bytes, said: str
) -> None:
    graph = write_folder(named_graph(), tmp_path / "g")
    arrays = graph.arrays()
    names = np.array(arrays.node_id)
    stored = bytearray(names.tobytes())
    stored[:5] = content.ljust(5, b"\0")
    broken = np.frombuffer(bytes(stored), names.dtype)
    with pytest.raises(gsebo.InvalidInput, match=said):
        write_folder(
            type(arrays)(
                arrays.indptr, arrays.source, arrays.x, arrays.y, node_id=broken
            ),
            tmp_path / "h",
        )
    assert not (tmp_path / "h").exists()
    GraphFolder.open(tmp_path / "g", anew=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t: t | {"node_id": t["node_id"][1:]}, "node_id_end"),
        (lambda t: t | {"node_id": t["node_id"].int()}, "node_id is"),
        (lambda t: t | {"node_id": torch.full_like(t["node_id"], 255)}, "no text"),
        (lambda t: t | {"node_id_end": t["node_id_end"].flip(0)}, "follow each other"),
        (lambda t: t | {"node_id": torch.full_like(t["node_id"], 65)}, "one node_id"),
        (lambda t: {k: v for k, v in t.items() if k != "node_id"}, "node_id"),
        (lambda t: {k: v for k, v in t.items() if k != "node_id_end"}, "node_id_end"),
    ],
)
def test_damaged_names(tmp_path: Path, change: Any, said: str) -> None:
    quick("vanilla").fit(named_graph()).save(tmp_path)
    change_tensors(tmp_path, change)
    change_facts(tmp_path)
    assert said in assert_refused(tmp_path)


@pytest.mark.parametrize("classes", [["a"], ["a", "a", "b"], [1, 2, 3], "abc"])
def test_damaged_classes(tmp_path: Path, classes: Any) -> None:
    quick("vanilla").fit(named_graph()).save(tmp_path)
    assert facts_of(tmp_path)["classes"] == CLASSES
    change_facts(tmp_path, classes=classes)
    assert "model.json" in assert_refused(tmp_path)
