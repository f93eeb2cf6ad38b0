"""A runner that is killed again and again loses nothing and repeats nothing."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from experiments.conftest import RunRecipe
from experiments.small import figures, write_recipe

TRIALS = 24
PATIENCE = 120.0


class Kill(NamedTuple):
    """When, in seconds from the start or else from the round's first result; and who:
    all processes, as when a machine or a container stops, or the runner alone.
    """

    at_start: bool
    wait: float
    everybody: bool


def kills() -> list[Kill]:
    """Twenty moments: before, between and during trials and their writing."""
    chance = random.Random(0)
    early = [Kill(True, chance.uniform(0.0, 2.5), True) for _ in range(16)]
    # Right after a result has been seen, its writer still holds the lock.
    late = [
        Kill(False, chance.choice((0.0, 0.0, 0.1, 0.2)), number % 2 == 0)
        for number in range(4)
    ]
    return chance.sample(early + late, 20)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def wait_for_growth(path: Path, process: subprocess.Popen[bytes]) -> None:
    before, deadline = size(path), time.monotonic() + PATIENCE
    while size(path) <= before:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.001)


def end(process: subprocess.Popen[bytes], everybody: bool) -> None:
    """Kill a runner, and see to it that none of its processes outlives it."""
    family = psutil.Process(process.pid).children(recursive=True)
    assert process.poll() is None, "it ended before it could be killed"
    if everybody:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    _, alive = psutil.wait_procs(family, timeout=PATIENCE)
    assert not alive


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_killed_twenty_times(
    run_recipe: RunRecipe, tmp_path: Path, folder: Path
) -> None:
    recipe = write_recipe(tmp_path / "some.toml", seeds=TRIALS, epochs=60)
    path = folder / "some.jsonl"
    command = [sys.executable, "-m", "gsebo", "run", str(recipe), "--workers", "2"]
    command += ["--results", str(folder), "--quiet"]
    for kill in kills():
        process = subprocess.Popen(command, start_new_session=True)
        if not kill.at_start:
            wait_for_growth(path, process)
        time.sleep(kill.wait)
        end(process, kill.everybody)
    assert path.read_bytes().count(b"\n") < TRIALS
    assert subprocess.run(command).returncode == 0

    killed = figures(path)
    assert len(killed) == TRIALS
    assert {line["status"] for line in killed.values()} == {"ok"}
    path.unlink()
    outcome, _ = run_recipe(recipe)
    assert len(outcome.results) == TRIALS
    assert figures(path) == killed
