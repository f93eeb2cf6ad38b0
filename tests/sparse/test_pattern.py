import copy
import gc
import pickle
import weakref

import pytest
import torch
from hypothesis import given

from gsebo.errors import InvalidInput
from gsebo.sparse import Pattern

from .patterns import Positions, awkward, examples, positions


@examples
@given(positions())
def test_views_agree_with_the_positions(given: Positions) -> None:
    pattern = given.pattern
    assert pattern.num_entries == given.rows.numel()
    assert pattern.indptr[0] == 0
    assert pattern.indptr[-1] == pattern.num_entries
    assert torch.equal(pattern.row_of_entry, given.rows)
    assert torch.equal(pattern.column_of_entry, given.columns)
    assert torch.equal(pattern.rows, given.rows[pattern.entries.long()])
    assert torch.equal(pattern.columns, given.columns[pattern.entries.long()])
    counts = torch.bincount(given.rows, minlength=given.num_rows)
    assert torch.equal(pattern.row_counts, counts)


@examples
@given(positions())
def test_stored_order_is_row_then_column_then_entry(given: Positions) -> None:
    pattern = given.pattern
    stored = zip(pattern.rows, pattern.columns, pattern.entries, strict=True)
    order = [tuple(map(int, each)) for each in stored]
    assert order == sorted(order)
    assert sorted(pattern.entries.tolist()) == list(range(pattern.num_entries))


@examples
@given(positions())
def test_transpose_swaps_rows_and_columns(given: Positions) -> None:
    pattern = given.pattern
    swapped = Pattern.from_positions(
        given.columns, given.rows, given.num_columns, given.num_rows
    )
    assert pattern.T.T is pattern
    assert (pattern.T.num_rows, pattern.T.num_columns) == (
        given.num_columns,
        given.num_rows,
    )
    for name in ("indptr", "columns", "entries"):
        assert torch.equal(getattr(pattern.T, name), getattr(swapped, name))


@examples
@given(positions())
def test_arrays_are_the_index_tensors(given: Positions) -> None:
    pattern = given.pattern
    tensors = (pattern.indptr, pattern.columns, pattern.entries)
    for array, tensor in zip(pattern.arrays, tensors, strict=True):
        assert array.tolist() == tensor.tolist()
        assert array.size == 0 or array.ctypes.data == tensor.data_ptr()


def test_square_unless_told() -> None:
    pattern = Pattern.from_positions(torch.tensor([1]), torch.tensor([2]), 4)
    assert (pattern.num_rows, pattern.num_columns) == (4, 4)
    assert repr(pattern) == "Pattern(4 x 4, num_entries=1)"


def test_small_indices_take_half_the_room() -> None:
    pattern = awkward().pattern
    assert pattern.columns.dtype == pattern.entries.dtype == torch.int32
    assert pattern.T.columns.dtype == pattern.T.entries.dtype == torch.int32
    assert pattern.indptr.dtype == torch.int64


def test_int32_positions_do_not_overflow() -> None:
    size = 100_000
    rows = torch.tensor([99_999, 3, 50_000], dtype=torch.int32)
    columns = torch.tensor([1, 99_999, 2], dtype=torch.int32)
    pattern = Pattern.from_positions(rows, columns, size)
    assert torch.equal(pattern.row_of_entry, rows.long())
    assert torch.equal(pattern.column_of_entry, columns.long())


@pytest.mark.parametrize("where", [-1, 3])
@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_a_position_outside_is_refused(where: int, axis: str) -> None:
    place = {"rows": torch.tensor([0, 2]), "columns": torch.tensor([1, 0])}
    place[axis] = torch.tensor([0, where])
    with pytest.raises(InvalidInput, match=f"{axis} run from .*expected 0 to 2"):
        Pattern.from_positions(place["rows"], place["columns"], 3)


def test_nothing_at_all() -> None:
    nowhere = torch.empty(0, dtype=torch.int64)
    pattern = Pattern.from_positions(nowhere, nowhere, 0)
    assert (pattern.num_rows, pattern.num_entries) == (0, 0)
    assert pattern.indptr.tolist() == [0]
    assert pattern.T.T is pattern


def test_same_device_is_the_same_object_and_copies_stay_whole() -> None:
    pattern = awkward().pattern
    assert pattern.to("cpu") is pattern
    twin = copy.deepcopy(pattern)
    assert twin.T.T is twin
    assert torch.equal(twin.T.columns, pattern.T.columns)


def test_a_pattern_and_its_transpose_do_not_keep_each_other_alive() -> None:
    pattern = awkward().pattern
    assert pattern.T.T.T is pattern.T
    freed = [weakref.ref(pattern), weakref.ref(pattern.T)]
    gc.disable()
    try:
        del pattern
        assert [each() for each in freed] == [None, None]
    finally:
        gc.enable()


def test_a_transpose_whose_origin_is_gone_finds_it_again() -> None:
    pattern = awkward().pattern
    known = pattern.columns, pattern.entries, pattern.indptr
    turned = pattern.T
    del pattern
    again = turned.T
    assert again.T is turned
    for found, expected in zip(
        (again.columns, again.entries, again.indptr), known, strict=True
    ):
        assert torch.equal(found, expected)


def test_pickled_with_its_transpose() -> None:
    pattern = awkward().pattern
    turned = pattern.T
    twin, turned_alone = pickle.loads(pickle.dumps((pattern, turned)))
    assert twin.T is turned_alone and turned_alone.T is twin
    assert torch.equal(pickle.loads(pickle.dumps(turned)).T.columns, pattern.columns)
