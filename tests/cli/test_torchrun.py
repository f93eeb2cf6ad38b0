"""Fits in several processes that torchrun starts, and what if one of them dies."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from typer.testing import CliRunner

from cli.conftest import json_of
from gsebo import generate_graph, load_model
from gsebo.cli.main import app
from gsebo.data import save_npz
from gsebo.files import read_tensors

STEPS = 12
OPTIONS = (
    *("--method", "gsebo", "--device", "cpu", "--seed", "0", "--json"),
    *("--batch-size", "16", "--batches-per-step", "4", "--set", "inner_steps=5"),
    *("--set", "shard_strengths=true", "--checkpoint-seconds", "0"),
    *("--set", f"max_outer_steps={STEPS}", "--set", f"patience={STEPS}"),
)
WITHIN_SECONDS = 300.0
Fit = tuple[Path, dict[str, Any]]
"""A folder with a model, and what was printed."""


@contextmanager
def torchrun(
    processes: int, *arguments: object, restarts: int = 0
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(processes), "--max-restarts", str(restarts)),
            *map(str, arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
    )
    try:
        yield process
    finally:
        # It ends those whom it has started.
        process.terminate()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    output, errors = process.communicate(timeout=WITHIN_SECONDS)
    assert process.returncode == 0, errors
    return output, errors


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The command for a fit on a graph on which starting takes longer than fitting."""
    path = tmp_path_factory.mktemp("graph") / "small.npz"
    save_npz(generate_graph(300, average_degree=6.0, seed=0), path)
    return ("fit", str(path), *OPTIONS)


@pytest.fixture(scope="module")
def alone(fit: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Fit:
    """The same fit in this process."""
    folder = tmp_path_factory.mktemp("alone") / "model"
    arguments = [*fit, "--out", str(folder)]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return folder, json_of(done)


def test_two_processes_find_what_one_finds(
    fit: tuple[str, ...], alone: Fit, tmp_path: Path
) -> None:
    folder = tmp_path / "two"
    with torchrun(2, "-m", "gsebo", *fit, "--out", folder) as process:
        output, errors = ended(process)
    assert errors.splitlines() == [f"The model is in {folder}."]
    told = json.loads(output)
    assert told["processes"] == 2
    assert told.keys() == alone[1].keys() | {"processes"}
    assert told["parameters"] == alone[1]["parameters"]
    assert told["test_accuracy"] == alone[1]["test_accuracy"]
    names = {path.name for path in folder.iterdir()}
    assert names == {"model.json", "model.safetensors"}
    two, one = load_model(folder), load_model(alone[0])
    assert len(two.history_) == STEPS
    assert not torch.equal(one.strength_, one.initial_strength_)
    assert torch.equal(two.strength_, one.strength_)
    assert torch.equal(two.probability_, one.probability_)


def member(process: subprocess.Popen[str], **environment: str) -> psutil.Process:
    """The process with such an environment that torchrun has started."""
    deadline = time.monotonic() + WITHIN_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        for child in psutil.Process(process.pid).children():
            try:
                if environment.items() <= child.environ().items():
                    return child
            except psutil.Error:
                # It is being started, or it has just ended.
                continue
        time.sleep(0.01)
    raise TimeoutError(f"no process with {environment}")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs environments")
def test_a_killed_process_makes_no_difference(
    fit: tuple[str, ...], alone: Fit, tmp_path: Path
) -> None:
    folder = tmp_path / "disturbed"
    checkpoint = folder / "checkpoint.safetensors"
    arguments = ("-m", "gsebo", *fit, "--out", folder, "--resume")
    with torchrun(2, *arguments, restarts=3) as process:
        victim = member(process, RANK="1", TORCHELASTIC_RESTART_COUNT="0")
        while not checkpoint.exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.002)
        victim.send_signal(signal.SIGKILL)
        other = member(process, RANK="1", TORCHELASTIC_RESTART_COUNT="1")
        assert other.pid != victim.pid
        # Nobody is far enough yet to write a thing.
        _, facts = read_tensors(checkpoint, "a checkpoint")
        assert 1 <= len(facts["history"]) < STEPS
        output, errors = ended(process)
    assert json.loads(output)["outer_iterations"] == STEPS
    # Only the first start had nothing to go on from.
    assert errors.count("There is no checkpoint") == 1
    names = {path.name for path in folder.iterdir()}
    assert names == {"model.json", "model.safetensors"}
    resumed, whole = load_model(folder), load_model(alone[0])
    assert torch.equal(resumed.strength_, whole.strength_)
    assert torch.equal(resumed.probability_, whole.probability_)
    assert resumed.best_step_ == whole.best_step_
