"""Trials store every metric, recipes are shown and searched by one, old lines last."""

import json
from pathlib import Path

import pytest

from gsebo import generate_graph
from gsebo.data import save_npz
from gsebo.errors import InvalidInput
from gsebo.experiments import Result, Store, Trial, Tuning, load_recipe, make_plan
from gsebo.experiments.fit import execute, fit_trials
from gsebo.metrics import METRICS, metric_value
from gsebo.report import accuracy_sheet, choices_sheet, gaps, gather_evidence
from gsebo.report.formats import as_markdown
from gsebo.report.tables.table import Missing, Value

from .small import result

STORED = Path(__file__).parents[2] / "results"
SHORT = {"hidden_channels": 4, "max_epochs": 10}


# --- what is stored ------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3])
def test_a_trial_stores_every_metric_that_fits(tmp_path: Path, classes: int) -> None:
    path = tmp_path / "graph.npz"
    save_npz(generate_graph(60, num_classes=classes, num_features=4), path)
    short = Trial(
        method="vanilla",
        backbone="gcn",
        dataset=str(path),
        split="file",
        seed=0,
        parameters=SHORT,
    )
    (found,) = execute([short])
    assert found.error is None
    expected = [one for one in METRICS if classes == 2 or one != "roc_auc"]
    assert list(found.test or {}) == list(found.val or {}) == expected
    assert found.score("accuracy") == found.test_accuracy
    (fitted,) = fit_trials([short], device="cpu")
    mask = fitted.data.test_mask
    labels = fitted.data.y[mask].numpy()
    probability = fitted.model.probability_[mask].numpy()
    for name in expected:
        value = metric_value(name, labels, probability)
        assert found.score(name) == pytest.approx(value, abs=1e-5)
    line = json.loads(found.line())
    assert line["schema"] == 3 and line["test"] == found.test
    assert Result.from_line(found.line()) == found


@pytest.mark.parametrize("path", sorted(STORED.glob("*.jsonl")), ids=lambda p: p.stem)
def test_old_lines_are_still_read_and_written_as_they_are(path: Path) -> None:
    with path.open(encoding="utf-8") as lines:
        first = next(lines).rstrip("\n")
    read = Result.from_line(first)
    assert read.key == json.loads(first)["id"]
    assert json.loads(read.line()) == json.loads(first)
    if "test" not in json.loads(first):
        assert read.score("accuracy") == read.test_accuracy
        assert read.score("f1_macro") is None


@pytest.mark.parametrize(
    ("test", "says"),
    [
        ({"accuracy": 0.4}, "beside another accuracy"),
        ({"f1_macro": 0.4}, "beside another accuracy"),
        ({"accuracy": 0.5, "beauty": 1.0}, "beauty"),
        ({"accuracy": "high"}, "float"),
        ([0.5], "object"),
    ],
)
def test_lines_whose_metrics_make_no_sense(test: object, says: str) -> None:
    line = json.loads(result(0).line()) | {"test": test}
    with pytest.raises(InvalidInput, match=says):
        Result.from_line(json.dumps(line))


# --- recipes -------------------------------------------------------------------------

TWO = """
title = "Two graphs"
seeds = 2
{head}
[[trials]]
methods = ["vanilla", "gsebo"]
backbones = ["gcn"]
datasets = ["cora", "minesweeper"]
"""
SEARCH = """
title = "A search"
seeds = 2
[[trials]]
methods = ["gsebo"]
backbones = ["gcn"]
datasets = ["cora", "minesweeper"]
split = "halves"
vary = { inner_steps = [5, 20] }
"""
TUNED = """
title = "What a search chose"
seeds = 1
metrics = { minesweeper = "roc_auc" }
[[trials]]
methods = ["gsebo"]
backbones = ["gcn"]
datasets = ["cora", "minesweeper"]
tuned_by = "search.toml"
"""


def written(folder: Path, text: str, name: str = "own") -> str:
    path = folder / f"{name}.toml"
    path.write_text(text, "utf-8")
    return str(path)


def measured(one: Trial, **scores: float) -> Result:
    """Of accuracy 0.5, whatever else is said of it."""
    return Result(
        trial=one, test_accuracy=0.5, test={"accuracy": 0.5, **scores}, seconds=1.0
    )


def planned(recipe: str) -> list[Trial]:
    return [one.trial for one in make_plan(load_recipe(recipe), Tuning({})).trials]


