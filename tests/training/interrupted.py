"""Fits that are killed, and the same fits left alone."""

from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gsebo import Checkpoint, generate_graph
from gsebo.methods import METHODS, GraphClassifier

# The folders of tests are packages side by side.
from methods.examples import QUICK_OF

# Six looks at the validation nodes, whichever of these a method takes.
SCHEDULE = {
    "inner_steps": 3,
    "max_outer_steps": 6,
    "outer_step": "paper",
    "outer_lr": 0.1,
    "max_epochs": 16,
    "evaluate_every": 3,
    "max_episodes": 6,
    "hidden_channels": 8,
    "random_state": 0,
}
# Two networks take turns: a look is taken when both have moved.
_TWICE = {name: {"max_outer_steps": 12} for name in ("amortised", "inoculated")}
every_method = pytest.mark.parametrize("name", list(METHODS))


def graph() -> Data:
    return generate_graph(50, average_degree=4.0, split="random:20/30/50")


def make(name: str, **changes: Any) -> GraphClassifier:
    estimator = METHODS[name].estimator
    taken = signature(estimator).parameters
    schedule = {k: v for k, v in SCHEDULE.items() if k in taken}
    schedule |= _TWICE.get(name, {})
    return estimator(**QUICK_OF.get(name, {}) | schedule | changes)


def with_optimizer(name: str, optimizer: str) -> GraphClassifier:
    """An estimator with one optimizer for all that it learns."""
    options = {"inner_optimizer": optimizer}
    if "outer_optimizer" in make(name).get_params():
        options["outer_optimizer"] = optimizer
    return make(name, **options)


_ALONE: dict[tuple[str, str], GraphClassifier] = {}


def left_alone(name: str, optimizer: str | None = None) -> GraphClassifier:
    """A fit without a checkpoint, made once for all that are compared with it."""
    model = make(name) if optimizer is None else with_optimizer(name, optimizer)
    # Most methods have one of these optimizers anyway.
    key = name, str(model.get_params())
    if key not in _ALONE:
        _ALONE[key] = model.fit(graph())
    return _ALONE[key]


class Killed(Exception):
    pass


def interrupt(
    model: GraphClassifier,
    data: Data,
    folder: Path,
    *,
    after: int = 3,
    resume: bool = False,
) -> list[int]:
    """Fit, be killed in the middle of step ``after + 1``, and tell the steps so far."""
    seen: list[int] = []
    checkpoint = resuming(folder) if resume else saving(folder)

    def watcher(record, logits) -> None:
        seen.append(record.step)
        if record.step > after:
            raise Killed

    with pytest.raises(Killed):
        model.fit(data, checkpoint=checkpoint, watcher=watcher)
    assert not hasattr(model, "model_")
    return seen


def saving(folder: Path) -> Checkpoint:
    return Checkpoint(folder, every_seconds=0)


def resuming(folder: Path) -> Checkpoint:
    return Checkpoint(folder, every_seconds=0, resume=True)


def assert_same_run(left: GraphClassifier, right: GraphClassifier) -> None:
    assert torch.equal(left.probability_, right.probability_)
    assert torch.equal(left.strength_, right.strength_)
    assert left.best_step_ == right.best_step_
    histories = [
        [replace(record, seconds=0.0) for record in model.history_]
        for model in (left, right)
    ]
    assert histories[0] == histories[1]
