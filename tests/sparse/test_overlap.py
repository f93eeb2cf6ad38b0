"""Products of pairs of rows against the dense product."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gsebo.sparse import Pattern, SparseFeatures
from gsebo.sparse.operators import unit_rows
from gsebo.structure.evidence import row_overlap

from .patterns import Positions, empty, examples, large, normal, positions

pytestmark = pytest.mark.compiles


def matrix_of(positions: Positions, values: Tensor) -> SparseFeatures:
    return SparseFeatures(positions.pattern, values)


def distinct(positions: Positions) -> Positions:
    """Every position once; in an order that is not that of the rows."""
    keys = positions.rows * positions.num_columns + positions.columns
    keys = torch.unique(keys).flip(0)
    rows, columns = keys // positions.num_columns, keys % positions.num_columns
    return Positions(rows, columns, positions.num_rows, positions.num_columns)


def all_pairs(num_rows: int) -> tuple[Tensor, Tensor]:
    first, second = torch.cartesian_prod(*[torch.arange(num_rows)] * 2).unbind(1)
    return first, second


@examples
@given(positions(), st.sampled_from([torch.float32, torch.float64]))
def test_overlap_is_the_dense_product(drawn: Positions, dtype: torch.dtype) -> None:
    where = distinct(drawn)
    values = normal(len(where.rows), dtype=dtype)
    first, second = all_pairs(where.num_rows)
    found = row_overlap(matrix_of(where, values), first, second)
    dense = where.dense(values)
    assert found.dtype == dtype
    torch.testing.assert_close(found, (dense @ dense.mT)[first, second])


@pytest.mark.usefixtures("parallel")
def test_many_threads_give_the_same_bits_as_one() -> None:
    where = distinct(large())
    matrix = matrix_of(where, normal(len(where.rows)))
    first, second = all_pairs(where.num_rows)
    found = row_overlap(matrix, first, second)
    torch.set_num_threads(1)
    assert torch.equal(found, row_overlap(matrix, first, second))


def test_no_pairs_and_empty_rows() -> None:
    matrix = matrix_of(empty(3, 4), torch.empty(0))
    nowhere = torch.empty(0, dtype=torch.int64)
    assert row_overlap(matrix, nowhere, nowhere).shape == (0,)
    assert torch.equal(row_overlap(matrix, *all_pairs(3)), torch.zeros(9))


def of_rows(*rows: Tensor) -> SparseFeatures:
    """A matrix of ones in these columns."""
    row = torch.cat([torch.full_like(each, k) for k, each in enumerate(rows)])
    columns = torch.cat(rows)
    size = int(columns.max()) + 1
    pattern = Pattern.from_positions(row, columns, len(rows), size)
    return SparseFeatures(pattern, torch.ones(len(columns)))


def test_a_short_row_is_looked_up_in_a_long_one_exactly() -> None:
    matrix = of_rows(torch.arange(5000), torch.tensor([3, 4999, 77]))
    one, other = torch.tensor([0, 1]), torch.tensor([1, 0])
    assert torch.equal(row_overlap(matrix, one, other), torch.tensor([3.0, 3.0]))


def test_two_long_rows_are_sampled_and_scaled_up() -> None:
    generator = torch.Generator().manual_seed(0)
    half = (torch.rand(6000, generator=generator) < 0.5).nonzero().squeeze(-1)
    matrix = of_rows(torch.arange(6000), half, torch.arange(0, 6000, 2))
    pairs = torch.tensor([[0, 1, 0], [0, 0, 2]])
    found = row_overlap(matrix, *pairs)
    # Those that lie wholly in the other are exact whatever is looked at.
    assert found.tolist() == [6000, len(half), 3000]
    # Five standard errors of 256 looks at a share of one half.
    (crossed,) = row_overlap(matrix, torch.tensor([1]), torch.tensor([2]))
    exact = float((half % 2 == 0).sum())
    assert float(crossed) == pytest.approx(exact, abs=5 * 3000 * 0.5 / 16)


@examples
@given(positions())
def test_unit_rows_in_either_form(drawn: Positions) -> None:
    where = distinct(drawn)
    values = normal(len(where.rows))
    found = unit_rows(matrix_of(where, values))
    assert isinstance(found, SparseFeatures)
    dense = unit_rows(where.dense(values))
    assert isinstance(dense, Tensor)
    torch.testing.assert_close(found.to_dense(), dense)
    filled = where.dense(values).any(dim=1)
    torch.testing.assert_close(dense.norm(dim=1), filled.to(dense.dtype))
