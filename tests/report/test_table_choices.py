import json
from pathlib import Path

import pytest

from gsebo.errors import InvalidInput
from gsebo.experiments import Planned, Store
from gsebo.report import Evidence, accuracy_sheet, choices_sheet, gaps, gather_evidence
from gsebo.report.tables.table import Missing

from .synthetic import COMPARED, SEARCH, TUNED, fill, recipe_of

SCORES = {("gcn", 5): 0.7, ("gcn", 10): 0.6, ("gcn", 20): 0.8}
SCORES |= {("sage", 5): 0.5, ("sage", 10): 0.5, ("sage", 20): 0.5}
SCORES |= {("sage-gcn", 5): 0.9, ("sage-gcn", 10): 0.3, ("sage-gcn", 20): 0.6}


def score(planned: Planned) -> float:
    trial = planned.trial
    # Ten are the default, which a trial does not name.
    return SCORES[trial.backbone, trial.parameters.get("inner_steps", 10)]


def tuned(folder: Path, *, searched: bool) -> Evidence:
    search = recipe_of(folder, SEARCH, "search")
    path = folder / "search.toml"
    recipe = recipe_of(folder, TUNED.format(search=path), "tuned")
    store = Store(folder / "results")
    if searched:
        fill(store, search, score)
        fill(store, recipe, lambda planned: 0.5)
    return gather_evidence(recipe, store)


def test_the_best_is_taken_and_the_next_beside_it(tmp_path: Path) -> None:
    sheet = choices_sheet(tuned(tmp_path, searched=True))
    rows = {row.labels: row.contents for row in sheet.tables[0].rows}
    gcn = rows["GCN", "GSEBO", "Cora"]
    assert (gcn[0], gcn[2]) == ("inner_steps = 20", "inner_steps = 5")
    sage = rows["GraphSAGE", "GSEBO", "Cora"]
    assert sage[0] == "backbone = sage-gcn, inner_steps = 5"
    assert sage[2] == "backbone = sage-gcn, inner_steps = 20"
    # Of the same score the first counts; on GCN vanilla has nothing to choose.
    assert rows["GraphSAGE", "vanilla", "Cora"][0] == "backbone = sage"
    assert ("GCN", "vanilla", "Cora") not in rows
    (record,) = (
        r for r in sheet.records if (r["row"], r["method"]) == ("gcn", "gsebo")
    )
    assert record["taken_accuracy"] == pytest.approx(80.0)
    assert record["runner_up_accuracy"] == pytest.approx(70.0)
    assert json.loads(str(record["taken_parameters"])) == {"inner_steps": 20}
    assert record["candidates"] == 3 and record["taken_seeds"] == 2


def test_the_table_is_of_what_was_taken(tmp_path: Path) -> None:
    sheet = accuracy_sheet(tuned(tmp_path, searched=True))
    networks = {(r["method"], r["row"]): r["network"] for r in sheet.records}
    assert networks["gsebo", "sage"] == "sage-gcn"
    assert networks["vanilla", "sage"] == "sage"


def test_before_the_search_all_rows_are_there_and_empty(tmp_path: Path) -> None:
    before, after = (
        tuned(tmp_path / name, searched=searched)
        for name, searched in (("before", False), ("after", True))
    )
    for make in (accuracy_sheet, choices_sheet):
        (empty,), (full,) = make(before).tables, make(after).tables
        assert [row.labels for row in empty.rows] == [row.labels for row in full.rows]
        contents = {one for row in empty.rows for one in row.contents}
        assert contents == {Missing()}
    (sentence,) = gaps(before, "tuned.toml")
    assert "of a search that decides what else is run" in sentence
    assert gaps(after) == []


def test_without_a_search_there_is_nothing_to_show(tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, COMPARED)
    with pytest.raises(InvalidInput, match=r"'own'.*leaves none to a search"):
        choices_sheet(gather_evidence(recipe, Store(tmp_path / "results")))
