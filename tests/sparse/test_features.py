import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from gsebo.sparse import SparseFeatures, make_features

from .patterns import Positions, awkward, examples, normal, positions


def sparse_csr(dense: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        # torch says once per process that the format is new.
        warnings.simplefilter("ignore")
        return dense.to_sparse_csr()


@examples
@given(given=positions(), width=st.integers(0, 4), seed=st.integers(0, 99))
def test_product_and_dense_form(given: Positions, width: int, seed: int) -> None:
    values = normal(given.rows.numel(), seed=seed)
    weight = normal(given.num_columns, width, seed=seed + 1)
    features = SparseFeatures(given.pattern, values)
    dense = given.dense(values)
    torch.testing.assert_close(features.to_dense(), dense)
    torch.testing.assert_close(features @ weight, dense @ weight)
    assert features.shape == dense.shape
    assert (features.dtype, features.device) == (values.dtype, values.device)


def test_replicas_are_one_leading_axis() -> None:
    features = SparseFeatures(awkward().pattern, normal(7))
    weight = normal(3, 5, 2)
    expected = features.to_dense() @ weight
    torch.testing.assert_close(features @ weight, expected)


@examples
@given(
    rows=st.integers(1, 12),
    columns=st.integers(1, 12),
    stored=st.integers(0, 144),
    layout=st.sampled_from(["dense", "sparse_csr"]),
)
def test_the_cheaper_form_is_chosen(
    rows: int, columns: int, stored: int, layout: str
) -> None:
    stored = min(stored, rows * columns)
    flat = torch.zeros(rows * columns)
    flat[
        torch.randperm(flat.numel(), generator=torch.Generator().manual_seed(1))[
            :stored
        ]
    ] = 2.5
    x = flat.view(rows, columns)
    given = x if layout == "dense" else sparse_csr(x)
    features = make_features(given, torch.float64, "cpu")
    assert features.dtype == torch.float64
    assert features.shape == x.shape
    if stored < 0.25 * x.numel():
        assert isinstance(features, SparseFeatures)
        assert features.values.numel() == stored
        assert torch.equal(features.to_dense(), x.double())
    else:
        assert isinstance(features, torch.Tensor)
        assert torch.equal(features, x.double())


def test_both_layouts_store_the_same() -> None:
    x = torch.zeros(6, 40)
    x[[0, 5, 5, 2], [39, 0, 7, 7]] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    one, other = (make_features(each, x.dtype, "cpu") for each in (x, sparse_csr(x)))
    assert isinstance(one, SparseFeatures)
    assert isinstance(other, SparseFeatures)
    assert torch.equal(one.values, other.values)
    for mine, theirs in zip(one.pattern.arrays, other.pattern.arrays, strict=True):
        assert (mine == theirs).all()
    assert repr(one) == "SparseFeatures(6 x 40, stored=4)"


def test_integer_features_become_floats() -> None:
    features = make_features(torch.eye(9, dtype=torch.int64), torch.float32, "cpu")
    assert torch.equal(features @ torch.eye(9), torch.eye(9))


def test_input_is_left_alone() -> None:
    x = torch.eye(9)
    make_features(x, torch.float64, "cpu")
    assert torch.equal(x, torch.eye(9))
    dense = torch.ones(3, 3)
    copy = make_features(dense, dense.dtype, "cpu")
    assert torch.equal(copy, dense)
    assert copy.data_ptr() != dense.data_ptr()


@pytest.mark.usefixtures("kernels")
def test_gradients_of_the_weight() -> None:
    features = SparseFeatures(awkward().pattern, normal(7))
    weight = normal(5, 2).requires_grad_()
    (gradient,) = torch.autograd.grad((features @ weight).sum(), weight)
    expected = features.to_dense().sum(0, keepdim=True).mT.expand(5, 2)
    torch.testing.assert_close(gradient, expected)
    assert gradcheck(lambda w: torch.tanh(features @ w), weight)
    assert gradgradcheck(lambda w: torch.tanh(features @ w), weight)
