"""Configurations are compared on held-out labels, and the hopeless given up early."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from gsebo.methods.folds import Fold

# Evaluations on both sides over which an accuracy is averaged before the best is taken:
# one alone is best by chance.
_NEIGHBORS = 2
# Standard errors of the best accuracy within which others are nearly as good.
_NEARLY = 0.5
# Standard errors behind the leader at which a configuration is given up.
_HOPELESS = 3.0


def evaluated(log_probability: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Whether each node ``[nodes, classes]`` is right, and its negative likelihood."""
    right = log_probability.argmax(-1) == labels
    own = log_probability.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return right.cpu(), -own.float().clamp(min=-100.0).cpu()


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

    def prolonged(self, length: int) -> tuple[Tensor, Tensor]:
        """Both, as if a training that ended early stayed as it ended."""
        right, loss = (
            torch.cat([values, values[-1:].expand(length - len(values), -1)])
            for values in (self.right, self.loss)
        )
        return right, loss


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

    @property
    def accuracy(self) -> float:
        """Share of all held-out nodes that were classified rightly."""
        return float(self.right.double().mean())

    @classmethod
    def of(
        cls, curves: Sequence[HeldOutCurve], *, by_loss: bool = False
    ) -> HeldOutScore:
        """Find the evaluation that was best over all folds, with a curve for each.

        It is the one of least loss, not ``by_loss`` alone among those that are nearly
        as accurate as the best.
        """
        length = max(len(curve.right) for curve in curves)
        folds = [curve.prolonged(length) for curve in curves]
        rights, losses = zip(*folds, strict=True)
        right = torch.cat(rights, dim=1)
        mean_loss = torch.cat(losses, dim=1).double().mean(1)
        accurate = torch.ones(length, dtype=torch.bool)
        if not by_loss:
            accuracy = _smooth(right.double().mean(1))
            top = float(accuracy.max())
            error = math.sqrt(top * (1 - top) / right.shape[1])
            accurate = accuracy >= top - _NEARLY * error
        best = int(torch.where(accurate, mean_loss, torch.inf).argmin())
        return cls(
            best=best + 1,
            right=right[best],
            loss=float(mean_loss[best]),
            fold_accuracy=tuple(float(one[best].double().mean()) for one in rights),
            seconds=sum(curve.seconds for curve in curves),
        )

    def lead_over(self, other: HeldOutScore) -> tuple[float, float]:
        """By how much this is more accurate on the same nodes, and its standard error.

        That is the error of a fair coin thrown for every node on which the two differ,
        and for one more.
        """
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
) -> Elimination:
    """Try fold by fold until all folds, or enough nodes, have been held out.

    ``try_on`` trains a configuration on the fold of a number; of equals the first is
    the better one.
    """
    alive = list(configurations)
    curves: dict[Configuration, list[HeldOutCurve]] = {one: [] for one in alive}
    scores: dict[Configuration, HeldOutScore] = {}
    seen = 0
    for number, fold in enumerate(folds):
        for one in alive:
            curves[one].append(try_on(one, number))
            scores[one] = HeldOutScore.of(curves[one], by_loss=by_loss)
        alive.sort(key=lambda one: (-scores[one].accuracy, scores[one].loss))
        seen += len(fold.held_out)
        if seen >= enough or number + 1 == len(folds):
            break
        leads = {one: scores[alive[0]].lead_over(scores[one]) for one in alive}
        alive = [one for one in alive if leads[one][0] <= _HOPELESS * leads[one][1]]
        if len(alive) == 1:
            break
    return Elimination(scores, tuple(alive))
