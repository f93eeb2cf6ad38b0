"""``gsebo results verify --rerun``: stored trials are run again and compared."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from cli.conftest import Command, json_of, refused
from experiments.small import lines, result, write_recipe
from gsebo.cli.main import app
from gsebo.experiments import Result, Store
from gsebo.experiments.rerun import Rerun, draw_trials

ANOTHER = {"commit": "0" * 40, "processor": "another"}
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of three trials that were really run."""
    folder = tmp_path_factory.mktemp("stored")
    recipe = write_recipe(folder / "short.toml", seeds=3)
    words = ["run", str(recipe), "--results", str(folder / "results"), "--quiet"]
    assert CliRunner().invoke(app, [*words, "--workers", "1"]).exit_code == 0
    return folder / "results"


@pytest.fixture
def folder(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to be changed."""
    monkeypatch.setenv("GSEBO_RESULTS", str(tmp_path / "stored"))
    return shutil.copytree(stored, tmp_path / "stored")


def change(folder: Path, seed: int, alter: Change) -> None:
    """Alter what is stored of one seed."""
    path = folder / "short.jsonl"
    stored = lines(path)
    for line in stored:
        if line["trial"]["seed"] == seed:
            alter(line)
    path.write_text("".join(json.dumps(line) + "\n" for line in stored))


def test_trials_that_nobody_touched_are_equal(command: Command, folder: Path) -> None:
    before = (folder / "short.jsonl").read_bytes()
    done = command("results", "verify", "--rerun", 2)
    assert done.exit_code == 0
    assert (
        "2 of 3 trials run again: 2 equal. Not drawn from: 0 that took" in done.stderr
    )
    assert done.stdout.count("vanilla, gcn, cora") == 2
    assert (folder / "short.jsonl").read_bytes() == before
    assert {path.name for path in folder.iterdir()} <= {"short.jsonl", ".lock"}


def test_what_differs_is_judged_by_the_spread_of_the_seeds(
    command: Command, folder: Path
) -> None:
    # By the same source on the same processor nothing may differ, but the source of a
    # developer may have changes: the first two are from elsewhere in any case.
    change(folder, 0, lambda line: line.update(val_loss=line["val_loss"] + 1e-5))
    change(folder, 0, lambda line: line.update(ANOTHER))
    change(folder, 1, lambda line: line.update(ANOTHER, test_accuracy=0.999))
    change(folder, 1, lambda line: line["test"].update(accuracy=0.999))
    change(folder, 2, lambda line: line.update(seconds=1e3))
    done = command("results", "verify", "--rerun", 9, "--json")
    assert done.exit_code == 1
    again = json.loads(done.stdout)["rerun"]
    assert (again["eligible"], again["longer"]) == (2, 1)
    trials = {one["trial"]["seed"]: one for one in again["trials"]}
    assert trials[0]["verdict"] == "within the spread"
    assert trials[0]["differing"] == ["val_loss"]
    assert trials[0]["changed"]["processor"] == "another"
    assert trials[0]["changed"]["commit"] == "0" * 40
    low, high = trials[0]["spread"]["val_loss"]
    assert low < trials[0]["again"]["val_loss"] < high
    assert trials[1]["verdict"] == "neither"
    assert trials[1]["stored"]["test_accuracy"] == 0.999
    told = command("results", "verify", "--rerun", 9, "--longest", 900)
    assert told.exit_code == 1
    assert "2 of 2 trials run again: 1 " in told.stderr
    assert "1 that took longer than 900 s, 0 that ran on a device" in told.stderr
    assert "neither: processor was another, commit was 000" in told.stderr


def test_a_trial_that_cannot_be_run_any_more_is_no_success(
    command: Command, folder: Path
) -> None:
    impossible = result(0, device="cpu")
    trial = replace(impossible.trial, parameters={"hidden_channels": 0})
    Store(folder).append("own", [replace(impossible, trial=trial)])
    done = command("results", "verify", "--rerun", 1, "--recipe", "own")
    assert done.exit_code == 1
    assert "own): failed: InvalidInput: hidden_channels" in done.stderr


def test_what_cannot_be_asked_for(command: Command, folder: Path) -> None:
    verify = ("results", "verify")
    for option, value in (("--recipe", "short"), ("--longest", 5.0), ("--seed", 1)):
        sentence = refused(command(*verify, option, value))
        assert f"{option} {value} given without --rerun" in sentence
    assert "expected one of them" in refused(command(*verify, "--fix", "--rerun", 2))
    assert "short" in refused(command(*verify, "--rerun", 2, "--recipe", "shrt"))
    nothing = refused(command(*verify, "--rerun", 2, "--longest", 0))
    assert "there are none (3 took longer, 0 ran on another)" in nothing
    refused(command(*verify, "--rerun", 0))
    assert not json_of(command(*verify, "--json")).get("rerun")


def test_the_seed_decides_what_is_drawn(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append("first", [result(seed, device="cpu") for seed in range(40)])
    late = [result(42, seconds=61.0, device="cpu"), result(43, device="cpu (old)")]
    store.append("second", [result(41, error="bad luck"), *late])
    store.append("third", [result(44, device="npu (X)")])

    def drawn(seed: int, **options: Any) -> list[int]:
        found = draw_trials(store, 10, seed=seed, longest=60.0, **options)
        if not options:
            counts = (found.eligible, found.longer, found.elsewhere)
            assert counts == (41, 1, 1)
        return [one.trial.seed for _, one in found.trials]

    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)
    assert len(set(drawn(0))) == 10
    assert drawn(0, recipe="second") == [43]
    assert drawn(0, recipe="third") == []


def made(value: float = 0.5, **others: Any) -> Result:
    known = {"processor": "one", "versions": {"torch": "2"}, "commit": "a" * 40}
    return result(0, **{"device": "cpu", **known, "test_accuracy": value, **others})


@pytest.mark.parametrize(
    ("again", "verdict", "changed"),
    [
        (made(), "equal", []),
        (made(processor="two"), "equal", ["processor"]),
        # Near, but nothing has changed that could be the reason.
        (made(0.51), "neither", []),
        (made(0.51, processor="two"), "within the spread", ["processor"]),
        (made(0.51, versions={"torch": "3"}), "within the spread", ["torch"]),
        (made(0.51, commit="b" * 40), "within the spread", ["commit"]),
        (made(0.51, commit="a" * 40 + "-dirty"), "within the spread", ["commit"]),
        (made(0.9, processor="two"), "neither", ["processor"]),
        (result(0, error="bad luck"), "failed", ["device", "processor", "commit"]),
    ],
)
def test_verdicts(again: Result, verdict: str, changed: list[str]) -> None:
    others = tuple(made(value) for value in (0.48, 0.52))
    one = Rerun("some", made(), again, others)
    low, high = one.spread["test_accuracy"]
    assert (low, high) == (pytest.approx(0.44), pytest.approx(0.56))
    assert one.verdict == verdict
    assert list(one.changed) == changed
    assert one.holds is (verdict in ("equal", "within the spread"))


def test_a_stored_figure_that_is_far_off_does_not_widen_its_own_spread() -> None:
    others = tuple(made(value) for value in (0.48, 0.52))
    wrong, right = made(0.9, processor="two"), made(0.5)
    low, high = Rerun("some", wrong, right, others).spread["test_accuracy"]
    assert low < 0.5 < high
    assert Rerun("some", wrong, right, others).verdict == "neither"


def test_one_seed_alone_leaves_room_for_rounding_only() -> None:
    near, far = made(0.504, processor="two"), made(0.52, processor="two")
    assert Rerun("some", made(), near, ()).verdict == "within the spread"
    assert Rerun("some", made(), far, ()).verdict == "neither"


def test_figures_within_figures_are_compared_but_not_their_times() -> None:
    attack = {"nodes": 9, "before": 0.5, "after": 0.25, "flips": 3, "seconds": 1.0}
    then = made(evasion={"adaptive": attack})
    slower = made(evasion={"adaptive": {**attack, "seconds": 2.0}})
    assert Rerun("some", then, slower, ()).verdict == "equal"
    worse = made(evasion={"adaptive": {**attack, "after": 0.0}}, processor="two")
    one = Rerun("some", then, worse, ())
    assert (one.verdict, one.differing) == ("neither", ("evasion.adaptive",))


def test_figures_that_are_stored_since_are_no_difference() -> None:
    assert Rerun("some", made(), made(best_step=3), ()).verdict == "equal"
    assert Rerun("some", made(best_step=3), made(), ()).differing == ("best_step",)
