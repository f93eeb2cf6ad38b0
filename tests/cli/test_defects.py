"""What nobody foresaw: one sentence, a log, and no traceback unless it is asked for."""

import errno
import os
import stat
from pathlib import Path

import pytest

from cli.conftest import Command
from gsebo.errors import InvalidInput


def broken(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def raising(name: str, **_: object) -> None:
        raise error

    monkeypatch.setattr("gsebo.cli.show.load_recipe", raising)


@pytest.mark.parametrize(
    "error",
    [
        TypeError("it\x1b[2J\nbroke"),
        MemoryError(),
        RecursionError("maximum recursion depth exceeded"),
        KeyError("x" * 5000),
        UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates"),
        FileNotFoundError(errno.ENOENT, "No such file", "gone"),
    ],
)
def test_a_defect_asks_for_a_report(
    command: Command, monkeypatch: pytest.MonkeyPatch, own_cache: Path, error: Exception
) -> None:
    broken(monkeypatch, error)
    done = command("show", "table1")
    assert done.exit_code == 70
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: gsebo has a defect ({type(error).__name__}: ")
    assert line.isprintable() and len(line) < 1000
    assert "Please report it" in line and "--debug" in line
    (log,) = (own_cache / "logs").iterdir()
    assert str(log) in line
    text = log.read_text("utf-8")
    assert "Traceback (most recent call last)" in text and "in raising" in text
    assert stat.S_IMODE(log.stat().st_mode) == 0o600

    assert command("show", "table1").exit_code == 70
    assert len(list((own_cache / "logs").iterdir())) == 2


def test_the_traceback_is_shown_to_who_asks(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, TypeError("broken"))
    done = command("--debug", "show", "table1")
    assert done.exit_code == 70
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("Error: gsebo has a defect")
    broken(monkeypatch, InvalidInput("bad input"))
    assert "Traceback" not in command("--debug", "show", "table1").stderr


def test_a_log_finds_a_place(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("GSEBO_CACHE", str(file))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    broken(monkeypatch, TypeError("broken"))
    assert f"is in {tmp_path}/defect-" in command("show", "table1").stderr
    monkeypatch.setattr("tempfile.tempdir", str(file))
    done = command("show", "table1")
    assert done.exit_code == 70 and "no log could be written" in done.stderr


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.ENAMETOOLONG])
def test_a_full_disk_is_no_defect(
    command: Command, monkeypatch: pytest.MonkeyPatch, own_cache: Path, number: int
) -> None:
    broken(monkeypatch, OSError(number, os.strerror(number), "a\x1bfile"))
    done = command("show", "table1")
    assert done.exit_code == 2
    words = os.strerror(number).lower()
    start = rf"Error: the system refused a\x1bfile ({words}); expected"
    assert done.stderr.startswith(start)
    assert not own_cache.exists()


def test_interrupts_are_not_defects(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch, KeyboardInterrupt())
    done = command("show", "table1")
    assert (done.exit_code, done.stderr) == (130, "")
