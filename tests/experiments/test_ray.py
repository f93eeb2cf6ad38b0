"""The same batches on a Ray cluster."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.conftest import RunRecipe
from experiments.small import figures, lines, write_recipe
from gsebo import InvalidInput
from gsebo.experiments import RayEngine, Slot, Store


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Ray's sockets are in it, and their paths must not be long."""
    folder = tempfile.mkdtemp(prefix="ray")
    yield Path(folder)
    shutil.rmtree(folder, ignore_errors=True)


def test_a_cluster_gives_what_processes_give(
    run_recipe: RunRecipe, tmp_path: Path, folder: Path, short_folder: Path
) -> None:
    pytest.importorskip("ray")
    bad = '[[trials]]\nmethods = ["vanilla"]\nbackbones = ["gcn"]\n'
    bad += 'datasets = ["cora"]\nseeds = 1\nset = { hidden_channels = 0 }\n'
    recipe = write_recipe(
        tmp_path / "some.toml", methods='["vanilla", "dropedge"]', seeds=2, more=bad
    )
    there = tmp_path / "there"
    command = [sys.executable, "-m", "gsebo", "run", str(recipe), "--engine", "ray"]
    command += ["--workers", "2", "--results", str(there)]
    # Ray writes into both.
    places = {"HOME": str(short_folder), "RAY_TMPDIR": str(short_folder)}
    environment = {**os.environ, **places}
    environment.pop("RAY_ADDRESS", None)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    # One trial of the recipe cannot be fitted.
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert "5/5 " in done.stderr
    assert "Traceback" not in done.stderr

    run_recipe(recipe)
    here = figures(folder / "some.jsonl")
    assert [line["status"] for line in lines(there / "some.jsonl")].count("ok") == 4
    assert figures(there / "some.jsonl") == here


def test_without_ray_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InvalidInput, match=r"gsebo\[cluster\]"):
        RayEngine(Store(tmp_path), [Slot("one")])
