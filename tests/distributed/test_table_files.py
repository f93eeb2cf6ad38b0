from pathlib import Path

import numpy as np
import pytest
import torch

from distributed.test_tables import COLUMNS, filled
from distributed.thread_group import together
from gsebo import InvalidInput
from gsebo.distributed import (
    EntryTable,
    Group,
    discard_tables,
    load_table,
    save_table,
    tables,
)

TOTAL = 101


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "CHUNK", 16)


def save(folder: Path, *, size: int = 1, sharded: bool = False) -> None:
    together(
        size,
        lambda group: save_table(filled(group, TOTAL, 1, sharded=sharded), folder),
    )


@pytest.mark.parametrize("saved_sharded", [False, True])
@pytest.mark.parametrize("loaded_sharded", [False, True])
@pytest.mark.parametrize(("savers", "loaders"), [(1, 1), (2, 4), (3, 2)])
def test_any_number_loads_what_any_number_has_saved(
    tmp_path: Path, saved_sharded: bool, loaded_sharded: bool, savers: int, loaders: int
) -> None:
    folder = tmp_path / "table-1"
    save(folder, size=savers, sharded=saved_sharded)
    assert [path.name for path in tmp_path.iterdir()] == ["table-1"]

    def load(group: Group) -> None:
        table = EntryTable(
            COLUMNS, TOTAL, group, sharded=loaded_sharded, folder=tmp_path / "work"
        )
        load_table(table, folder)
        ids = torch.arange(group.rank, TOTAL, 2)
        found = table.take(ids)
        for name in COLUMNS:
            assert torch.equal(found[name], expected[name][..., ids])

    (expected,) = together(
        1,
        lambda group: filled(group, TOTAL, 1, sharded=False).take(torch.arange(TOTAL)),
    )
    together(loaders, load)


def test_each_column_is_a_plain_array(tmp_path: Path) -> None:
    save(tmp_path / "table-1", size=2, sharded=True)
    array = np.load(tmp_path / "table-1" / "change.npy", allow_pickle=False)
    assert array.shape == (2, TOTAL)
    assert array.dtype == np.float32


def test_nothing_half_written_stays_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "table-1")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables.os, "fsync", full)
    with pytest.raises(InvalidInput, match="No space left"):
        save(tmp_path / "table-2")
    assert [path.name for path in tmp_path.iterdir()] == ["table-1"]


def test_a_table_is_never_overwritten(tmp_path: Path) -> None:
    save(tmp_path / "table-1")
    with pytest.raises(InvalidInput, match="expected a new folder"):
        save(tmp_path / "table-1")


def test_old_tables_go_when_a_new_one_is_there(tmp_path: Path) -> None:
    for name in ("table-1", "table-20", ".table-3.0a1b", "other-1"):
        (tmp_path / name).mkdir()
    discard_tables(tmp_path / "table-20")
    assert {path.name for path in tmp_path.iterdir()} == {"table-20", "other-1"}


@pytest.mark.parametrize("damage", ["missing", "truncated", "shape", "type", "text"])
def test_a_table_that_does_not_fit_is_named(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "table-1"
    save(folder)
    path = folder / "bias.npy"
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:-5])
    elif damage == "text":
        path.write_text("no numbers")
    else:
        shape, kind = (TOTAL + 1, "f4") if damage == "shape" else (TOTAL, "f8")
        np.save(path, np.zeros(shape, kind))
    with pytest.raises(InvalidInput, match=r"bias\.npy.*expected"):
        together(1, lambda group: load_table(EntryTable(COLUMNS, TOTAL, group), folder))
