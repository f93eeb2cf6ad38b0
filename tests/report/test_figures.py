"""Every figure of the page: what is drawn, and what is said to be missing."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.report.page_store import RECIPES, fill_pages, made_up
from tests.report.synthetic import recipe_of

from gsebo.experiments import ExperimentRecipe, Planned, Result, Store, Trial
from gsebo.report import Evidence, gather_evidence
from gsebo.report.evidence import edge_groups, mean_curve
from gsebo.report.figures import FIGURES
from gsebo.report.figures.drawing import Drawing
from gsebo.report.figures.factors import varied

TRIAL = Trial("gsebo", "gcn", "cora", "public", 0)


@pytest.fixture(scope="module")
def whole(filled: tuple[Store, list[ExperimentRecipe]]) -> dict[str, Evidence]:
    store, recipes = filled
    return {recipe.name: gather_evidence(recipe, store) for recipe in recipes}


def drawn(evidence: Evidence) -> Drawing:
    drawing = FIGURES[evidence.recipe.name](evidence)
    assert drawing is not None
    return drawing


def panels(drawing: Drawing) -> int:
    return sum(len(c.panels) for group in drawing.groups for c in group.cards)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        # Networks x (accuracy and gain).
        ("robustness", 2 * 2),
        # Networks x (loss and accuracy).
        ("convergence", 2 * 2),
        # Ways to learn x (accuracy and loss).
        ("overfitting", 3 * 2),
        # Places, the noisiest place, and the mean against noise.
        ("inter_class", 4 + 1 + 1),
        # Two parameters and another method, on two datasets.
        ("factors", 3 * 2),
        # A parameter and another method, on a graph with and without noise.
        ("sensitivity", 2 * 2),
        # Kinds of noise.
        ("robustness_extended", 3),
        # A graph without noise is in the tables alone.
        ("beyond", 1),
    ],
)
def test_a_panel_for_everything(
    whole: dict[str, Evidence], name: str, count: int
) -> None:
    drawing = drawn(whole[name])
    assert panels(drawing) == count
    assert drawing.absent == []
    assert drawing.legend


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_nothing_is_drawn_of_nothing(name: str, tmp_path: Path) -> None:
    recipe = recipe_of(tmp_path, RECIPES[name], name)
    assert FIGURES[name](gather_evidence(recipe, Store(tmp_path / "none"))) is None


def no_gat(planned: Planned) -> Result | None:
    return None if planned.trial.backbone == "gat" else made_up(planned)


@pytest.mark.parametrize("name", ["convergence", "inter_class"])
def test_holes_are_named(name: str, tmp_path: Path) -> None:
    store, recipes = fill_pages(tmp_path, no_gat)
    recipe = next(one for one in recipes if one.name == name)
    drawing = drawn(gather_evidence(recipe, store))
    assert drawing.absent
    assert all("GAT" in words for words in drawing.absent)
    titles = [card.title for group in drawing.groups for card in group.cards]
    assert titles and not any("GAT" in title for title in titles)


numbers = st.lists(st.floats(0, 1), min_size=4, max_size=4)


@given(st.lists(numbers, min_size=1, max_size=5), st.integers(1, 4))
def test_curves_are_means_as_far_as_all_go(
    values: list[list[float]], shortest: int
) -> None:
    results = {}
    for seed, column in enumerate(values):
        length = shortest if seed == 0 else 4
        curves = {"inner_steps": [1.0, 2, 3, 4][:length], "loss": column[:length]}
        results[seed] = Result(trial=TRIAL, test_accuracy=0.5, curves=curves)
    found = mean_curve(results, "loss")
    assert found is not None
    steps, mean, spread = found
    table = np.array([column[:shortest] for column in values])
    assert steps.tolist() == [1.0, 2, 3, 4][:shortest]
    assert np.allclose(mean, table.mean(axis=0))
    expected = table.std(axis=0, ddof=1) if len(values) > 1 else 0
    assert np.allclose(spread, expected)


def test_no_curve_without_any_recorded() -> None:
    assert mean_curve({0: Result(trial=TRIAL, test_accuracy=0.5)}, "loss") is None


counts = st.lists(st.integers(0, 50), min_size=21, max_size=21).filter(any)


@given(st.lists(st.lists(counts, min_size=1, max_size=3), min_size=1, max_size=4))
def test_shares_of_a_group_add_up(seeds: list[list[list[int]]]) -> None:
    def layer(bars: list[int]) -> dict[str, object]:
        total = sum(bars)
        group = {"count": total, "mean": 0.5, "zero": total, "histogram": bars}
        return {"between": group}

    results = {
        seed: Result(trial=TRIAL, test_accuracy=0.5, edges=[layer(b) for b in layers])
        for seed, layers in enumerate(seeds)
    }
    (group,) = edge_groups(results).values()
    assert group.share.sum() == pytest.approx(100)
    assert group.zero == pytest.approx(100)
    assert (group.ratio.mean, group.ratio.count) == (0.5, len(seeds))


def test_a_method_without_strengths_has_no_groups() -> None:
    assert edge_groups({0: Result(trial=TRIAL, test_accuracy=0.5)}) == {}


def test_factors_are_what_was_varied(whole: dict[str, Evidence]) -> None:
    found = varied(whole["factors"].plan.trials)
    assert list(found) == [
        "inner_steps",
        "direct_term",
        "outer loss on training nodes",
    ]
    cora = [value for value, cell in found["inner_steps"] if cell.dataset == "cora"]
    assert cora == ["5", "10", "20"]
    beside = found["outer loss on training nodes"]
    assert {cell.method for _, cell in beside} == {"gsebo", "single_level"}
    assert len(beside) == 4


def test_one_seed_is_enough(tmp_path: Path) -> None:
    def first(planned: Planned) -> Result | None:
        return made_up(planned) if planned.trial.seed == 0 else None

    store, recipes = fill_pages(tmp_path, first)
    for recipe in recipes:
        if recipe.name in FIGURES:
            assert drawn(gather_evidence(recipe, store)).absent == []


def test_a_layer_whose_edges_began_at_zero_is_skipped() -> None:
    empty = {"count": 3, "mean": None, "zero": 3, "histogram": [0] * 21}
    some = {"count": 3, "mean": 1.5, "zero": 0, "histogram": [0] * 20 + [3]}
    result = Result(trial=TRIAL, test_accuracy=0.5, edges=[{"within": empty}])
    assert edge_groups({0: result}) == {}
    both = replace(result, edges=[{"within": empty}, {"within": some}])
    assert edge_groups({0: both})["within"].ratio.mean == 1.5
