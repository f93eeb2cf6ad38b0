"""What only shows in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from cli.conftest import Command, control_c_is_heard
from gsebo import load_model
from gsebo.cli.read_on import BY_COMMAND, address

GSEBO = [sys.executable, "-m", "gsebo"]
LONG = ["--set", "max_outer_steps=60", "--set", "patience=60", "--device", "cpu"]
STARTS_WITHIN = 120.0


def test_json_is_alone_on_standard_output(graph_file: Path) -> None:
    options = ["--set", "max_outer_steps=2", "--json", "--split", "random"]
    done = subprocess.run(
        [*GSEBO, "fit", str(graph_file), *options], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outer_iterations"] == 2
    assert done.stderr == ""


def test_one_sentence_without_traceback() -> None:
    done = subprocess.run([*GSEBO, "fitt"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    sentence, read_on = done.stderr.splitlines()
    assert sentence == "Error: No such command 'fitt'. Did you mean 'fit'?"
    assert read_on == f"Read on: {address(BY_COMMAND[''])}"


def started(arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    """Start a fit and return once its first checkpoint is there."""
    pipe = subprocess.PIPE
    with control_c_is_heard():
        process = subprocess.Popen(
            [*GSEBO, *arguments], stdout=pipe, stderr=pipe, text=True
        )
    deadline = time.monotonic() + STARTS_WITHIN
    while not (folder / "checkpoint.safetensors").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return process


def test_a_killed_fit_goes_on(
    command: Command, graph_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "killed"
    arguments = ["fit", str(graph_file), *LONG, "--checkpoint-seconds", "0"]
    process = started([*arguments, "--out", str(folder)], folder)
    process.kill()
    process.communicate()
    assert not (folder / "model.json").exists()

    assert command(*arguments, "--out", folder, "--resume").exit_code == 0
    assert command(*arguments, "--out", tmp_path / "whole").exit_code == 0
    assert not (folder / "checkpoint.safetensors").exists()
    resumed, whole = load_model(folder), load_model(tmp_path / "whole")
    assert torch.equal(resumed.strength_, whole.strength_)
    assert torch.equal(resumed.probability_, whole.probability_)
    assert resumed.best_step_ == whole.best_step_
    assert len(resumed.history_) == len(whole.history_)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_control_c_says_how_to_go_on(graph_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stopped"
    options = ["--checkpoint-seconds", "0", "--out", str(folder)]
    process = started(["fit", str(graph_file), *LONG, *options], folder)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate()
    assert process.returncode == 130
    assert output == ""
    assert errors.startswith("Interrupted; --resume goes on from")
    assert errors.count("\n") == 1
