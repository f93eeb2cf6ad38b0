"""Tests against controls with equal labels: the statistics, and what is compared."""

from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gsebo.errors import InvalidInput
from gsebo.experiments import Cell, Planned, Store, recipe_names
from gsebo.experiments.detection import TRIED
from gsebo.experiments.recipe import DeclaredControl, load_recipe
from gsebo.report import accuracy_sheet, gather_evidence
from gsebo.report.tables.significance import (
    FEWEST_SEEDS,
    SIGNIFICANT,
    compare_cells,
    control_of,
    corrected_p_values,
    is_reference,
    learns_from_val,
    signed_rank_p_value,
)
from gsebo.report.tables.table import Sheet, Value

from .synthetic import RunOutcome, fill, recipe_of

probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=60)
# Multiples of a tenth: ties and zeros are frequent, and rounding plays no part.
steps = st.integers(-40, 40).map(lambda number: number / 10)


@given(probabilities)
def test_the_correction_is_that_of_scipy(given: list[float]) -> None:
    expected = stats.false_discovery_control(np.array(given), method="bh")
    assert corrected_p_values(given) == pytest.approx(list(expected))


def test_the_correction_of_known_cases() -> None:
    # The example of Benjamini and Hochberg, 1995: four of fifteen are below 0.05.
    printed = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    printed += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000]
    corrected = corrected_p_values(printed)
    assert sum(one < 0.05 for one in corrected) == 4
    assert corrected[0] == pytest.approx(0.0015)
    assert corrected_p_values([]) == []
    assert corrected_p_values([0.2]) == [0.2]
    assert corrected_p_values([0.04, 0.04]) == [0.04, 0.04]


@given(st.lists(steps, min_size=1, max_size=8))
def test_signed_ranks_are_those_of_scipy(differences: list[float]) -> None:
    kept = np.array([round(10 * one) for one in differences if one])
    if len(kept) < 2:
        # Either sign of one difference is as extreme.
        assert signed_rank_p_value(differences) == 1.0
        return
    every_sign = stats.PermutationMethod(n_resamples=np.inf)
    expected = stats.wilcoxon(kept, zero_method="wilcox", method=every_sign).pvalue
    assert signed_rank_p_value(differences) == pytest.approx(expected)


@given(st.lists(st.floats(-9, 9), min_size=5, max_size=12, unique_by=abs))
def test_signed_ranks_without_ties_are_exact(differences: list[float]) -> None:
    rounded = {round(abs(one), 9) for one in differences}
    if len(rounded) < len(differences) or 0 in rounded:
        return
    expected = stats.wilcoxon(np.array(differences), method="exact").pvalue
    assert signed_rank_p_value(differences) == pytest.approx(expected)


def test_signed_ranks_by_hand() -> None:
    # Six of one sign: both extremes of 2^6. One small one against: ranks 2..6 and -1.
    assert signed_rank_p_value([1, 2, 3, 4, 5, 6]) == 2 / 64
    assert signed_rank_p_value([-1, 2, 3, 4, 5, 6]) == 4 / 64
    assert signed_rank_p_value([0.0, 0.0]) == 1.0


PLACE = {"row": "gcn", "dataset": "cora"}
VANILLA, RICH = Cell("vanilla", **PLACE), Cell("gsebo", **PLACE)
TAUGHT = Cell("train_val", **PLACE, setting="400 epochs")


def test_whose_labels_teach_decides_who_is_a_control() -> None:
    declared = DeclaredControl(method="train_val", setting="400 epochs", backbone="gcn")
    few = replace(RICH, labels="train")
    taught = Cell("vanilla", "grand", "cora", setting="by all nodes", consistent=True)
    cells = {VANILLA, TAUGHT, RICH, few, taught}
    assert learns_from_val(RICH) and not learns_from_val(few)
    assert control_of(RICH, cells, declared) == TAUGHT
    assert control_of(few, cells, declared) == VANILLA
    # The plain network that nodes without labels teach as well is no control.
    assert is_reference(VANILLA) and not is_reference(taught)
    assert control_of(taught, cells, declared) == VANILLA


