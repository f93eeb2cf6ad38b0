"""What an automatic fit chose: stored with its trial, and counted in tables."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gsebo import Auto, load_data
from gsebo.cli.main import app
from gsebo.errors import InvalidInput
from gsebo.experiments import Result, Store, Trial, execute, load_recipe
from gsebo.report import accuracy_sheet, gather_evidence

from .small import write_recipe

SHORT = {"max_epochs": 30, "methods": "vanilla,mlp", "hidden_channels": 8}


def automatic(seed: int) -> Trial:
    return Trial(
        method="auto",
        backbone="gcn",
        dataset="cora",
        split="file",
        seed=seed,
        parameters=SHORT,
    )


@pytest.fixture(scope="module")
def stored() -> Result:
    (result,) = execute([automatic(0)])
    assert result.ok, result.error
    return result


def test_the_choice_is_that_of_the_estimator(stored: Result) -> None:
    model = Auto("gcn", **SHORT, random_state=0, device="cpu").fit(load_data("cora"))
    (chosen,) = (one for one in model.choice_ if one["chosen"])
    assert stored.choice == {
        "method": model.chosen_,
        "backbone": model.chosen_parameters_["backbone"],
        "width": 8,
        "preparation": model.preparation_,
        "epochs": model.epochs_,
        "shift": model.shift_,
        "reason": chosen["reason"],
    }


def test_it_is_read_again_and_others_have_none(stored: Result) -> None:
    assert Result.from_line(stored.line()).choice == stored.choice
    plain = Trial("vanilla", "gcn", "cora", "file", 0, parameters={"max_epochs": 2})
    (result,) = execute([plain])
    assert result.ok and result.choice is None and "choice" not in result.line()


def test_lines_from_before_are_read(stored: Result) -> None:
    content = json.loads(stored.line())
    del content["choice"]
    assert Result.from_line(json.dumps(content)).choice is None


@pytest.mark.parametrize(
    ("name", "value"),
    [("method", ""), ("width", 0), ("shift", -1.0), ("epochs", "many"), ("reason", 3)],
)
def test_a_wrong_choice_is_refused(stored: Result, name: str, value: object) -> None:
    content = json.loads(stored.line())
    content["choice"][name] = value
    with pytest.raises(InvalidInput, match=name):
        Result.from_line(json.dumps(content))


def test_tables_say_how_often_what_was_chosen(stored: Result, tmp_path: Path) -> None:
    more = 'vary = { methods = ["vanilla,mlp"] }'
    path = write_recipe(tmp_path / "own.toml", methods='["auto"]', seeds=3, more=more)
    recipe, store = load_recipe(str(path)), Store(tmp_path / "results")
    plan = gather_evidence(recipe, store).plan
    assert stored.choice is not None
    results = []
    for planned, method in zip(plan.trials, ("vanilla", "mlp", "mlp"), strict=True):
        choice = {**stored.choice, "method": method, "shift": 0.25}
        result = Result(trial=planned.trial, test_accuracy=0.5, choice=choice)
        results.append(result)
    # Of the last it is not known what it chose.
    results[-1] = Result(trial=results[-1].trial, test_accuracy=0.5)
    store.append("own", results)
    sheet = accuracy_sheet(gather_evidence(recipe, store))
    (table,) = (one for one in sheet.tables if one.title.startswith("What was chosen"))
    (row,) = table.rows
    found = dict(
        zip([group.title for group in table.groups], row.contents, strict=True)
    )
    assert found["of"] == "2" and found["method"] == "MLP (1), vanilla (1)"
    assert found["width"] == "8 (2)"
    words = ["show", str(path), "--results", str(store.folder)]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0 and "MLP (1), vanilla (1)" in shown.output
