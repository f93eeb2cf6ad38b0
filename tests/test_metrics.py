"""Every metric is scikit-learn's, whatever the pieces that it is counted from."""

import doctest
import warnings
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    accuracy_score,
    balanced_accuracy_score,
    f1_score,
    get_scorer,
    log_loss,
    roc_auc_score,
)

from gsebo import InvalidInput, metrics
from gsebo.metrics import (
    METRICS,
    MetricName,
    Tally,
    metric_function,
    metric_value,
    require_fitting,
)

Case = tuple[np.ndarray, np.ndarray]


@st.composite
def cases(draw: st.DrawFn, most_classes: int = 5) -> Case:
    """Labels, and probabilities of which many are tied."""
    classes = draw(st.integers(2, most_classes))
    nodes = draw(st.integers(1, 30))
    rows = st.lists(st.integers(1, 4), min_size=classes, max_size=classes)
    weights = draw(st.lists(rows, min_size=nodes, max_size=nodes))
    label = st.integers(0, classes - 1)
    labels = draw(st.lists(label, min_size=nodes, max_size=nodes))
    table = np.array(weights, np.float64)
    return np.array(labels), table / table.sum(1, keepdims=True)


def by_scikit_learn(name: str, labels: np.ndarray, probability: np.ndarray) -> float:
    predicted = probability.argmax(-1)
    if name == "accuracy":
        return float(accuracy_score(labels, predicted))
    if name == "balanced_accuracy":
        with warnings.catch_warnings():
            # Of a prediction that is nobody's label, and of a single class.
            warnings.simplefilter("ignore", UserWarning)
            return float(balanced_accuracy_score(labels, predicted))
    if name == "f1_macro":
        return float(f1_score(labels, predicted, average="macro", zero_division=0.0))
    if name == "roc_auc":
        return float(roc_auc_score(labels, probability[:, 1]))
    classes = np.arange(probability.shape[1])
    return -float(log_loss(labels, probability, labels=classes))


@pytest.mark.parametrize("name", [one for one in METRICS if one != "roc_auc"])
@settings(max_examples=40)
@given(case=cases())
def test_they_are_those_of_scikit_learn(name: str, case: Case) -> None:
    assert np.isclose(metric_value(name, *case), by_scikit_learn(name, *case))


@settings(max_examples=40)
@given(case=cases(most_classes=2))
def test_so_is_the_area_under_the_curve(case: Case) -> None:
    labels, probability = case
    if len(set(labels)) < 2:
        with pytest.raises(InvalidInput, match="all of one class"):
            metric_value("roc_auc", labels, probability)
    else:
        ours = metric_value("roc_auc", labels, probability)
        assert np.isclose(ours, by_scikit_learn("roc_auc", labels, probability))


@settings(max_examples=40)
@given(case=cases(), cuts=st.lists(st.integers(0, 30), max_size=3))
def test_pieces_make_the_whole(case: Case, cuts: list[int]) -> None:
    labels, probability = case
    whole, pieces = (Tally(probability.shape[1]) for _ in range(2))
    whole.add(labels, probability)
    for part in np.split(np.arange(len(labels)), sorted(cuts)):
        pieces.add(labels[part], probability[part])
    assert (whole.counts == pieces.counts).all()
    for name, value in whole.values().items():
        assert pieces.values()[name] == pytest.approx(value)
        if value is not None:
            assert metric_value(name, labels, probability) == value


@settings(max_examples=40)
@given(case=cases())
def test_a_better_prediction_has_more_of_everything(case: Case) -> None:
    labels, probability = case
    sure = np.eye(probability.shape[1])[labels]
    better = (probability + sure) / 2
    for name in METRICS:
        if METRICS[name].is_binary and len(set(labels)) < 2:
            continue
        if METRICS[name].is_binary and probability.shape[1] != 2:
            continue
        assert metric_value(name, labels, better) >= metric_value(
            name, labels, probability
        )
        assert metric_value(name, labels, sure) == (name != "neg_log_loss")


def test_names_are_those_of_scikit_learn_and_of_all_who_take_one() -> None:
    assert get_args(MetricName) == tuple(METRICS)
    assert all(get_scorer(name) for name in METRICS)


def test_a_class_that_the_model_does_not_know_is_never_right() -> None:
    labels, probability = np.array([0, 1, 2, 2]), np.eye(2)[[0, 1, 0, 1]]
    found = Tally(2)
    found.add(labels, probability)
    values = found.values()
    assert values["accuracy"] == 0.5
    predicted = probability.argmax(-1)
    assert values["f1_macro"] == f1_score(labels, predicted, average="macro")
    assert values["neg_log_loss"] is not None and -50 < values["neg_log_loss"] < -40
    assert values["roc_auc"] is None
    with pytest.raises(InvalidInput, match="does not know"):
        found.value("roc_auc")


def test_without_a_node_there_is_no_score() -> None:
    assert Tally(3).values() == dict.fromkeys(METRICS)


@pytest.mark.parametrize("classes", [1, 3])
def test_an_area_takes_two_classes(classes: int) -> None:
    labels, probability = np.zeros(4, int), np.full((4, classes), 1 / classes)
    many = "1 class" if classes == 1 else f"{classes} classes"
    for call in (
        lambda: metric_value("roc_auc", labels, probability),
        lambda: require_fitting("roc_auc", labels, classes),
    ):
        with pytest.raises(InvalidInput, match=f"roc_auc given for a graph of {many}"):
            call()
    require_fitting("f1_macro", labels, classes)


def test_nodes_without_a_label_cannot_be_scored() -> None:
    with pytest.raises(InvalidInput, match="1 of 2 nodes to score have no label"):
        metric_value("f1_macro", np.array([0, -1]), np.eye(2))


@pytest.mark.parametrize("scoring", ["f1", "", None, 3, ["accuracy"]])
def test_what_is_no_metric_is_told(scoring: Any) -> None:
    with pytest.raises(InvalidInput, match="expected 'accuracy'"):
        metric_function(scoring)


def test_examples_in_the_text() -> None:
    assert doctest.testmod(metrics).failed == 0
