import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from torch_geometric.data import Data
from typer.testing import CliRunner, Result

from gsebo import generate_graph
from gsebo.cli.main import app
from gsebo.cli.read_on import DOCUMENTATION
from gsebo.data import save_npz

Command = Callable[..., Result]
SHORT = ("--set", "max_outer_steps=4", "--set", "inner_steps=3", "--device", "cpu")


def small_graph(seed: int = 0) -> Data:
    return generate_graph(40, average_degree=4.0, num_features=5, seed=seed)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Run a command line inside this process, in an empty folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)

    def run(*arguments: object) -> Result:
        words = [str(argument) for argument in arguments]
        return CliRunner().invoke(app, words, catch_exceptions=False)

    return run


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.npz"
    save_npz(small_graph(), path)
    return path


@pytest.fixture
def model_folder(command: Command, graph_file: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    assert command("fit", graph_file, *SHORT, "--out", folder).exit_code == 0
    return folder


@contextmanager
def control_c_is_heard() -> Iterator[None]:
    """Processes that are started inside heed Ctrl-C, as those of a terminal do.

    A shell has what it runs in the background ignore it, and so do its descendants.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def json_of(result: Result) -> dict[str, Any]:
    """The one object on standard output of a command that went well."""
    assert result.exit_code == 0, result.stderr
    content = json.loads(result.stdout)
    assert isinstance(content, dict)
    return content


def refused(result: Result) -> str:
    """The one sentence on standard error of a command that did not."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 2, result.stderr
    assert lines[0].startswith("Error: ")
    assert lines[0].endswith((".", "?"))
    assert lines[1].startswith(f"Read on: {DOCUMENTATION}/")
    return lines[0]