def test_a_recipe_may_name_a_metric_for_all_and_for_some(tmp_path: Path) -> None:
    head = 'metric = "f1_macro"\nmetrics = { minesweeper = "roc_auc" }'
    recipe = load_recipe(written(tmp_path, TWO.format(head=head)))
    assert recipe.metric_of("cora") == "f1_macro"
    assert recipe.metric_of("minesweeper") == "roc_auc"
    plain = load_recipe(written(tmp_path, TWO.format(head="")))
    assert plain.metric_of("minesweeper") == "accuracy"
    # What is run does not depend on what is shown.
    keys = [
        [one.trial.key for one in make_plan(each, Tuning({})).trials]
        for each in (recipe, plain)
    ]
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ('metric = "beauty"', "beauty"),
        ('metric = "roc_auc"', "cora, a graph of 7 classes"),
        ('metrics = { minesweper = "roc_auc" }', "did you mean 'minesweeper'"),
        ("metrics = { minesweeper = 3 }", "Expected `str`, got `int`"),
    ],
)
def test_a_metric_that_a_recipe_cannot_have(
    tmp_path: Path, head: str, says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        load_recipe(written(tmp_path, TWO.format(head=head)))


def test_what_ranks_or_attacks_has_no_metric() -> None:
    for name in ("suspects", "adaptive"):
        with pytest.raises(InvalidInput, match="rank or attack"):
            load_recipe(name, metric="f1_macro")


def test_a_table_shows_the_metric_and_names_it(tmp_path: Path) -> None:
    recipe = written(tmp_path, TWO.format(head='metrics = { minesweeper = "roc_auc" }'))
    store = Store(tmp_path / "results")
    store.append("own", [measured(one, roc_auc=0.9) for one in planned(recipe)])
    sheet = accuracy_sheet(gather_evidence(load_recipe(recipe), store))
    means = {(one["dataset"], one["metric"]): one["mean"] for one in sheet.records}
    assert means == {("cora", "accuracy"): 50.0, ("minesweeper", "roc_auc"): 90.0}
    caption = "Test accuracy in percent, of Minesweeper ROC-AUC in percent"
    assert sheet.tables[0].title == caption
    text = as_markdown(sheet)
    assert f"{caption}: mean ± standard deviation" in text
    assert "without" not in text
    plain = load_recipe(recipe, metric="accuracy")
    assert accuracy_sheet(gather_evidence(plain, store)).tables[0].title == ""
    by_all = load_recipe(recipe, metric="neg_log_loss")
    assert by_all.metric_of("minesweeper") == "neg_log_loss"


def test_a_table_of_trials_without_the_metric_says_so(tmp_path: Path) -> None:
    recipe = written(tmp_path, TWO.format(head='metric = "f1_macro"'))
    store = Store(tmp_path / "results")
    # Only one of the two seeds of one cell has it.
    first, *others = planned(recipe)
    store.append("own", [measured(first, f1_macro=0.8), *map(measured, others)])
    sheet = accuracy_sheet(gather_evidence(load_recipe(recipe), store))
    (table,) = sheet.tables
    assert [group.title for group in table.groups] == ["Cora", "Minesweeper"]
    contents = [one for row in table.rows for one in row.contents]
    (known,) = (one for one in contents if isinstance(one, Value))
    assert (known.mean, known.seeds) == (80.0, 1)
    assert sum(isinstance(one, Missing) for one in contents) == 3
    text = as_markdown(sheet)
    assert "Test macro F1 in percent" in text
    lacking = "without macro F1 were 3 trials of Cora, 4 trials of Minesweeper."
    assert lacking in text


# --- searches ------------------------------------------------------------------------


def test_a_search_chooses_by_the_metric_of_who_asks(tmp_path: Path) -> None:
    written(tmp_path, SEARCH, "search")
    recipe = load_recipe(written(tmp_path, TUNED, "tuned"))
    first = make_plan(recipe, Tuning({})).first

    def score(one: Trial) -> Result:
        long = one.parameters.get("inner_steps") == 20
        accuracy, area = (0.9, 0.6) if long else (0.8, 0.7)
        scores = {"accuracy": accuracy}
        if one.dataset == "minesweeper":
            scores["roc_auc"] = area
        return Result(trial=one, test_accuracy=accuracy, test=scores, seconds=1.0)

    known = {one.trial.key: score(one.trial) for one in first}
    plan = make_plan(recipe, Tuning(known))
    taken = {
        cell.dataset: choice.taken.parameters for cell, choice in plan.choices.items()
    }
    assert taken == {"cora": {"inner_steps": 20}, "minesweeper": {"inner_steps": 5}}
    store = Store(tmp_path / "results")
    store.append("search", list(known.values()))
    sheet = choices_sheet(gather_evidence(recipe, store))
    assert sheet.tables[0].groups[0].columns == ("parameters", "score")
    assert {one["taken_score"] for one in sheet.records} == {90.0, 70.0}


def test_a_search_without_the_metric_cannot_choose(tmp_path: Path) -> None:
    written(tmp_path, SEARCH, "search")
    recipe = load_recipe(written(tmp_path, TUNED, "tuned"))
    first = make_plan(recipe, Tuning({})).first
    store = Store(tmp_path / "results")
    # One of all has it: no reason to take that one.
    results = [Result(trial=one.trial, test_accuracy=0.5) for one in first[:-1]]
    store.append("search", [*results, measured(first[-1].trial, roc_auc=0.5)])
    evidence = gather_evidence(recipe, store)
    assert [cell.dataset for cell in evidence.plan.choices] == ["cora"]
    (said,) = (one for one in gaps(evidence, "own") if "Nothing" in one)
    assert "3 trials of the search" in said and "stored without roc_auc" in said
