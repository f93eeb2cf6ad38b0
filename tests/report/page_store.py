"""Small recipes of every kind that the page draws, and made-up results for them."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.report.synthetic import recipe_of

from gsebo.data import edges_appended, noise_parts
from gsebo.experiments import (
    ExperimentRecipe,
    Planned,
    Result,
    Store,
    Trial,
    Tuning,
    make_plan,
)
from gsebo.experiments.result import BINS

RECIPES = {
    "table1": """
title = "Table 1: small"
seeds = 6
[[trials]]
methods = ["vanilla", "gsebo", "dropedge"]
backbones = ["gcn", "sage"]
datasets = ["cora", "air-usa"]
""",
    "controls": """
title = "Controls: small"
seeds = 3
[[trials]]
methods = ["vanilla", "gsebo", "train_val"]
backbones = ["gcn"]
datasets = ["cora"]
[[trials]]
methods = ["mlp"]
backbones = ["mlp"]
datasets = ["cora"]
""",
    "robustness": """
title = "Robustness: small"
about = "Says `gsebo run` in the middle."
seeds = 3
[[trials]]
methods = ["vanilla", "dropedge", "gsebo"]
backbones = ["gcn", "sage"]
datasets = ["cora"]
noise = [0, 1000, 20000]
""",
    "convergence": """
title = "Convergence: small"
seeds = 3
[[trials]]
methods = ["vanilla", "gsebo"]
backbones = ["gcn", "gat"]
datasets = ["cora"]
curves = true
""",
    "overfitting": """
title = "Overfitting: small"
seeds = 2
[[trials]]
methods = ["single_level"]
backbones = ["gcn"]
datasets = ["cora"]
vary = { hypergradient = ["first_order", "reverse"] }
curves = true
[[trials]]
methods = ["gsebo"]
backbones = ["gcn"]
datasets = ["cora"]
curves = true
""",
    "inter_class": """
title = "Edges: small"
seeds = 2
[[trials]]
methods = ["gsebo"]
backbones = ["gcn", "gat"]
datasets = ["cora", "air-usa"]
[[trials]]
methods = ["gsebo"]
backbones = ["gcn"]
datasets = ["cora"]
noise = [1000, 20000]
""",
    "factors": """
title = "Factors: small"
seeds = 2
[[trials]]
methods = ["gsebo"]
backbones = ["gcn"]
datasets = ["cora", "air-usa"]
vary = { inner_steps = [5, 10, 20] }
[[trials]]
methods = ["gsebo"]
backbones = ["gcn"]
datasets = ["cora", "air-usa"]
vary = { direct_term = [false, true] }
[[trials]]
methods = ["single_level"]
backbones = ["gcn"]
datasets = ["cora", "air-usa"]
set = { hypergradient = "reverse" }
label = "outer loss on training nodes"
[[trials]]
methods = ["vanilla"]
backbones = ["gcn"]
datasets = ["cora", "air-usa"]
""",
    "sensitivity": """
title = "Sensitivity: small"
seeds = 2
[[trials]]
methods = ["amortised"]
backbones = ["gcn"]
datasets = ["cora"]
noise = [0, 5000]
vary = { inner_steps = [10, 20] }
[[trials]]
methods = ["train_val"]
backbones = ["gcn"]
datasets = ["cora"]
noise = [0, 5000]
label = "as long"
""",
    "beyond": """
        title = "Beyond"
        seeds = 2
        [[trials]]
        methods = ["vanilla", "gsebo"]
        backbones = ["gcn"]
        datasets = ["cora"]
        noise = [0, 5000]
        [[trials]]
        methods = ["vanilla", "gsebo"]
        backbones = ["gcn"]
        datasets = ["citeseer"]
        """,
    "robustness_extended": """
title = "Robustness to other noise: small"
seeds = 2
[[trials]]
methods = ["vanilla", "train_val", "gsebo"]
backbones = ["gcn"]
datasets = ["cora"]
noise = [0, "random:1000", "random:500", "removed:10", "removed:90", "labels:10"]
[[trials]]
methods = ["train_val"]
backbones = ["mlp"]
datasets = ["cora"]
noise = [0, "removed:10", "removed:90", "labels:10"]
""",
    "metattack": """
