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
}


def seeds_of(recipe: str) -> dict[Cell, list[int]]:
    cells = make_plan(load_recipe(recipe), Tuning({})).cells()
    return {cell: [trial.seed for trial in trials] for cell, trials in cells.items()}


@pytest.mark.parametrize(
    ("recipe", "places", "slow"),
    [
        (
            "metattack",
            {(f"{g}-meta-{s}", 0) for g in ("cora", "citeseer") for s in SHARES},
            {
                *((f"cora-meta-{share}", 0) for share in (0, 10, 25)),
                *((f"citeseer-meta-{share}", 0) for share in (0, 25)),
            },
        ),
        (
            "nettack",
            {(f"cora-nettack-{number}", 0) for number in range(1, 6)},
            {("cora-nettack-1", 0), ("cora-nettack-5", 0)},
        ),
        (
            "prbcd",
            {
                *(("cora", each) for each in (0, "prbcd:10", "prbcd:25", "prbcd:50")),
                *(("citeseer", each) for each in (0, "prbcd:25", "prbcd:50")),
            },
            {("cora", 0), ("cora", "prbcd:25")},
        ),
    ],
)
def test_every_method_on_every_attacked_graph(
    recipe: str, places: Iterable[tuple[str, int | str]], slow: set[tuple[str, int]]
) -> None:
    expected = {
        Cell(method, row, dataset, noise, setting): list(range(10))
        for row, method, setting in ROWS
        for dataset, noise in places
    }
    expected |= {
        Cell("prognn", "gcn", *place, "nuclear_every = 10"): [0, 1] for place in slow
    }
    assert seeds_of(recipe) == expected


def test_models_are_attacked_by_those_who_know_them() -> None:
    recipe = load_recipe("adaptive")
    assert recipe.evasion == "adaptive"
    found = {(c.row, c.method): seeds for c, seeds in seeds_of("adaptive").items()}
    assert {place for place, seeds in found.items() if len(seeds) == recipe.seeds} == {
        *(("gcn", name) for name in ("vanilla", "train_val", "amortised")),
        *(("gcn", name) for name in ("inoculated", "auto")),
        ("mlp", "mlp"),
        ("mlp", "train_val"),
        ("gnnguard", "gnnguard"),
        ("soft-median", "soft_median"),
    }
    assert found["gcn", "prognn"] == [0, 1]
    trials = make_plan(recipe, Tuning({})).trials
    assert {one.trial.evasion for one in trials} == {"adaptive"}
