"""Curves at a few steps: what is stored, over seeds, and gaps where curves ended."""

from pathlib import Path

import pytest

from gsebo.experiments import Result, Store, Tuning, make_plan
from gsebo.report import accuracy_sheet, gather_evidence
from gsebo.report.tables.sheets import curve_table
from gsebo.report.tables.table import Missing, Value

from .synthetic import recipe_of

TEXT = """
title = "Curves"
seeds = 2
[[trials]]
methods = ["vanilla", "gsebo"]
backbones = ["gcn"]
datasets = ["cora"]
curves = true
"""


def curve(length: int, level: float) -> dict[str, list[float]]:
    names = ("train_loss", "train_accuracy", "val_loss", "val_accuracy")
    columns = {name: [level + k for k in range(length)] for name in names}
    columns["test_accuracy"] = [level * k for k in range(length)]
    return {"inner_steps": [10 * (k + 1) for k in range(length)], **columns}


def test_figures_at_a_few_steps(tmp_path: Path) -> None:
    store, recipe = Store(tmp_path / "results"), recipe_of(tmp_path, TEXT)
    store.append(
        recipe.name,
        [
            Result(
                trial=one.trial,
                test_accuracy=0.5,
                # The curves of vanilla end early.
                curves=curve(
                    100 if one.trial.method == "gsebo" else 20, 1.0 + one.trial.seed
                ),
            )
            for one in make_plan(recipe, Tuning({})).trials
        ],
    )
    evidence = gather_evidence(recipe, store)
    table = curve_table(evidence)
    assert table is not None and table in accuracy_sheet(evidence).tables
    assert [group.title for group in table.groups] == ["30", "100", "300", "1000"]
    vanilla, gsebo = table.rows
    # After 30 steps: the third record, seeds at 1 + 2 and 2 + 2.
    assert gsebo.contents[0] == Value(350.0, pytest.approx(70.71, abs=0.01))
    # The last test accuracy: 99 times 1 and 2.
    assert gsebo.contents[-1].mean == pytest.approx(14850)
    assert all(isinstance(one, Missing) for one in vanilla.contents[8:])
    assert not any(isinstance(one, Missing) for one in vanilla.contents[:8])


def test_steps_of_a_short_training_may_be_the_same(tmp_path: Path) -> None:
    store, recipe = Store(tmp_path / "results"), recipe_of(tmp_path, TEXT)
    short = {name: values[:1] for name, values in curve(1, 1.0).items()}
    short["inner_steps"] = [5]
    trials = [one.trial for one in make_plan(recipe, Tuning({})).trials]
    store.append(
        recipe.name,
        [Result(trial=one, test_accuracy=0.5, curves=short) for one in trials],
    )
    table = curve_table(gather_evidence(recipe, store))
    assert table is not None
    assert [group.title for group in table.groups] == ["0", "0", "2", "5"]
    assert {len(row.contents) for row in table.rows} == {16}


def test_nothing_without_curves(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, TEXT)
    assert curve_table(gather_evidence(recipe, Store(tmp_path / "results"))) is None
