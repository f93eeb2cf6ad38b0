"""Why a candidate was chosen or not, in words."""

from collections.abc import Mapping, Sequence

from gsebo.methods.choice import Tried
from gsebo.methods.race import Entrant, Race


def tried_in_words(
    entrants: Sequence[Entrant],
    race: Race,
    epochs: Mapping[Entrant, int | None],
) -> list[Tried]:
    """Describe how each entrant did.

    Args:
        entrants: All that took part, in the order in which they are told.
        race: How it ended.
        epochs: Number of epochs chosen for each.
    """
    tried = []
    for entrant in entrants:
        standing = race.standings[entrant]
        tried.append(
            Tried(
                candidate=entrant.method,
                preparation=entrant.preparation,
                epochs=epochs[entrant],
                fold_accuracy=standing.fold_accuracy,
                accuracy=standing.accuracy,
                log_loss=standing.loss,
                seconds=standing.seconds,
                chosen=entrant == race.winner,
                reason=_reason(entrant, race),
            )
        )
    return tried


def untried(entrant: Entrant) -> Tried:
    """Describe a candidate for which there were too few labels."""
    return Tried(
        candidate=entrant.method,
        preparation=entrant.preparation,
        epochs=None,
        fold_accuracy=(),
        accuracy=None,
        log_loss=None,
        seconds=0.0,
        chosen=False,
        reason="not tried: too few labels to hold some out for it",
    )


def _reason(entrant: Entrant, race: Race) -> str:
    standing, winner = race.standings[entrant], race.standings[race.winner]
    if entrant == race.winner:
        return _why_first(race)
    count = len(standing.fold_accuracy)
    # Fold by fold, because who was given up has not been tried on all of them.
    ours, theirs = standing.fold_accuracy, winner.fold_accuracy[:count]
    behind = 100 * (_mean(theirs) - _mean(ours))
    words = f"{behind:.1f} points behind {race.winner.method}"
    if entrant not in race.finished:
        folds = "fold" if count == 1 else "folds"
        return f"given up after {count} {folds}, {words}"
    if standing.accuracy == winner.accuracy:
        return f"as accurate as {race.winner.method}, with a larger loss"
    return words


def _why_first(race: Race) -> str:
    best = race.standings[race.winner]
    words = f"it is right on {best.accuracy:.1%} of {len(best.right)} held-out nodes"
    if len(race.finished) > 1:
        second = race.finished[1]
        lead, error = best.lead_over(race.standings[second])
        words += (
            f", {100 * lead:.1f} points more than {second.method} "
            f"(standard error {100 * error:.1f})"
        )
    elif len(race.standings) > 1:
        words += ", far more than all others"
    return words


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
