"""Recipes written in a test, and results for them that were never fitted."""

from collections.abc import Callable
from pathlib import Path

from gsebo.data import noise_parts
from gsebo.experiments import (
    ExperimentRecipe,
    Planned,
    Result,
    Store,
    Tuning,
    load_recipe,
)
from gsebo.experiments.plan import make_plan

RunOutcome = Callable[[Planned], float | None]

COMPARED = """
title = "Two methods | five seeds & 100 %"
seeds = 5

[[trials]]
methods = ["vanilla", "gsebo", "dropedge"]
backbones = ["gcn", "jk"]
datasets = ["cora", "air-usa"]
"""
NOISY = """
title = "False edges"
seeds = 6

[[trials]]
methods = ["vanilla", "gsebo"]
backbones = ["gcn", "sage"]
datasets = ["cora", "citeseer"]
noise = [0, 1000, 20000]
"""
OTHER_NOISE = """
title = "All kinds of noise"
seeds = 6

[[trials]]
methods = ["vanilla", "gsebo"]
backbones = ["gcn", "mlp"]
datasets = ["cora", "citeseer"]
noise = ["removed:90", "removed:10", 1000, 0, "labels:10", "random:1000"]
"""
SEARCH = """
title = "A search"
seeds = 2

[[trials]]
methods = ["gsebo", "vanilla"]
backbones = ["gcn", "sage"]
datasets = ["cora"]
split = "halves"
variants = { sage = ["sage", "sage-gcn"] }

[[trials]]
methods = ["gsebo"]
backbones = ["gcn", "sage"]
datasets = ["cora"]
split = "halves"
variants = { sage = ["sage", "sage-gcn"] }
vary = { inner_steps = [5, 20] }
"""
TUNED = """
title = "What a search chose"
seeds = 3

[[trials]]
methods = ["vanilla", "gsebo"]
backbones = ["gcn", "sage"]
datasets = ["cora"]
tuned_by = "{search}"

[[trials]]
methods = ["gsebo"]
backbones = ["gcn"]
datasets = ["cora"]
vary = {{ inner_steps = [1, 2] }}
"""


def recipe_of(folder: Path, text: str, name: str = "own") -> ExperimentRecipe:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(text, "utf-8")
    return load_recipe(str(path))


def accuracy_of(planned: Planned) -> float:
    """A made-up accuracy in which every part of a trial plays a role."""
    trial = planned.trial
    word = f"{trial.method}{trial.backbone}{trial.dataset}{trial.parameters}"
    noise = noise_parts(trial.noise)[1] / 200_000
    return 0.5 + sum(map(ord, word)) % 997 / 3000 - noise + trial.seed**2 / 1234


def fill(
    store: Store, recipe: ExperimentRecipe, outcome: RunOutcome = accuracy_of
) -> None:
    """Store a result for each trial; one of ``None`` as failed, one above 1 not."""
    plan = make_plan(recipe, Tuning(store.results()))
    results = []
    for planned in (*plan.first, *plan.trials):
        accuracy = outcome(planned)
        if accuracy is None:
            result = Result(trial=planned.trial, error="ValueError: no luck")
        elif accuracy > 1:
            continue
        else:
            result = Result(
                trial=planned.trial,
                test_accuracy=accuracy,
                val_accuracy=accuracy / 2,
                seconds=float(planned.trial.seed),
                peak_memory_bytes=1000 + planned.trial.seed,
            )
        results.append(result)
    store.append(recipe.name, results)
