"""What is shown of recipes about attacks, whole or with cells that are missing."""

import json
import random
from pathlib import Path

import pytest
from tests.report.page_store import RECIPES
from tests.report.synthetic import fill, recipe_of

from gsebo.experiments import Planned, Result, Store, Tuning, load_recipe, make_plan
from gsebo.experiments.result import AttackOutcome
from gsebo.report import Evidence, accuracy_sheet, gather_evidence
from gsebo.report.figures.budgets import over_budgets
from gsebo.report.formats import formats
from gsebo.report.names import published_elsewhere, published_figure, published_source
from gsebo.report.page.results import build_page
from gsebo.report.tables.table import Missing, Table, Value

FAMILIES = """
title = "Attacked graphs"
seeds = 2

[[trials]]
methods = ["vanilla", "gcn_jaccard", "amortised"]
backbones = ["gcn"]
datasets = ["cora-meta-0", "cora-meta-25", "citeseer-meta-5"]

[[trials]]
methods = ["amortised"]
backbones = ["gcn"]
datasets = ["cora-meta-0"]
set = { label_use = "fixed" }
label = "fixed"

[[trials]]
methods = ["train_val"]
backbones = ["mlp"]
datasets = ["cora-meta-0"]
"""
LEVELS = """
title = "PRBCD"
seeds = 2

[[trials]]
methods = ["vanilla", "soft_median"]
backbones = ["gcn", "soft-median"]
datasets = ["cora", "citeseer"]
noise = [0, "prbcd:50", "prbcd:10"]
"""
EVASION = """
title = "Evasion"
seeds = 3

[[trials]]
methods = ["vanilla", "amortised"]
backbones = ["gcn"]
datasets = ["cora"]
evasion = "adaptive"
"""


def gathered(folder: Path, text: str, name: str, *, whole: bool = True) -> Evidence:
    recipe, store = recipe_of(folder, text, name), Store(folder / "results")

    def outcome(planned: Planned) -> float:
        gone = not whole and planned.cell.dataset.startswith("citeseer")
        return 2.0 if gone else random.Random(planned.trial.key).random()

    fill(store, recipe, outcome)
    return gather_evidence(recipe, store)


def headings(table: Table) -> list[str]:
    return [group.title for group in table.groups]


def test_each_family_has_a_table(tmp_path: Path) -> None:
    sheet = accuracy_sheet(gathered(tmp_path, FAMILIES, "metattack"))
    assert {table.title: headings(table) for table in sheet.tables} == {
        "Cora, Metattack": ["cora-meta-0", "cora-meta-25"],
        "Citeseer, Metattack": ["citeseer-meta-5"],
    }
    row = sheet.tables[0].rows[0]
    assert row.labels[:2] == ("GCN", "vanilla")
    printed = [one.brackets for one in row.contents if isinstance(one, Value)]
    assert printed == [83.5, 47.5]
    assert "in brackets the mean of table 2 of Pro-GNN's paper" in sheet.notes[0]


def test_elsewhere_nothing_of_attacks_is_printed() -> None:
    assert published_figure("metattack", "gcn", "vanilla", "cora-meta-5") is None
    assert published_figure("metattack", "gcn", "gsebo", "cora-meta-0") is None
    assert published_source("table1") == "the paper"
    assert published_elsewhere("table1") == []


@pytest.mark.parametrize("whole", [True, False])
def test_a_figure_has_a_panel_for_each_graph(tmp_path: Path, whole: bool) -> None:
    families = gathered(tmp_path, FAMILIES, "metattack", whole=whole)
    levels = gathered(tmp_path, LEVELS, "prbcd", whole=whole)
    for evidence, titles in (
        (families, ["Cora, Metattack", "Citeseer, Metattack"]),
        (levels, ["Cora", "Citeseer"]),
    ):
        drawing = over_budgets(evidence)
        assert drawing is not None
        cards = [card.title for group in drawing.groups for card in group.cards]
        assert cards == titles[: 2 if whole else 1]
        assert drawing.absent == titles[len(cards) :]
    labels = [panel.caption for panel in over_budgets(families).legend]  # type: ignore[union-attr]
    assert "amortised, fixed" in labels and "MLP, train + val" in labels
    assert len(set(labels)) == len(labels)
    panel = over_budgets(levels).groups[0].cards[0].panels[0]  # type: ignore[union-attr]
    assert "the share of edges changed by PRBCD" in panel.svg
    assert panel.tags.methods == ("vanilla", "soft_median")


