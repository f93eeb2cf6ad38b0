"""Fitted models that are attacked, from the recipe to the stored line."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.experiments.small import trial

from gsebo.attacks import victim_of
from gsebo.data import load
from gsebo.experiments import Result, Store, Tuning, load_recipe, make_plan
from gsebo.experiments.evasion import attacked_one_by_one, evade
from gsebo.experiments.fit import execute
from gsebo.experiments.protocols import EVASIONS, EvasionProtocol
from gsebo.experiments.runner import Durations
from gsebo.methods import METHODS

SHORT = EvasionProtocol(
    global_epochs=4, local_epochs=3, extreme_nodes=2, random_nodes=2
)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EVASIONS, "short", SHORT)


def attacked(method: str, backbone: str = "gcn", **parameters: Any) -> Result:
    one = trial(
        1,
        method,
        backbone=backbone,
        dataset="planted",
        parameters={"hidden_channels": 8, **parameters},
        evasion="short",
    )
    (result,) = execute([one])
    assert result.ok, result.error
    return result


@pytest.mark.parametrize(
    ("method", "backbone", "parameters"),
    [
        ("vanilla", "gcn", {"max_epochs": 30}),
        ("gnnguard", "gnnguard", {"max_epochs": 10}),
        ("soft_median", "soft-median", {"max_epochs": 10}),
        ("amortised", "gcn", {"max_outer_steps": 3}),
    ],
)
def test_a_model_is_attacked(
    method: str, backbone: str, parameters: dict[str, Any]
) -> None:
    found = attacked(method, backbone, **parameters)
    assert found.evasion is not None
    assert {"global", "local"} <= found.evasion.keys()
    assert ("global_pyg" in found.evasion) is (method == "vanilla")
    overall, single = found.evasion["global"], found.evasion["local"]
    graph = load("planted")
    assert overall["nodes"] == int(graph.test_mask.sum())
    assert overall["before"] == found.test_accuracy
    assert overall["after"] <= overall["before"]
    assert 0 < overall["flips"] <= 160
    assert single["nodes"] == 6 and single["after"] <= single["before"]
    assert Result.from_line(found.line()) == found
    assert found.seconds is not None and found.whole_seconds is not None
    assert found.whole_seconds > found.seconds
    assert Durations([found]).of(found.trial) == found.whole_seconds


def test_what_looks_at_no_edge_stays_as_it_is() -> None:
    found = attacked("train_val", "mlp", max_epochs=30).evasion
    assert found is not None
    for one in found.values():
        assert one["flips"] == 0 and one["after"] == one["before"]


def test_the_copy_has_to_be_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = load("planted")
    model = METHODS["vanilla"].make(max_epochs=30, device="cpu").fit(graph)
    other = METHODS["vanilla"].make(backbone="mlp", max_epochs=1, device="cpu")
    other.fit(graph)
    monkeypatch.setattr(
        "gsebo.experiments.evasion.victim_of", lambda *_: victim_of(other, graph)
    )
    with pytest.raises(ValueError, match="predicts another class of"):
        evade(model, graph, SHORT, 0, compared=False)


def test_who_is_attacked_alone() -> None:
    chance = torch.Generator().manual_seed(0)
    sure = torch.rand(60, generator=chance)
    probabilities = torch.stack([sure, 1 - sure], dim=1)
    labels = torch.zeros(60, dtype=torch.int64)
    chosen = attacked_one_by_one(probabilities, labels, SHORT, 0)
    assert len(chosen) == len(set(chosen.tolist())) == 6
    right = sure[sure > 0.5].sort().values
    assert {*right[:2].tolist(), *right[-2:].tolist()} <= set(sure[chosen].tolist())
    again, other = (
        attacked_one_by_one(probabilities, labels, SHORT, seed) for seed in (0, 1)
    )
    assert torch.equal(chosen, again) and not torch.equal(chosen, other)
    # Fewer nodes than are asked for.
    few = attacked_one_by_one(probabilities[:3], labels[:3], SHORT, 0)
    assert few.tolist() == [0, 1, 2]


def test_trials_without_an_attack_are_called_as_before() -> None:
    plain, other = trial(), trial(evasion="adaptive")
    assert "evasion" not in plain.content() and plain.key != other.key
    assert plain.key == "046bd278c58ab26b"
    assert "attacked (adaptive)" in str(other)
    result = Result(trial=other, test_accuracy=0.5, evasion={})
    assert Result.from_line(result.line()).trial == other


def test_from_a_recipe_to_the_store(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        """
title = "One attack"
seeds = 1

[[trials]]
methods = ["vanilla"]
backbones = ["gcn"]
datasets = ["cora"]
set = { hidden_channels = 4, max_epochs = 5 }
evasion = "short"
"""
    )
    (planned,) = make_plan(load_recipe(str(path)), Tuning({})).trials
    assert planned.trial.evasion == "short"
    store = Store(tmp_path / "results")
    store.append("mine", execute([planned.trial]))
    result = store.results()[planned.trial.key]
    assert result.evasion is not None and "global_pyg" in result.evasion
