"""What a command loads before it can say anything."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.small import result
from gsebo.cli.main import COMMANDS
from gsebo.experiments import Store

HEAVY = {
    "matplotlib",
    "numba",
    "pandas",
    "scipy",
    "sklearn",
    "torch",
    "torch_geometric",
}
SCRIPT = f"""
import os, sys
from gsebo.cli.main import run
try:
    run()
except SystemExit as done:
    code = done.code
found = {HEAVY} & set(sys.modules)
assert not found, found
assert os.environ["OMP_WAIT_POLICY"]
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("--help", 0),
        ("fitt", 2),
        ("fit --help", 0),
        ("fit coraa", 2),
        ("fit cora --method vanila", 2),
        ("fit cora --preset papr", 2),
        ("compare cora --methods vanila,gsebo", 2),
        ("list", 0),
        ("show table1", 0),
        ("results list", 0),
        ("results verify", 0),
        ("run tabl1", 2),
        ("data list", 0),
        ("data get coraa", 2),
    ],
)
def test_names_and_stored_results_need_no_torch(
    tmp_path: Path, command: str, code: int
) -> None:
    Store(tmp_path).append("table1", [result(0)])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *command.split()],
        env={**os.environ, "GSEBO_RESULTS": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert bool(done.stdout) is (code == 0)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_they_say_of_themselves(name: str) -> None:
    command = COMMANDS[name].load(name)
    assert command.name == name
    first, _, _ = inspect.cleandoc(command.help or "").partition("\n\n")
    assert " ".join(first.split()) == COMMANDS[name].help
    assert f"gsebo {name}" in (command.epilog or "")
