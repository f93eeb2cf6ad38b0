"""Configurations are compared on held-out labels, and the hopeless given up early."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import stdev
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from gsebo.methods.folds import Fold
from gsebo.metrics import METRICS, metric_value

# Evaluations on both sides over which an accuracy is averaged before the best is taken:
# one alone is best by chance.
_NEIGHBORS = 2
# Standard errors of the best score within which others are nearly as good.
_NEARLY = 0.5
# Standard errors behind the leader at which a configuration is given up.
_HOPELESS = 3.0
# How often nodes are drawn again to see how much a metric would differ with others.
_DRAWS = 50


def evaluated(log_probability: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Whether each node ``[nodes, classes]`` is right, and its negative likelihood."""
    right = log_probability.argmax(-1) == labels
    own = log_probability.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return right.cpu(), -own.float().clamp(min=-100.0).cpu()


def told(log_probability: Tensor) -> Tensor:
    """What a metric has to know of each node ``[nodes, classes]``, in one number.

    Of two classes it is the probability of the second, of more the predicted class:
    whatever ranks nodes is of two classes.
    """
    if log_probability.shape[-1] == 2:
        return log_probability[:, 1].double().exp().cpu()
    return log_probability.argmax(-1).double().cpu()


@final
@dataclass(frozen=True, eq=False)
class HeldOutCurve:
    """What :func:`evaluated` said of held-out nodes during one training."""

    # Both [evaluations, nodes].
    right: Tensor
    loss: Tensor
    seconds: float
    # The same of what came of it, with false edges planted at those nodes.
    planted: HeldOutCurve | None = None
    # What :func:`told` says, where a metric decides.
    told: Tensor | None = None

    def prolonged(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """All, as if a training that ended early stayed as it ended."""
        right, loss, known = (
            torch.cat([values, values[-1:].expand(length - len(values), -1)])
            for values in (self.right, self.loss, self._told())
        )
        return right, loss, known

    def _told(self) -> Tensor:
        # Without a metric nobody reads it.
        return self.right if self.told is None else self.told


Told = Sequence[tuple[Tensor, Tensor]]
"""For each fold what is told of its held-out nodes, and their losses."""


@final
@dataclass(frozen=True, eq=False)
class Judge:
    """A metric that decides, and the labels of the held-out nodes of each fold."""

    metric: str
    num_classes: int
    labels: tuple[Tensor, ...]

    def values(self, folds: Told) -> list[float]:
        """The metric in each fold."""
        labelled = zip(self.labels, folds, strict=False)
        return [self._value(labels, *one) for labels, one in labelled]

    def mean(self, folds: Told) -> float:
        """The mean over folds, which count by the number of their nodes."""
        sizes = [len(one) for one, _ in folds]
        values = zip(self.values(folds), sizes, strict=True)
        return sum(value * size for value, size in values) / sum(sizes)

    def error(self, folds: Told, others: Told | None = None) -> float:
        """Standard error of the mean, or of how far it is ahead of others' mean.

        That is the spread over nodes that are drawn again and again, with replacement
        from those of the same fold, and the share of one more.
        """
        rng = torch.Generator().manual_seed(0)
        found = []
        for _ in range(_DRAWS):
            drawn = [self._drawn(labels, rng) for labels in self.labels[: len(folds)]]
            again = replace(self, labels=_at(self.labels, drawn))
            mean = again.mean(_pairs_at(folds, drawn))
            if others is not None:
                mean -= again.mean(_pairs_at(others, drawn))
            found.append(mean)
        return math.hypot(stdev(found), 1 / sum(len(one) for one, _ in folds))

    def _drawn(self, labels: Tensor, rng: torch.Generator) -> Tensor:
        """Places of as many nodes, some of them twice and some not at all."""
        while True:
            places = torch.randint(len(labels), labels.shape, generator=rng)
            # What needs two classes needs both of them here, too.
            binary = METRICS[self.metric].is_binary
            if not binary or len(set(labels[places].tolist())) == 2:
                return places

    def _value(self, labels: Tensor, known: Tensor, loss: Tensor) -> float:
        if self.metric == "neg_log_loss":
            return -float(loss.double().mean())
        if self.num_classes == 2:
            probability = torch.stack([1 - known, known], dim=-1)
        else:
            probability = one_hot(known.long(), self.num_classes)
        return metric_value(self.metric, labels.numpy(), probability.numpy())


def _at(rows: Sequence[Tensor], places: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(row[place] for row, place in zip(rows, places, strict=False))


def _pairs_at(folds: Told, places: Sequence[Tensor]) -> Told:
    pairs = zip(folds, places, strict=True)
    return [(known[place], loss[place]) for (known, loss), place in pairs]


@final
@dataclass(frozen=True, eq=False)
class HeldOutScore:
    """What the curves of all folds so far come to at the best evaluation."""

    # Its number, from 1.
    best: int
    # Whether each held-out node was right there, and the mean loss of all.
    right: Tensor
    loss: float
    fold_accuracy: tuple[float, ...]
    # Of all trainings together.
    seconds: float
    # Where a metric decides: it, and of each fold what it was computed from.
    judge: Judge | None = None
    told: tuple[tuple[Tensor, Tensor], ...] = ()

    @cached_property
    def fold_score(self) -> tuple[float, ...]:
        """In each fold what decides: the metric, or else accuracy."""
        if self.judge is None:
            return self.fold_accuracy
        return tuple(self.judge.values(self.told))

    @cached_property
    def score(self) -> float:
        """The same over all folds."""
        return self.accuracy if self.judge is None else self.judge.mean(self.told)

    @property
    def accuracy(self) -> float:
        """Share of all held-out nodes that were classified rightly."""
        return float(self.right.double().mean())

    @classmethod
    def of(
        cls,
        curves: Sequence[HeldOutCurve],
        *,
        by_loss: bool = False,
        judge: Judge | None = None,
    ) -> HeldOutScore:
        """Find the evaluation that was best over all folds, with a curve for each.

        It is the one of least loss, not ``by_loss`` alone among those that are nearly
        as accurate as the best, or as good by the metric of a judge.
        """
        length = max(len(curve.right) for curve in curves)
        folds = [curve.prolonged(length) for curve in curves]
        rights, losses, known = zip(*folds, strict=True)
        right = torch.cat(rights, dim=1)
        mean_loss = torch.cat(losses, dim=1).double().mean(1)
        good = torch.ones(length, dtype=torch.bool)
        pairs = list(zip(known, losses, strict=True))
        looks = [
            tuple((one[look], loss[look]) for one, loss in pairs)
            for look in range(length)
        ]
        if judge is not None:
            score = _smooth(torch.tensor([judge.mean(look) for look in looks]).double())
            error = judge.error(looks[int(score.argmax())])
            good = score >= score.max() - _NEARLY * error
        elif not by_loss:
            accuracy = _smooth(right.double().mean(1))
            top = float(accuracy.max())
            error = math.sqrt(top * (1 - top) / right.shape[1])
            good = accuracy >= top - _NEARLY * error
        best = int(torch.where(good, mean_loss, torch.inf).argmin())
        return cls(
            best=best + 1,
            right=right[best],
            loss=float(mean_loss[best]),
            fold_accuracy=tuple(float(one[best].double().mean()) for one in rights),
            seconds=sum(curve.seconds for curve in curves),
            judge=judge,
            told=() if judge is None else looks[best],
        )

    def lead_over(self, other: HeldOutScore) -> tuple[float, float]:
        """By how much this is better on the same nodes, and its standard error.

        Of accuracies that is the error of a fair coin thrown for every node on which
        the two differ, and for one more; of a metric the judge says it.
        """
        if self.judge is not None:
            error = self.judge.error(self.told, other.told)
            return self.score - other.score, error
        differ = int((self.right != other.right).sum())
        error = math.sqrt(differ + 1) / len(self.right)
        return self.accuracy - other.accuracy, error


def _smooth(values: Tensor) -> Tensor:
    """Mean over each value and its neighbors; beyond the ends there are more of them.

    A shorter window there would make the first value as good as those that follow it.
    """
    first, last = values[:1].expand(_NEIGHBORS), values[-1:].expand(_NEIGHBORS)
    padded = torch.cat([first, values, last])
    return padded.unfold(0, 2 * _NEIGHBORS + 1, 1).mean(-1)


class Configuration(NamedTuple):
    """A method, a preparation of features, and epochs of fresh weights, if given."""

    method: str
    preparation: str
    epochs: int | None = None


@final
@dataclass(frozen=True, eq=False)
class Elimination:
    """The score of each after its last fold, and those that were left, best first."""

    scores: dict[Configuration, HeldOutScore]
    finished: tuple[Configuration, ...]

    @property
    def winner(self) -> Configuration:
        """The best of those that were left."""
        return self.finished[0]


def eliminate(
    configurations: Sequence[Configuration],
    folds: Sequence[Fold],
    try_on: Callable[[Configuration, int], HeldOutCurve],
    enough: int,
    by_loss: bool = False,
    judge: Judge | None = None,
    given_up: Callable[[Sequence[Configuration]], None] = lambda hopeless: None,
) -> Elimination:
    """Try fold by fold until all folds, or enough nodes, have been held out.

    ``try_on`` trains a configuration on the fold of a number; of equals the first is
    the better one. Of whom it asks no more, ``given_up`` is told.
    """
    alive = list(configurations)
    curves: dict[Configuration, list[HeldOutCurve]] = {one: [] for one in alive}
    scores: dict[Configuration, HeldOutScore] = {}
    seen = 0
    for number, fold in enumerate(folds):
        for one in alive:
            curves[one].append(try_on(one, number))
            scores[one] = HeldOutScore.of(curves[one], by_loss=by_loss, judge=judge)
        alive.sort(key=lambda one: (-scores[one].score, scores[one].loss))
        seen += len(fold.held_out)
        if seen >= enough or number + 1 == len(folds):
            break
        leads = {one: scores[alive[0]].lead_over(scores[one]) for one in alive}
        behind = {one for one in alive if leads[one][0] > _HOPELESS * leads[one][1]}
        given_up([one for one in alive if one in behind])
        alive = [one for one in alive if one not in behind]
        if len(alive) == 1:
            break
    return Elimination(scores, tuple(alive))