def test_the_control_has_as_many_labels() -> None:
    cells = {VANILLA, RICH, TAUGHT, Cell("dropedge", **PLACE)}
    declared = DeclaredControl(method="train_val", setting="400 epochs")
    assert control_of(RICH, cells, declared) == TAUGHT
    assert control_of(RICH, cells, None) is None
    assert control_of(Cell("dropedge", **PLACE), cells, declared) == VANILLA
    # Without a control of the same length there is none.
    assert control_of(RICH, cells - {TAUGHT}, declared) is None
    other = Cell("gsebo", "gat", "cora")
    assert control_of(other, cells, declared) is None
    # Of several controls the one with the same setting is taken, and is its own.
    hidden = Cell("gsebo", **PLACE, setting="hidden")
    alike = Cell("train_val", **PLACE, setting="hidden, 400 epochs")
    assert control_of(hidden, cells | {alike}, declared) == alike
    assert control_of(alike, cells | {alike}, declared) == alike
    assert control_of(hidden, cells, declared) == TAUGHT
    longer = Cell("train_val", **PLACE, setting="1400 epochs")
    assert control_of(longer, cells | {longer}, declared) == TAUGHT
    short = DeclaredControl(method="train_val")
    assert control_of(TAUGHT, cells, short) is None
    one_row = DeclaredControl(method="train_val", setting="400 epochs", backbone="gcn")
    assert control_of(other, cells, one_row) == TAUGHT
    assert control_of(Cell("dropedge", "gat", "cora"), cells, one_row) == VANILLA


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(-3, 3), min_size=1),
    st.integers(2, 10),
)
def test_verdicts_are_by_the_corrected_test(leads: dict[str, int], seeds: int) -> None:
    control = Cell("control", **PLACE)
    noise = np.random.default_rng(seeds).normal(size=seeds)
    accuracies = {control: dict.fromkeys(range(seeds), 80.0)}
    accuracies |= {
        Cell(name, **PLACE): {s: 80 + lead + noise[s] for s in range(seeds)}
        for name, lead in leads.items()
    }
    found = compare_cells(accuracies, dict.fromkeys(accuracies, control))
    assert found.pop(control).verdict is None
    for cell, one in found.items():
        ahead = mean(accuracies[cell].values()) - 80.0
        if seeds < FEWEST_SEEDS:
            assert one.verdict == "untested" and one.p is one.corrected is None
            continue
        assert one.p is not None and one.corrected is not None
        assert one.p <= one.corrected
        significant = one.corrected < SIGNIFICANT
        side = "better" if ahead > 0 else "worse"
        assert one.verdict == (side if significant else "same")


# --- a table over a tiny store -------------------------------------------------------

TEXT = """
title = "Equal labels"
seeds = 6
control = { method = "train_val", setting = "longer" }

[[trials]]
methods = ["vanilla", "dropedge", "adaedge", "gsebo", "amortised"]
backbones = ["gcn", "gat"]
datasets = ["cora", "citeseer", "terrorist", "air-usa", "texas"]

[[trials]]
methods = ["train_val"]
backbones = ["gcn"]
datasets = ["cora", "citeseer", "terrorist", "air-usa", "texas"]
set = { max_epochs = 400 }
label = "longer"
"""
LEADS = {
    "vanilla": 0.0,
    "mlp": 0.0,
    "dropedge": 0.02,
    "adaedge": -0.02,
    "train_val": 0.1,
    "gsebo": 0.05,
    "amortised": 0.1,
}


def ordered(planned: Planned) -> float:
    return 0.6 + LEADS[planned.trial.method] + planned.trial.seed / 100


def sheet_of(folder: Path, text: str, outcome: RunOutcome = ordered) -> Sheet:
    recipe, store = recipe_of(folder, text), Store(folder / "results")
    fill(store, recipe, outcome)
    return accuracy_sheet(gather_evidence(recipe, store))


def verdicts(sheet: Sheet, row: str = "gcn") -> dict[str, Any]:
    return {
        record["method"]: record["verdict"]
        for record in sheet.records
        if (record["row"], record["dataset"]) == (row, "cora")
    }