def test_several_networks_have_lines_of_their_own(tmp_path: Path) -> None:
    drawing = over_budgets(gathered(tmp_path, RECIPES["hetero"], "hetero"))
    assert drawing is not None
    assert [panel.caption for panel in drawing.legend[:4]] == [
        f"{row}, {method}"
        for method in ("vanilla", "amortised")
        for row in ("GCN", "R-GCN")
    ]
    (card,) = drawing.groups[0].cards
    assert card.title == "Yelp"
    # What was tried without noise alone would be a point.
    assert "without noise" not in card.panels[0].svg
    assert "R-GCN, amortised" in card.panels[0].svg


def test_nothing_stored_is_nothing_drawn(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, FAMILIES, "metattack")
    evidence = gather_evidence(recipe, Store(tmp_path / "none"))
    assert over_budgets(evidence) is None
    (cora, _) = accuracy_sheet(evidence).tables
    assert all(isinstance(one, Missing) for row in cora.rows for one in row.contents)


def attacked(planned: Planned) -> Result:
    chance = random.Random(planned.trial.key)

    def outcome(nodes: int, flips: int) -> AttackOutcome:
        after = chance.random() / 2
        return {
            "nodes": nodes,
            "before": 0.5 + after,
            "after": after,
            "flips": flips,
            "seconds": 1.0,
        }

    found = {"global": outcome(1000, 528), "local": outcome(40, 200)}
    if planned.trial.method == "vanilla":
        found["global_pyg"] = outcome(1000, 528)
    return Result(trial=planned.trial, test_accuracy=0.8, evasion=found, seconds=1.0)


@pytest.fixture
def evasion(tmp_path: Path) -> Evidence:
    """All seeds of vanilla, one of amortised."""
    recipe, store = recipe_of(tmp_path, EVASION, "adaptive"), Store(tmp_path / "found")
    planned = make_plan(recipe, Tuning({})).trials
    wanted = [p for p in planned if p.trial.method == "vanilla" or p.trial.seed == 0]
    store.append("adaptive", [attacked(one) for one in wanted])
    return gather_evidence(recipe, store)


def test_accuracy_before_and_after(evasion: Evidence) -> None:
    first, strength, *published = accuracy_sheet(evasion).tables
    assert [row.labels[1] for row in first.rows] == ["vanilla", "amortised"]
    values = [one for one in first.rows[1].contents if isinstance(one, Value)]
    assert len(values) == 6 and values[2].mean == 528 and values[5].mean == 5
    assert values[0] == Value(80.0, 0.0, seeds=1)
    assert [row.labels[1] for row in strength.rows] == ["vanilla"]
    assert headings(strength) == ["no attack", "ours", "PyG's"]
    assert len(published) == 2


@pytest.mark.parametrize("name", ["table", "markdown", "latex", "csv", "json"])
def test_all_formats(evasion: Evidence, name: str) -> None:
    text = formats(200)[name](accuracy_sheet(evasion))
    assert "global" in text if name in ("csv", "json") else "PyG's" in text
    if name == "json":
        assert len(json.loads(text)["cells"]) == 4


def test_missing_cells_are_shown(tmp_path: Path) -> None:
    recipe = load_recipe("adaptive")
    evidence = gather_evidence(recipe, Store(tmp_path / "none"))
    first, *published = accuracy_sheet(evidence).tables
    assert len(first.rows) == len(make_plan(recipe, Tuning({})).cells())
    assert len(published) == 2
    assert all(isinstance(one, Missing) for row in first.rows for one in row.contents)


def test_the_page_has_all_of_it(tmp_path: Path, evasion: Evidence) -> None:
    store = Store(tmp_path / "found")
    recipes = [evasion.recipe]
    for name, text in {"metattack": FAMILIES, "prbcd": LEVELS}.items():
        recipes.append(recipe_of(tmp_path, text, name))
        fill(store, recipes[-1], lambda planned: 0.5 + planned.trial.seed / 10)
    page = build_page(store, recipes)
    for words in ("Cora, Metattack", "edges changed by PRBCD", "RUNG 2024"):
        assert words in page.html
