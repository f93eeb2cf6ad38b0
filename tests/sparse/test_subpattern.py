"""A part of a pattern is what the kept positions alone would give."""

import gc
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo.sparse import Pattern, spmm
from gsebo.sparse.pattern import subpattern

from .patterns import Positions, awkward, examples, large, normal, positions


@examples
@given(positions(), st.randoms(use_true_random=False))
def test_it_is_the_pattern_of_the_kept_positions(where: Positions, random) -> None:
    kept = torch.tensor([random.random() < 0.5 for _ in where.rows], dtype=torch.bool)
    part = subpattern(where.pattern, kept)
    alone = Pattern.from_positions(
        where.rows[kept], where.columns[kept], where.num_rows, where.num_columns
    )
    for got, expected in ((part, alone), (part.T, alone.T)):
        assert torch.equal(got.indptr, expected.indptr)
        assert torch.equal(got.columns, expected.columns)
        assert torch.equal(got.entries, expected.entries)
        assert got.columns.dtype == expected.columns.dtype
        assert got.entries.dtype == expected.entries.dtype
    assert torch.equal(part.row_of_entry, where.rows[kept])
    assert torch.equal(part.column_of_entry, where.columns[kept])


def test_a_product_is_that_with_zeros_and_so_is_its_gradient(kernels: str) -> None:
    where = large()
    kept = normal(where.rows.numel(), seed=1) > 0
    values, x = normal(where.rows.numel()), normal(where.num_columns, 3, seed=2)
    part = subpattern(where.pattern, kept)
    x_part, x_whole = x.clone().requires_grad_(), x.clone().requires_grad_()
    got = spmm(part, values[kept], x_part)
    expected = spmm(where.pattern, torch.where(kept, values, 0), x_whole)
    torch.testing.assert_close(got, expected)
    (got**2).sum().backward()
    (expected**2).sum().backward()
    torch.testing.assert_close(x_part.grad, x_whole.grad)


@pytest.mark.parametrize("share", ["all", "none"])
def test_all_or_none(share: str) -> None:
    where = awkward()
    kept = torch.full(where.rows.shape, share == "all")
    part = subpattern(where.pattern, kept)
    assert part.num_entries == (where.rows.numel() if share == "all" else 0)
    assert part.T.num_rows == where.num_columns


def test_memory_is_free_when_the_last_user_is_gone() -> None:
    """Without waiting for the garbage collector: a step makes one after the other."""
    where = awkward()
    gc.disable()
    try:
        part = subpattern(where.pattern, torch.ones_like(where.rows, dtype=torch.bool))
        x = normal(where.num_columns, 2).requires_grad_()
        spmm(part, normal(part.num_entries), x).sum().backward()
        gone = weakref.ref(part)
        del part
        assert gone() is None
    finally:
        gc.enable()
