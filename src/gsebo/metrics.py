"""Scores of predictions, by the names and signs of scikit-learn: greater is better.

They are counted from pieces of any size, so that predictions of a graph on disk are
scored as those of one in memory are; and scikit-learn takes longer to load than a small
fit takes. Tests hold every one of them against scikit-learn's.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from gsebo.errors import InvalidInput

Array = NDArray[Any]
MetricName = Literal[
    "accuracy", "balanced_accuracy", "f1_macro", "roc_auc", "neg_log_loss"
]
MetricFunction = Callable[[Array, Array], float]
"""Of classes ``[nodes]`` and probabilities ``[nodes, classes]``; more is better."""

# No likelihood is less, so that a single node cannot make a mean infinite.
_LEAST = float(np.finfo(np.float32).tiny)


@final
class Tally:
    """What the metrics have to know of predictions, counted piece by piece.

    Labels are numbers of classes. One that is beyond them is of a class that the model
    does not know, and never predicts.
    """

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        # How many nodes have which label (row) and are predicted as what (column).
        self.counts = np.zeros((num_classes + 1, num_classes), np.int64)
        self.log_likelihood = 0.0  # Of all labels together.
        # Probabilities of the second of two classes, by the class of the node.
        self._seconds: tuple[list[Array], list[Array]] = ([], [])

    @property
    def num_nodes(self) -> int:
        """Number of nodes that were counted."""
        return int(self.counts.sum())

    def add(self, labels: Array, probability: Array) -> None:
        """Count nodes, with labels ``[nodes]`` and probabilities ``[nodes, classes]``.

        Raises:
            InvalidInput: A node has no label.
        """
        if unlabelled := int((labels < 0).sum()):
            raise InvalidInput(
                f"{unlabelled} of {len(labels)} nodes to score have no label; expected "
                "a label of each."
            )
        known = np.minimum(labels.astype(np.int64), self.num_classes)
        place = known * self.num_classes + probability.argmax(-1)
        counts = np.bincount(place, minlength=self.counts.size)
        self.counts += counts.reshape(self.counts.shape)
        inside = np.minimum(known, self.num_classes - 1)
        own = probability[np.arange(len(known)), inside].astype(np.float64)
        own[known == self.num_classes] = 0
        self.log_likelihood += float(np.log(own.clip(min=_LEAST)).sum())
        if self.num_classes == 2:
            for label, found in enumerate(self._seconds):
                found.append(probability[known == label, 1])

    def seconds(self) -> tuple[Array, Array]:
        """Probabilities of the second of two classes, of the nodes of either class."""
        first, second = self._seconds
        return np.concatenate(first), np.concatenate(second)

    def value(self, name: str) -> float:
        """A metric of all nodes that were counted.

        Raises:
            InvalidInput: The metric does not fit these nodes.
        """
        metric = METRICS[name]
        if metric.is_binary:
            _require_both(name, self.counts.sum(1), self.num_classes)
        return metric.of(self)

    def values(self) -> dict[str, float | None]:
        """Every metric, ``None`` of one that does not fit or where there is no node."""
        if not self.num_nodes:
            return dict.fromkeys(METRICS)
        labels = self.counts.sum(1)
        both = self.num_classes == 2 and not labels[2] and bool(labels[:2].all())
        return {
            name: metric.of(self) if both or not metric.is_binary else None
            for name, metric in METRICS.items()
        }


def _accuracy(tally: Tally) -> float:
    return int(np.trace(tally.counts)) / tally.num_nodes


def _balanced_accuracy(tally: Tally) -> float:
    labels = tally.counts.sum(1)
    right = np.append(tally.counts.diagonal(), 0)
    return float(np.mean(right[labels > 0] / labels[labels > 0]))


def _f1_macro(tally: Tally) -> float:
    labels, predicted = tally.counts.sum(1), np.append(tally.counts.sum(0), 0)
    right = np.append(tally.counts.diagonal(), 0)
    # A class that is neither a label nor predicted has no say.
    either = labels + predicted > 0
    return float(np.mean(2 * right[either] / (labels + predicted)[either]))


def _roc_auc(tally: Tally) -> float:
    # The share of pairs that are in order; of one that is tied a half.
    first, second = tally.seconds()
    first = np.sort(first)
    below = np.searchsorted(first, second, "left").sum(dtype=np.int64)
    not_above = np.searchsorted(first, second, "right").sum(dtype=np.int64)
    return int(below + not_above) / (2 * len(first) * len(second))


def _neg_log_loss(tally: Tally) -> float:
    return tally.log_likelihood / tally.num_nodes


@final
@dataclass(frozen=True)
class Metric:
    """A score of predictions, of which more is better."""

    title: str  # As people call it.
    of: Callable[[Tally], float]
    is_binary: bool = False  # Whether it takes nodes of both of two classes.
    in_percent: bool = True  # Whether it is a share, mostly written in percent.

    @property
    def classes(self) -> str:
        """How many classes a graph may have, in a word."""
        return "two" if self.is_binary else "any"

    @property
    def unit(self) -> str:
        """How it is shown in tables, where it is multiplied by 100.

        >>> METRICS["roc_auc"].unit, METRICS["neg_log_loss"].unit
        ('in percent', 'times 100')
        """
        return "in percent" if self.in_percent else "times 100"

    @property
    def axis(self) -> str:
        """The same beside an axis.

        >>> METRICS["accuracy"].axis
        'accuracy, %'
        """
        return f"{self.title}, {'%' if self.in_percent else 'times 100'}"

    def written(self, value: float) -> str:
        """Write a value as people read it.

        >>> METRICS["roc_auc"].written(0.8125), METRICS["neg_log_loss"].written(-0.5)
        ('81.2 %', '-0.500')
        """
        return f"{100 * value:.1f} %" if self.in_percent else f"{value:.3f}"

    def with_spread(self, mean: float, spread: float) -> str:
        """Write a mean and a standard deviation.

        >>> METRICS["accuracy"].with_spread(0.8, 0.01)
        '80.0 ± 1.0 %'
        """
        if self.in_percent:
            return f"{100 * mean:.1f} ± {100 * spread:.1f} %"
        return f"{mean:.3f} ± {spread:.3f}"


METRICS: Mapping[str, Metric] = {
    "accuracy": Metric("accuracy", _accuracy),
    "balanced_accuracy": Metric("balanced accuracy", _balanced_accuracy),
    "f1_macro": Metric("macro F1", _f1_macro),
    "roc_auc": Metric("ROC-AUC", _roc_auc, is_binary=True),
    "neg_log_loss": Metric("negative log-loss", _neg_log_loss, in_percent=False),
}


def metric_value(name: str, labels: Array, probability: Array) -> float:
    """A metric of labels ``[nodes]`` and probabilities ``[nodes, classes]``.

    Raises:
        InvalidInput: The metric does not fit these nodes.
    """
    tally = Tally(probability.shape[1])
    tally.add(labels, probability)
    return tally.value(name)


def require_fitting(name: str, labels: Array, num_classes: int) -> None:
    """Raise if a metric could not be computed of nodes with these labels.

    Raises:
        InvalidInput: The metric is of two classes, and there are not both.
    """
    if METRICS[name].is_binary:
        known = np.minimum(labels[labels >= 0], num_classes)
        counts = np.bincount(known, minlength=num_classes + 1)
        _require_both(name, counts, num_classes)


def _require_both(name: str, counts: Array, num_classes: int) -> None:
    others = [one for one, metric in METRICS.items() if not metric.is_binary]
    expected = f"two classes, or one of {', '.join(others)}"
    if num_classes != 2:
        many = "1 class" if num_classes == 1 else f"{num_classes} classes"
        raise InvalidInput(f"{name} given for a graph of {many}; expected {expected}.")
    if counts[2]:
        raise InvalidInput(
            f"{name} given for nodes of classes that the model does not know; expected "
            f"{expected}."
        )
    if not counts[:2].all():
        raise InvalidInput(
            f"{name} given for nodes that are all of one class; expected nodes of "
            f"{expected}."
        )


def metric_function(scoring: "str | MetricFunction") -> MetricFunction:
    """What ``scoring`` asks for: a metric by its name, or a function of the user's.

    Raises:
        InvalidInput: It is neither.
    """
    if callable(scoring):
        return scoring
    if not isinstance(scoring, str) or scoring not in METRICS:
        raise InvalidInput(
            f"scoring={scoring!r:.80} given; expected {', '.join(map(repr, METRICS))} "
            "or a function of labels and probabilities."
        )
    return partial(metric_value, scoring)
