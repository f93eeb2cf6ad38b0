"""Objects handed in from Python that would lead a kernel out of its memory."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch_geometric.data import Data

from gsebo import GSEBO, Vanilla
from gsebo.data import apply_noise, apply_split, content_digest, save_npz, validate
from gsebo.data.formats.folder import write_folder
from gsebo.errors import InvalidInput
from gsebo.graph import normalise_rows
from gsebo.graph.features import csr_tensor


def parts(graph: Data) -> tuple[Tensor, Tensor, Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        x = graph.x.to_sparse_csr()
    return x.crow_indices().clone(), x.col_indices().clone(), x.values().clone()


def pointers(value: int) -> Callable[[Data], Tensor]:
    def change(graph: Data) -> Tensor:
        starts, columns, values = parts(graph)
        starts[2] = value
        return csr_tensor(starts, columns, values, (6, 3))

    return change


def column(value: int) -> Callable[[Data], Tensor]:
    def change(graph: Data) -> Tensor:
        starts, columns, values = parts(graph)
        columns[4] = value
        return csr_tensor(starts, columns, values, (6, 3))

    return change


def wide(columns: int) -> Callable[[Data], Tensor]:
    return lambda graph: csr_tensor(*parts(graph), (6, columns))


HARMFUL: list[tuple[Callable[[Data], Any], str]] = [
    (pointers(0), "row pointers of x are inconsistent"),
    (pointers(-5), "row pointers of x are inconsistent"),
    (pointers(10**9), "row pointers of x are inconsistent"),
    (pointers(2**62), "row pointers of x are inconsistent"),
    (column(-1), "columns 0 to 2, got -1"),
    (column(3), "columns 0 to 2, got 3"),
    (column(2**40), "columns 0 to 2"),
    (wide(10**7), "claims 10,000,000 columns"),
    (wide(2**58), "GB for each unit of a network"),
    (lambda g: g.x.to("meta"), "device 'meta'"),
    (lambda g: g.x.to(torch.float8_e4m3fn), "floating point"),
    (lambda g: g.x.to(torch.complex64), "floating point"),
    (lambda g: torch.complex(g.x, g.x).conj().imag, "resolve_neg"),
    (lambda g: torch.zeros(1, 1).expand(6, 10**12), "takes about 24000.0 GB"),
    (lambda g: torch.nested.nested_tensor([g.x[0], g.x[0, :2]]), "nested"),
    (lambda g: csr_matrix(g.x.numpy()), "tensor, got csr_matrix"),
    (lambda g: np.array([["a", 1]], dtype=object), "tensor, got ndarray"),
]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(("change", "message"), HARMFUL)
def test_features_that_are_not_followed(
    graph: Data, tmp_path: Path, change: Callable[[Data], Any], message: str
) -> None:
    graph.x = change(graph)
    uses: list[Callable[[], Any]] = [
        lambda: validate(graph),
        lambda: validate(graph, labels_needed=False, features_needed=False),
        lambda: Vanilla(max_epochs=1).fit(graph),
        lambda: GSEBO(max_outer_steps=1, inner_steps=1).fit(graph),
        lambda: normalise_rows(graph.x),
        lambda: apply_noise(graph, "features:50"),
        lambda: apply_noise(graph, "random:1"),
    ]
    for use in uses:
        with pytest.raises(InvalidInput, match=message) as caught:
            use()
        assert "\n" not in str(caught.value)
    if graph.x.dtype in (torch.float32, torch.float64):
        for use in (
            lambda: save_npz(graph, tmp_path / "g.npz"),
            lambda: content_digest(graph),
        ):
            with pytest.raises(InvalidInput):
                use()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_sound_sparse_features_of_any_precision(
    graph: Data, dtype: torch.dtype
) -> None:
    starts, columns, values = parts(graph)
    for kind in (torch.int32, torch.int64):
        graph.x = csr_tensor(
            starts.to(kind), columns.to(kind), values.to(dtype), (6, 3)
        ).requires_grad_()
        model = Vanilla(max_epochs=2, random_state=0).fit(graph)
        assert bool(model.probability_.isfinite().all())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("edge_index", torch.zeros(2, 1, dtype=torch.int64).expand(2, 10**13), "GB"),
        ("edge_index", torch.zeros(2, 3, dtype=torch.int64).to("meta"), "meta"),
        ("y", torch.zeros(6, dtype=torch.int64).to("meta"), "meta"),
        ("num_nodes", "six", "expected one for each of"),
        ("num_nodes", float("nan"), "each of nan nodes"),
        ("num_nodes", 2**70, "expected one for each of"),
        ("num_nodes", -1, "each of -1 nodes"),
    ],
)
def test_what_else_is_not_followed(
    graph: Data, key: str, value: Any, message: str
) -> None:
    graph[key] = value
    with pytest.raises(InvalidInput, match=message):
        validate(graph)


@pytest.mark.parametrize("count", ["six", 2.5, float("nan"), -1, 0, 10**18, [6]])
def test_a_number_of_nodes_that_nobody_believes(graph: Data, count: Any) -> None:
    bare = Data(edge_index=graph.edge_index)
    bare.num_nodes = count
    with pytest.raises(InvalidInput, match="expected"):
        validate(bare, labels_needed=False, features_needed=False)


def test_a_number_of_nodes_of_numpy_is_one(graph: Data) -> None:
    graph.num_nodes = np.int64(6)
    validate(graph)


def test_more_edges_than_can_be_drawn(graph: Data) -> None:
    many = Data(edge_index=graph.edge_index, num_nodes=10**6)
    with pytest.raises(InvalidInput, match="drawing 100000000000 random edges takes"):
        apply_noise(many, "random:100000000000")


ODD: dict[str, Callable[[Tensor], Any]] = {
    "meta": lambda value: value.to("meta"),
    "sparse": lambda value: value.to_sparse(),
    "fractions": lambda value: value.float() + 0.5,
    "complex": lambda value: value.to(torch.complex64),
    "text": lambda value: "classes",
    "list": lambda value: value.tolist(),
    "vast": lambda value: value.reshape(-1)[:1].expand(10**13),
}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("key", ["y", "train_mask", "edge_index"])
def test_what_is_no_class_mask_or_edge(
    graph: Data, tmp_path: Path, key: str, kind: str
) -> None:
    graph[key] = ODD[kind](graph[key])
    uses: list[Callable[[], Any]] = [
        lambda: content_digest(graph),
        lambda: apply_noise(graph, "labels:50"),
        *([lambda: apply_noise(graph, 1)] if key == "y" else []),
        lambda: save_npz(graph, tmp_path / "g.npz"),
        lambda: write_folder(graph, tmp_path / "g"),
    ]
    for use in uses:
        with pytest.raises(InvalidInput, match="expected"):
            use()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("length", [5, 7])
@pytest.mark.parametrize("key", ["y", "val_mask", "test_mask"])
def test_more_or_fewer_classes_than_nodes_are_not_written(
    graph: Data, tmp_path: Path, key: str, length: int
) -> None:
    graph[key] = torch.zeros(length, dtype=graph[key].dtype)
    with pytest.raises(InvalidInput, match="for each of 6 nodes"):
        write_folder(graph, tmp_path / "g")
    assert not list(tmp_path.iterdir())


def test_features_with_a_gradient_can_be_written(graph: Data, tmp_path: Path) -> None:
    expected = graph.x.clone()
    graph.x.requires_grad_()
    assert torch.equal(write_folder(graph, tmp_path / "g").to_data().x, expected)


def test_edges_that_could_not_be_read_again_are_not_written(
    graph: Data, tmp_path: Path
) -> None:
    graph.edge_index[0, 0] = 6
    with pytest.raises(InvalidInput, match="names node 6"):
        save_npz(graph, tmp_path / "g.npz")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("weight", [52, "much", torch.ones(3), torch.ones(())])
def test_weights_that_belong_to_no_edges(graph: Data, weight: Any) -> None:
    graph.edge_weight = weight
    with pytest.raises(InvalidInput, match="a row for each of 7 edges"):
        apply_noise(graph, "removed:50")


def test_halves_of_a_graph_without_labels(graph: Data) -> None:
    graph.y = None
    with pytest.raises(InvalidInput, match="no y"):
        apply_split(graph, "halves")
    graph.y = torch.tensor([0, 1])
    with pytest.raises(InvalidInput, match="labels of 2 nodes and masks of more"):
        apply_split(graph, "halves")


@pytest.mark.parametrize("noise", ["removed:50", "random:1", "labels:50"])
def test_noise_without_features(graph: Data, noise: str) -> None:
    """No warning of PyG, which counts nodes by guessing."""
    graph.x = None
    assert apply_noise(graph, noise).x is None


def test_halves_of_a_mask_without_numbers(graph: Data) -> None:
    graph.val_mask = graph.val_mask.to("meta")
    with pytest.raises(InvalidInput, match="device 'meta'"):
        apply_split(graph, "halves")
