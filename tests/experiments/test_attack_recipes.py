"""The recipes about attacks: which trials they ask for."""

from collections.abc import Iterable

import pytest

from gsebo.experiments import Cell, Tuning, load_recipe, make_plan

SHARES = (0, 5, 10, 15, 20, 25)
ROWS = {
    ("gcn", "vanilla", ""),
    ("gcn", "train_val", "400 epochs"),
    ("gcn", "gcn_jaccard", ""),
    ("gcn", "gcn_svd", ""),
    ("gcn", "gsebo", ""),
    ("gcn", "amortised", ""),
    ("gcn", "amortised", "label_use = fixed"),
    ("gcn", "inoculated", ""),
    ("gcn", "auto", ""),
    ("mlp", "mlp", ""),
    ("mlp", "train_val", "400 epochs"),
    ("rgcn", "rgcn", ""),
    ("gnnguard", "gnnguard", ""),
    ("soft-median", "soft_median", ""),
    ("biweight", "train_val", "400 epochs"),
}
# What takes long has fewer seeds.
FEWER = {"gcn_svd": 5, "soft_median": 5}


def seeds_of(recipe: str) -> dict[Cell, list[int]]:
    cells = make_plan(load_recipe(recipe), Tuning({})).cells()
    return {cell: [trial.seed for trial in trials] for cell, trials in cells.items()}


@pytest.mark.parametrize(
    ("recipe", "places", "slow", "ends"),
    [
        (
            "metattack",
            {(f"{g}-meta-{s}", 0) for g in ("cora", "citeseer") for s in SHARES},
            ("cora-meta-25", 0),
            {(f"{g}-meta-{s}", 0) for g in ("cora", "citeseer") for s in (0, 25)},
        ),
        (
            "nettack",
            {(f"cora-nettack-{number}", 0) for number in range(1, 6)},
            ("cora-nettack-5", 0),
            {("cora-nettack-5", 0)},
        ),
        (
            "prbcd",
            {
                *(("cora", each) for each in (0, "prbcd:10", "prbcd:25", "prbcd:50")),
                *(("citeseer", each) for each in (0, "prbcd:25", "prbcd:50")),
            },
            ("cora", "prbcd:25"),
            {
                *(("cora", each) for each in (0, "prbcd:10", "prbcd:25", "prbcd:50")),
                *(("citeseer", each) for each in (0, "prbcd:25", "prbcd:50")),
            },
        ),
    ],
)
def test_every_method_on_every_attacked_graph(
    recipe: str,
    places: Iterable[tuple[str, int | str]],
    slow: tuple[str, int | str],
    ends: set[tuple[str, int | str]],
) -> None:
    def seeds(method: str, place: tuple[str, int | str]) -> list[int]:
        if method == "auto":
            return list(range(10 if place in ends else 3))
        return list(range(FEWER.get(method, 10)))

    expected = {
        Cell(method, row, *place, setting): seeds(method, place)
        for row, method, setting in ROWS
        for place in places
    }
    expected[Cell("prognn", "gcn", *slow, "nuclear_every = 10")] = [0, 1]
    assert seeds_of(recipe) == expected


def test_models_are_attacked_by_those_who_know_them() -> None:
    recipe = load_recipe("adaptive")
    assert recipe.evasion == "adaptive"
    found = {(c.row, c.method): seeds for c, seeds in seeds_of("adaptive").items()}
    assert {place for place, seeds in found.items() if len(seeds) == recipe.seeds} == {
        *(("gcn", name) for name in ("vanilla", "train_val", "amortised")),
        ("gcn", "inoculated"),
        ("mlp", "mlp"),
        ("mlp", "train_val"),
        ("gnnguard", "gnnguard"),
        ("soft-median", "soft_median"),
        ("biweight", "train_val"),
    }
    assert found["gcn", "prognn"] == [0]
    assert found["gcn", "auto"] == found["biweight", "amortised"] == [0, 1]
    trials = make_plan(recipe, Tuning({})).trials
    assert {one.trial.evasion for one in trials} == {"adaptive"}
