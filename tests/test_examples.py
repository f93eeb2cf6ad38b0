"""Every example runs and says something."""

import runpy
import sys
from pathlib import Path

import pytest

import gsebo

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # A test of the README fits Cora itself, in a process of its own.
    small = gsebo.generate_graph(400, num_classes=3, num_features=16, seed=0)
    monkeypatch.setattr(gsebo, "load_data", {"cora": small}.__getitem__)
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()
