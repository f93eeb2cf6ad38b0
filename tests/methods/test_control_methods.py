"""What the controls are, said as equalities with the methods that they control for."""

import pytest
import torch
from torch_geometric.data import Data

import gsebo
from gsebo import (
    GSEBO,
    InvalidInput,
    MLPControl,
    Retrain,
    SingleLevel,
    TrainVal,
    Vanilla,
)
from gsebo.methods.fitting import PreparedGraph

from .examples import assert_same_fit, small_graph, with_fields

BACKBONES = ["gcn", "gat", "sage", "jk"]
SHORT = {"max_epochs": 8, "random_state": 0, "hidden_channels": 8}


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(num_classes=3)


# --- train + validation --------------------------------------------------------------


@pytest.mark.parametrize("backbone", BACKBONES)
def test_train_val_is_vanilla_with_more_labels(data: Data, backbone: str) -> None:
    labelled = data.train_mask | data.val_mask
    more = with_fields(data, train_mask=labelled, val_mask=data.val_mask)
    prepared = PreparedGraph(more, torch.device("cpu"))
    assert prepared.inner_nodes.numel() == int(labelled.sum())
    model = TrainVal(backbone=backbone, **SHORT).fit(data)
    # A validated graph keeps the two apart, so the equal is made of parts.
    assert model.best_step_ == len(model.history_) == SHORT["max_epochs"]
    fewer = Vanilla(backbone=backbone, select_by="last", **SHORT).fit(data)
    assert not torch.equal(model.probability_, fewer.probability_)


def test_train_val_learns_from_validation_labels(data: Data) -> None:
    changed = data.y.clone()
    changed[data.val_mask] = (changed[data.val_mask] + 1) % 3
    plain, other = (
        TrainVal(**SHORT).fit(each) for each in (data, with_fields(data, y=changed))
    )
    assert not torch.equal(plain.probability_, other.probability_)
    last = [
        Vanilla(select_by="last", **SHORT).fit(each)
        for each in (data, with_fields(data, y=changed))
    ]
    assert_same_fit(*last)


# --- no edges ------------------------------------------------------------------------


def test_the_mlp_sees_no_edges(data: Data) -> None:
    none = with_fields(data, edge_index=data.edge_index[:, :1])
    left, right = MLPControl(**SHORT).fit(data), MLPControl(**SHORT).fit(none)
    assert torch.equal(left.probability_, right.probability_)
    vanilla = Vanilla("mlp", **SHORT).fit(data)
    assert torch.equal(left.probability_, vanilla.probability_)


# --- a single level ------------------------------------------------------------------


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_single_level_does_not_learn_from_validation_labels(
    data: Data, backbone: str
) -> None:
    changed = data.y.clone()
    changed[data.val_mask] = (changed[data.val_mask] + 1) % 3
    options = {**SHORT, "evaluate_every": 2, "select_by": "last", "outer_lr": 0.1}
    left, right = (
        SingleLevel(backbone=backbone, **options).fit(each)
        for each in (data, with_fields(data, y=changed))
    )
    assert_same_fit(left, right)
    assert not torch.equal(left.strength_, left.initial_strength_)


def test_a_single_level_lowers_the_training_loss_further(data: Data) -> None:
    options = {**SHORT, "max_epochs": 60, "dropout": 0.0, "select_by": "last"}
    options["evaluate_every"] = 5
    free = SingleLevel(outer_lr=0.05, **options).fit(data)
    fixed = SingleLevel(outer_lr=0.0, **options).fit(data)
    assert free.history_[-1].train_loss < fixed.history_[-1].train_loss


def test_with_another_engine_both_levels_see_the_training_nodes(data: Data) -> None:
    options = {**SHORT, "evaluate_every": 2, "outer_lr": 0.1, "select_by": "last"}
    reverse = SingleLevel(hypergradient="reverse", **options).fit(data)
    same_nodes = with_fields(data, val_mask=data.train_mask, train_mask=data.train_mask)
    assert int((same_nodes.val_mask & same_nodes.train_mask).sum()) > 0
    first = SingleLevel(**options).fit(data)
    assert not torch.equal(reverse.strength_, first.strength_)


# --- trained again -------------------------------------------------------------------


@pytest.mark.parametrize("backbone", BACKBONES)
def test_retraining_on_what_did_not_change_is_vanilla(
    data: Data, backbone: str
) -> None:
    options = {**SHORT, "backbone": backbone}
    again = Retrain(
        method="gsebo",
        method_options={"trust_radius": 0.0, "max_outer_steps": 2},
        **options,
    ).fit(data)
    vanilla = Vanilla(**options).fit(data)
    torch.testing.assert_close(again.probability_, vanilla.probability_)
    torch.testing.assert_close(again.strength_, vanilla.strength_)


@pytest.mark.parametrize("per_layer", [False, True])
def test_retraining_keeps_the_learned_strengths(data: Data, per_layer: bool) -> None:
    learned = {
        "outer_step": "paper",
        "outer_lr": 0.5,
        "max_outer_steps": 4,
        "per_layer": per_layer,
    }
    again = Retrain(method="gsebo", method_options=learned, **SHORT).fit(data)
    first = GSEBO(**learned, hidden_channels=8, random_state=0).fit(data)
    torch.testing.assert_close(again.strength_, first.strength_)
    assert not torch.equal(again.probability_, first.probability_)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("adaedge", {"max_epochs": 5, "conf_add": 0.0, "num_add": 6}),
        ("bgcn", {"max_epochs": 8, "warmup_epochs": 3, "average_after": 5}),
        ("dropedge", {"max_epochs": 4}),
        ("ptdnet", {"max_epochs": 3}),
    ],
)
def test_any_method_can_be_retrained(data: Data, method: str, options: dict) -> None:
    if method == "bgcn":
        options = {**options, "random_iterations": 2, "refit_iterations": 1}
    model = Retrain(method=method, method_options=options, **SHORT).fit(data)
    estimator = gsebo.methods.METHODS[method].estimator
    other = estimator(**options, hidden_channels=8, random_state=0).fit(data)
    torch.testing.assert_close(model.strength_, other.strength_)
    torch.testing.assert_close(model.new_edge_index_, other.new_edge_index_)
    torch.testing.assert_close(model.new_edge_strength_, other.new_edge_strength_)


@pytest.mark.parametrize(
    ("method", "options", "expected"),
    [
        ("retrain", None, "another method"),
        ("gseb", None, "did you mean 'gsebo'"),
        ("gsebo", {"no_such": 1}, "no_such"),
        ("bgcn", {"delta": -1}, "delta"),
    ],
)
def test_another_method_that_is_none(
    data: Data, method: str, options: dict | None, expected: str
) -> None:
    with pytest.raises(InvalidInput, match=expected):
        Retrain(method=method, method_options=options).fit(data)
