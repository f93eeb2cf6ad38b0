"""A race over held-out parts of the labels, in which the hopeless are given up."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from gsebo.methods.label_parts import Fold

# Looks on both sides over which an accuracy is averaged before the best is taken: one
# look alone is best by chance.
_NEIGHBOURS = 2
# Standard errors of the best accuracy within which others are nearly as good.
_NEARLY = 0.5


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """What was seen of held-out nodes during one training.

    Attributes:
        right: Whether each node was classified rightly at each look, bool
            ``[looks, nodes]``.
        loss: Its negative log-likelihood, ``[looks, nodes]``.
        seconds: How long the training took.
    """

    right: Tensor
    loss: Tensor
    seconds: float

    @classmethod
    def of_looks(
        cls, looks: Sequence[tuple[Tensor, Tensor]], seconds: float
    ) -> "Curve":
        """Put what :func:`look` returned at each look together."""
        right, loss = zip(*looks, strict=True)
        return cls(torch.stack(right), torch.stack(loss), seconds)


def look(log_probability: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Compare predictions with labels.

    Args:
        log_probability: Of each class, ``[nodes, classes]``.
        labels: Class of each node, ``[nodes]``.

    Returns:
        Whether each is right, and its negative log-likelihood, both ``[nodes]``.
    """
    right = log_probability.argmax(-1) == labels
    own = log_probability.gather(-1, labels.unsqueeze(-1)).squeeze(-1)
    return right.cpu(), -own.float().clamp(min=-100.0).cpu()


@final
@dataclass(frozen=True, eq=False)
class Standing:
    """What the curves of all folds so far come to.

    Attributes:
        best_look: Number of the best look, from 1.
        right: Whether each held-out node was classified rightly at that look.
        loss: Mean negative log-likelihood of all held-out nodes there.
        fold_accuracy: Accuracy in each fold.
        seconds: Of all trainings together.
    """

    best_look: int
    right: Tensor
    loss: float
    fold_accuracy: tuple[float, ...]
    seconds: float

    @property
    def accuracy(self) -> float:
        """Share of all held-out nodes that were classified rightly."""
        return float(self.right.double().mean())

    @classmethod
    def of(cls, curves: Sequence[Curve], *, by_loss: bool = False) -> "Standing":
        """Find the look that was best over all folds.

        Args:
            curves: One for each fold; one that ended early stays as it ended.
            by_loss: Take the look of least loss; else the one of least loss among those
                that are nearly as accurate as the best.
        """
        looks = max(len(curve.right) for curve in curves)
        right = torch.cat([_prolonged(curve.right, looks) for curve in curves], dim=1)
        loss = torch.cat([_prolonged(curve.loss, looks) for curve in curves], dim=1)
        mean_loss = loss.double().mean(1)
        accurate = torch.ones(looks, dtype=torch.bool)
        if not by_loss:
            accurate = _accurate(_smooth(right.double().mean(1)), right.shape[1])
        best = int(torch.where(accurate, mean_loss, torch.inf).argmin())
        chosen = [_prolonged(curve.right, looks)[best] for curve in curves]
        return cls(
            best_look=best + 1,
            right=torch.cat(chosen),
            loss=float(mean_loss[best]),
            fold_accuracy=tuple(float(each.double().mean()) for each in chosen),
            seconds=sum(curve.seconds for curve in curves),
        )

    def lead_over(self, other: "Standing") -> tuple[float, float]:
        """By how much this is more accurate on the same nodes, and how sure that is.

        Returns:
            The difference of the accuracies, and its standard error: that of a fair
            coin thrown for every node on which the two differ, and for one more.
        """
        differ = int((self.right != other.right).sum())
        error = math.sqrt(differ + 1) / len(self.right)
        return self.accuracy - other.accuracy, error


def _prolonged(values: Tensor, looks: int) -> Tensor:
    missing = looks - len(values)
    return torch.cat([values, values[-1:].expand(missing, -1)])


def _accurate(accuracy: Tensor, count: int) -> Tensor:
    """Which of some accuracies over ``count`` nodes are nearly the best."""
    best = float(accuracy.max())
    error = math.sqrt(best * (1 - best) / count)
    return accuracy >= best - _NEARLY * error


def _smooth(values: Tensor) -> Tensor:
    """Mean over each value and its neighbours; beyond the ends there are more of them.

    A shorter window there would make the first look as good as those that follow it.
    """
    first, last = values[:1].expand(_NEIGHBOURS), values[-1:].expand(_NEIGHBOURS)
    padded = torch.cat([first, values, last])
    return padded.unfold(0, 2 * _NEIGHBOURS + 1, 1).mean(-1)


# Standard errors behind the leader at which a race is lost.
_HOPELESS = 3.0


class Entrant(NamedTuple):
    """Something to try.

    Attributes:
        method: Name of the method.
        preparation: Name of what is done to the features.
        epochs: For how long fresh weights are trained, where that is given.
    """

    method: str
    preparation: str
    epochs: int | None = None


@final
@dataclass(frozen=True, eq=False)
class Race:
    """How a race ended.

    Attributes:
        standings: Of every entrant, after the last fold that it was tried on.
        finished: Those that were tried on as many folds as any, the best first.
        num_folds: How many folds that were.
    """

    standings: dict[Entrant, Standing]
    finished: tuple[Entrant, ...]
    num_folds: int

    @property
    def winner(self) -> Entrant:
        """The best of those that finished."""
        return self.finished[0]


def run_race(
    entrants: Sequence[Entrant],
    folds: Sequence[Fold],
    try_on: Callable[[Entrant, int], Curve],
    *,
    enough: int,
    by_loss: bool = False,
) -> Race:
    """Try entrants fold by fold until all folds, or enough nodes, have been held out.

    Args:
        entrants: Who takes part; of equals the first is the better one.
        folds: At least one.
        try_on: Trains an entrant on the fold of a number.
        enough: Number of held-out nodes after which no further fold is begun.
        by_loss: How the best look is found, as in :meth:`Standing.of`.
    """
    alive = list(entrants)
    curves: dict[Entrant, list[Curve]] = {entrant: [] for entrant in entrants}
    standings: dict[Entrant, Standing] = {}
    seen, number = 0, 0
    while True:
        for entrant in alive:
            curves[entrant].append(try_on(entrant, number))
            standings[entrant] = Standing.of(curves[entrant], by_loss=by_loss)
        seen += len(folds[number].held_out)
        number += 1
        alive.sort(key=lambda each: _rank(standings[each]))
        if seen >= enough or number == len(folds):
            return Race(standings, tuple(alive), number)
        leader = standings[alive[0]]
        alive = [each for each in alive if not _hopeless(standings[each], leader)]
        if len(alive) == 1:
            return Race(standings, tuple(alive), number)


def _rank(standing: Standing) -> tuple[float, float]:
    return -standing.accuracy, standing.loss


def _hopeless(standing: Standing, leader: Standing) -> bool:
    lead, error = leader.lead_over(standing)
    return lead > _HOPELESS * error
