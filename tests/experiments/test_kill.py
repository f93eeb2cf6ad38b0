"""A runner that is killed again and again loses nothing and repeats nothing."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from experiments.conftest import RunRecipe
from experiments.processes import outlive
from experiments.small import figures, write_recipe

TRIALS = 16
PATIENCE = 120.0


class Kill(NamedTuple):
    """When, in seconds from the start, from the round's first worker or from its first
    result; and who: all processes, as when a machine or a container stops, or the
    runner alone.
    """

    since: str
    wait: float
    everybody: bool


def kills() -> list[Kill]:
    """Moments of every kind: before, between and during trials and their writing."""
    chance = random.Random(0)
    # Loading the libraries takes seconds; a part of it for each.
    early = [
        Kill("start", chance.uniform(1.2 * part, 1.2 * (part + 1)), True)
        for part in range(2)
    ]
    late = [
        Kill("worker", chance.uniform(0.0, 0.5), True),
        # Right after a result has been seen, its writer still holds the lock.
        Kill("result", 0.0, True),
        Kill("result", chance.uniform(0.0, 0.2), False),
    ]
    return chance.sample(early + late, 5)


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def wait_until(
    happened: Callable[[], bool], process: subprocess.Popen[bytes], pause: float
) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(pause)


def has_worker(process: subprocess.Popen[bytes]) -> bool:
    """Workers are forked from a server, which is a child of the runner."""
    children = psutil.Process(process.pid).children()
    return any(child.children() for child in children)


def run_and_kill(command: list[str], path: Path, kill: Kill) -> None:
    before = size(path)
    process = subprocess.Popen(command, start_new_session=True)
    if kill.since == "worker":
        # Looking through all processes is work itself.
        wait_until(lambda: has_worker(process), process, 0.05)
    elif kill.since == "result":
        wait_until(lambda: size(path) > before, process, 0.001)
    time.sleep(kill.wait)
    end(process, kill.everybody)


def end(process: subprocess.Popen[bytes], everybody: bool) -> None:
    """Kill a runner, and see to it that none of its processes outlives it."""
    family = psutil.Process(process.pid).children(recursive=True)
    assert process.poll() is None, "it ended before it could be killed"
    if everybody:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()
    assert not outlive(family, PATIENCE)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_killed_at_every_kind_of_moment(
    run_recipe: RunRecipe, tmp_path: Path, folder: Path
) -> None:
    recipe = write_recipe(tmp_path / "some.toml", seeds=TRIALS, epochs=60)
    path = folder / "some.jsonl"
    command = [sys.executable, "-m", "gsebo", "run", str(recipe), "--workers", "2"]
    command += ["--results", str(folder), "--quiet"]
    for kill in kills():
        run_and_kill(command, path, kill)
    assert path.read_bytes().count(b"\n") < TRIALS
    assert subprocess.run(command).returncode == 0

    killed = figures(path)
    assert len(killed) == TRIALS
    assert {line["status"] for line in killed.values()} == {"ok"}
    path.unlink()
    outcome, _ = run_recipe(recipe)
    assert len(outcome.results) == TRIALS
    assert figures(path) == killed
