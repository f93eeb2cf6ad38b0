"""The table of strengths says what is stored, and only where it is asked for."""

from pathlib import Path

import pytest

from gsebo.experiments import Result, Store, Tuning, make_plan
from gsebo.report import accuracy_sheet, gather_evidence
from gsebo.report.tables.sheets import strength_tables
from gsebo.report.tables.table import Missing, Value

from .synthetic import NOISY, recipe_of

SHOWN = NOISY.replace('title = "False edges"', 'title = "x"\nshows_edges = true')


def group(mean: float) -> dict[str, object]:
    return {"count": 4, "mean": mean, "zero": 1, "histogram": [4, *[0] * 20]}


def filled(folder: Path, text: str) -> Store:
    store, recipe = Store(folder / "results"), recipe_of(folder, text)
    results = []
    for one in make_plan(recipe, Tuning({})).trials:
        edges = None
        if one.trial.method == "gsebo" and one.trial.backbone == "gcn":
            layer = {"within": group(1.0 + one.trial.seed), "between": group(0.5)}
            if one.trial.noise:
                layer["false"] = group(0.25)
            edges = [layer, layer]
        results.append(Result(trial=one.trial, test_accuracy=0.5, edges=edges))
    store.append(recipe.name, results)
    return store


def test_means_over_seeds(tmp_path: Path) -> None:
    store = filled(tmp_path, SHOWN)
    clean, cora, citeseer = strength_tables(
        gather_evidence(recipe_of(tmp_path, SHOWN), store)
    )
    assert [group.title for group in clean.groups] == ["Cora", "Citeseer"]
    (row,) = clean.rows
    within, between, *_ = row.contents
    assert isinstance(within, Value) and isinstance(between, Value)
    # Seeds 0 to 5: the mean of 1 to 6.
    assert within.mean == pytest.approx(350)
    assert (between.mean, between.std) == (50, 0)
    assert "Cora" in cora.title and "Citeseer" in citeseer.title
    assert [group.title for group in cora.groups] == ["1000", "20000"]
    assert [value.mean for value in cora.rows[0].contents[2::3]] == [25, 25]


def test_only_where_the_recipe_is_about_edges(tmp_path: Path) -> None:
    titles = []
    for number, text in enumerate((NOISY, SHOWN)):
        folder = tmp_path / str(number)
        sheet = accuracy_sheet(
            gather_evidence(recipe_of(folder, text), filled(folder, text))
        )
        titles.append([t.title for t in sheet.tables if "Strength" in t.title])
    assert titles[0] == [] and len(titles[1]) == 3


def test_what_is_missing_is_a_gap(tmp_path: Path) -> None:
    text = SHOWN.replace('["cora", "citeseer"]', '["cora"]')
    store = filled(tmp_path, text)
    clean, _ = strength_tables(gather_evidence(recipe_of(tmp_path, text), store))
    assert not any(isinstance(one, Missing) for one in clean.rows[0].contents)
    assert (
        strength_tables(gather_evidence(recipe_of(tmp_path, text), Store(tmp_path)))
        == []
    )