title = "Metattack: small"
seeds = 2
[[trials]]
methods = ["vanilla", "gcn_jaccard", "amortised"]
backbones = ["gcn"]
datasets = ["cora-meta-0", "cora-meta-25", "citeseer-meta-0"]
""",
    "nettack": """
title = "Nettack: small"
seeds = 2
[[trials]]
methods = ["vanilla", "amortised"]
backbones = ["gcn"]
datasets = ["cora-nettack-1", "cora-nettack-5"]
""",
    "prbcd": """
title = "PRBCD: small"
seeds = 2
[[trials]]
methods = ["vanilla", "amortised"]
backbones = ["gcn"]
datasets = ["cora"]
noise = [0, "prbcd:10", "prbcd:50"]
""",
    "hetero": """
title = "Types: small"
seeds = 2
[[trials]]
methods = ["vanilla", "amortised"]
backbones = ["gcn", "relational-gcn"]
datasets = ["yelp"]
noise = [0, "false_typed:30", "false_typed:100"]
[[trials]]
methods = ["vanilla"]
backbones = ["gcn"]
datasets = ["yelp"]
set = { features = "standard" }
label = "without noise"
""",
}

RunOutcome = Callable[[Planned], Result | None]


def made_up(planned: Planned) -> Result:
    """A whole result that depends on everything the trial says."""
    trial = planned.trial
    chance = random.Random(trial.key)
    accuracy = 0.75 - noise_parts(trial.noise)[1] / 50_000 + chance.gauss(0, 0.01)
    accuracy += 0.03 * (trial.method == "gsebo")
    return Result(
        trial=trial,
        test_accuracy=accuracy,
        val_accuracy=accuracy,
        val_loss=0.8,
        seconds=1.5,
        edges=_edges(trial, chance) if trial.method == "gsebo" else None,
        curves=_curves(accuracy, chance) if trial.curves else None,
        device="cpu (made up)",
        versions={"gsebo": "0.1.0", "torch": "2.13.0"},
        finished="2026-11-15T17:17:34+00:00",
    )


def _curves(accuracy: float, chance: random.Random) -> dict[str, list[float]]:
    rising = [1 - math.exp(-step / 8) for step in range(40)]
    return {
        "inner_steps": [10 * (step + 1) for step in range(40)],
        "train_loss": [2 - 1.8 * one + chance.gauss(0, 0.02) for one in rising],
        "val_loss": [2 - one + chance.gauss(0, 0.02) for one in rising],
        "train_accuracy": rising,
        "val_accuracy": [accuracy * one for one in rising],
        "test_accuracy": [accuracy * one + chance.gauss(0, 0.01) for one in rising],
    }


def _edges(trial: Trial, chance: random.Random) -> list[dict[str, Any]]:
    groups = {"within": 1.01, "between": 0.97}
    if edges_appended(trial.noise):
        groups["false"] = 0.9
    layer = {}
    for name, mean in groups.items():
        bars = [0] * len(BINS)
        for _ in range(100):
            bars[min(int(10 * max(chance.gauss(mean, 0.2), 0)), len(BINS) - 1)] += 1
        layer[name] = {"count": 100, "mean": mean, "zero": 2, "histogram": bars}
    return [layer]


def fill_pages(
    folder: Path, outcome: RunOutcome = made_up
) -> tuple[Store, list[ExperimentRecipe]]:
    """Store what ``outcome`` says of every trial; ``None`` is not stored."""
    store = Store(folder / "results")
    recipes = [recipe_of(folder, text, name) for name, text in RECIPES.items()]
    for recipe in recipes:
        planned = make_plan(recipe, Tuning({})).trials
        results = {one.trial.key: outcome(one) for one in planned}
        store.append(recipe.name, [one for one in results.values() if one])
    return store, recipes
