"""How long trials take, judged by those that were run before."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import mean
from typing import final

from gsebo.experiments.result import Result
from gsebo.experiments.trial import Trial


@final
class Durations:
    """Seconds of finished trials.

    Args:
        results: What is known at the beginning.
    """

    def __init__(self, results: Iterable[Result] = ()) -> None:
        self._seconds: dict[str, list[float]] = defaultdict(list)
        for result in results:
            self.add(result)

    def add(self, result: Result) -> None:
        """Learn from one more; a failure tells nothing."""
        if result.ok and result.seconds is not None:
            for name in _names(result.trial):
                self._seconds[name].append(result.seconds)

    def of(self, trial: Trial) -> float | None:
        """Mean of the same trial with other seeds, else of similar ones, if any."""
        for name in _names(trial):
            if name in self._seconds:
                return mean(self._seconds[name])
        return None

    def longest_first(self, trials: Iterable[Trial]) -> list[Trial]:
        """Order trials so that no long one is left for the end.

        Those of which nothing is known come first, in the order that they are in.
        """

        def negative(trial: Trial) -> float:
            seconds = self.of(trial)
            return -math.inf if seconds is None else -seconds

        return sorted(trials, key=negative)

    def left(self, trials: Sequence[Trial], workers: int) -> float | None:
        """Seconds until these are done, if there is anything to judge by.

        Args:
            trials: What is not done yet.
            workers: How many work on it at once.
        """
        guesses = [self.of(trial) for trial in trials]
        known = [guess for guess in guesses if guess is not None]
        if not known:
            return None if guesses else 0.0
        usual = mean(known)
        return sum(usual if one is None else one for one in guesses) / workers


def _names(trial: Trial) -> tuple[str, str]:
    """What a trial shares with similar ones, the most similar first."""
    return trial.without_seed, f"{trial.method} {trial.backbone} {trial.dataset}"
