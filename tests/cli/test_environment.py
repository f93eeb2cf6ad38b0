"""Variables and streams that a command is started with."""

import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from cli.conftest import Command, refused
from gsebo.cli.main import make_usable

GSEBO = [sys.executable, "-m", "gsebo"]


@pytest.mark.parametrize(
    ("name", "value", "usable"),
    [
        ("NUMBA_NUM_THREADS", "2", True),
        ("NUMBA_NUM_THREADS", "0", False),
        ("NUMBA_NUM_THREADS", "-1", False),
        ("NUMBA_NUM_THREADS", "abc\x1b", False),
        ("NUMBA_NUM_THREADS", "", False),
        ("NUMBA_NUM_THREADS", "9" * 5000, False),
        ("NUMBA_DISABLE_JIT", "0", True),
        ("NUMBA_DISABLE_JIT", "1", False),
        ("NUMBA_DISABLE_JIT", "junk", False),
        ("OMP_NUM_THREADS", "junk", True),
    ],
)
def test_what_numba_cannot_use_is_named(
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    usable: bool,
) -> None:
    monkeypatch.setenv(name, value)
    done = command("list", "hypergradients")
    if usable:
        assert done.exit_code == 0
    else:
        sentence = refused(done)
        assert f"{name}=" in sentence and sentence.isprintable()
    # Help helps.
    assert command("--help").exit_code == command("--version").exit_code == 0


@pytest.mark.parametrize("kind", ["file", "missing", "below a file"])
def test_folders_that_are_none(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    place = {"file": file, "missing": tmp_path / "no", "below a file": file / "x"}[kind]
    monkeypatch.setenv("GSEBO_CACHE", str(place))
    short = ("--set", "max_epochs=1", "--method", "vanilla", "--json")
    assert command("fit", "cora", *short).exit_code == 0
    monkeypatch.setenv("GSEBO_DATA", str(place))
    assert "expected an existing folder" in refused(command("fit", "cora", *short))
    monkeypatch.setenv("GSEBO_RESULTS", str(place))
    assert "folder" in refused(command("show", "table1"))
    if kind == "file":
        assert "is no folder" in refused(command("results", "list"))


def test_warnings_as_errors_and_letters_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    done = subprocess.run([*GSEBO, "list", "hypergradients"], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii() and done.stderr == b""


def test_only_errors_are_taken_from_the_filters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with warnings.catch_warnings():
        monkeypatch.setattr("sys.warnoptions", ["ignore"])
        make_usable()
        assert sys.warnoptions == ["ignore"]
        monkeypatch.setattr("sys.warnoptions", ["error::UserWarning"])
        make_usable()
        assert sys.warnoptions == []
        warnings.simplefilter("ignore", UserWarning)
        warnings.warn("no error", DeprecationWarning, stacklevel=1)


def test_a_closed_output_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", None)
    make_usable()
    print("nowhere")
    sys.stdout.close()
