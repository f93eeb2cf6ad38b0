"""The runner with real worker processes: what is stored runs never again."""

import os
import signal
import threading
from multiprocessing import Pipe
from pathlib import Path

import psutil
import pytest

from experiments.conftest import RunRecipe
from experiments.small import figures, lines, write_recipe
from gsebo.errors import InvalidInput
from gsebo.experiments import Result, Store, TrialBatch, execute
from gsebo.experiments.engines import READY, WorkerFailed, serve


def test_what_is_stored_does_not_run(
    run_recipe: RunRecipe, tmp_path: Path, folder: Path
) -> None:
    recipe = write_recipe(tmp_path / "some.toml", seeds=8)
    outcome, _ = run_recipe(recipe)
    assert (outcome.before.stored, len(outcome.results)) == (0, 8)
    assert outcome.after.missing == 0
    path = folder / "some.jsonl"
    whole, text = figures(path), path.read_text()

    outcome, diary = run_recipe(recipe)
    assert (outcome.before.stored, outcome.results) == (8, ())
    assert diary.stages == []
    assert path.read_text() == text

    rows = text.splitlines(keepends=True)
    gone = {0, 2, 3, 5, 7}
    path.write_text("".join(r for place, r in enumerate(rows) if place not in gone))
    outcome, _ = run_recipe(recipe)
    deleted = {key for place, key in enumerate(whole) if place in gone}
    assert {result.key for result in outcome.results} == deleted
    assert figures(path) == whole


def test_workers_give_what_this_process_gives(
    run_recipe: RunRecipe, tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path / "some.toml", methods='["vanilla", "dropedge"]')
    outcome, _ = run_recipe(recipe, workers=2)
    for result in outcome.results:
        (alone,) = execute([result.trial])
        assert alone.test_accuracy == result.test_accuracy
        assert alone.val_loss == result.val_loss


def test_seeds_that_are_fitted_at_once_give_the_same(
    run_recipe: RunRecipe, tmp_path: Path, folder: Path
) -> None:
    recipe = write_recipe(tmp_path / "some.toml", seeds=5)
    together, diary = run_recipe(recipe, replicas=3)
    assert sorted(len(batch.trials) for batch in diary.batches) == [2, 3]
    for result in together.results:
        (alone,) = execute([result.trial])
        assert alone.test_accuracy == result.test_accuracy


def test_a_failure_is_stored_and_not_run_again(
    run_recipe: RunRecipe, tmp_path: Path, folder: Path
) -> None:
    bad = '[[trials]]\nmethods = ["vanilla"]\nbackbones = ["gcn"]\n'
    bad += 'datasets = ["cora"]\nset = { hidden_channels = 0 }\n'
    recipe = write_recipe(tmp_path / "some.toml", seeds=2, more=bad)
    outcome, _ = run_recipe(recipe)
    assert (len(outcome.results), len(outcome.failed)) == (4, 2)
    assert all("hidden_channels" in str(result.error) for result in outcome.failed)
    stored = lines(folder / "some.jsonl")
    assert sorted(line["status"] for line in stored) == ["failed"] * 2 + ["ok"] * 2

    outcome, _ = run_recipe(recipe)
    assert (len(outcome.before.failed), outcome.results) == (2, ())
    outcome, _ = run_recipe(recipe, retry_failed=True)
    assert (len(outcome.results), len(outcome.failed)) == (2, 2)
    # The same failure again is nothing new.
    assert len(lines(folder / "some.jsonl")) == 4


def test_a_failure_that_is_run_again_counts_no_more(
    run_recipe: RunRecipe, tmp_path: Path, folder: Path
) -> None:
    recipe = write_recipe(tmp_path / "some.toml", seeds=2)
    outcome, _ = run_recipe(recipe)
    path = folder / "some.jsonl"
    path.unlink()
    unlucky = Result(trial=outcome.results[0].trial, error="bad luck")
    Store(folder).append("some", [unlucky])
    outcome, _ = run_recipe(recipe)
    assert len(outcome.results) == 1
    outcome, _ = run_recipe(recipe, retry_failed=True)
    assert [result.key for result in outcome.results] == [unlucky.key]
    assert Store(folder).results()[unlucky.key].ok


def test_a_worker_that_is_killed_takes_one_trial_with_it(
    run_recipe: RunRecipe, tmp_path: Path, folder: Path
) -> None:
    recipe = write_recipe(tmp_path / "some.toml", seeds=3, epochs=300)
    others = set(_grandchildren())

    def kill_the_second(batch: int) -> None:
        if batch == 2:
            (worker,) = set(_grandchildren()) - others
            os.kill(worker, signal.SIGKILL)

    outcome, diary = run_recipe(recipe, workers=1, at_batch=kill_the_second)
    (failed,) = outcome.failed
    assert failed.trial == diary.batches[1].trials[0]
    assert "SIGKILL" in str(failed.error)
    assert len(outcome.results) == 3
    assert len(figures(folder / "some.jsonl")) == 3


def _grandchildren() -> list[int]:
    """Workers are forked from a server, which is a child of this process."""
    mine = psutil.Process().children()
    return [child.pid for server in mine for child in server.children()]


@pytest.mark.parametrize("replicas", [1, 2])
def test_two_runners_at_once_store_each_trial_once(
    run_recipe: RunRecipe, tmp_path: Path, folder: Path, replicas: int
) -> None:
    recipe = write_recipe(tmp_path / "some.toml", seeds=6, epochs=100)
    found = []

    def run() -> None:
        found.append(run_recipe(recipe, replicas=replicas)[0])

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [outcome.after.stored for outcome in found] == [6, 6]
    assert len(figures(folder / "some.jsonl")) == 6


def test_a_limit(run_recipe: RunRecipe, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path / "some.toml", seeds=5)
    outcome, _ = run_recipe(recipe, limit=2)
    assert (len(outcome.results), outcome.after.missing) == (2, 3)
    outcome, _ = run_recipe(recipe, limit=10, seeds=6)
    assert (len(outcome.results), outcome.after.stored) == (4, 6)


@pytest.mark.parametrize("error", [InvalidInput("a full disk"), TypeError("a defect")])
def test_a_worker_says_why_it_gives_up(
    error: Exception, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def broken(*arguments: object) -> None:
        raise error

    module = "gsebo.experiments.engines"
    monkeypatch.setattr(f"{module}.run_and_store", broken)
    for name in ("_end_with_parent", "prepare_process", "signal.signal"):
        monkeypatch.setattr(f"{module}.{name}", lambda *arguments: None)
    ours, theirs = Pipe()
    ours.send(TrialBatch("some", ()))
    serve(theirs, folder, "cpu", None, {})
    assert ours.recv() == READY
    said = ours.recv()
    if isinstance(error, InvalidInput):
        assert isinstance(said, InvalidInput) and str(said) == "a full disk"
    else:
        assert isinstance(said, WorkerFailed) and "in broken" in str(said)
