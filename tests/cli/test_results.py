"""``gsebo results``: what is stored, and whether it is whole."""

from pathlib import Path

import pytest

from cli.conftest import Command, json_of, refused
from experiments.small import result
from gsebo.experiments import Store, load_recipe, make_plan, recipe_names
from gsebo.experiments.plan import Tuning
from gsebo.experiments.result import Result


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the environment names."""
    monkeypatch.setenv("GSEBO_RESULTS", str(tmp_path / "stored"))
    return tmp_path / "stored"


def test_sound_results(command: Command, folder: Path) -> None:
    Store(folder).append("some", [result(0), result(1, error="bad luck")])
    done = command("results", "verify")
    assert (done.exit_code, done.stderr) == (0, "")
    (row,) = [line for line in done.stdout.splitlines() if "some.jsonl" in line]
    assert row.split() == ["some.jsonl", "2", "1", "1", "0", "0"]


def test_what_is_wrong_is_named_and_put_right(command: Command, folder: Path) -> None:
    Store(folder).append("some", [result(0)])
    path = folder / "some.jsonl"
    once = path.read_text()
    path.write_text(f'{once}{once}{{"schema"')
    done = command("results", "verify")
    assert done.exit_code == 1
    assert "the last line is half-written" in done.stderr
    assert "lines 2 are of trials" in done.stderr
    assert path.read_text() != once

    fixed = command("results", "verify", "--fix")
    assert (fixed.exit_code, fixed.stderr) == (0, "")
    assert path.read_text() == once


def test_an_unreadable_line_stays_and_stops_a_run(
    command: Command, folder: Path
) -> None:
    Store(folder).append("some", [result(0)])
    path = folder / "some.jsonl"
    path.write_text(f"what is this\n{path.read_text()}")
    before = path.read_text()
    for options in ((), ("--fix",), ("--fix", "--json")):
        done = command("results", "verify", *options)
        assert done.exit_code == 1
        told = done.stdout if "--json" in options else done.stderr
        assert "line 1 is no result: not JSON" in told
    assert path.read_text() == before
    assert "gsebo results verify" in refused(command("results", "list"))
    assert "gsebo results verify" in refused(command("run", "overfitting"))


def test_no_folder(command: Command, folder: Path) -> None:
    assert "no such folder" in refused(command("results", "verify"))
    listed = command("results", "list")
    assert listed.exit_code == 0 and f"no folder {folder} yet" in listed.stderr
    assert not folder.exists()


def test_the_list_has_every_recipe(command: Command, folder: Path) -> None:
    trials = make_plan(load_recipe("overfitting"), Tuning({})).trials
    some = [Result(trial=one.trial, test_accuracy=0.5) for one in trials[:7]]
    some.append(Result(trial=trials[7].trial, error="bad luck"))
    Store(folder).append("overfitting", some)
    Store(folder).append("my_own", [result(0)])
    rows = {
        r["recipe"]: r for r in json_of(command("results", "list", "--json"))["recipes"]
    }
    assert set(rows) == {*recipe_names(), "my_own"}
    overfitting = rows["overfitting"]
    assert (overfitting["stored"], overfitting["failed"]) == (7, 1)
    assert overfitting["planned"] == len(trials)
    assert overfitting["missing"] == len(trials) - 8
    assert rows["my_own"]["stored"] == 1
    assert "tuning" in rows["table1"]["remark"]
    assert rows["table2"]["planned"] is not None
    shown = command("results", "list").stdout
    assert f"7 / {len(trials)}" in shown
    assert "1 / ?" in shown


def test_a_search_that_came_to_nothing_hides_no_other_recipe(
    command: Command, folder: Path
) -> None:
    wanted = [
        Result(trial=one.trial, error="bad luck")
        for one in make_plan(load_recipe("tuning"), Tuning({})).trials
        if (one.cell.method, one.cell.dataset) == ("vgcn", "cora")
    ]
    Store(folder).append("tuning", wanted)
    recipes = json_of(command("results", "list", "--json"))["recipes"]
    rows = {row["recipe"]: row for row in recipes}
    assert "vgcn" in rows["table2"]["remark"]
    assert rows["table2"]["planned"] > 0
    assert rows["tuning"]["failed"] == len(wanted)


def test_an_older_folder_is_brought_up_to_date(command: Command, folder: Path) -> None:
    Store(folder).append("some", [result(0), result(1, method="gsebo")])
    path = folder / "some.jsonl"
    path.write_text(path.read_text().replace('"schema": 3', '"schema": 1'))
    for words in (("results", "list"), ("show", "table1")):
        assert "`gsebo results migrate`" in refused(command(*words))
    (done,) = json_of(command("results", "migrate", "--json"))["files"]
    assert (done["migrated"], done["renamed"], done["problem"]) == (2, 1, None)
    assert command("results", "verify").exit_code == 0
    again = command("results", "migrate")
    assert (again.exit_code, again.stderr) == (0, "")
    (row,) = [line for line in again.stdout.splitlines() if "some.jsonl" in line]
    assert row.split() == ["some.jsonl", "2", "0", "0"]

    with path.open("a") as file:
        file.write("nonsense\n")
    damaged = command("results", "migrate")
    assert damaged.exit_code == 1
    assert "is left as it is: line 3 is no result" in damaged.stderr
    assert "no such folder" in refused(
        command("results", "migrate", "--results", folder / "none")
    )
