"""How rows are dealt out to the programs of a GPU: plain torch, tested everywhere."""

import gc
import weakref
from collections.abc import Callable
from operator import itemgetter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo.sparse import Pattern
from gsebo.sparse.triton_schedule import (
    CLASSES,
    entries_are_scattered,
    row_of_entry,
    schedule_of,
)

from .patterns import Positions, awkward, empty, examples, positions


@examples
@given(
    counts=st.lists(st.integers(0, 1600) | st.integers(0, 40), max_size=40),
    region=st.sampled_from([1, 3, 2**10]),
)
def test_segments_are_the_rows_cut_into_pieces(counts: list[int], region: int) -> None:
    rows = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts).long())
    pattern = Pattern.from_positions(rows, torch.zeros_like(rows), len(counts), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gsebo.sparse.triton_schedule._REGION", region)
        schedule = schedule_of(pattern)
    begin, length, row = (each.tolist() for each in schedule.segments)
    covered = [
        (r, b + k) for b, n, r in zip(begin, length, row, strict=True) for k in range(n)
    ]
    expected = [(int(r), position) for position, r in enumerate(rows)]
    assert sorted(covered, key=itemgetter(1)) == expected
    assert set(row) == set(range(len(counts)))

    parts, long, every = schedule.class_ends
    assert (parts, long) == (schedule.num_parts, schedule.num_long)
    assert every == len(row)
    assert [counts[r] > CLASSES[0] for r in row] == [k < parts for k in range(every)]
    assert [counts[r] > 32 for r in row] == [k < long for k in range(every)]

    cut = [r for r, count in enumerate(counts) if count > CLASSES[0]]
    edges = schedule.part_begin.tolist()
    assert schedule.num_cut == len(cut)
    assert edges[-1] == parts
    for r, first, last in zip(cut, edges, edges[1:], strict=False):
        assert set(row[first:last]) == {r}
        ends = [begin[k] + length[k] for k in range(first, last - 1)]
        assert begin[first + 1 : last] == ends
    assert max(length, default=0) <= CLASSES[0]


@pytest.mark.parametrize("build", [schedule_of, row_of_entry])
def test_what_is_built_once_goes_with_its_pattern(
    build: Callable[[Pattern], object],
) -> None:
    pattern = awkward().pattern
    tensor = row_of_entry(pattern)
    assert build(pattern) is build(pattern)
    assert build(pattern.T) is not build(pattern)
    seen = weakref.ref(tensor)
    del pattern, tensor
    gc.collect()
    assert seen() is None


@examples
@given(given=positions())
def test_row_of_entry(given: Positions) -> None:
    rows = row_of_entry(given.pattern)
    assert rows.dtype == given.pattern.columns.dtype
    assert torch.equal(rows.long(), given.rows)


def test_entries_of_a_sorted_pattern_lie_together_and_its_transpose_does_not() -> None:
    generator = torch.Generator().manual_seed(0)
    place = torch.randint(300 * 300, (4000,), generator=generator).sort().values
    pattern = Pattern.from_positions(place // 300, place % 300, 300)
    assert not entries_are_scattered(pattern)
    assert entries_are_scattered(pattern.T)
    assert not entries_are_scattered(empty(3, 3).pattern)
