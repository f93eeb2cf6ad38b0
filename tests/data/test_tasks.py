"""Graphs of other tasks than classifying nodes are refused with what is supported."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import RandomLinkSplit

import gsebo
from gsebo import InvalidInput
from methods.examples import small_graph, with_fields

SUPPORTED = "one class per node"


def data() -> Data:
    return small_graph().to_pyg()


def of_links(graph: Data) -> Data:
    train, _, _ = RandomLinkSplit(is_undirected=True)(graph)
    return train


def of_graphs(graph: Data) -> Data:
    return with_fields(graph, y=torch.tensor([1]))


def of_a_batch_of_graphs(graph: Data) -> Data:
    parts = [with_fields(graph, y=torch.tensor([label])) for label in (0, 1)]
    return Batch.from_data_list(parts)


TASKS: dict[str, tuple[Callable[[Data], Any], str]] = {
    "regression": (lambda g: with_fields(g, y=g.y.float()), "targets of a regression"),
    "multi-label": (
        lambda g: with_fields(g, y=torch.ones(60, 5)),
        "several labels or targets per node",
    ),
    "multi-label, whole numbers": (
        lambda g: with_fields(g, y=torch.ones(60, 5, dtype=torch.int64)),
        "several labels or targets per node",
    ),
    "links": (of_links, "one part of a RandomLinkSplit"),
    "graph": (of_graphs, "labels of whole graphs"),
    "graphs": (of_a_batch_of_graphs, "labels of whole graphs"),
}


@pytest.mark.parametrize("task", TASKS)
def test_other_tasks_are_refused_in_one_sentence(task: str) -> None:
    make, says = TASKS[task]
    for method in (gsebo.GSEBO(), gsebo.Auto()):
        with pytest.raises(InvalidInput, match=says) as caught:
            method.fit(make(data()))
        assert SUPPORTED in str(caught.value)


def test_a_column_of_classes_is_no_other_task() -> None:
    with pytest.raises(InvalidInput, match=r"expected y with shape \[60\]"):
        gsebo.Vanilla().fit(with_fields(data(), y=data().y[:, None]))


def test_several_graphs_side_by_side_are_one() -> None:
    whole = Batch.from_data_list([data(), data()])
    model = gsebo.Vanilla(max_epochs=2, device="cpu").fit(whole)
    assert len(model.transduction_) == 120


@pytest.mark.parametrize("mask", ["train_mask", "val_mask"])
def test_a_graph_without_masks_is_told_how_to_get_some(mask: str) -> None:
    graph = data()
    del graph[mask]
    with pytest.raises(InvalidInput, match=r"gsebo\.apply_split\(graph, 'random"):
        gsebo.Vanilla().fit(graph)
    split = gsebo.apply_split(small_graph(), "random:10/20/70", 0)
    assert gsebo.Vanilla(max_epochs=1, device="cpu").fit(split).history_
