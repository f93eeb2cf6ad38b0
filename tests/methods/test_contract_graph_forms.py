"""Every estimator gives the same, however the same graph is written down."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from .examples import (
    CALM_NAMES,
    NAMES,
    UNDIRECTED,
    assert_same_fit,
    calm,
    calm_fitted,
    fitted,
    permuted,
    quick,
    small_graph,
    supported,
    to_csr,
    with_fields,
)

pytestmark = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


def needs_calm(name: str) -> None:
    if name not in CALM_NAMES:
        pytest.skip("draws graphs by the number of each node")


@settings(max_examples=3)
@given(seed=st.integers(0, 2**20))
def test_permuting_the_nodes_permutes_the_output(name: str, seed: int) -> None:
    needs_calm(name)
    data = small_graph(40, seed=seed % 7)
    data.x = data.x.double()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
    before = calm(name).fit(data)
    after = calm(name).fit(permuted(data, order))
    torch.testing.assert_close(
        after.probability_, before.probability_[order], rtol=0, atol=1e-8
    )
    torch.testing.assert_close(after.strength_, before.strength_, rtol=0, atol=1e-8)
    if before.loop_strength_ is not None:
        torch.testing.assert_close(
            after.loop_strength_, before.loop_strength_[..., order], rtol=0, atol=1e-8
        )


def test_permuting_the_nodes_in_single_precision(name: str, data: Data) -> None:
    needs_calm(name)
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(1))
    before = calm_fitted(name)
    after = calm(name).fit(permuted(data, order))
    torch.testing.assert_close(
        after.probability_, before.probability_[order], rtol=0, atol=1e-4
    )


def test_shuffling_the_edges_shuffles_the_strengths(name: str, data: Data) -> None:
    order = torch.randperm(data.num_edges, generator=torch.Generator().manual_seed(2))
    shuffled = with_fields(data, edge_index=data.edge_index[:, order])
    before, after = fitted(name), quick(name).fit(shuffled)
    assert torch.equal(after.strength_, before.strength_[..., order])
    assert torch.equal(after.probability_, before.probability_)
    assert torch.equal(after.predict_proba(data), before.probability_)


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_duplicates_and_loops_keep_their_place(
    name: str, data: Data, backbone: str
) -> None:
    if not supported(name, backbone):
        pytest.skip(f"{name} has other networks")
    nodes = torch.tensor([[3, 7, 3], [3, 7, 3]])
    edges = torch.cat([data.edge_index[:, :5], nodes, data.edge_index], dim=1)
    model = quick(name, backbone=backbone).fit(with_fields(data, edge_index=edges))
    plain = fitted(name, backbone)
    assert model.strength_.shape[-1] == edges.shape[1]
    assert torch.equal(model.strength_[..., :5], model.strength_[..., 8:13])
    assert torch.equal(model.strength_[..., 8:], plain.strength_)
    assert torch.equal(model.probability_, plain.probability_)
    loops = model.strength_[..., 5:8]
    if model.loop_strength_ is None:
        assert not loops.any()
    else:
        assert torch.equal(loops, model.loop_strength_[..., [3, 7, 3]])


def test_a_directed_graph_stays_directed(name: str, data: Data) -> None:
    one_way = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    model = quick(name).fit(with_fields(data, edge_index=one_way))
    assert model.strength_.shape[-1] == one_way.shape[1]
    back = quick(name).fit(with_fields(data, edge_index=one_way.flip(0)))
    same = torch.equal(model.probability_, back.probability_)
    assert same == (name in UNDIRECTED)


def test_isolated_nodes_are_classified_too(name: str, data: Data) -> None:
    touching = (data.edge_index == 0).any(0)
    alone = with_fields(data, edge_index=data.edge_index[:, ~touching])
    assert bool(quick(name).fit(alone).probability_.isfinite().all())


@pytest.mark.parametrize("least", [-9.0, 1.3], ids=["dense", "sparse"])
def test_sparse_features_give_the_same_as_dense_ones(
    name: str, data: Data, least: float
) -> None:
    x = data.x * (data.x > least)
    dense = quick(name).fit(with_fields(data, x=x))
    sparse = quick(name).fit(with_fields(data, x=to_csr(x)))
    assert_same_fit(dense, sparse)
    assert torch.equal(sparse.predict_proba(with_fields(data, x=x)), dense.probability_)


def test_double_precision_goes_in_and_comes_out(name: str, data: Data) -> None:
    double = calm(name).fit(with_fields(data, x=data.x.double()))
    assert double.probability_.dtype == double.strength_.dtype == torch.float64
    single = calm_fitted(name)
    assert single.probability_.dtype == single.strength_.dtype == torch.float32
    torch.testing.assert_close(
        single.probability_.double(), double.probability_, rtol=0, atol=1e-4
    )


def test_half_precision_is_computed_in_single(name: str, data: Data) -> None:
    # Both are converted by the same line: half of the methods try each.
    dtype = (torch.float16, torch.bfloat16)[NAMES.index(name) % 2]
    half = with_fields(data, x=data.x.to(dtype))
    single = with_fields(data, x=half.x.float())
    assert_same_fit(quick(name).fit(half), quick(name).fit(single))


def test_small_integers_are_integers(name: str, data: Data) -> None:
    y, edge_index = data.y.to(torch.uint8), data.edge_index.int()
    narrow = with_fields(data, y=y, edge_index=edge_index)
    assert_same_fit(quick(name).fit(narrow), fitted(name))
