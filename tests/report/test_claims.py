"""The paper's summary figures beside ours, and that what is said of them holds."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
from scipy.stats import wilcoxon

from gsebo.data import DATASETS
from gsebo.experiments import Store, load_recipe
from gsebo.report import accuracy_sheet, entries, gather_evidence
from gsebo.report.formats import escape_markdown
from gsebo.report.names import (
    backbone_title,
    dataset_title,
    published_figure,
    published_summary,
)
from gsebo.report.tables.table import Sheet, Value

from .synthetic import COMPARED, fill, recipe_of

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/evidence/reproduction.md").read_text("utf-8")
ROWS = ("gcn", "gat", "sage", "jk")
GRAPHS = ("cora", "citeseer", "terrorist", "air-usa")


@pytest.fixture(scope="module")
def store() -> Store:
    return Store(ROOT / "results")


def stored(store: Store, name: str) -> tuple[Sheet, dict[tuple[Any, ...], float]]:
    """What is shown of a recipe, and its means by method, row and dataset."""
    sheet = accuracy_sheet(gather_evidence(load_recipe(name), store))
    means = {
        (r["method"], r["row"], r["dataset"]): r["mean"]
        for r in sheet.records
        if not r["setting"]
    }
    return sheet, means


def gain(means: dict[Any, float], row: str, graph: str) -> float:
    return 100 * (means["gsebo", row, graph] / means["vanilla", row, graph] - 1)


def said_in(sheet: Sheet, beginning: str) -> str:
    (sentence,) = (note for note in sheet.notes if note.startswith(beginning))
    # What the command prints is what the page says.
    assert escape_markdown(sentence) in PAGE
    return sentence


def test_sums_of_the_paper_are_means_of_its_table() -> None:
    def printed(row: str, graph: str) -> float:
        ours, plain = (
            published_figure("table1", row, method, graph)
            for method in ("gsebo", "vanilla")
        )
        assert ours and plain
        return 100 * (ours[0] / plain[0] - 1)

    told = published_summary()
    for row in ROWS:
        found = mean(printed(row, graph) for graph in GRAPHS)
        assert found == pytest.approx(told.by_row[row], abs=0.06)
    for graph in GRAPHS:
        found = mean(printed(row, graph) for row in ROWS)
        assert found == pytest.approx(told.by_dataset[graph], abs=0.06)


def test_gains_by_network_are_what_is_said(store: Store) -> None:
    sheet, means = stored(store, "table1")
    sentence = said_in(sheet, "Gain over vanilla by network")
    figures, verdict = sentence.split(": supported on ")
    supported, missed = verdict.split("(")[0].split("not supported on")
    for row in ROWS:
        ours = mean(gain(means, row, graph) for graph in GRAPHS)
        paper = published_summary().by_row[row]
        words = f"{backbone_title(row)} {ours:.1f} (paper {paper:.1f})"
        assert words in figures
        kept = supported if ours >= paper - 1 else missed
        assert backbone_title(row) in kept


def test_density_is_what_is_said(store: Store) -> None:
    sheet, means = stored(store, "table1")
    sentence = said_in(sheet, "Gain over vanilla by graph")
    density = {g: DATASETS[g].num_edges / DATASETS[g].num_nodes for g in GRAPHS}
    order = sorted(GRAPHS, key=density.__getitem__)
    gains = [mean(gain(means, row, graph) for row in ROWS) for graph in order]
    places = [
        sentence.index(f"{dataset_title(graph)} {ours:.1f} (paper")
        for graph, ours in zip(order, gains, strict=True)
    ]
    assert places == sorted(places)
    follows = gains == sorted(gains)
    assert ("density is supported" in sentence) is follows
    assert ("density is not supported" in sentence) is not follows


def test_gains_over_compared_methods_are_what_is_said(store: Store) -> None:
    sheet, means = stored(store, "table2")
    sentence = said_in(sheet, "Over the compared methods")
    rows = {"vgcn": "gcn", "ptdnet": "gcn", "bgcn": "gcn", "magna": "magna"}
    gains = [
        mean(
            100 * (means["gsebo", "gcn", graph] / means[method, row, graph] - 1)
            for graph in GRAPHS
        )
        for method, row in rows.items()
    ]
    least, most = published_summary().over_others
    assert re.search(rf"gains {min(gains):.1f} .*to {max(gains):.1f} percent", sentence)
    assert f"says {least} to {most}" in sentence
    assert ("the least is supported" in sentence) is (min(gains) >= least)
    assert ("the most is not" in sentence) is (max(gains) < most)


def test_tables_have_the_same_figures(store: Store) -> None:
    sheet, means = stored(store, "table1")
    (by_row,) = (t for t in sheet.tables if t.title.endswith("by network"))
    for row, line in zip(ROWS, by_row.rows, strict=False):
        paper, table, ours = line.contents
        assert isinstance(paper, Value) and isinstance(table, Value)
        assert paper.mean == published_summary().by_row[row]
        assert table.mean == pytest.approx(paper.mean, abs=0.06)
        assert isinstance(ours, Value)
        expected = mean(gain(means, row, graph) for graph in GRAPHS)
        assert ours.mean == pytest.approx(expected)


def test_what_the_audit_says_of_all_places_holds(store: Store) -> None:
    evidence = gather_evidence(load_recipe("controls"), store)
    said = (ROOT / "docs/evidence/audit.md").read_text("utf-8")
    for method, words in (
        ("vanilla", "above vanilla p = 0.002"),
        ("frozen", "above frozen 0.0002"),
        ("train_val", "below train + val 0.051"),
    ):
        differences = []
        for cell in evidence.results:
            if cell.method == "gsebo" and not cell.setting:
                ours = evidence.summary(cell)
                other = evidence.summary(replace(cell, method=method))
                assert ours and other
                differences.append(ours.mean - other.mean)
        assert len(differences) == 16
        p = wilcoxon(np.array(differences), method="exact").pvalue
        assert float(words.split()[-1]) == pytest.approx(p, rel=0.1)
        assert ("above" in words) is (mean(differences) > 0)
        assert words in said


def test_what_is_said_of_equal_labels_holds(store: Store) -> None:
    evidence = gather_evidence(load_recipe("table1"), store)
    found = entries(evidence)
    verdicts = Counter(
        entry.comparison.verdict
        for cell, entry in found.items()
        if cell.method == "gsebo" and not cell.setting
    )
    words = " ".join(PAGE.split())
    assert (
        f"significantly better in {verdicts['better']} of 16 places, significantly "
        f"worse in {verdicts['worse']}" in words
    )
    equal = total = 0
    for cell in found:
        if cell.method == "adaedge":
            own = evidence.scores(cell)
            plain = evidence.scores(replace(cell, method="vanilla"))
            equal += sum(own[seed] == plain[seed] for seed in own)
            total += len(own)
    assert f"in {equal} of its {total} fits it has vanilla's accuracy" in words


def test_what_is_said_of_equal_budgets_holds(store: Store) -> None:
    evidence = gather_evidence(load_recipe("equal_budget"), store)
    own = {(c.method, c.dataset): evidence.scores(c) for c in evidence.results}
    width = {
        (one.cell.method, one.cell.dataset): one.trial.parameters.get("hidden_channels")
        for one in evidence.plan.trials
    }
    same = {
        graph: sum(
            own["adaedge", graph][seed] == plain
            for seed, plain in own["vanilla", graph].items()
        )
        for graph in GRAPHS
    }
    alike = [g for g in GRAPHS if width["adaedge", g] == width["vanilla", g]]
    words = " ".join(PAGE.split())
    assert (
        f"in {sum(same.values())} of its {10 * len(GRAPHS)} fits, and in "
        f"{sum(same[g] for g in alike)} of the {10 * len(alike)} in which" in words
    )
    for graph, least, most in (
        ("cora", 3.6, 5.8),
        ("citeseer", 3.8, 5.2),
        ("air-usa", 2.3, 11.4),
    ):
        ahead = [
            mean(own["gsebo", graph].values()) - mean(own[other, graph].values())
            for other in ("dropedge", "adaedge", "ptdnet", "neuralsparse")
        ]
        assert (min(ahead), max(ahead)) == pytest.approx((least, most), abs=0.05)
        assert f"{least} to {most}" in words


def test_nothing_is_summed_up_of_a_part(tmp_path: Path) -> None:
    recipe, own = recipe_of(tmp_path, COMPARED, "table1"), Store(tmp_path / "results")
    fill(own, recipe)
    sheet = accuracy_sheet(gather_evidence(recipe, own))
    assert not any("Gain over vanilla" in note for note in sheet.notes)
    assert not any(table.title.startswith("Mean gain") for table in sheet.tables)
