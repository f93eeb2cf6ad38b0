"""Weights and attributes of edges: checked, merged, stored, carried along."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from gsebo import InvalidInput
from gsebo.data import add_inter_class_edges, apply_noise, load_npz, save_npz, validate
from gsebo.data.noise.kinds import add_random_edges, remove_edges
from gsebo.data.splits import visible_part
from gsebo.graph import Graph
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.topology import canonicalise

WRONG: dict[str, tuple[Any, str]] = {
    "text": ("heavy", "edge_weight as a tensor, got str"),
    "too few": (torch.ones(3), r"shape \[7\], one for each edge, got \[3\]"),
    "a column": (torch.ones(7, 1), r"squeeze it with edge_weight\[:, 0\]"),
    "truth values": (torch.ones(7).bool(), "real numbers, got torch.bool"),
    "complex": (torch.ones(7).cfloat(), "real numbers, got torch.complex64"),
    "nan": (torch.full((7,), torch.nan), "NaN or infinite"),
    "negative": (torch.tensor([1.0] * 6 + [-2.0]), "holds -2.0: expected 0 or more"),
    "nothing": (torch.zeros(7), "0 for all edges"),
    "only loops": (torch.tensor([0, 0, 0, 0, 0, 1, 0]), "0 for all edges"),
    "too heavy": (
        torch.full((7,), 1e300, dtype=torch.float64),
        "sum single precision can hold",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_weights_that_cannot_be_used(graph: Data, name: str) -> None:
    graph.edge_weight, message = WRONG[name]
    with pytest.raises(InvalidInput, match=message) as error:
        validate(graph)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "attr",
    [torch.ones(3), torch.ones(7, 2, 2), torch.ones(7, 0), torch.full((7,), torch.inf)],
)
def test_attributes_that_cannot_be_used(graph: Data, attr: torch.Tensor) -> None:
    graph.edge_attr = attr
    with pytest.raises(InvalidInput, match="edge_attr"):
        validate(graph)


@pytest.mark.parametrize("kind", [torch.float16, torch.float64, torch.int32])
def test_weights_of_any_kind_of_number(graph: Data, kind: torch.dtype) -> None:
    graph.edge_weight = torch.arange(7).to(kind)
    validate(graph)
    assert canonicalise(graph).weight.dtype == torch.float64


def test_duplicates_add_up_and_loops_are_left_out(graph: Data) -> None:
    """The graph has 0 -> 1 twice, first and last, and a loop on 4."""
    graph.edge_weight = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 60.0, 0.5])
    graph.edge_attr = torch.arange(14.0).view(7, 2)
    found = canonicalise(graph)
    assert found.weight is not None and found.attr is not None
    assert found.weight.tolist() == [1.5, 2, 3, 4, 5]
    assert found.attr.tolist() == [[6, 7], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert torch.equal(
        GraphArrays.of(graph).values_of_edges(slice(0, 2))[0].double(), found.weight[:2]
    )


def test_weights_of_one_are_none(graph: Data) -> None:
    graph.edge_weight = torch.ones(7)
    assert canonicalise(graph).weight is None
    # A loop's is not looked at, and one above one counts.
    graph.edge_weight[5] = 3
    assert canonicalise(graph).weight is None
    graph.edge_weight[0] = 3
    found = canonicalise(graph)
    assert found.weight is not None
    plain = Data(edge_index=graph.edge_index, num_nodes=6)
    assert canonicalise(plain).fingerprint() != found.fingerprint()
    assert GraphArrays.of(graph).edge_weight is not None


@given(st.permutations(range(7)))
def test_the_order_of_the_edges_does_not_matter(order: list[int]) -> None:
    ends = torch.tensor([[0, 1, 2, 3, 4, 4, 0], [1, 2, 3, 4, 5, 4, 1]])
    weight = torch.tensor([0.25, 1, 2, 4, 8, 16, 32])
    first = canonicalise(Graph(edge_index=ends, num_nodes=6, edge_weight=weight))
    other = Graph(edge_index=ends[:, order], num_nodes=6, edge_weight=weight[order])
    assert torch.equal(canonicalise(other).weight, first.weight)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("columns", [None, 1, 3])
def test_files_hold_them(
    graph: Data, tmp_path: Path, kind: torch.dtype, columns: int | None
) -> None:
    graph.edge_weight = torch.arange(7).to(kind)
    shape = (7,) if columns is None else (7, columns)
    graph.edge_attr = torch.randn(shape).double()
    save_npz(Graph.from_pyg(graph), tmp_path / "graph.npz")
    again = load_npz(tmp_path / "graph.npz")
    assert torch.equal(again.edge_weight.double(), graph.edge_weight.double())
    assert torch.equal(again.edge_attr, graph.edge_attr)
    validate(again)


@pytest.mark.parametrize(
    ("key", "array", "message"),
    [
        ("edge_weight", np.ones(3), r"expected shape \[7\], got \[3\]"),
        ("edge_weight", np.ones((7, 1)), r"expected shape \[7\], got"),
        ("edge_weight", np.full(7, np.nan), "not finite"),
        ("edge_weight", np.full(7, -1), "holds -1.0: expected 0 or more"),
        ("edge_weight", np.array(["a"] * 7), "real numbers"),
        ("edge_attr", np.ones((3, 2)), r"\[7\] or \[7, columns\]"),
        ("edge_attr", np.full((7, 2), np.inf), "not finite"),
    ],
)
def test_files_that_lie(
    graph: Data, tmp_path: Path, key: str, array: Any, message: str
) -> None:
    path = tmp_path / "graph.npz"
    np.savez(path, x=graph.x.numpy(), edge_index=graph.edge_index, **{key: array})
    with pytest.raises(InvalidInput, match=message):
        load_npz(path)


def test_what_is_wrong_is_not_written(graph: Data, tmp_path: Path) -> None:
    graph.edge_weight = -torch.ones(7)
    with pytest.raises(InvalidInput, match="expected 0 or more"):
        save_npz(Graph.from_pyg(graph), tmp_path / "graph.npz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("add", [add_random_edges, add_inter_class_edges])
def test_added_edges_have_the_median(
    graph: Data, add: Callable[[Data, int], Data]
) -> None:
    graph.edge_weight = torch.tensor([1.0, 7, 2, 6, 3, 5, 4])
    graph.edge_attr = torch.arange(14.0).view(7, 2)
    noisy = add(graph, 2)
    assert noisy.num_edges == 11
    assert torch.equal(noisy.edge_weight[:7], graph.edge_weight)
    assert noisy.edge_weight[7:].tolist() == [4.0] * 4
    assert noisy.edge_attr[7:].tolist() == [[6.0, 7.0]] * 4
    validate(noisy)


def test_removed_edges_lose_theirs(graph: Data) -> None:
    graph.edge_weight = torch.arange(7.0)
    noisy = remove_edges(graph, 50)
    kept = dict(zip(map(tuple, graph.edge_index.T.tolist()), range(7), strict=True))
    assert noisy.num_edges < 7
    for pair, weight in zip(
        noisy.edge_index.T.tolist(), noisy.edge_weight.tolist(), strict=True
    ):
        assert weight in (kept[tuple(pair)], 0.0, 6.0)
    assert apply_noise(graph, "removed:50").edge_weight.tolist() == (
        noisy.edge_weight.tolist()
    )


def test_edges_that_are_seen_keep_theirs(graph: Data) -> None:
    graph.edge_weight = torch.arange(7.0)
    graph.edge_attr = torch.arange(7.0)
    graph.unseen_mask = torch.tensor([False] * 5 + [True])
    part = visible_part(graph)
    assert part.edge_weight.tolist() == [0, 1, 2, 3, 5, 6]
    assert torch.equal(part.edge_attr, part.edge_weight)


@pytest.mark.parametrize(
    "kind", [torch.bool, torch.float16, torch.bfloat16, torch.uint8, torch.int64]
)
def test_added_edges_where_numbers_are_of_any_kind(
    graph: Data, kind: torch.dtype
) -> None:
    graph.edge_attr = torch.tensor([0, 1, 1, 1, 0, 1, 1]).to(kind)
    noisy = add_random_edges(graph, 1)
    assert noisy.edge_attr.dtype == kind and noisy.edge_attr[7:].tolist() == [1, 1]


def test_added_edges_where_there_were_none() -> None:
    nowhere = torch.empty(2, 0, dtype=torch.int64)
    empty = Graph(edge_index=nowhere, num_nodes=3, edge_weight=torch.empty(0))
    assert add_random_edges(empty, 2).edge_weight.tolist() == [1.0] * 4


def test_numbers_without_an_order(graph: Data) -> None:
    graph.edge_attr = torch.ones(7, dtype=torch.complex64)
    with pytest.raises(InvalidInput, match="dense real numbers, to add edges"):
        add_random_edges(graph, 1)
