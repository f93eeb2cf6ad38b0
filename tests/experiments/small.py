"""Recipes of a few short fits, and what the store says of them."""

import json
from pathlib import Path
from typing import Any

from gsebo.experiments import Result, Trial

# Where, when and how fast: everything else must be the same each time.
_CIRCUMSTANCES = ("seconds", "peak_memory_bytes", "finished")


def write_recipe(
    path: Path,
    *,
    methods: str = '["vanilla"]',
    seeds: int = 4,
    epochs: int = 5,
    more: str = "",
) -> Path:
    """Write a recipe of short fits of a small GCN on Cora."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"""
title = "Some short fits"
seeds = {seeds}

[[trials]]
methods = {methods}
backbones = ["gcn"]
datasets = ["cora"]
set = {{ hidden_channels = 4, max_epochs = {epochs} }}
{more}
"""
    )
    return path


def trial(seed: int = 0, method: str = "vanilla", **changes: Any) -> Trial:
    fields = {"backbone": "gcn", "dataset": "cora", "split": "file", **changes}
    return Trial(method=method, seed=seed, **fields)


def result(seed: int = 0, method: str = "vanilla", **outcome: Any) -> Result:
    """A result that nobody computed, at no time: tests may be named by its line."""
    outcome = {"finished": "2026-01-01T00:00:00+00:00", **outcome}
    if "error" not in outcome:
        outcome = {"test_accuracy": 0.5, "seconds": 1.0, **outcome}
    return Result(trial=trial(seed, method), **outcome)


def lines(path: Path) -> list[dict[str, Any]]:
    """The content of a file of results, line by line."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def figures(path: Path) -> dict[str, dict[str, Any]]:
    """What a file of results says of each trial, which must be there once."""
    found: dict[str, dict[str, Any]] = {}
    for line in lines(path):
        assert line["id"] not in found
        found[line["id"]] = {k: v for k, v in line.items() if k not in _CIRCUMSTANCES}
    return found
