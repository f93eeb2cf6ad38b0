"""What estimators are scored by, and that what a metric selects is best by it."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, log_loss, roc_auc_score
from torch_geometric.data import Data

import gsebo
from gsebo import InvalidInput, Vanilla, load_model
from gsebo.metrics import METRICS, metric_value
from gsebo.training import StepRecord

from .auto_examples import auto
from .examples import assert_same_fit, quick, small_graph, with_fields


@pytest.fixture(scope="module")
def data() -> Data:
    """Two classes, one of them rare, and hard to tell."""
    return small_graph(200, feature_signal=0.5, homophily=0.6)


def vanilla(**changes: Any) -> Vanilla:
    options = {"hidden_channels": 4, "max_epochs": 40, "device": "cpu"}
    return Vanilla(**options | {"random_state": 0, "inner_lr": 0.1} | changes)


def test_a_score_is_that_of_scikit_learn(data: Data) -> None:
    model = vanilla().fit(data)
    labels = data.y[data.test_mask].numpy()
    probability = model.predict_proba(data)[data.test_mask].double().numpy()
    probability /= probability.sum(1, keepdims=True)
    predicted = probability.argmax(-1)
    expected = {
        "accuracy": model.score(data),
        "f1_macro": f1_score(labels, predicted, average="macro"),
        "roc_auc": roc_auc_score(labels, probability[:, 1]),
        "neg_log_loss": -log_loss(labels, probability),
    }
    for name, value in expected.items():
        assert model.score(data, scoring=name) == pytest.approx(value, abs=1e-6), name
    own = model.score(data, "val", scoring=lambda y, p: float(len(y) + p.shape[1]))
    assert own == int(data.val_mask.sum()) + 2


def test_what_does_not_fit_is_one_sentence(data: Data) -> None:
    model = vanilla(max_epochs=2).fit(data)
    one_class = data.test_mask & (data.y == 0)
    with pytest.raises(InvalidInput, match="all of one class"):
        model.score(data, one_class, scoring="roc_auc")
    with pytest.raises(InvalidInput, match="scoring='auc' given"):
        model.score(data, scoring="auc")
    several = small_graph(num_classes=3)
    with pytest.raises(InvalidInput, match="roc_auc given for a graph of 3 classes"):
        vanilla(select_by="roc_auc").fit(several)
    with pytest.raises(InvalidInput, match="roc_auc given for a graph of 3 classes"):
        auto(select_by="roc_auc").fit(several)
    with pytest.raises(InvalidInput, match="roc_auc given for a graph of 3 classes"):
        gsebo.search(vanilla(), {"dropout": [0.1]}, several, scoring="roc_auc")
    one = with_fields(data, val_mask=data.val_mask & (data.y == 1))
    with pytest.raises(InvalidInput, match="all of one class"):
        vanilla(select_by="roc_auc").fit(one)


# --- which step is kept --------------------------------------------------------------


@pytest.mark.parametrize("name", ["vanilla", "gsebo", "dropedge"])
@pytest.mark.parametrize("metric", ["f1_macro", "roc_auc", "neg_log_loss"])
def test_the_step_that_is_kept_is_best_by_the_metric(
    data: Data, name: str, metric: str
) -> None:
    labels = data.y[data.val_mask].numpy()
    seen: list[float] = []

    def watch(record: StepRecord, logits: torch.Tensor) -> None:
        probability = logits.detach()[data.val_mask].double().softmax(-1).numpy()
        seen.append(metric_value(metric, labels, probability))
        assert record.val_score == pytest.approx(seen[-1], abs=1e-6)

    changes = {"outer_step": "paper"} if name == "gsebo" else {}
    model = quick(name, select_by=metric, inner_lr=0.1, **changes)
    model.fit(data, watcher=watch)
    scores = [record.val_score for record in model.history_]
    assert len(scores) > 3 and None not in scores
    best = model.history_[model.best_step_ - 1]
    assert best.val_score == max(scores)
    equal = [record for record in model.history_ if record.val_score == max(scores)]
    assert best.val_loss == min(record.val_loss for record in equal)


def test_another_metric_keeps_another_step(data: Data) -> None:
    kept = {
        metric: vanilla(select_by=metric).fit(data)
        for metric in ("loss", "accuracy", "roc_auc", "f1_macro")
    }
    assert len({model.best_step_ for model in kept.values()}) > 1
    for metric in ("roc_auc", "f1_macro"):
        scores = {n: m.score(data, "val", scoring=metric) for n, m in kept.items()}
        assert scores[metric] == max(scores.values())


def test_replicas_select_as_they_would_alone(data: Data) -> None:
    together = vanilla(select_by="roc_auc").fit(data, replicas=3)
    for number, replica in enumerate(together.replicas_):
        alone = vanilla(select_by="roc_auc", random_state=number).fit(data)
        assert replica.best_step_ == alone.best_step_
        assert torch.equal(replica.probability_, alone.probability_)


def test_by_log_loss_is_by_loss(data: Data) -> None:
    by_loss, by_metric = (
        vanilla(select_by=name).fit(data) for name in ("loss", "neg_log_loss")
    )
    assert by_loss.best_step_ == by_metric.best_step_
    assert torch.equal(by_loss.probability_, by_metric.probability_)
    assert all(record.val_score is None for record in by_loss.history_)


def test_what_selected_is_saved(data: Data, tmp_path: Any) -> None:
    model = vanilla(select_by="roc_auc").fit(data)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.history_ == model.history_
    assert_same_fit(model, loaded)


# --- searches and automatic fits -----------------------------------------------------


@pytest.mark.parametrize("metric", METRICS)
def test_a_search_goes_by_the_metric(data: Data, metric: str) -> None:
    grid = {"max_epochs": [1, 40], "dropout": [0.0, 0.8]}
    found = gsebo.search(
        vanilla(), grid, data, folds=2, scoring=metric, refit=False
    ).results_
    by_hand = gsebo.search(
        vanilla(),
        grid,
        data,
        folds=2,
        scoring=lambda y, p: metric_value(metric, y, p),
        refit=False,
    ).results_
    assert (found["mean"] == by_hand["mean"]).all()
    assert found["mean"].idxmax() == found["rank"].idxmin()


def test_an_automatic_fit_compares_by_the_metric() -> None:
    # Nearly all are of one class, which is all that accuracy hears of.
    data = small_graph(300, feature_signal=1.0, homophily=0.5)
    rare = (data.y == 1) & (torch.arange(300) % 6 > 0)
    data = with_fields(data, y=torch.where(rare, 0, data.y))
    model = auto(select_by="roc_auc", max_epochs=60).fit(data)
    scores = {each["candidate"]: each["score"] for each in model.choice_}
    assert model.chosen_ == max(scores, key=scores.__getitem__)
    assert all(0 <= one <= 1 for each in model.choice_ for one in each["fold_score"])
    chosen = next(each for each in model.choice_ if each["chosen"])
    assert "ROC-AUC" in chosen["reason"]
    by_accuracy = auto(max_epochs=60).fit(data)
    assert all(each["score"] is None for each in by_accuracy.choice_)


def test_an_automatic_fit_by_a_metric_goes_on_from_a_checkpoint(
    data: Data, tmp_path: Any
) -> None:
    model = auto(select_by="f1_macro").fit(data)
    first, again = (
        auto(select_by="f1_macro").fit(
            data, checkpoint=gsebo.Checkpoint(tmp_path, every_seconds=0, resume=resume)
        )
        for resume in (False, True)
    )
    for other in (first, again):
        assert_same_fit(model, other)
        assert [each["score"] for each in other.choice_] == [
            each["score"] for each in model.choice_
        ]
    assert np.isfinite(again.choice_[0]["score"])
