"""Whatever a user hands in: it works, or one sentence says what was expected."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric import EdgeIndex
from torch_geometric.data import Batch, Data, HeteroData

from gsebo import GSEBO, InputWarning, InvalidInput, Vanilla

from .examples import small_graph, to_csr

N = 16
MASKS = ("train_mask", "val_mask", "test_mask")
KEYS = ("x", "edge_index", "y", *MASKS)

Corruption = Callable[[Data], Any]


def replaced(key: str, change: Callable[[Tensor], Any]) -> Corruption:
    def corrupt(data: Data) -> Data:
        if key in data and isinstance(data[key], Tensor):
            data[key] = change(data[key])
        return data

    return corrupt


def put(value: Any, *place: Any) -> Callable[[Tensor], Tensor]:
    def change(tensor: Tensor) -> Tensor:
        tensor = tensor.clone()
        tensor[place] = value
        return tensor

    return change


DTYPES = {
    str(dtype): (lambda t, dtype=dtype: t.to(dtype))
    for dtype in (
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.uint16,
        torch.uint64,
    )
}
ANY: dict[str, Callable[[Tensor], Any]] = {
    **DTYPES,
    "none": lambda t: None,
    "list": lambda t: t.tolist(),
    "numpy": lambda t: t.numpy(),
    "string": lambda t: "x",
    "number": lambda t: 3,
    "empty": lambda t: t[:0],
    "scalar": lambda t: t.flatten()[0],
    "longer": lambda t: torch.cat([t, t[:1]]),
    "shorter": lambda t: t[:-1],
    "column": lambda t: t.unsqueeze(-1),
    "row": lambda t: t.unsqueeze(0),
    "turned": lambda t: t.T if t.dim() == 2 else t.flip(0),
    "flat": lambda t: t.flatten(),
    "strided": lambda t: torch.stack([t, t], -1)[..., 0],
    "zero": torch.zeros_like,
    "coo": lambda t: t.to_sparse(),
}
SPECIAL: dict[str, dict[str, Callable[[Tensor], Any]]] = {
    "x": {
        "nan": put(float("nan"), 0, 0),
        "inf": put(float("inf"), -1, 0),
        "huge": lambda t: t * 1e38,
        "tiny": lambda t: t * 1e-38,
        "huge double": lambda t: t.double() * 1e300,
        "constant": torch.ones_like,
        "no columns": lambda t: t[:, :0],
        "csr": to_csr,
        "mostly zero csr": lambda t: to_csr(t * (t > 1.5)),
        "all zero csr": lambda t: to_csr(t * 0),
        "nan csr": lambda t: to_csr(put(float("nan"), 0, 0)(t)),
        "csc": lambda t: t.to_sparse_csc(),
        "gradient": lambda t: t.clone().requires_grad_(),
        "parameter": lambda t: torch.nn.Parameter(t),
    },
    "edge_index": {
        "out of range": put(N, 0, 0),
        "far out of range": put(2**40, 1, 3),
        "negative": put(-1, 1, 0),
        "no edges": lambda t: t[:, :0],
        "one edge": lambda t: t[:, :1],
        "only loops": lambda t: t[:1].expand(2, -1),
        "all alike": lambda t: t[:, :1].expand(-1, 30),
        "three rows": lambda t: torch.cat([t, t[:1]]),
        "floats": lambda t: t.float(),
        "edge index": lambda t: EdgeIndex(t, sparse_size=(N, N)),
        "into one node": put(0, 1),
    },
    "y": {
        "negative": put(-1, slice(None)),
        "one negative": put(-1, 0),
        "huge": put(10**9, slice(None)),
        "largest": put(2**63 - 1, 0),
        "one class": put(1, slice(None)),
        "gap": lambda t: t * 3,
        "own class": lambda t: torch.arange(len(t)),
        "one hot": lambda t: torch.nn.functional.one_hot(t.clamp(0, 3).long(), 4),
        "nan": lambda t: t.float() / 0,
    },
    "train_mask": {},
    "val_mask": {},
    "test_mask": {},
}
for _mask in MASKS:
    SPECIAL[_mask] = {
        "everything": torch.ones_like,
        "nothing": torch.zeros_like,
        "indices": lambda t: t.nonzero().flatten(),
        "several": lambda t: torch.stack([t, ~t], 1),
        "opposite": lambda t: ~t,
        "one": lambda t: put(True, t.long().argmax())(torch.zeros_like(t)),
    }


def delete(key: str) -> Corruption:
    def corrupt(data: Data) -> Data:
        if key in data:
            del data[key]
        return data

    return corrupt


def adjacency(data: Data) -> Data:
    edges = data.edge_index
    if isinstance(edges, Tensor) and edges.shape[:1] == (2,) and edges.numel():
        ones = torch.ones(edges.shape[1])
        data.adj_t = torch.sparse_coo_tensor(edges.flip(0).long().clamp(0), ones)
    return data


def adjacency_only(data: Data) -> Data:
    data = adjacency(data)
    del data.edge_index
    return data


def assign(**fields: Any) -> Corruption:
    def corrupt(data: Data) -> Data:
        for key, value in fields.items():
            data[key] = value
        return data

    return corrupt


CORRUPTIONS: dict[str, Corruption] = {
    **{
        f"{key}: {name}": replaced(key, change)
        for key in KEYS
        for name, change in (ANY | SPECIAL[key]).items()
    },
    **{f"{key}: missing": delete(key) for key in KEYS},
    "train = val": lambda data: assign(val_mask=data.train_mask)(data),
    "test = val": lambda data: assign(test_mask=data.val_mask)(data),
    "adj_t too": adjacency,
    "adj_t only": adjacency_only,
    "more nodes": assign(num_nodes=N + 4),
    "fewer nodes": assign(num_nodes=2),
    "edge_attr": assign(edge_attr=torch.ones(3)),
    "edge_weight": assign(edge_weight=torch.ones(3)),
    "unknown key": assign(edge_strength=torch.zeros(2), note="kept"),
}
WHOLES: dict[str, Any] = {
    "none": None,
    "number": 3,
    "dictionary": {"x": 1},
    "empty": Data(),
    "hetero": HeteroData(),
    "array": np.zeros((3, 3)),
    "only nodes": Data(x=torch.ones(3, 2)),
}


def corrupted(names: list[str]) -> Data:
    data = small_graph(N, average_degree=3.0, num_features=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            try:
                data = CORRUPTIONS[name](data)
            except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
                continue  # The second change made no sense after the first.
    return data


def assert_fits_or_explains(data: Any) -> None:
    models = (
        Vanilla(max_epochs=1, random_state=0),
        GSEBO(max_outer_steps=1, inner_steps=1, random_state=0),
    )
    for model in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)
            try:
                model.fit(data)
            except InvalidInput as error:
                assert "\n" not in str(error)
                assert not hasattr(model, "model_")
                continue
        assert bool(model.probability_.isfinite().all())
        assert model.strength_.shape == (data.edge_index.shape[1],)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_one_corruption(name: str) -> None:
    assert_fits_or_explains(corrupted([name]))


@settings(max_examples=150)
@given(names=st.lists(st.sampled_from(sorted(CORRUPTIONS)), min_size=2, max_size=3))
@example(names=["y: torch.uint8", "test_mask: missing"])
@example(names=["x: csr", "x: torch.float64"])
def test_several_corruptions(names: list[str]) -> None:
    assert_fits_or_explains(corrupted(names))


@pytest.mark.parametrize("whole", WHOLES)
def test_no_graph_at_all(whole: str) -> None:
    assert_fits_or_explains(WHOLES[whole])


def test_a_batch_is_a_graph() -> None:
    graphs = [small_graph(N).to_pyg() for _ in range(2)]
    assert_fits_or_explains(Batch.from_data_list(graphs))


@pytest.mark.parametrize("name", [n for n in CORRUPTIONS if n.startswith(("x", "e"))])
def test_predicting_on_a_corrupted_graph(name: str) -> None:
    model = Vanilla(max_epochs=1, random_state=0).fit(corrupted([]))
    data = corrupted([name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        try:
            assert model.predict(data).shape == (data.x.shape[0],)
        except InvalidInput as error:
            assert "\n" not in str(error)