def test_each_method_is_tested_against_its_own_control(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, TEXT)
    assert verdicts(sheet) == {
        "vanilla": None,
        "dropedge": "better",
        "adaedge": "worse",
        # Above vanilla, but not above what has as many labels.
        "gsebo": "worse",
        "amortised": "same",
        "train_val": None,
    }
    # On GAT nothing has as many labels as those two.
    assert verdicts(sheet, "gat")["gsebo"] == "untested"
    assert verdicts(sheet, "gat")["dropedge"] == "better"
    controls = {r["method"]: r["control"] for r in sheet.records if r["row"] == "gcn"}
    assert controls["gsebo"] == "train_val" and controls["dropedge"] == "vanilla"
    shown = {
        (row.labels[0], row.labels[1]): row.contents[0] for row in sheet.tables[0].rows
    }
    worse, untested = shown["GCN", "GSEBO"], shown["GAT", "GSEBO"]
    assert isinstance(worse, Value) and worse.verdict == "worse"
    assert isinstance(untested, Value) and untested.verdict == "untested"


def test_p_values_are_corrected_for_all_tests_of_the_sheet(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, TEXT)
    tested = [record for record in sheet.records if record["p"] is not None]
    # Two of the network with both controls, and two more of the other.
    assert len(tested) == 5 * (4 + 2)
    given = np.array([record["p"] for record in tested])
    expected = stats.false_discovery_control(given)
    assert [r["p_corrected"] for r in tested] == pytest.approx(list(expected))
    assert "for the 30 tests here" in sheet.notes[1]


def test_captions_name_marks_and_controls(tmp_path: Path) -> None:
    _, marks, controls, places = sheet_of(tmp_path, TEXT).notes
    for words in ("↑ significantly more", "↓ significantly less", "= no significant"):
        assert words in marks
    assert "? not tested" in marks and "fewer than 6 seeds" in marks
    assert "(amortised, GSEBO): train + val (longer) on the same network" in controls
    assert "(AdaEdge, DropEdge): vanilla on the same network" in controls
    assert "at least 6 seeds of both, and where there are 5 or more" in places


def test_five_places_are_tested_together(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, TEXT)
    (table,) = (one for one in sheet.tables if one.title.startswith("Over networks"))
    found = {row.labels[0]: row.contents for row in table.rows}
    # Of vanilla's methods ten places, of the others those of GCN.
    assert [found[name][1] for name in ("DropEdge", "GSEBO")] == ["10", "5"]
    assert found["GSEBO"][0] == "train + val (longer)"
    records: Any = sheet.facts["over_places"]
    by_method = {record["method"]: record for record in records}
    assert by_method["gsebo"]["p"] == 2 / 2**5
    assert by_method["gsebo"]["mean_difference"] == pytest.approx(-5.0)
    assert by_method["amortised"]["p"] == 1.0
    assert by_method["adaedge"]["above"] == 0


def test_four_places_are_too_few(tmp_path: Path) -> None:
    text = TEXT.replace(', "texas"', "").replace('"gcn", "gat"', '"gcn"')
    sheet = sheet_of(tmp_path, text)
    assert sheet.facts["over_places"] == []
    assert not any(one.title.startswith("Over networks") for one in sheet.tables)


@pytest.mark.parametrize("seeds", [5, 6])
def test_places_of_few_seeds_do_not_count(tmp_path: Path, seeds: int) -> None:
    text = TEXT.replace(', "texas"', "").replace('"gcn", "gat"', '"gcn"')
    text += f"""
    [[trials]]
    methods = ["vanilla", "dropedge"]
    backbones = ["gcn"]
    datasets = ["texas"]
    seeds = {seeds}
    """
    records: Any = sheet_of(tmp_path, text).facts["over_places"]
    found = {record["method"]: record["places"] for record in records}
    # With five of one place there are four others, which are too few.
    assert found == ({} if seeds < FEWEST_SEEDS else {"dropedge": 5})


