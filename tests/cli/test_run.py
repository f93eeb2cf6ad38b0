"""``gsebo run``: what it runs, what it says, and how it ends."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from io import StringIO
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from cli.conftest import Command, control_c_is_heard, json_of, refused
from experiments.processes import outlive
from experiments.small import figures, lines, write_recipe
from gsebo.cli.run import LiveTable
from gsebo.experiments import Result, Slot, Trial, TrialBatch, load_recipe, make_survey

STARTS_WITHIN = 120.0


@pytest.fixture(autouse=True)
def own_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GSEBO_RESULTS", raising=False)


def test_json_counts_and_what_is_stored_runs_no_more(
    command: Command, tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path / "some.toml", methods='["vanilla", "dropedge"]')
    only = ("--only", "method=vanilla", "--only", "seed=0,2")
    counts = json_of(command("run", recipe, "--workers", 1, *only, "--json"))
    assert counts.pop("seconds") > 0
    assert counts == {
        "recipe": "some",
        "stored": 0,
        "skipped": 0,
        "run": 2,
        "failed": 0,
        "remaining": 0,
    }
    stored = lines(Path("results/some.jsonl"))
    places = {(line["trial"]["method"], line["trial"]["seed"]) for line in stored}
    assert places == {("vanilla", 0), ("vanilla", 2)}

    counts = json_of(command("run", recipe, "--workers", 2, "--limit", 3, "--json"))
    assert (counts["stored"], counts["run"], counts["remaining"]) == (2, 3, 3)
    counts = json_of(command("run", recipe, "--workers", 2, "--json"))
    assert (counts["stored"], counts["run"], counts["remaining"]) == (5, 3, 0)
    assert len(figures(Path("results/some.jsonl"))) == 8


def test_lines_for_each_trial_and_nothing_to_do(
    command: Command, tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path / "some.toml", seeds=2)
    there = ("--results", tmp_path / "there")
    done = command("run", recipe, "--workers", 1, *there)
    assert done.exit_code == 0
    assert done.stdout == ""
    head, first, second, summary = done.stderr.splitlines()
    assert head == "some: 2 trials to run on 1 CPU worker."
    words = "vanilla, gcn, cora, seed 0, hidden_channels=4, max_epochs=5"
    assert first.startswith(f"1/2 {words}: test ")
    assert first.endswith(" s)")
    assert second.startswith("2/2 ")
    assert summary.endswith("2 trials of the recipe stored, 0 missing.")

    again = command("run", recipe, *there)
    assert again.exit_code == 0
    assert again.stderr == "some: nothing to run; 2 trials stored, none missing.\n"
    quiet = command("run", recipe, "--seeds", 3, "--workers", 1, "--quiet", *there)
    assert (quiet.exit_code, quiet.output) == (0, "")
    assert len(figures(tmp_path / "there/some.jsonl")) == 3


def test_a_failed_trial_is_told_skipped_and_run_again(
    command: Command, tmp_path: Path
) -> None:
    recipe = tmp_path / "some.toml"
    text = write_recipe(recipe, seeds=2).read_text()
    recipe.write_text(text.replace("hidden_channels = 4", "hidden_channels = 0"))
    done = command("run", recipe, "--workers", 1, "--quiet")
    assert done.exit_code == 1
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("Error: 2 of 2 trials failed; the first: vanilla, gcn")
    assert "hidden_channels" in sentence

    skipped = command("run", recipe)
    assert skipped.exit_code == 0
    assert "2 failed earlier: --retry-failed runs them again." in skipped.stderr
    retried = command("run", recipe, "--retry-failed", "--workers", 1, "--json")
    assert retried.exit_code == 1
    assert '"run": 2' in retried.stdout


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["tabel1"], "table1"),
        (["none.toml"], "none.toml"),
        (["table1", "--only", "method=none"], "gsebo"),
        (["table1", "--only", "kind=none"], "method, backbone, dataset, noise, seed"),
        (["table1", "--engine", "threads"], "processes, ray"),
        (["table1", "--workers", "0", "--gpu-workers", "0"], "--workers 0"),
        (["table1", "--limit", "0"], "--limit"),
    ],
)
def test_bad_input(command: Command, options: list[str], says: str) -> None:
    assert says in refused(command("run", *options))
    assert not Path("results").exists()


def test_no_gpu_workers_without_a_gpu(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "without CUDA" in refused(command("run", "table1", "--gpu-workers", 1))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signal")
def test_control_c_says_how_to_go_on(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "some.toml", seeds=200, epochs=60)
    path = tmp_path / "there/some.jsonl"
    words = ["run", str(recipe), "--workers", "2", "--results", str(path.parent)]
    with control_c_is_heard():
        process = subprocess.Popen(
            [sys.executable, "-m", "gsebo", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    deadline = time.monotonic() + STARTS_WITHIN
    while not path.exists() or not path.stat().st_size:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    family = psutil.Process(process.pid).children(recursive=True)
    # A terminal sends it to all processes that it started.
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate()
    assert process.returncode == 130
    assert output == ""
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("Interrupted with ")
    assert errors.endswith("the same command goes on.\n")
    assert not outlive(family, STARTS_WITHIN)
    assert {line["status"] for line in lines(path)} == {"ok"}


def _ended(trial: Trial, error: str | None = None) -> Result:
    accuracy = 0.5 if error is None else None
    return Result(trial=trial, error=error, test_accuracy=accuracy)


def test_the_table_counts_what_was_and_what_is(tmp_path: Path) -> None:
    recipe = load_recipe(str(write_recipe(tmp_path / "some.toml", seeds=5)))
    trials = [one.trial for one in make_survey(recipe, {}).stage.planned]
    known = {one.key: one for one in (_ended(trials[0]), _ended(trials[1], "bad luck"))}
    stage = make_survey(recipe, known).stage
    screen = Console(file=StringIO(), width=100, force_terminal=True)
    slot = Slot("one")

    def text() -> str:
        plain = Console(file=StringIO(), width=100)
        plain.print(table.table())
        assert isinstance(plain.file, StringIO)
        return plain.file.getvalue()

    with closing(LiveTable(screen)) as table:
        table.stage_begins(stage, 3, [slot], None)
        assert "1 / 5" in text()
        assert "left" not in text()
        table.batch_begins(slot, TrialBatch("some", tuple(trials[2:4])))
        assert "cora, seeds 2 to 3 (0 s)" in text()
        table.batch_ends(slot, [_ended(one) for one in trials[2:4]], 600.0)
    assert "3 / 5" in text()
    assert "seeds 2" not in text()
    assert "3 of 5 trials are done, about 10 min left" in text()
