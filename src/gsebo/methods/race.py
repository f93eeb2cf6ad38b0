"""A race over held-out parts of the labels, in which the hopeless are given up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

from gsebo.methods.folds import Fold
from gsebo.methods.standing import Curve, Standing

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
