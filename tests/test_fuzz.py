"""A short run of the fuzzer, and whether it would notice anything."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]

# All that is read of files, in Python and on the command line.
TARGETS = {"flips", "folders", "models", "checkpoints", "npz", "tables", "objects"}
TARGETS |= {"recipes", "results", "stores", "parameters", "names", "commands"}
TARGETS |= {"typed-tables", "hetero"}

# What the report says of what each does that must not happen.
PLANTED = {
    "raises": "TypeError: planted",
    "hangs": "the process hung",
    "dies": "the process died (-11)",
    "allocates": "MemoryError",
    "half-writes": "left behind or changed: ['output']",
    "overwrites": "left behind or changed: ['input']",
    "accepts": "silently accepted: not what was written",
    "many-lines": "not one line",
}


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """Not in this process: threads that a fit has started do not survive a fork."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    path = os.pathsep.join([str(ROOT), *(each for each in given if each)])
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )


def test_nothing_does_harm_in_a_short_run(tmp_path: Path) -> None:
    short = ("--cases", 480, "--seconds", 5, "--seed", 1, "--keep", tmp_path)
    done = run("-m", "fuzz", *short)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert rows.keys() >= TARGETS
    assert int(rows["all"][0]) >= 20
    assert rows["all"][3] == "0"
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("planted")
    done = run(ROOT / "tests" / "planted_defects.py", folder)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


@pytest.mark.parametrize("name", PLANTED)
def test_planted_defects_are_noticed(
    planted: tuple[Path, dict[str, Any]], name: str
) -> None:
    folder, told = planted
    counts, findings = told[name]["counts"], told[name]["findings"]
    # Only the one number does harm, and the others are tried all the same.
    assert counts["violation"] == len(findings) == 1
    assert counts["refused"] > 5
    assert counts["accepted"] == 0
    case, text = findings[0]
    assert PLANTED[name] in text
    kept = folder / "kept" / case.replace(":", "-")
    assert (kept / "input" / "input").read_text() in ("7", "other")
    report = (kept / "report.txt").read_text()
    assert PLANTED[name] in report
    assert report.strip().endswith("7")
