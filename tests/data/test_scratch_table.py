"""Rows of arrays in files, and tables that leave nothing behind."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo.errors import InvalidInput
from gsebo.graph.mapped import ScratchTable, gather_rows, stretches


@given(st.lists(st.integers(0, 200)), st.integers(1, 50))
def test_stretches_are_short_and_leave_nothing_out(
    offsets: list[int], length: int
) -> None:
    ascending = np.sort(np.array(offsets, np.int64))
    pieces = [ascending[piece] for piece in stretches(ascending, length)]
    assert all(len(piece) and piece[-1] - piece[0] < length for piece in pieces)
    assert np.array_equal(np.concatenate([*pieces, ascending[:0]]), ascending)


@pytest.mark.parametrize("length", [1, 100, 2**24])
def test_rows_of_a_file_are_those_of_the_array(length: int, tmp_path: Path) -> None:
    array = np.random.default_rng(0).random((50, 3))
    np.save(tmp_path / "a.npy", array)
    in_file = np.load(tmp_path / "a.npy", mmap_mode="r")
    rows = np.array([0, 3, 3, 17, 49])
    assert np.array_equal(gather_rows(in_file, rows, length), array[rows])
    assert np.array_equal(gather_rows(array, rows, length), array[rows])


@pytest.mark.parametrize("in_file", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_table_gives_what_was_written(
    in_file: bool, dtype: torch.dtype, tmp_path: Path
) -> None:
    table = ScratchTable(40, 3, dtype, in_file=in_file, folder=tmp_path)
    assert isinstance(table.array, np.memmap) == in_file
    given = torch.rand(40, 3, dtype=dtype)
    for begin in range(0, 40, 15):
        table.put(begin, given[begin : begin + 15])
    assert torch.equal(table.read(7, 33), given[7:33])
    rows = torch.tensor([0, 8, 39])
    assert torch.equal(table.take(rows.numpy()), given[rows])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("rows", "width"), [(0, 3), (3, 0)])
def test_empty_tables(rows: int, width: int) -> None:
    table = ScratchTable(rows, width, torch.float32, in_file=True)
    assert table.read(0, rows).shape == (rows, width)


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=79))
    expected = f"{tmp_path} has 79 bytes free; expected at least 80 for what"
    with pytest.raises(InvalidInput, match=expected):
        ScratchTable(10, 2, torch.float32, in_file=True, folder=tmp_path)
