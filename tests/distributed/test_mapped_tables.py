from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from gsebo import InvalidInput
from gsebo.distributed import EntryTable

TOTAL = 50_000_000
COLUMNS = {"change": (), "mean/change": (), "square/change": ()}


def touch(table: EntryTable, ids: torch.Tensor) -> None:
    values = {name: ids.float() + 1 for name in table.columns}
    table.write(ids, values)


def resident() -> int:
    return psutil.Process().memory_info().rss


def test_files_hold_what_was_written_and_little_else(tmp_path: Path) -> None:
    before = resident()
    table = EntryTable(COLUMNS, TOTAL, folder=tmp_path)
    ids = torch.arange(0, TOTAL, TOTAL // 100)
    touch(table, ids)
    paths = sorted((tmp_path / "rank-0").iterdir())
    assert len(paths) == len(COLUMNS)
    for path in paths:
        assert path.stat().st_size > 4 * TOTAL
        assert path.stat().st_blocks * 512 < 4 * TOTAL / 20
    table.release()
    assert resident() - before < 4 * TOTAL / 4
    found = table.read(ids)
    assert all(torch.equal(found[name], ids.float() + 1) for name in COLUMNS)
    # The files are there for others while the table lives, and after it.
    array = np.load(
        tmp_path / "rank-0/mean%2Fchange.npy", mmap_mode="r", allow_pickle=False
    )
    del table
    assert np.array_equal(array[ids.numpy()], ids.float().numpy() + 1)
    assert array[1] == 0


def test_a_copy_on_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    table = EntryTable({"change": (2,)}, 1000, folder=tmp_path)
    ids = torch.tensor([3, 999])
    table.write(ids, {"change": torch.tensor([[1.0, 2.0], [3.0, 4.0]])})
    files = list(tmp_path.rglob("*"))
    kept = table.copy()
    assert list(tmp_path.rglob("*")) == files
    table.write(ids, {"change": torch.zeros(2, 2)})
    assert kept.read(ids)["change"].tolist() == [[1.0, 2.0], [3.0, 4.0]]
    again = kept.copy()
    table.assign(again)
    assert table.read(ids)["change"].tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_doubles_and_empty_tables(tmp_path: Path) -> None:
    table = EntryTable({"a": ()}, 5, dtype=torch.float64, folder=tmp_path)
    third = torch.tensor([1 / 3], dtype=torch.float64)
    table.write(torch.tensor([2]), {"a": third})
    assert torch.equal(table.read(torch.tensor([2]))["a"], third)
    nothing = EntryTable({"a": (2,)}, 0, folder=tmp_path / "other")
    assert nothing.read(torch.empty(0, dtype=torch.int64))["a"].shape == (2, 0)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="expected a folder that is writable"):
        EntryTable(COLUMNS, 5, folder=tmp_path / "file" / "below")
