import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.sparse import (
    Pattern,
    edge_softmax,
    reference_kernels,
    row_expand,
    row_sum,
    sddmm,
    spmm,
)

from .patterns import BATCHES, Positions, awkward, examples, normal, positions

pytestmark = pytest.mark.compiles

DTYPES = [torch.float32, torch.float64]
batches = pytest.mark.parametrize(("left", "right"), BATCHES)
dtypes = pytest.mark.parametrize("dtype", DTYPES)


def check_spmm(given: Positions, values: Tensor, x: Tensor) -> None:
    expected = given.dense(values) @ x
    out = spmm(given.pattern, values, x)
    assert out.shape == expected.shape
    torch.testing.assert_close(out, expected)


def check_sddmm(given: Positions, a: Tensor, b: Tensor) -> None:
    expected = (a @ b.mT)[..., given.rows, given.columns]
    out = sddmm(given.pattern, a, b)
    assert out.shape == expected.shape
    torch.testing.assert_close(out, expected)


def check_rows(given: Positions, values: Tensor, x: Tensor) -> None:
    pattern = given.pattern
    torch.testing.assert_close(row_sum(pattern, values), given.dense(values).sum(-1))
    assert torch.equal(row_expand(pattern, x), x[..., given.rows])
    torch.testing.assert_close(edge_softmax(pattern, values), given.softmax(values))


@dtypes
@examples
@given(given=positions(), channels=st.integers(0, 9), seed=st.integers(0, 99))
def test_random_patterns_against_dense_algebra(
    dtype: torch.dtype, given: Positions, channels: int, seed: int
) -> None:
    entries, (rows, columns) = given.rows.numel(), (given.num_rows, given.num_columns)
    values = normal(entries, seed=seed, dtype=dtype)
    a = normal(rows, channels, seed=seed + 1, dtype=dtype)
    b = normal(columns, channels, seed=seed + 2, dtype=dtype)
    x = normal(rows, seed=seed + 3, dtype=dtype)
    check_spmm(given, values, b)
    check_sddmm(given, a, b)
    check_rows(given, values, x)
    with reference_kernels():
        check_spmm(given, values, b)
        check_sddmm(given, a, b)
        check_rows(given, values, x)


@batches
@dtypes
@pytest.mark.usefixtures("kernels")
def test_leading_axes_broadcast_like_matmul(
    left: tuple[int, ...], right: tuple[int, ...], dtype: torch.dtype
) -> None:
    given = awkward()
    check_spmm(given, normal(*left, 7, dtype=dtype), normal(*right, 5, 3, dtype=dtype))
    check_sddmm(
        given, normal(*left, 4, 3, dtype=dtype), normal(*right, 5, 3, dtype=dtype)
    )
    check_rows(given, normal(*left, 7, dtype=dtype), normal(*right, 4, dtype=dtype))


@batches
@pytest.mark.usefixtures("kernels")
def test_zero_channels_and_zero_entries(
    left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    nowhere = torch.empty(0, dtype=torch.int64)
    empty = Positions(nowhere, nowhere, 4, 5)
    check_spmm(awkward(), normal(*left, 7), normal(*right, 5, 0))
    check_sddmm(awkward(), normal(*left, 4, 0), normal(*right, 5, 0))
    check_spmm(empty, normal(*left, 0), normal(*right, 5, 3))
    check_sddmm(empty, normal(*left, 4, 3), normal(*right, 5, 3))
    check_rows(empty, normal(*left, 0), normal(*right, 4))


@pytest.mark.usefixtures("kernels")
def test_strided_inputs() -> None:
    given = awkward()
    every_other = normal(3, 14)[:, ::2]
    turned = normal(3, 6, 5).mT[..., ::2]
    check_spmm(given, every_other, turned)
    check_sddmm(given, normal(6, 4).mT[:, ::2], turned)
    check_rows(given, every_other, normal(4, 3).mT)
    expanded = normal(7).expand(3, 7)
    check_spmm(given, expanded, turned)


@pytest.mark.usefixtures("kernels")
def test_int64_indices() -> None:
    given = awkward()
    small = given.pattern
    wide = Pattern(4, 5, small.indptr, small.columns.long(), small.entries.long())
    values, a, b = normal(7), normal(4, 3), normal(5, 3)
    assert wide.T.columns.dtype == wide.T.entries.dtype == torch.int64
    assert torch.equal(spmm(wide, values, b), spmm(small, values, b))
    assert torch.equal(spmm(wide.T, values, a), spmm(small.T, values, a))
    assert torch.equal(sddmm(wide, a, b), sddmm(small, a, b))
    assert torch.equal(row_sum(wide, values), row_sum(small, values))
    assert torch.equal(row_expand(wide, a[:, 0]), row_expand(small, a[:, 0]))
    assert torch.equal(edge_softmax(wide, values), edge_softmax(small, values))


def test_other_dtypes_use_the_reference() -> None:
    given = awkward()
    values, x = normal(7, dtype=torch.bfloat16), normal(5, 3, dtype=torch.bfloat16)
    expected = given.dense(values.float()) @ x.float()
    out = spmm(given.pattern, values, x)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected, atol=0.05, rtol=0.05)


