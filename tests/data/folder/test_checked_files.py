"""What was found right is remembered, and only as long as it is the same."""

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data.folder.tampering import replace_array
from gsebo import generate_graph
from gsebo.data.formats import folder_check
from gsebo.data.formats import folder_check as checked_files
from gsebo.data.formats.folder import GraphFolder, write_folder
from gsebo.errors import InvalidInput


class Reading:
    """Counts how often folders are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._compare = folder_check._compare
        monkeypatch.setattr(folder_check, "_compare", self)

    def __call__(self, *given: Any) -> None:
        self.count += 1
        self._compare(*given)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Reading:
    monkeypatch.setattr(checked_files, "_PASSED", set())
    return Reading(monkeypatch)


def forget() -> None:
    """As if another process came."""
    checked_files._PASSED.clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = generate_graph(40, average_degree=4.0, num_features=5)
    return write_folder(data, tmp_path / "g").path


@pytest.fixture
def large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, every folder is large enough to tell the next process of it."""
    monkeypatch.setattr(checked_files, "_LARGE", 0)


def aged(folder: Path, seconds: float = 60.0) -> Path:
    """Let all times of change of the files be in the past, as far as one can."""
    moment = time.time_ns() - int(seconds * 1e9)
    for file in folder.iterdir():
        os.utime(file, ns=(moment, moment))
    time.sleep(checked_files._TICK / 1e9 + 0.01)
    return folder


def test_a_folder_is_read_once(folder: Path, reading: Reading) -> None:
    aged(folder)
    for _ in range(3):
        opened = GraphFolder.open(folder)
        opened.arrays(), opened.to_data(), opened.labels()
    assert reading.count == 1
    opened.verify()
    GraphFolder.open(folder, anew=True)
    assert reading.count == 3
    # Small: the next process reads it again.
    forget()
    GraphFolder.open(folder)
    assert reading.count == 4


@pytest.mark.usefixtures("large")
def test_the_next_process_knows(folder: Path, reading: Reading, own_cache) -> None:
    aged(folder)
    for _ in range(3):
        GraphFolder.open(folder)
        forget()
    assert reading.count == 1
    (note,) = (own_cache / "checked").iterdir()
    good = note.read_bytes()
    for bad in (b"", good[:-1], good + b"\n", b"0" * 64, b"\xff" * 10**4):
        note.write_bytes(bad)
        GraphFolder.open(folder)
        forget()
        assert note.read_bytes() == good
    assert reading.count == 6
    note.unlink()
    os.mkfifo(note)
    GraphFolder.open(folder)
    assert reading.count == 7


@pytest.mark.usefixtures("large")
def test_who_writes_a_folder_has_read_it(tmp_path: Path, reading: Reading) -> None:
    data = generate_graph(40, average_degree=4.0, num_features=5)
    write_folder(data, tmp_path / "new")
    forget()
    moved = (tmp_path / "new").rename(tmp_path / "moved")
    GraphFolder.open(moved).to_data()
    assert reading.count == 0


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("cache", ["file/below", "\0", "~nobody-at-all", "folder"])
def test_a_cache_that_cannot_be_used(
    cache: str, folder: Path, reading: Reading, tmp_path: Path, monkeypatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "checked").mkdir(parents=True)
    (tmp_path / "folder" / "checked").chmod(0o500)
    place = cache if cache[0] in "~\0" else str(tmp_path / cache)
    monkeypatch.setattr(checked_files, "cache_folder", lambda: Path(place).expanduser())
    aged(folder)
    GraphFolder.open(folder)
    GraphFolder.open(folder)
    assert reading.count == 1


def changed(folder: Path, name: str) -> None:
    path = folder / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("name", ["indptr.npy", "source.npy", "x.npy", "y.npy"])
@pytest.mark.parametrize("hidden", [False, True])
def test_a_change_is_seen(name: str, hidden: bool, folder: Path, reading) -> None:
    aged(folder)
    opened = GraphFolder.open(folder)
    before = (folder / name).stat()
    changed(folder, name)
    if hidden:
        # Of the same size, with the time set back.
        os.utime(folder / name, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(InvalidInput, match=f"{name} is damaged"):
        opened.arrays()
    forget()
    with pytest.raises(InvalidInput, match=f"{name} is damaged"):
        GraphFolder.open(folder)
    changed(folder, name)
    GraphFolder.open(folder)
    assert reading.count == 4


def test_what_was_just_written_may_be_written_again(
    folder: Path, reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A clock that stands still, as it does within a tick.
    now = os.stat(folder / "y.npy")
    state = checked_files._State(now.st_ino, now.st_size, 10**18 + 1, 10**18 + 1)
    monkeypatch.setattr(time, "time_ns", lambda: 10**18 + 2)
    monkeypatch.setattr(
        checked_files.CheckedFiles, "_look", lambda self: [state] * len(self._files)
    )
    GraphFolder.open(folder)
    changed(folder, "y.npy")
    with pytest.raises(InvalidInput, match=r"y\.npy is damaged"):
        GraphFolder.open(folder)
    assert reading.count == 2


def test_whole_seconds_are_long() -> None:
    second = 10**9
    coarse = checked_files._State(1, 1, 100 * second, 100 * second)
    fine = checked_files._State(1, 1, 100 * second + 1, 100 * second + 1)
    assert coarse.is_young(102 * second) and not coarse.is_young(103 * second)
    assert fine.is_young(100 * second + 10) and not fine.is_young(101 * second)
    # A clock that is far ahead is no reason to read for ever.
    assert not coarse.is_young(0)


def test_a_change_while_it_is_read(folder: Path, reading: Reading) -> None:
    compare = reading._compare

    def disturbed(path: Path, *given: Any) -> None:
        compare(path, *given)
        os.utime(path / "y.npy")

    reading._compare = disturbed
    aged(folder)
    with pytest.raises(InvalidInput, match=r"y\.npy was changed while it was read"):
        GraphFolder.open(folder)


@pytest.mark.usefixtures("large")
def test_of_several_only_one_reads(folder: Path, reading: Reading, own_cache) -> None:
    compare = reading._compare

    def slow(*given: Any) -> None:
        compare(*given)
        time.sleep(0.3)

    reading._compare = slow
    aged(folder)
    threads = [threading.Thread(target=GraphFolder.open, args=(folder,)) for _ in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reading.count == 1
    assert [path.suffix for path in (own_cache / "checked").iterdir()] == [""]


@pytest.mark.usefixtures("large")
def test_nobody_waits_for_ever(
    folder: Path, reading: Reading, own_cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(checked_files, "_PATIENCE", 0.1)
    monkeypatch.setattr(
        checked_files, "_place", lambda key: own_cache / "checked" / "note"
    )
    (own_cache / "checked").mkdir(parents=True)
    aged(folder)
    with (own_cache / "checked" / "note.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        GraphFolder.open(folder)
    assert reading.count == 1


@pytest.mark.usefixtures("large")
def test_what_did_not_pass_is_not_remembered(folder: Path, reading, own_cache) -> None:
    replace_array(folder, "source", -np.load(folder / "source.npy") - 1)
    aged(folder)
    for _ in range(2):
        with pytest.raises(InvalidInput, match=r"source\.npy holds"):
            GraphFolder.open(folder)
    assert reading.count == 2
    assert not list((own_cache / "checked").iterdir())
