"""Recipes that show methods by their labels, and say why cells are not there."""

from itertools import product
from pathlib import Path

import pytest

from gsebo import InvalidInput
from gsebo.experiments import Store, load_recipe
from gsebo.report import accuracy_sheet, gather_evidence
from gsebo.report.formats import as_markdown
from gsebo.report.names import published_figure, published_source
from gsebo.report.tables.table import Missing

RECIPE = """
title = "Two kinds of labels"
by_labels = true

[[absent]]
methods = ["GRCN"]
datasets = ["texas"]
reason = "It was too long."

[[trials]]
methods = ["vanilla", "grcn", "train_val"]
backbones = ["gcn"]
datasets = ["cora"]

[[trials]]
methods = ["vanilla"]
backbones = ["gcn"]
datasets = ["texas"]
"""


def written(folder: Path, text: str = RECIPE) -> str:
    path = folder / "mine.toml"
    path.write_text(text, "utf-8")
    return str(path)


def test_methods_stand_by_their_labels(tmp_path: Path) -> None:
    recipe = load_recipe(written(tmp_path))
    sheet = accuracy_sheet(gather_evidence(recipe, Store(tmp_path / "results")))
    methods = [[row.labels[1] for row in table.rows] for table in sheet.tables]
    assert methods == [["vanilla", "GRCN"], ["train + val"]]
    for table in sheet.tables:
        assert [group.title for group in table.groups] == ["Cora", "Texas"]


def test_a_letter_leads_to_the_reason(tmp_path: Path) -> None:
    recipe = load_recipe(written(tmp_path))
    sheet = accuracy_sheet(gather_evidence(recipe, Store(tmp_path / "results")))
    vanilla, grcn = sheet.tables[0].rows
    assert vanilla.contents == (Missing(), Missing())
    assert grcn.contents == (Missing(), Missing(reason="a"))
    assert "a: It was too long." in sheet.notes
    assert "| GCN | GRCN | - | a |" in as_markdown(sheet)


@pytest.mark.parametrize("wrong", ["nobody", "vanila"])
def test_an_unknown_method_is_not_absent(tmp_path: Path, wrong: str) -> None:
    path = written(tmp_path, RECIPE.replace('"GRCN"', f'"{wrong}"'))
    with pytest.raises(InvalidInput, match=wrong):
        load_recipe(path)


def test_figures_of_others_are_of_the_metric_that_is_shown() -> None:
    place = ("field", "gcn", "gen", "minesweeper")
    assert published_figure(*place, "roc_auc") == (79.56, None)
    assert published_figure(*place) is None
    assert published_figure("field", "gcn", "gen", "cora") == (81.66, None)
    assert published_figure("table1", "gcn", "vanilla", "cora", "f1_macro") is None
    assert published_source("field").startswith("OpenGSL")


def test_every_absent_cell_of_the_field_is_absent() -> None:
    recipe = load_recipe("field")
    planned = {
        (method, dataset)
        for block in recipe.blocks
        for method in block.methods
        for dataset in block.datasets
    }
    datasets, methods = set(recipe.datasets), {method for method, _ in planned}
    said = {(m, d) for one in recipe.absent for m in one.methods for d in one.datasets}
    every = {(method, dataset) for method in methods for dataset in datasets}
    assert every - planned <= said
    # Nor is there a reason for what every row of a method has.
    rows: dict[tuple[str, ...], set[str]] = {}
    for block in recipe.blocks:
        for method, backbone in product(block.methods, block.backbones):
            row = (method, backbone, block.label, *block.vary)
            rows.setdefault(row, set()).update(block.datasets)
    for method, dataset in said:
        assert any(
            dataset not in there for row, there in rows.items() if row[0] == method
        ), (method, dataset)