@pytest.mark.usefixtures("kernels")
def test_inputs_are_left_alone() -> None:
    pattern = awkward().pattern
    inputs = [normal(7), normal(4, 3), normal(5, 3), normal(4)]
    copies = [each.clone() for each in inputs]
    values, a, b, x = inputs
    spmm(pattern, values, b)
    sddmm(pattern, a, b)
    row_sum(pattern, values)
    row_expand(pattern, x)
    edge_softmax(pattern, values)
    for each, copy in zip(inputs, copies, strict=True):
        assert torch.equal(each, copy)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.usefixtures("kernels")
def test_nan_and_infinity_reach_exactly_the_rows_that_read_them(bad: float) -> None:
    given = awkward()
    x = normal(5, 3)
    x[0] = bad
    touched = given.dense(torch.ones(7))[:, 0] > 0
    values = normal(7).abs() + 0.1
    assert torch.equal(~spmm(given.pattern, values, x).isfinite().all(-1), touched)
    # A strength of zero must not hide that a fit diverged.
    hidden = spmm(given.pattern, torch.zeros(7, dtype=torch.float64), x)
    assert torch.equal(hidden.isnan().all(-1), touched)


@pytest.mark.usefixtures("kernels")
def test_nan_in_other_operators() -> None:
    pattern = awkward().pattern
    values = normal(7)
    values[1] = torch.nan
    row = pattern.row_of_entry == 0
    assert row_sum(pattern, values).isnan().tolist() == [True, False, False, False]
    assert torch.equal(edge_softmax(pattern, values).isnan(), row)
    a = normal(4, 3)
    a[0, 1] = torch.nan
    assert torch.equal(sddmm(pattern, a, normal(5, 3)).isnan(), row)


@pytest.mark.usefixtures("kernels")
@dtypes
def test_softmax_is_stable_and_ignores_a_shift(dtype: torch.dtype) -> None:
    pattern = awkward().pattern
    scores = normal(7, dtype=dtype)
    shift = row_expand(pattern, torch.tensor([80.0, -90.0, 0.0, 30.0], dtype=dtype))
    out = edge_softmax(pattern, 1000 * scores)
    assert out.isfinite().all()
    torch.testing.assert_close(
        edge_softmax(pattern, scores + shift),
        edge_softmax(pattern, scores),
        rtol=1e-4,
        atol=1e-6,
    )
    present = (pattern.row_counts > 0).to(dtype)
    torch.testing.assert_close(row_sum(pattern, out), present)
    scores[0] = -torch.inf
    assert edge_softmax(pattern, scores)[0] == 0


@examples
@given(given=positions(), seed=st.integers(0, 99))
def test_products_are_adjoint_to_each_other(given: Positions, seed: int) -> None:
    """<A x, y> = <x, A.T y> = <values, sddmm(y, x)>."""
    pattern = given.pattern
    values = normal(pattern.num_entries, seed=seed)
    x = normal(given.num_columns, 3, seed=seed + 1)
    y = normal(given.num_rows, 3, seed=seed + 2)
    forward = (spmm(pattern, values, x) * y).sum()
    torch.testing.assert_close(forward, (x * spmm(pattern.T, values, y)).sum())
    torch.testing.assert_close(forward, (values * sddmm(pattern, y, x)).sum())


WRONG = {
    "values of spmm": lambda p: spmm(p, torch.ones(6), torch.ones(5, 2)),
    "columns of spmm": lambda p: spmm(p, torch.ones(7), torch.ones(4, 2)),
    "vector for spmm": lambda p: spmm(p, torch.ones(7), torch.ones(5)),
    "scalar for spmm": lambda p: spmm(p, torch.tensor(1.0), torch.ones(5, 2)),
    "batch of spmm": lambda p: spmm(p, torch.ones(2, 7), torch.ones(3, 5, 2)),
    "dtypes of spmm": lambda p: spmm(p, torch.ones(7).double(), torch.ones(5, 2)),
    "rows of sddmm": lambda p: sddmm(p, torch.ones(5, 2), torch.ones(5, 2)),
    "columns of sddmm": lambda p: sddmm(p, torch.ones(4, 2), torch.ones(4, 2)),
    "channels of sddmm": lambda p: sddmm(p, torch.ones(4, 3), torch.ones(5, 2)),
    "one channel": lambda p: sddmm(p, torch.ones(4, 3), torch.ones(5, 1)),
    "batch of sddmm": lambda p: sddmm(p, torch.ones(2, 4, 3), torch.ones(3, 5, 3)),
    "dtypes of sddmm": lambda p: sddmm(p, torch.ones(4, 2), torch.ones(5, 2).double()),
    "row_sum": lambda p: row_sum(p, torch.ones(7, 2)),
    "row_expand": lambda p: row_expand(p, torch.ones(5)),
    "edge_softmax": lambda p: edge_softmax(p, torch.ones(3, 8)),
}


@pytest.mark.parametrize("call", WRONG.values(), ids=WRONG)
@pytest.mark.usefixtures("kernels")
def test_wrong_shapes_and_types_are_refused(call) -> None:
    with pytest.raises(InvalidInput, match=r"expected|broadcast"):
        call(awkward().pattern)


def test_reference_kernels_end_with_the_block() -> None:
    from gsebo.sparse.numba_cpu import NUMBA_KERNELS
    from gsebo.sparse.operators import kernels_for
    from gsebo.sparse.reference import REFERENCE_KERNELS

    x = torch.ones(1)
    with pytest.raises(KeyError), reference_kernels():
        assert kernels_for(x) is REFERENCE_KERNELS
        raise KeyError
    assert kernels_for(x) is NUMBA_KERNELS
