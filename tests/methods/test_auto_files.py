"""An automatic fit is saved with its choice, and resumed where it was."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gsebo import Checkpoint, InvalidInput, load_model

from .auto_examples import auto
from .examples import assert_same_fit, small_graph, with_fields
from .saved import assert_refused, change_facts


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


@pytest.mark.parametrize(
    "options",
    [
        {"methods": "mlp"},
        {"methods": "mlp", "backbone": "gcnii", "backbone_options": {"alpha": 0.3}},
        {"methods": "vanilla", "backbone": "gcnii", "backbone_options": {"alpha": 0.3}},
        {"methods": "vanilla", "features": "standard"},
        {"features": "standard"},
        {"methods": "gsebo"},
    ],
    ids=str,
)
def test_a_choice_is_saved_with_the_model(
    options: dict[str, Any], data: Data, tmp_path: Path
) -> None:
    model = auto(**options).fit(data)
    model.save(tmp_path)
    assert model.chosen_ in options.get("methods", "vanilla,mlp")
    loaded = load_model(tmp_path)
    for name in ("chosen_", "preparation_", "epochs_", "choice_", "chosen_parameters_"):
        assert getattr(loaded, name) == getattr(model, name)
    assert torch.equal(loaded.predict_proba(data), model.probability_)
    moved = with_fields(data, x=data.x + 1)
    assert torch.equal(loaded.predict_proba(moved), model.predict_proba(moved))


def test_a_model_without_its_choice_is_refused(data: Data, tmp_path: Path) -> None:
    auto().fit(data).save(tmp_path)
    for junk in ({}, {"tried": [], "parameters": {}}, {"tried": [{"a": 1}]}, 3):
        change_facts(tmp_path, choice=junk)
        assert "model.json is not a model written by gsebo" in assert_refused(tmp_path)
    change_facts(tmp_path, choice=None)
    assert "auto has made no choice; expected one" in assert_refused(tmp_path)


def test_nothing_is_tried_twice(data: Data, tmp_path: Path) -> None:
    heard: list[int] = []
    auto().fit(
        data, checkpoint=Checkpoint(tmp_path), watcher=lambda r, _: heard.append(r.step)
    )
    again: list[int] = []
    resumed = auto().fit(
        data,
        checkpoint=Checkpoint(tmp_path, resume=True),
        watcher=lambda r, _: again.append(r.step),
    )
    assert heard and again == []
    assert_same_fit(resumed, auto().fit(data))


def test_an_older_fit_does_not_get_in_the_way(data: Data, tmp_path: Path) -> None:
    auto(random_state=1).fit(data, checkpoint=Checkpoint(tmp_path))
    auto().fit(data, checkpoint=Checkpoint(tmp_path))
    resumed = auto().fit(data, checkpoint=Checkpoint(tmp_path, resume=True))
    assert_same_fit(resumed, auto().fit(data))
    with pytest.raises(InvalidInput, match="another graph, seed or parameters"):
        auto(random_state=1).fit(data, checkpoint=Checkpoint(tmp_path, resume=True))
