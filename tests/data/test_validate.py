import warnings
from collections.abc import Callable
from copy import copy
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from gsebo.data import num_classes, validate
from gsebo.errors import InputWarning, InvalidInput


def test_a_good_graph_passes_and_is_unchanged(graph: Data) -> None:
    before = graph.clone()
    validate(graph)
    assert all(torch.equal(graph[key], before[key]) for key in before.keys())  # noqa: SIM118
    assert num_classes(graph) == 2


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_features_pass_unless_not_finite(graph: Data) -> None:
    graph.x = graph.x.to_sparse_csr()
    validate(graph)
    graph.x.values()[0] = float("nan")
    with pytest.raises(InvalidInput, match="finite"):
        validate(graph)


def test_test_mask_is_optional(graph: Data) -> None:
    del graph.test_mask
    validate(graph)


@pytest.mark.parametrize("thing", [None, {"x": 1}, "cora", torch.ones(2)])
def test_not_a_graph(thing: Any) -> None:
    with pytest.raises(InvalidInput, match=r"torch_geometric\.data\.Data"):
        validate(thing)


@pytest.mark.parametrize("key", ["x", "edge_index", "y", "train_mask", "val_mask"])
@pytest.mark.parametrize("absent", [True, False])
def test_missing_key_is_named(graph: Data, key: str, absent: bool) -> None:
    graph[key] = None
    if absent:
        del graph[key]
    with pytest.raises(InvalidInput, match=f"no {key}"):
        validate(graph)


def test_adj_t_is_explained(graph: Data) -> None:
    del graph.edge_index
    graph.adj_t = torch.eye(6)
    with pytest.raises(InvalidInput, match="adj_t, which is not supported"):
        validate(graph)


def _edges(rows: list[list[int]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int64)


BROKEN: list[tuple[str, Callable[[Data], Any], str]] = [
    ("node_id", lambda g: torch.arange(6.0), "node_id as integers"),
    ("node_id", lambda g: torch.arange(5), r"node_id with shape \[6\]"),
    ("node_id", lambda g: torch.arange(6)[:, None], r"node_id with shape \[6\]"),
    ("node_id", lambda g: torch.arange(6) // 2, "3 distinct numbers for 6 nodes"),
    ("node_id", lambda g: [None] * 6, "expected whole numbers or texts"),
    ("node_id", lambda g: ["a", *range(5)], "expected whole numbers or texts"),
    ("node_id", lambda g: list("aabcde"), "5 distinct texts for 6 nodes"),
    ("node_id", lambda g: [*"abcde", ""], "empty text"),
    ("node_id", lambda g: list("abcde"), r"node_id with shape \[6\]"),
    ("meta", lambda g: {"classes": ["one"]}, "names 1 classes"),
    ("meta", lambda g: {"classes": ["one"] * 9}, "names 9 classes, 1 of them"),
    ("edge_index", lambda g: g.edge_index.float(), "integers"),
    ("edge_index", lambda g: g.edge_index.bool(), "integers"),
    ("edge_index", lambda g: g.edge_index.T, r"\[2, edges\]"),
    ("edge_index", lambda g: g.edge_index[0], r"\[2, edges\]"),
    ("edge_index", lambda g: g.edge_index[:, :0], "no edges"),
    ("edge_index", lambda g: _edges([[0, 1], [1, 6]]), "names node 6"),
    ("edge_index", lambda g: _edges([[0, -1], [1, 0]]), "names node -1"),
    ("edge_index", lambda g: _edges([[0, 1], [0, 1]]), "only self-loops"),
    ("edge_index", lambda g: g.edge_index.tolist(), "tensor, got list"),
    ("x", lambda g: g.x[:, 0], r"\[nodes, features\]"),
    ("x", lambda g: g.x.long(), "floating point"),
    ("x", lambda g: g.x > 0, "floating point"),
    ("x", lambda g: g.x / 0.0, "finite"),
    ("x", lambda g: g.x[:0], "empty"),
    ("x", lambda g: g.x[:, :0], "no columns"),
    ("x", lambda g: g.x[:5], "names node 5"),
    ("x", lambda g: g.x.to_sparse_coo(), "sparse_csr"),
    ("x", lambda g: g.x.numpy(), "tensor, got ndarray"),
    ("num_nodes", lambda g: 7, "for each of 7 nodes"),
    ("y", lambda g: g.y.float(), "targets of a regression"),
    ("y", lambda g: g.y.bool(), "integer classes"),
    ("y", lambda g: g.y[:, None], r"shape \[6\]"),
    ("y", lambda g: g.y[:5], r"shape \[6\]"),
    ("y", lambda g: g.y - 1, "label -1"),
    ("y", lambda g: g.y * 10**6, "label 1000000"),
    ("y", lambda g: g.y * 0, "at least two classes"),
    ("train_mask", lambda g: g.train_mask.long(), "train_mask as bool"),
    ("train_mask", lambda g: g.train_mask[:4], r"shape \[6\]"),
    ("val_mask", lambda g: g.val_mask[:, None], r"val_mask\[:, 0\]"),
    ("train_mask", lambda g: g.train_mask & False, "train_mask is empty"),
    ("val_mask", lambda g: g.val_mask & False, "val_mask is empty"),
    ("val_mask", lambda g: g.train_mask, "share 2 nodes"),
    ("test_mask", lambda g: g.train_mask, "share 2 nodes"),
    ("test_mask", lambda g: ~g.train_mask, "val_mask and test_mask share"),
    ("test_mask", lambda g: g.test_mask.int(), "test_mask as bool"),
]


@pytest.mark.parametrize(("key", "change", "message"), BROKEN)
def test_broken_graph_is_refused_in_one_sentence(
    graph: Data, key: str, change: Callable[[Data], Any], message: str
) -> None:
    graph[key] = change(graph)
    with pytest.raises(InvalidInput, match=message) as caught:
        validate(graph)
    assert "\n" not in str(caught.value)


def test_labels_outside_training_and_validation_are_not_read(graph: Data) -> None:
    graph.y[graph.test_mask] = -100
    validate(graph)
    graph.y[graph.test_mask] = 10**9
    validate(graph)
    assert num_classes(graph) == 2


def test_prediction_needs_no_labels(graph: Data) -> None:
    bare = Data(x=graph.x, edge_index=graph.edge_index)
    validate(bare, labels_needed=False)
    bare.x = bare.x * float("nan")
    with pytest.raises(InvalidInput, match="finite"):
        validate(bare, labels_needed=False)


def test_class_without_training_node_warns(graph: Data) -> None:
    graph.y[2] = 3
    with pytest.warns(InputWarning, match="no training node is of class 3"):
        validate(graph)


THINGS = st.one_of(
    st.none(),
    st.integers(),
    st.text(),
    st.builds(
        lambda shape, dtype: torch.ones(shape).to(dtype),
        st.lists(st.integers(0, 6), max_size=3),
        st.sampled_from([torch.float32, torch.int64, torch.bool, torch.complex64]),
    ),
)
KEYS = ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.dictionaries(st.sampled_from(KEYS), THINGS, min_size=1))
def test_whatever_is_handed_in_only_invalid_input_is_raised(
    graph: Data, changes: dict[str, Any]
) -> None:
    changed = copy(graph)
    for key, value in changes.items():
        changed[key] = value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        try:
            validate(changed)
        except InvalidInput as error:
            assert str(error).endswith(".")
