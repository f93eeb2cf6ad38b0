"""``gsebo show``, on a few small fits of Cora."""

import csv
import io
import json
import re
from pathlib import Path
from statistics import mean
from typing import Any
from zipfile import ZipFile

import pytest

from experiments.small import result
from gsebo.experiments import Store, Tuning, execute, load_recipe, make_plan

from .conftest import Command, json_of, refused

RECIPE = """
title = "Small fits"
seeds = 2

[[trials]]
methods = ["vanilla"]
backbones = ["gcn"]
datasets = ["cora"]
set = { max_epochs = 4 }

[[trials]]
methods = ["gsebo"]
backbones = ["gcn"]
datasets = ["cora"]
set = { max_outer_steps = 2 }
vary = { inner_steps = [1, 2] }

[[trials]]
methods = ["gsebo"]
backbones = ["sage"]
datasets = ["cora"]
set = { max_outer_steps = 2, inner_steps = -1 }
label = "cannot be"
"""
FORMATS = ["table", "markdown", "latex", "csv", "json"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe called table1, and its results but those of one cell."""
    folder = tmp_path_factory.mktemp("show")
    (folder / "table1.toml").write_text(RECIPE, "utf-8")
    recipe = load_recipe(str(folder / "table1.toml"))
    cells = make_plan(recipe, Tuning({})).cells()
    store = Store(folder / "results")
    for cell, trials in cells.items():
        if cell.setting != "inner_steps = 2":
            store.append(recipe.name, execute(trials))
    return folder


@pytest.fixture
def show(command: Command, folder: Path) -> Command:
    def run(*arguments: object) -> Any:
        where = ("--results", folder / "results")
        return command("show", folder / "table1.toml", *where, *arguments)

    return run


def lines_of(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "results" / "table1.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_figures_are_those_of_the_lines(show: Command, folder: Path) -> None:
    result = show("--format", "csv")
    assert result.exit_code == 0
    cells = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(cells) == 4
    for cell in cells[:2]:
        stored = [
            100 * line["test_accuracy"]
            for line in lines_of(folder)
            if line["status"] == "ok" and line["trial"]["method"] == cell["method"]
        ]
        assert cell["seeds"] == "2" == str(len(stored))
        assert float(cell["mean"]) == pytest.approx(mean(stored), abs=1e-6)
        difference = mean(stored) - float(cell["paper_mean"])
        assert float(cell["difference"]) == pytest.approx(difference, abs=1e-6)
        assert float(cell["seconds"]) > 0 and int(cell["peak_memory_bytes"]) > 0
        assert cell["network"] == cell["row"] == "gcn"
    for cell in cells[2:]:
        assert cell["mean"] == "" and cell["seeds"] == "0"


def test_json_is_one_object_and_agrees(show: Command) -> None:
    content = json_of(show("--format", "json"))
    assert (content["recipe"], content["seeds"]) == ("table1", 2)
    assert (content["missing"], content["failed"]) == (2, 2)
    cells = csv.DictReader(io.StringIO(show("--format", "csv").stdout))
    assert [float(c["mean"]) for c in cells if c["mean"]] == [
        c["mean"] for c in content["cells"] if c["mean"] is not None
    ]


@pytest.mark.parametrize("format", ["table", "markdown", "latex"])
def test_tables_show_the_same_means(show: Command, format: str) -> None:
    content = json_of(show("--format", "json"))
    text = show("--format", format).stdout.replace(r"$\pm$", "±")
    shown = re.findall(r"\d+\.\d ± \d+\.\d", text.replace("*", ""))
    for cell in content["cells"]:
        assert f"{cell['paper_mean']} ± {cell['paper_std']}" in shown
        if cell["mean"] is not None:
            assert f"{cell['mean']:.1f} ± {cell['std']:.1f}" in shown


@pytest.mark.parametrize("format", FORMATS)
def test_what_lacks_is_told_on_standard_error(show: Command, format: str) -> None:
    result = show("--format", format)
    missing, failed = result.stderr.splitlines()
    assert re.match(
        r"2 of 8 trials are not stored: `gsebo run .*table1\.toml`", missing
    )
    assert failed.startswith("2 trials failed, the first is gsebo, sage, cora, seed 0")
    assert "inner_steps" in failed
    assert show("--format", format, "--quiet").stderr == ""


def test_fewer_seeds_can_be_asked_for(show: Command, folder: Path) -> None:
    content = json_of(show("--format", "json", "--seeds", 1))
    first = next(one for one in lines_of(folder) if one["trial"]["seed"] == 0)
    assert content["seeds"] == 1
    assert content["cells"][0]["mean"] == pytest.approx(100 * first["test_accuracy"])


@pytest.fixture
def shipped(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As if the same results had come with the package."""
    archive = tmp_path / "shipped.zip"
    with ZipFile(archive, "w") as file:
        file.write(folder / "results" / "table1.jsonl", "table1.jsonl")
    monkeypatch.setattr("gsebo.experiments.shipped.ARCHIVE", archive)
    monkeypatch.delenv("GSEBO_RESULTS", raising=False)
    return archive


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a source tree: nothing came with the package."""
    monkeypatch.setattr("gsebo.experiments.shipped.ARCHIVE", tmp_path / "no.zip")
    monkeypatch.delenv("GSEBO_RESULTS", raising=False)


@pytest.mark.parametrize("place", ["nowhere", "folder", "options"])
def test_where_nothing_is_stored_a_sentence_says_what_to_do(
    command: Command, bare: None, tmp_path: Path, place: str
) -> None:
    where: tuple[object, ...] = ()
    if place == "folder":
        Path("results").mkdir()
    elif place == "options":
        Store(tmp_path / "stored").append("other", [result(0, method="magna")])
        where = ("--results", tmp_path / "stored")
    for name, *options in (["overfitting"], ["equal_budget", "--choices"]):
        sentence = refused(command("show", name, *options, *where))
        assert f"no results of {name} are stored in" in sentence
        assert f"`gsebo run {name}`" in sentence and "--results DIR" in sentence
        assert "--shipped" not in sentence


def test_what_came_with_the_package_is_shown_where_there_is_no_other(
    command: Command, folder: Path, shipped: Path
) -> None:
    asked = ("show", folder / "table1.toml", "--format", "json")
    ours = command(*asked)
    assert "came with gsebo" in ours.stderr
    theirs = command(*asked, "--results", folder / "results")
    assert json_of(ours) == json_of(theirs)
    assert "came with gsebo" not in theirs.stderr
    assert command(*asked, "--quiet").stderr == ""
    unknown = refused(command("show", "overfitting"))
    assert "no results of overfitting came with gsebo" in unknown


def test_own_results_and_those_that_came_are_never_mixed(
    command: Command,
    folder: Path,
    shipped: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = ("show", folder / "table1.toml", "--format", "json")
    both = json_of(command(*asked))
    assert both["cells"][0]["seeds"] == 2
    recipe = load_recipe(str(folder / "table1.toml"))
    known = Store(folder / "results").results()
    trials = [one.trial for one in make_plan(recipe, Tuning(known)).trials]
    before = shipped.read_bytes()
    # As soon as there is a folder it is the only one, with whatever it has.
    Path("results").mkdir()
    assert "--shipped shows what came with gsebo" in refused(command(*asked))
    Store(Path("results")).append("mine", [known[trials[0].key]])
    own = command(*asked)
    assert json_of(own)["cells"][0]["seeds"] == 1
    assert "came with gsebo" not in own.stderr
    monkeypatch.setenv("GSEBO_RESULTS", "results")
    assert json_of(command(*asked))["cells"][0]["seeds"] == 1
    assert json_of(command(*asked, "--shipped")) == both
    assert shipped.read_bytes() == before


def test_a_source_tree_has_nothing_to_ship(command: Command, bare: None) -> None:
    assert "runs from a source tree" in refused(command("show", "table1", "--shipped"))
    assert "runs from a source tree" in refused(command("report", "--shipped"))
    sentence = refused(command("report"))
    assert "no results are stored in results" in sentence
    assert not Path("report.html").exists()


def test_a_report_of_what_came_with_the_package(
    command: Command, shipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One recipe is enough.
    monkeypatch.setattr("gsebo.report.page.results._ORDER", ("table1",))
    monkeypatch.setattr("gsebo.report.page.results.recipe_names", list)
    done = command("report")
    assert done.exit_code == 0, done.stderr
    assert "came with gsebo" in done.stderr
    assert Path("report.html").is_file()


def test_the_folder_of_results_can_come_from_the_environment(
    command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GSEBO_RESULTS", str(folder / "results"))
    content = json_of(command("show", folder / "table1.toml", "--format", "json"))
    assert content["cells"][0]["seeds"] == 2


def test_wrong_names_are_refused(show: Command, command: Command) -> None:
    assert "did you mean 'table1'?" in refused(command("show", "tabel1"))
    assert "did you mean 'markdown'?" in refused(show("--format", "markdwn"))
    assert "leaves none to a search" in refused(show("--choices"))
    missing = command("show", "table1", "--results", "nowhere")
    assert "nowhere given; there is no such folder" in refused(missing)
    assert "no such file" in refused(command("show", "own.toml"))
