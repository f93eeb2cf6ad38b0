"""Run what a recipe asks for and the store has not."""

import math
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import final

from gsebo.experiments.engine import Engine, Lane, TrialBatch, Waiting
from gsebo.experiments.recipe import ExperimentRecipe
from gsebo.experiments.result import Result
from gsebo.experiments.selection import Selection
from gsebo.experiments.store import Store
from gsebo.experiments.survey import Stage, Survey, make_survey
from gsebo.experiments.trial import Trial
from gsebo.files import check_writable


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


class RunWatcher(ABC):
    """Shows a run; takes no part in it."""

    @abstractmethod
    def stage_begins(
        self, stage: Stage, number: int, lanes: Sequence[Lane], left: float | None
    ) -> None:
        """Another stage is to be run.

        Args:
            stage: The stage.
            number: How many of its trials are run now.
            lanes: Where.
            left: Seconds until its end, if there is anything to judge by.
        """

    @abstractmethod
    def batch_begins(self, lane: Lane, batch: TrialBatch) -> None:
        """A batch begins to run in a lane."""

    @abstractmethod
    def batch_ends(
        self, lane: Lane, results: Sequence[Result], left: float | None
    ) -> None:
        """The batch of a lane has ended.

        Args:
            lane: The lane.
            results: What came out; they are stored.
            left: Seconds until the end of the stage.
        """


@dataclass(frozen=True)
class Request:
    """What is to be run.

    Attributes:
        recipe: The recipe.
        seeds: Number of seeds instead of the recipe's own.
        selection: What is wanted of the recipe, if not everything.
        limit: How many trials are run at most.
        retry_failed: Whether trials that failed earlier are run once more.
    """

    recipe: ExperimentRecipe
    seeds: int | None = None
    selection: Selection | None = None
    limit: int | None = None
    retry_failed: bool = False


@dataclass(frozen=True)
class RunOutcome:
    """What a run did.

    Attributes:
        recipe: Name of the recipe.
        before: How it stood before.
        after: How it stands now.
        results: Of the trials that were run.
        seconds: How long it took.
    """

    recipe: str
    before: Survey
    after: Survey
    results: tuple[Result, ...]
    seconds: float

    @property
    def failed(self) -> tuple[Result, ...]:
        """Those of the results that are failures."""
        return tuple(result for result in self.results if not result.ok)


@final
class Runner:
    """Runs a request: searches first, then the recipe, batch by batch.

    Args:
        request: What to run.
        store: What is known, and where results go.
        engine: Runs batches; is entered only if there is something to run.
        watcher: Is told how it goes on.
    """

    def __init__(
        self, request: Request, store: Store, engine: Engine, watcher: RunWatcher
    ) -> None:
        self._request = request
        self._store = store
        self._engine = engine
        self._watcher = watcher
        self._ran: dict[str, Result] = {}

    def run(self) -> RunOutcome:
        """Run until nothing is missing or the limit is reached."""
        begun = time.perf_counter()
        before = self.survey()
        if before.stage.missing:
            check_writable(self._store.folder)
            with self._engine:
                self._run_stages(before)
        seconds = round(time.perf_counter() - begun, 3)
        return RunOutcome(
            recipe=self._request.recipe.name,
            before=before,
            after=self.survey(),
            results=tuple(self._ran.values()),
            seconds=seconds,
        )

    def survey(self) -> Survey:
        """See where the recipe stands now."""
        request = self._request
        return make_survey(
            request.recipe,
            self._known(),
            seeds=request.seeds,
            selection=request.selection,
        )

    @property
    def trials_run(self) -> int:
        """How many trials were run so far."""
        return len(self._ran)

    def _known(self) -> Mapping[str, Result]:
        """What is stored, but failures that are to be run once more."""
        stored = self._store.results()
        if not self._request.retry_failed:
            return stored
        return {
            key: result
            for key, result in stored.items()
            if result.ok or key in self._ran
        }

    def _run_stages(self, survey: Survey) -> None:
        while survey.stage.missing and self._allowed() != 0:
            self._run_stage(survey.stage)
            survey = self.survey()

    def _allowed(self) -> int | None:
        """How many more trials may be run; ``None`` for any number."""
        limit = self._request.limit
        return None if limit is None else limit - len(self._ran)

    def _run_stage(self, stage: Stage) -> None:
        lanes = self._engine.lanes
        durations = Durations(self._store.results().values())
        trials = durations.longest_first(stage.missing)[: self._allowed()]
        again = self._request.retry_failed
        waiting = Waiting(stage.recipe.name, trials, lanes, again=again)
        left = durations.left(trials, len(lanes))
        self._watcher.stage_begins(stage, len(trials), lanes, left)
        unfinished = {trial.key: trial for trial in trials}
        idle = list(lanes)
        while unfinished:
            idle = self._start_all(idle, waiting)
            for lane, results in self._engine.wait():
                idle.append(lane)
                for result in results:
                    self._ran[result.key] = result
                    del unfinished[result.key]
                    durations.add(result)
                left = durations.left(list(unfinished.values()), len(lanes))
                self._watcher.batch_ends(lane, results, left)

    def _start_all(self, idle: list[Lane], waiting: Waiting) -> list[Lane]:
        """Give a batch to each idle lane; return those for which nothing is left."""
        rest = []
        for lane in idle:
            batch = waiting.take(lane)
            if batch is None:
                rest.append(lane)
            else:
                self._engine.start(lane, batch)
                self._watcher.batch_begins(lane, batch)
        return rest