def test_a_control_on_another_network_is_named(tmp_path: Path) -> None:
    declared = 'setting = "longer"'
    text = TEXT.replace(declared, f'{declared}, backbone = "gcn"')
    text += """
    [[trials]]
    methods = ["mlp", "train_val"]
    backbones = ["mlp"]
    datasets = ["cora", "citeseer", "terrorist", "air-usa", "texas"]
    set = { max_epochs = 400 }
    label = "longer"
    """

    def outcome(planned: Planned) -> float:
        return ordered(planned) - (planned.trial.backbone == "mlp") / 4

    sheet = sheet_of(tmp_path, text, outcome)
    assert verdicts(sheet, "gat")["gsebo"] == "worse"
    assert verdicts(sheet, "mlp") == {"mlp": "worse", "train_val": "worse"}
    assert verdicts(sheet)["train_val"] is None
    # So the control of one network is compared, too.
    assert (
        "(amortised, GSEBO, train + val): train + val (longer) on GCN" in sheet.notes[2]
    )
    (table,) = (one for one in sheet.tables if one.title.startswith("Over networks"))
    found = {row.labels[0]: row.contents[:2] for row in table.rows}
    assert found["DropEdge"] == ("vanilla", "5")
    assert found["DropEdge on GAT"] == found["MLP"] == ("vanilla on GCN", "5")
    assert found["train + val on MLP"] == ("train + val (longer) on GCN", "5")
    records: Any = sheet.facts["over_places"]
    networks = {(record["method"], record["networks"]) for record in records}
    assert {("dropedge", None), ("dropedge", ("gat", "gcn"))} <= networks


def test_five_seeds_are_not_tested(tmp_path: Path) -> None:
    sheet = sheet_of(tmp_path, TEXT.replace("= 6", "= 5"))
    assert all(record["p"] is None for record in sheet.records)
    assert sheet.notes[1].startswith("Nothing is tested")
    contents = [one for row in sheet.tables[0].rows for one in row.contents]
    assert not any(isinstance(one, Value) and one.verdict for one in contents)


def test_without_a_declared_control_nothing_rich_is_tested(tmp_path: Path) -> None:
    text = TEXT.replace('control = { method = "train_val", setting = "longer" }', "")
    sheet = sheet_of(tmp_path, text)
    assert verdicts(sheet)["gsebo"] == verdicts(sheet)["train_val"] == "untested"
    assert verdicts(sheet)["dropedge"] == "better"
    assert "nothing here has as many labels" in sheet.notes[2]


def test_equal_trials_are_the_control_itself(tmp_path: Path) -> None:
    text = """
    title = "One parameter after the other"
    seeds = 6
    control = { method = "gsebo", setting = "inner_steps = 10" }
    [[trials]]
    methods = ["gsebo"]
    backbones = ["gcn"]
    datasets = ["cora"]
    vary = { inner_steps = [10, 20] }
    [[trials]]
    methods = ["gsebo"]
    backbones = ["gcn"]
    datasets = ["cora"]
    vary = { tied = [false, true] }
    """
    sheet = sheet_of(tmp_path, text)
    assert {record["setting"]: record["verdict"] for record in sheet.records} == {
        "inner_steps = 10": None,
        "inner_steps = 20": "same",
        "tied = false": None,
        "tied = true": "same",
    }


@pytest.mark.parametrize(
    ("control", "words"),
    [
        ('{ method = "vanilla" }', "does not learn from validation labels"),
        ('{ method = "train_vall" }', "did you mean 'train_val'"),
        ('{ setting = "longer" }', "missing required field `method`"),
        ('{ method = "train_val", label = "x" }', "unknown field `label`"),
        ('{ method = "train_val", setting = "shorter" }', "expected one of its cells"),
    ],
)
def test_bad_controls(tmp_path: Path, control: str, words: str) -> None:
    declared = '{ method = "train_val", setting = "longer" }'
    with pytest.raises(InvalidInput, match=words):
        sheet_of(tmp_path, TEXT.replace(declared, control))


def test_packaged_controls_are_there() -> None:
    store = Store(Path(__file__).parents[2] / "results")
    declared = [name for name in recipe_names() if load_recipe(name).control]
    assert {"table1", "controls", "beyond", "auto_choice"} <= set(declared)
    for name in declared:
        sheet = accuracy_sheet(gather_evidence(load_recipe(name), store))
        rich = [r for r in sheet.records if TRIED[str(r["method"])].learns_from_val]
        assert any(record["p"] is not None for record in rich), name
