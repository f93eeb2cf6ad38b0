"""Tables and figures of recipes with several kinds of noise."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.report.page_reader import PageReader
from tests.report.page_store import made_up
from tests.report.synthetic import OTHER_NOISE, recipe_of

from gsebo.data import NOISE_KINDS, NoiseSpec, noise_parts
from gsebo.experiments import Planned, Result, Store, Tuning, make_plan
from gsebo.report import Evidence, Summary, accuracy_sheet, gather_evidence
from gsebo.report.evidence import levels_by_kind
from gsebo.report.figures import FIGURES
from gsebo.report.figures.drawing import Drawing
from gsebo.report.figures.robustness import robustness_extended
from gsebo.report.page.results import build_page
from gsebo.report.tables.table import Value


def stored(folder: Path, text: str = OTHER_NOISE, name: str = "own") -> Store:
    recipe, store = recipe_of(folder, text, name), Store(folder / "results")
    planned = make_plan(recipe, Tuning({})).trials
    store.append(name, [made_up(one) for one in planned])
    return store


def evidence_of(folder: Path, text: str = OTHER_NOISE, name: str = "own") -> Evidence:
    return gather_evidence(recipe_of(folder, text, name), stored(folder, text, name))


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    return evidence_of(tmp_path_factory.mktemp("noise"))


def titles(drawing: Drawing) -> list[str]:
    return [card.title for group in drawing.groups for card in group.cards]


def test_each_kind_has_a_table(evidence: Evidence) -> None:
    tables = accuracy_sheet(evidence).tables
    of_cora = [table for table in tables if table.dataset == "cora"]
    headings = {
        table.title: [group.title for group in table.groups]
        for table in of_cora
        if table.noise
    }
    assert headings == {
        "Cora, by the number of false edges": ["0", "1000"],
        "Cora, by the number of random edges": ["0", "1000"],
        "Cora, by the share of edges removed": ["0", "10 %", "90 %"],
        "Cora, by the share of labels replaced": ["0", "10 %"],
    }
    # Gains are by false edges, as in the paper.
    (gains,) = (table for table in of_cora if not table.noise)
    assert [group.title for group in gains.groups] == ["0", "1000"]


def test_every_number_is_that_of_its_level(evidence: Evidence) -> None:
    sheet = accuracy_sheet(evidence)
    for table in sheet.tables:
        if not table.noise:
            continue
        levels = levels_by_kind(cell.noise for cell in evidence.results)[table.noise]
        expected = [
            record["mean"]
            for row in ("gcn", "mlp")
            for method in ("vanilla", "gsebo")
            for level in levels
            for record in sheet.records
            if (record["row"], record["method"], record["noise"], record["dataset"])
            == (row, method, level, table.dataset)
        ]
        shown = [content for row in table.rows for content in row.contents]
        assert [one.mean for one in shown if isinstance(one, Value)] == expected


def test_strengths_are_told_for_each_kind(evidence: Evidence) -> None:
    showing = replace(evidence, recipe=replace(evidence.recipe, shows_edges=True))
    tables = accuracy_sheet(showing).tables
    found = [one for one in tables if one.title.startswith("Strength")]
    # Two datasets, and one table of both without any noise.
    assert len(found) == 2 * 4 + 1
    removed = next(one for one in found if "Cora, by the share of edges" in one.title)
    assert [group.title for group in removed.groups] == ["10 %", "90 %"]


def test_a_panel_for_each_kind(evidence: Evidence) -> None:
    drawing = robustness_extended(evidence)
    assert drawing is not None and drawing.absent == []
    kinds = ("inter_class", "random", "removed", "labels")
    assert titles(drawing) == 2 * [NOISE_KINDS[kind].words for kind in kinds]
    # The network without edges stands beside the other.
    labels = [line.caption for line in drawing.legend]
    assert labels == ["vanilla", "MLP, vanilla", "GSEBO", "MLP, GSEBO"]
    panel = drawing.groups[0].cards[2].panels[0]
    words = re.findall(r">([^<>]+)</text>", panel.svg)
    assert [word for word in words if word in ("0", "10", "90")][:3] == [
        "0",
        "10",
        "90",
    ]
    assert "edges removed, %" in words
    assert "against the share of edges removed" in panel.svg


def test_other_figures_leave_other_noise_out(evidence: Evidence) -> None:
    for name in ("robustness", "inter_class"):
        drawing = FIGURES[name](evidence)
        assert drawing is not None
        svgs = [
            panel.svg for g in drawing.groups for c in g.cards for panel in c.panels
        ]
        assert svgs and not any("removed" in svg for svg in svgs)


def test_a_kind_without_results_is_named(tmp_path: Path) -> None:
    text = OTHER_NOISE.replace(" 0,", "").replace('"cora", "citeseer"', '"cora"')
    recipe, store = recipe_of(tmp_path, text), Store(tmp_path / "results")

    def unless_removed(planned: Planned) -> Result | None:
        kind, _ = noise_parts(planned.trial.noise)
        return None if kind == "removed" else made_up(planned)

    planned = make_plan(recipe, Tuning({})).trials
    store.append("own", [one for one in map(unless_removed, planned) if one])
    drawing = robustness_extended(gather_evidence(recipe, store))
    assert drawing is not None
    assert drawing.absent == ["GCN, Cora, edges removed"]
    assert len(titles(drawing)) == 3


def test_one_setting_of_a_method_is_drawn(tmp_path: Path) -> None:
    block = OTHER_NOISE[OTHER_NOISE.index("[[trials]]") :]
    text = OTHER_NOISE + block + 'label = "again"\nset = { max_epochs = 3 }\n'
    text = text.replace('"gcn", "mlp"', '"gcn"').replace(
        '["vanilla", "gsebo"]', '["vanilla"]'
    )
    found = evidence_of(tmp_path, text)
    drawing = robustness_extended(found)
    assert drawing is not None
    assert [line.caption for line in drawing.legend] == ["vanilla"]


def test_the_page_lists_noise_by_its_name(tmp_path: Path) -> None:
    store = stored(tmp_path, name="robustness_extended")
    recipe = recipe_of(tmp_path, OTHER_NOISE, "robustness_extended")
    page = build_page(store, [recipe])
    text = PageReader(page.html).text
    assert "removed:90" in text and "labels:10" in text
    evidence = gather_evidence(recipe, store)
    for cell in evidence.results:
        summary = Summary.of(evidence.scores(cell))
        assert summary is not None
        assert f"{summary.mean:.2f} ± {summary.std:.2f}" in text


@pytest.mark.parametrize(
    ("noise", "expected"),
    [
        ([0], {"inter_class": (0,)}),
        ([20, 0, 3], {"inter_class": (0, 3, 20)}),
        (["removed:10", "removed:9"], {"removed": ("removed:9", "removed:10")}),
        (["labels:1", 0, 7], {"inter_class": (0, 7), "labels": (0, "labels:1")}),
    ],
)
def test_levels_by_kind(
    noise: Sequence[NoiseSpec], expected: dict[str, tuple[NoiseSpec, ...]]
) -> None:
    assert levels_by_kind(noise) == expected
