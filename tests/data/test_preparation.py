"""Features are prepared by what one graph says, on this graph and on others."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from gsebo import InvalidInput, generate_graph
from gsebo.data.preparation import (
    PREPARATIONS,
    Standard,
    fit_preparation,
    preparation_called,
    suitable_preparations,
)
from gsebo.graph.features import features_to_csr
from methods.examples import to_csr, with_fields

OF_FEATURES = ("given", "rows", "standard", "largest")
OF_EDGES = ("degree", "identity", "degree+identity")


def graph(num_nodes: int = 30, *, seed: int = 0) -> Data:
    return generate_graph(num_nodes, average_degree=4.0, num_features=5, seed=seed)


def counts(density: float = 0.1, *, seed: int = 0) -> Data:
    """Mostly zeros and never negative, as counts of words are."""
    data = graph(seed=seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(30, 40, generator=generator)
    return with_fields(data, x=torch.where(x < density, (9 * x / density).ceil(), 0))


def bare(data: Data) -> Data:
    """Without features, as `sized` leaves such a graph."""
    return Data(edge_index=data.edge_index, y=data.y, num_nodes=data.num_nodes)


def dense(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(features_to_csr(x).toarray())


def test_what_suits_a_graph() -> None:
    assert suitable_preparations(graph()) == ["given", "standard"]
    assert suitable_preparations(counts()) == ["given", "rows", "standard"]
    assert suitable_preparations(bare(graph())) == list(OF_EDGES)
    prepared = fit_preparation("rows", counts()).apply(counts())
    assert "rows" not in suitable_preparations(prepared)
    prepared = fit_preparation("standard", graph()).apply(graph())
    assert suitable_preparations(prepared) == ["given"]


@pytest.mark.parametrize("form", [lambda x: x, to_csr], ids=["dense", "csr"])
def test_words_that_are_there_are_ones_again(form) -> None:
    words = (counts().x > 0).float()
    words[3] = 0
    shares = fit_preparation("rows", counts()).features(with_fields(counts(), x=words))
    data = with_fields(counts(), x=form(shares))
    torch.testing.assert_close(
        dense(fit_preparation("largest", data).features(data)), words
    )
    signed = with_fields(graph(), x=form(graph().x))
    found = dense(fit_preparation("largest", signed).features(signed))
    torch.testing.assert_close(found.abs().amax(1), torch.ones(30))
    torch.testing.assert_close(found.sign(), graph().x.sign())


def embedded(data: Data) -> Data:
    """With what is known of each node along two metapaths; nothing of the first."""
    generator = torch.Generator().manual_seed(1)
    z = {f"metapath:{name}": torch.randn(30, 4, generator=generator) for name in "ab"}
    z["metapath:a"][0] = 0
    return with_fields(data, **z)


@pytest.mark.parametrize("form", [lambda x: x, to_csr], ids=["dense", "csr"])
def test_embeddings_along_metapaths_stand_beside_features(form) -> None:
    data = embedded(with_fields(counts(), x=form(counts().x)))
    assert suitable_preparations(data) == ["given", "rows", "metapaths", "standard"]
    fitted = fit_preparation("metapaths", data)
    prepared = dense(fitted.features(data))
    largest = dense(fit_preparation("largest", data).features(data))
    torch.testing.assert_close(prepared[:, :40], largest)
    for first, name in ((40, "a"), (44, "b")):
        part, z = prepared[:, first : first + 4], data[f"metapath:{name}"]
        lengths = z.norm(dim=1, keepdim=True)
        torch.testing.assert_close(part * lengths, z)
    assert not prepared[0, 40:44].any()
    with pytest.raises(InvalidInput, match="has 40 features per node with its embed"):
        fitted.features(counts())
    broken = with_fields(data, **{"metapath:b": torch.full((30, 4), float("nan"))})
    with pytest.raises(InvalidInput, match="'metapath:b' has numbers that are not fi"):
        fitted.features(broken)


@given(seed=st.integers(0, 50), scale=st.floats(1e-3, 1e3), shift=st.floats(-9, 9))
def test_columns_are_standardised(seed: int, scale: float, shift: float) -> None:
    data = graph(seed=seed)
    moved = with_fields(data, x=data.x * scale + shift)
    x = fit_preparation("standard", moved).features(moved)
    torch.testing.assert_close(x.mean(0), torch.zeros(5), rtol=0, atol=0.02)
    torch.testing.assert_close(x.var(0, correction=0), torch.ones(5), rtol=0.02, atol=0)


def test_constant_columns_are_no_harm() -> None:
    data = graph()
    data.x[:, 2] = 7.0
    data.x[:, 3] = 0.0
    x = fit_preparation("standard", data).features(data)
    assert bool(x.isfinite().all())
    assert not x[:, 2:4].any()


def test_zeros_stay_zeros_where_most_are() -> None:
    data = counts()
    x = fit_preparation("standard", data).features(data)
    assert torch.equal(x == 0, data.x == 0)


@pytest.mark.parametrize("name", OF_FEATURES)
@pytest.mark.parametrize("density", [0.1, 0.6])
def test_sparse_and_dense_are_the_same(name: str, density: float) -> None:
    data = counts(density)
    sparse = with_fields(data, x=to_csr(data.x))
    left, right = fit_preparation(name, data), fit_preparation(name, sparse)
    torch.testing.assert_close(
        dense(left.features(data)), dense(right.features(sparse)), rtol=1e-6, atol=1e-6
    )
    torch.testing.assert_close(
        dense(right.features(data)), dense(left.features(sparse)), rtol=1e-6, atol=1e-6
    )


def test_rows_sum_to_one() -> None:
    data = counts(0.3)
    data.x[4] = 0
    sums = fit_preparation("rows", data).features(data).sum(1)
    assert sums[4] == 0
    torch.testing.assert_close(sums[5:], torch.ones(25))


@pytest.mark.parametrize("name", OF_FEATURES)
def test_half_precision_becomes_single(name: str) -> None:
    data = with_fields(graph(), x=graph().x.half())
    assert fit_preparation(name, data).features(data).dtype == torch.float32
    double = with_fields(data, x=data.x.double())
    assert fit_preparation(name, double).features(double).dtype == torch.float64


def test_another_graph_is_prepared_by_the_first() -> None:
    first, second = graph(), graph(seed=1)
    fitted = Standard.fit(first)
    expected = (second.x - first.x.mean(0)) / first.x.std(0, correction=0)
    torch.testing.assert_close(fitted.features(second), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", OF_FEATURES)
def test_another_number_of_features_is_refused(name: str) -> None:
    fitted = fit_preparation(name, graph())
    with pytest.raises(InvalidInput, match="4 features per node; expected 5"):
        fitted.features(with_fields(graph(), x=graph().x[:, :4]))
    with pytest.raises(InvalidInput, match="no x; expected 5 features"):
        fitted.features(bare(graph()))


@pytest.mark.parametrize("name", PREPARATIONS)
def test_what_is_stored_is_the_same(name: str) -> None:
    data = bare(graph()) if name in OF_EDGES else embedded(graph())
    fitted = fit_preparation(name, data)
    kind = preparation_called(name)
    again = kind.from_tensors(fitted.tensors())
    assert torch.equal(dense(again.features(data)), dense(fitted.features(data)))
    columns = fitted.features(data).shape[1]
    forms = kind.forms(columns, data.num_nodes, torch.float32)
    assert forms.keys() == fitted.tensors().keys()
    with pytest.raises(TypeError):
        kind.from_tensors({})


# --- features from edges -------------------------------------------------------------


def star(leaves: int, **fields: object) -> Data:
    middle = torch.zeros(leaves, dtype=torch.int64)
    ends = torch.stack([middle, torch.arange(1, leaves + 1)])
    edges = torch.cat([ends, ends.flip(0)], dim=1)
    return Data(edge_index=edges, num_nodes=leaves + 1, **fields)


def bins(data: Data) -> list[int]:
    return dense(fit_preparation("degree", data).features(data)).argmax(1).tolist()


@given(degree=st.integers(1, 300))
def test_degrees_fall_into_ranges_that_grow(degree: int) -> None:
    found = bins(star(degree))
    assert found[1:] == [1] * degree
    above = bins(star(degree + 1))[0]
    assert found[0] <= above <= found[0] + 1
    assert bins(star(4 * degree))[0] > found[0]
    if degree < 5:
        assert found[0] == degree


def test_degrees_do_not_count_twice() -> None:
    data = bare(graph())
    loops = torch.arange(5).expand(2, -1)
    doubled = torch.cat([data.edge_index.flip(1), loops, data.edge_index], dim=1)
    assert bins(with_fields(data, edge_index=doubled)) == bins(data)
    one_way = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    assert bins(with_fields(data, edge_index=one_way)) == bins(data)


def test_a_degree_that_was_never_seen_counts_as_the_largest() -> None:
    fitted = fit_preparation("degree", star(4))
    x = dense(fitted.features(star(50)))
    assert x.shape[1] == 5 and x[0].argmax() == 4


def test_each_node_is_its_own() -> None:
    data = bare(graph())
    x = dense(fit_preparation("identity", data).features(data))
    assert torch.equal(x, torch.eye(30))
    both = dense(fit_preparation("degree+identity", data).features(data))
    degree = dense(fit_preparation("degree", data).features(data))
    assert torch.equal(both, torch.cat([degree, x], dim=1))


@pytest.mark.parametrize("name", ["identity", "degree+identity"])
def test_nodes_that_are_told_apart_by_number_cannot_be_new(name: str) -> None:
    with pytest.raises(InvalidInput, match="31 nodes; expected the 30 of the fit"):
        fit_preparation(name, bare(graph())).features(bare(graph(31)))
