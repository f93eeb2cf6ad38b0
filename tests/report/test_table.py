"""The layout, and that each number is the one that the stored lines give."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from gsebo.errors import InvalidInput
from gsebo.experiments import Planned, Store
from gsebo.report import Evidence, accuracy_sheet, gaps, gather_evidence
from gsebo.report.names import (
    backbone_title,
    method_title,
    published_figure,
    published_gain,
)
from gsebo.report.tables.table import ColumnGroup, Missing, Row, Sheet, Table, Value

from .synthetic import (
    COMPARED,
    NOISY,
    OTHER_NOISE,
    SEARCH,
    RunOutcome,
    accuracy_of,
    fill,
    recipe_of,
)


def evidence_of(
    folder: Path, text: str, outcome: RunOutcome = accuracy_of, name: str = "own"
) -> Evidence:
    recipe, store = recipe_of(folder, text, name), Store(folder / "results")
    fill(store, recipe, outcome)
    return gather_evidence(recipe, store)


def stored_lines(folder: Path) -> list[dict[str, Any]]:
    (path,) = (folder / "results").glob("*.jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def content_at(table: Table, network: str, method: str, group: str, column: str) -> Any:
    headings = [(g.title, c) for g in table.groups for c in g.columns]
    for row in table.rows:
        if row.labels[:2] == (backbone_title(network), method_title(method)):
            return row.contents[headings.index((group, column))]
    raise AssertionError(f"no row of {network} and {method}")


def record_of(sheet: Sheet, **wanted: object) -> dict[str, Any]:
    (found,) = (r for r in sheet.records if wanted.items() <= r.items())
    return dict(found)


@pytest.mark.parametrize("text", [COMPARED, NOISY, OTHER_NOISE])
def test_records_are_what_the_lines_say(tmp_path: Path, text: str) -> None:
    sheet = accuracy_sheet(evidence_of(tmp_path, text))
    by_place: dict[tuple[object, ...], list[dict[str, Any]]] = defaultdict(list)
    for line in stored_lines(tmp_path):
        trial = line["trial"]
        names = ("method", "backbone", "dataset", "noise")
        by_place[tuple(trial[name] for name in names)].append(line)
    assert len(by_place) == len(sheet.records)
    for record in sheet.records:
        assert record["network"] == record["row"]
        names = ("method", "row", "dataset", "noise")
        lines = by_place[tuple(record[name] for name in names)]
        accuracies = [100 * line["test_accuracy"] for line in lines]
        assert record["seeds"] == len(lines)
        assert record["mean"] == pytest.approx(mean(accuracies))
        assert record["std"] == pytest.approx(stdev(accuracies))
        assert record["val_accuracy"] == pytest.approx(mean(accuracies) / 2)
        assert record["seconds"] == mean(line["seconds"] for line in lines)
        peaks = [line["peak_memory_bytes"] for line in lines]
        assert record["peak_memory_bytes"] == max(peaks)


def test_the_paper_stands_beside_ours(tmp_path: Path) -> None:
    sheet = accuracy_sheet(evidence_of(tmp_path, COMPARED, name="table1"))
    (table,) = sheet.tables
    assert [group.title for group in table.groups] == ["Cora", "Air-USA"]
    for record in sheet.records:
        printed = published_figure(
            "table1", record["row"], record["method"], record["dataset"]
        )
        assert printed == (record["paper_mean"], record["paper_std"])
        assert record["difference"] == record["mean"] - printed[0]
    cora = record_of(sheet, method="gsebo", row="jk", dataset="cora")
    cells = [
        content_at(table, "jk", "gsebo", "Cora", c) for c in table.groups[0].columns
    ]
    assert [cell.mean for cell in cells] == [
        cora["paper_mean"],
        cora["mean"],
        cora["difference"],
    ]


def test_brackets_say_the_same_in_one_column(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, COMPARED, name="table1")
    beside, brackets = (accuracy_sheet(evidence, brackets=b) for b in (False, True))
    assert beside.records == brackets.records
    for row, wide in zip(brackets.tables[0].rows, beside.tables[0].rows, strict=True):
        assert row.labels == wide.labels
        for place, content in enumerate(row.contents):
            paper, ours, _ = wide.contents[3 * place : 3 * place + 3]
            assert isinstance(content, Value) and isinstance(paper, Value)
            assert content.brackets == paper.mean
            assert isinstance(ours, Value) and content.mean == ours.mean


def test_means_that_look_alike_are_best_together(tmp_path: Path) -> None:
    def close(planned: Planned) -> float:
        small = {"gsebo": 0.80004, "dropedge": 0.80001, "vanilla": 0.798}
        return small[planned.trial.method]

    (table,) = accuracy_sheet(evidence_of(tmp_path, COMPARED, close)).tables
    best = [(row.labels[1], one.best) for row in table.rows for one in row.contents]
    assert set(best) == {("GSEBO", True), ("DropEdge", True), ("vanilla", False)}


def some_lost(planned: Planned) -> float | None:
    trial = planned.trial
    if trial.method == "dropedge":
        return 2.0
    if trial.method == "gsebo" and trial.seed in (1, 3):
        return None
    return accuracy_of(planned)


def test_what_is_missing_or_failed_is_told(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, COMPARED, some_lost)
    sheet = accuracy_sheet(evidence)
    for network in ("gcn", "jk"):
        for group in ("Cora", "Air-USA"):
            cell = content_at(sheet.tables[0], network, "gsebo", group, "")
            assert cell.seeds == 3
            assert (
                content_at(sheet.tables[0], network, "vanilla", group, "").seeds is None
            )
            lost = content_at(sheet.tables[0], network, "dropedge", group, "")
            assert lost == Missing()
    assert sheet.facts["missing"] == 20 and sheet.facts["failed"] == 8
    missing, failed = gaps(evidence, "own.toml")
    assert missing.startswith("20 of 60 trials are not stored: `gsebo run own.toml`")
    assert failed.startswith("8 trials failed, the first is gsebo, gcn, cora, seed 1")
    assert "ValueError: no luck" in failed
    assert gaps(evidence) == ["20 of 60 trials are not stored.", "8 trials failed."]


def test_nothing_is_told_where_nothing_lacks(tmp_path: Path) -> None:
    assert gaps(evidence_of(tmp_path, COMPARED), "own") == []


def test_a_trial_of_two_cells_is_missing_once(tmp_path: Path) -> None:
    text = """
    title = "One parameter at a time"
    seeds = 1
    [[trials]]
    methods = ["gsebo"]
    backbones = ["gcn"]
    datasets = ["cora"]
    vary = { inner_steps = [10, 20] }
    [[trials]]
    methods = ["gsebo"]
    backbones = ["gcn"]
    datasets = ["cora"]
    vary = { per_layer = [false, true] }
    """
    evidence = evidence_of(tmp_path, text, lambda _: 2.0)
    # The defaults are in both blocks.
    assert gaps(evidence) == ["3 of 3 trials are not stored."]
    (table,) = accuracy_sheet(evidence).tables
    assert [row.labels[2] for row in table.rows] == [
        "inner_steps = 10",
        "inner_steps = 20",
        "per_layer = false",
        "per_layer = true",
    ]


def test_levels_of_noise_are_columns_of_a_table_for_each_dataset(
    tmp_path: Path,
) -> None:
    sheet = accuracy_sheet(evidence_of(tmp_path, NOISY))
    cora, gains, citeseer, _ = sheet.tables
    assert cora.title.startswith("Cora") and citeseer.title.startswith("Citeseer")
    assert [group.title for group in cora.groups] == ["0", "1000", "20000"]
    worst = record_of(sheet, method="gsebo", row="sage", dataset="cora", noise=20000)
    plain = record_of(sheet, method="vanilla", row="sage", dataset="cora", noise=20000)
    relative = 100 * (worst["mean"] - plain["mean"]) / plain["mean"]
    assert worst["gain_percent"] == pytest.approx(relative)
    paper, ours, difference = gains.rows[1].contents[2:]
    assert isinstance(ours, Value) and ours.mean == pytest.approx(relative)
    assert isinstance(paper, Value) and paper.mean == published_gain("sage")
    assert isinstance(difference, Value)
    assert difference.mean == pytest.approx(ours.mean - paper.mean)


def test_a_search_is_no_test(tmp_path: Path) -> None:
    sheet = accuracy_sheet(evidence_of(tmp_path, SEARCH))
    assert sheet.notes[0].startswith("Accuracy on the half of the validation nodes")
    assert all(record["p"] is None for record in sheet.records)
    assert all(record["verdict"] is None for record in sheet.records)
    networks = {record["network"] for record in sheet.records}
    assert networks == {"gcn", "sage", "sage-gcn"}


def test_a_recipe_without_cells_is_refused(tmp_path: Path) -> None:
    text = COMPARED.replace('["vanilla", "gsebo", "dropedge"]', '["magna"]')
    with pytest.raises(InvalidInput, match="no cells"):
        accuracy_sheet(evidence_of(tmp_path, text))


def test_rows_have_a_content_for_each_column() -> None:
    with pytest.raises(ValueError, match="expected"):
        Table("", ("a",), (ColumnGroup("b", ("c", "d")),), (Row(("x",), ("y",)),))
