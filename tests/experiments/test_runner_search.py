"""Searches come first, and parts of recipes need only parts of them."""

from pathlib import Path

import pytest

from experiments.conftest import RunRecipe
from experiments.small import lines, result, write_recipe
from gsebo import InvalidInput
from gsebo.experiments import load_recipe, make_survey, select

SEARCH = """
title = "A search"
seeds = 2

[[trials]]
methods = ["vanilla", "dropedge"]
backbones = ["gcn", "sage"]
datasets = ["cora"]
split = "halves"
variants = { sage = ["sage", "sage-gcn"] }
set = { hidden_channels = 4 }
vary = { max_epochs = [1, 20] }
"""
TUNED = """
title = "What the search is for"
seeds = 3

[[trials]]
methods = ["vanilla", "dropedge"]
backbones = ["gcn", "sage"]
datasets = ["cora"]
set = { hidden_channels = 4 }
tuned_by = "searches/search.toml"
noise = [0, 5]

[[trials]]
methods = ["frozen"]
backbones = ["gcn"]
datasets = ["cora"]
set = { hidden_channels = 4, max_outer_steps = 2 }
tuned_by = "searches/search.toml"
tuned_as = "vanilla"
"""


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """A recipe whose search lies in a folder beside it, and not where we are."""
    (tmp_path / "own/searches").mkdir(parents=True)
    (tmp_path / "own/searches/search.toml").write_text(SEARCH)
    (tmp_path / "own/tuned.toml").write_text(TUNED)
    return tmp_path / "own/tuned.toml"


def test_the_search_runs_first_and_under_its_own_name(
    run_recipe: RunRecipe, tuned: Path, folder: Path
) -> None:
    selection = select(load_recipe(str(tuned)), ["method=vanilla", "backbone=gcn"])
    outcome, diary = run_recipe(tuned, selection=selection)
    assert diary.stages == ["search", "tuned"]
    searched, fitted = lines(folder / "search.jsonl"), lines(folder / "tuned.jsonl")
    # Two candidates with two seeds; two amounts of noise with three.
    assert (len(searched), len(fitted)) == (4, 6)
    assert {line["trial"]["split"] for line in searched} == {"halves:file"}
    scores: dict[int, float] = {}
    for line in searched:
        epochs = line["trial"]["parameters"]["max_epochs"]
        scores[epochs] = scores.get(epochs, 0.0) + line["test_accuracy"]
    taken = max(scores, key=lambda epochs: scores[epochs])
    assert {line["trial"]["parameters"]["max_epochs"] for line in fitted} == {taken}
    assert (outcome.before.stored, outcome.after.stored) == (0, 6)
    assert outcome.after.missing == 0


def test_a_limit_holds_for_the_search_too(run_recipe: RunRecipe, tuned: Path) -> None:
    outcome, diary = run_recipe(tuned, limit=3)
    assert (len(outcome.results), diary.stages) == (3, ["search"])
    # Two methods on three networks, two candidates and two seeds of each.
    assert outcome.after.missing == outcome.before.missing - 3 == 24 - 3


def missing(path: Path, *only: str) -> set[tuple[str, str]]:
    """Method and network of every trial that would be run first."""
    recipe = load_recipe(str(path))
    survey = make_survey(recipe, {}, selection=select(recipe, only))
    return {(trial.method, trial.backbone) for trial in survey.stage.missing}


def test_only_what_a_part_needs_is_searched(tuned: Path) -> None:
    networks = ("sage", "sage-gcn")
    assert missing(tuned, "method=dropedge", "backbone=sage") == {
        ("dropedge", name) for name in networks
    }
    # It takes what was chosen for another method.
    assert missing(tuned, "method=frozen") == {("vanilla", "gcn")}
    # Which of its networks the row will have is not known before.
    assert missing(tuned, "backbone=sage-gcn", "method=vanilla") == {
        ("vanilla", name) for name in networks
    }
    assert missing(tuned, "noise=5", "seed=2", "method=vanilla", "backbone=GCN") == {
        ("vanilla", "gcn")
    }


@pytest.mark.parametrize(
    ("only", "says"),
    [
        ("network=gcn", "method, backbone, dataset, noise, seed"),
        ("method=lds", "vanilla, dropedge, frozen"),
        ("backbone=gat", "gcn, sage, sage-gcn"),
        ("dataset=pubmed", "cora"),
        ("noise=7", "0, 5"),
        ("seed=3", "0, 1, 2"),
        ("method", "KEY=VALUE"),
        ("method=,", "KEY=VALUE"),
    ],
)
def test_what_a_recipe_has_not_is_refused(tuned: Path, only: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        select(load_recipe(str(tuned)), [only])


def test_a_combination_that_nothing_has_is_refused(tuned: Path) -> None:
    with pytest.raises(InvalidInput, match="method=frozen"):
        missing(tuned, "method=frozen", "backbone=sage")


def test_a_search_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = write_recipe(tmp_path / "own/some.toml", more='tuned_by = "none.toml"')
    with pytest.raises(InvalidInput, match=r"own/none\.toml"):
        make_survey(load_recipe(str(path)), {})


def test_failed_trials_are_neither_stored_nor_missing(tmp_path: Path) -> None:
    recipe = load_recipe(str(write_recipe(tmp_path / "some.toml", seeds=2)))
    first, second = (one.trial for one in make_survey(recipe, {}).stage.planned)
    known = {
        first.key: result(error="bad luck"),
        second.key: result(),
        "another": result(7),
    }
    survey = make_survey(recipe, known)
    assert (survey.planned, survey.stored, survey.missing) == (2, 1, 0)
    assert [one.error for one in survey.failed] == ["bad luck"]
