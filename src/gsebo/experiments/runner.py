"""Run what a recipe asks for and the store has not, on any engine."""

import math
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from statistics import mean
from typing import final

from msgspec.structs import replace

from gsebo.experiments.detection import DETECTORS, TRIED
from gsebo.experiments.recipe import ExperimentRecipe
from gsebo.experiments.result import Result, Trial, same_graph_for_all_seeds
from gsebo.experiments.store import Store
from gsebo.experiments.survey import Selection, Stage, Survey, make_survey
from gsebo.files import check_writable


@dataclass(frozen=True)
class Slot:
    """A place where one batch runs at a time.

    Attributes:
        name: No other slot has it.
        device: ``"cpu"`` or ``"cuda"``.
        replicas: How many seeds of one cell are fitted at once, at most.
    """

    name: str
    device: str = "cpu"
    replicas: int = 1


@dataclass(frozen=True)
class TrialBatch:
    """What a worker gets at a time.

    Attributes:
        file: Of the store, that the results belong to.
        trials: If several, they differ by seeds that count up.
        retry_failed: Whether those that failed meanwhile, or before, run.
    """

    file: str
    trials: tuple[Trial, ...]
    retry_failed: bool = False


@final
class TrialQueue:
    """Trials that nobody has taken yet, in the order in which they are to be run.

    Where one of the slots is a GPU, those on a CPU leave it the methods of dense
    matrices.
    """

    def __init__(
        self,
        file: str,
        trials: Iterable[Trial],
        slots: Iterable[Slot],
        *,
        retry_failed: bool = False,
    ) -> None:
        self._file = file
        self._retry_failed = retry_failed
        self._trials = {trial.key: trial for trial in trials}
        self._has_gpu = any(slot.device == "cuda" for slot in slots)

    def __len__(self) -> int:
        return len(self._trials)

    def take(self, slot: Slot) -> TrialBatch | None:
        """Take what is left for a slot: the next trial, and those that fit with it."""
        first = self._next(slot)
        if first is None:
            return None
        trials = self._companions(first, slot.replicas)
        for trial in trials:
            del self._trials[trial.key]
        return TrialBatch(self._file, tuple(trials), self._retry_failed)

    def _next(self, slot: Slot) -> Trial | None:
        dense = (one for one in self._trials.values() if is_dense(one))
        other = (one for one in self._trials.values() if not is_dense(one))
        if slot.device == "cuda":
            return next(dense, None) or next(other, None)
        return next(other if self._has_gpu else iter(self._trials.values()), None)

    def _companions(self, trial: Trial, number: int) -> list[Trial]:
        alone = trial.curves or trial.method in DETECTORS
        if alone or not same_graph_for_all_seeds(trial):
            return [trial]

        def waiting(seed: int) -> bool:
            return replace(trial, seed=seed).key in self._trials

        lowest = trial.seed
        while trial.seed - lowest < number - 1 and waiting(lowest - 1):
            lowest -= 1
        end = trial.seed + 1
        while end - lowest < number and waiting(end):
            end += 1
        return [replace(trial, seed=seed) for seed in range(lowest, end)]


def is_dense(trial: Trial) -> bool:
    """Whether a GPU should run this trial, if there is one."""
    return TRIED[trial.method].dense


class Engine(ABC):
    """Runs one batch in each of its slots, and sees to it that results are stored.

    It is opened before the first batch and closed after the last one, or when the run
    is given up. Datasets are looked for in ``data_dir`` first.
    """

    def __init__(
        self, store: Store, slots: Sequence[Slot], data_dir: Path | None = None
    ) -> None:
        self.slots = tuple(slots)
        self._store = store
        self._data_dir = data_dir

    @abstractmethod
    def start(self, slot: Slot, batch: TrialBatch) -> None:
        """Begin with a batch in a slot where none is running."""

    @abstractmethod
    def wait(self) -> list[tuple[Slot, list[Result]]]:
        """Wait until a batch ends; return its results, which are stored by then."""

    @abstractmethod
    def open(self) -> None:
        """Get ready for the first batch."""

    @abstractmethod
    def close(self) -> None:
        """End everything that is still there."""


@final
class Durations:
    """Seconds of finished trials."""

    def __init__(self, results: Iterable[Result] = ()) -> None:
        self._seconds: dict[str, list[float]] = defaultdict(list)
        for result in results:
            self.add(result)

    def add(self, result: Result) -> None:
        """Learn from one more; a failure tells nothing."""
        seconds = result.whole_seconds
        if result.ok and seconds is not None:
            for name in self._names(result.trial):
                self._seconds[name].append(seconds)

    def of(self, trial: Trial) -> float | None:
        """Mean of the same trial with other seeds, else of similar ones, if any."""
        known = (self._seconds[n] for n in self._names(trial) if n in self._seconds)
        found = next(known, None)
        return None if found is None else mean(found)

    def longest_first(self, trials: Iterable[Trial]) -> list[Trial]:
        """Order trials so that no long one is left for the end.

        Those of which nothing is known come first, in the order that they are in.
        """

        def negative(trial: Trial) -> float:
            seconds = self.of(trial)
            return -math.inf if seconds is None else -seconds

        return sorted(trials, key=negative)

    def left(self, trials: Sequence[Trial], workers: int) -> float | None:
        """Seconds until some workers are done, if there is anything to judge by."""
        estimates = [self.of(trial) for trial in trials]
        known = [one for one in estimates if one is not None]
        if not known:
            return None if estimates else 0.0
        usual = mean(known)
        return sum(usual if one is None else one for one in estimates) / workers

    @staticmethod
    def _names(trial: Trial) -> tuple[str, str]:
        """What a trial shares with similar ones, the most similar first."""
        return trial.without_seed, f"{trial.method} {trial.backbone} {trial.dataset}"


class RunWatcher(ABC):
    """Shows a run; ``left`` are the seconds until the end of a stage, where known."""

    @abstractmethod
    def stage_begins(
        self, stage: Stage, number: int, slots: Sequence[Slot], left: float | None
    ) -> None:
        """Another stage is to be run, so many of its trials now."""

    @abstractmethod
    def batch_begins(self, slot: Slot, batch: TrialBatch) -> None:
        """A batch begins to run in a slot."""

    @abstractmethod
    def batch_ends(
        self, slot: Slot, results: Sequence[Result], left: float | None
    ) -> None:
        """The batch of a slot has ended; its results are stored."""


@dataclass(frozen=True)
class RunOutcome:
    """What a run did, and how the recipe stood before and stands now.

    Attributes:
        recipe: Name of the recipe.
        before: How it stood.
        after: How it stands.
        results: Of the trials that were run.
        seconds: For all of them.
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
@dataclass(eq=False)
class Runner:
    """Runs a recipe: searches first, then its own trials, batch by batch.

    Attributes:
        recipe: What is run.
        store: What is known, and where results go.
        engine: Where trials run; it is opened only if there is something to run.
        watcher: Who is told.
        seeds: Instead of the recipe's own number.
        selection: What is wanted, if not everything.
        limit: How many trials are run at most.
        retry_failed: Whether trials that failed are run again.
        ran: Results so far, by the keys of their trials.
    """

    recipe: ExperimentRecipe
    store: Store
    engine: Engine
    watcher: RunWatcher
    _: KW_ONLY
    seeds: int | None = None
    selection: Selection | None = None
    limit: int | None = None
    retry_failed: bool = False
    ran: dict[str, Result] = field(default_factory=dict, init=False)

    def run(self) -> RunOutcome:
        """Run until nothing is missing or the limit is reached."""
        begun = time.perf_counter()
        before = survey = self._survey()
        if before.stage.missing:
            check_writable(self.store.folder)
            self.engine.open()
            with closing(self.engine):
                while survey.stage.missing and self._allowed() != 0:
                    self._run_stage(survey.stage)
                    survey = self._survey()
        seconds = round(time.perf_counter() - begun, 3)
        return RunOutcome(
            recipe=self.recipe.name,
            before=before,
            after=self._survey(),
            results=tuple(self.ran.values()),
            seconds=seconds,
        )

    def _survey(self) -> Survey:
        known: Mapping[str, Result] = self.store.results()
        if self.retry_failed:
            known = {k: one for k, one in known.items() if one.ok or k in self.ran}
        return make_survey(
            self.recipe, known, seeds=self.seeds, selection=self.selection
        )

    def _allowed(self) -> int | None:
        """How many more trials may be run; ``None`` for any number."""
        return None if self.limit is None else self.limit - len(self.ran)

    def _run_stage(self, stage: Stage) -> None:
        slots = self.engine.slots
        durations = Durations(self.store.results().values())
        trials = durations.longest_first(stage.missing)[: self._allowed()]
        queue = TrialQueue(
            stage.recipe.name, trials, slots, retry_failed=self.retry_failed
        )
        left = durations.left(trials, len(slots))
        self.watcher.stage_begins(stage, len(trials), slots, left)
        unfinished = {trial.key: trial for trial in trials}
        idle = list(slots)
        while unfinished:
            idle = self._start_all(idle, queue)
            for slot, results in self.engine.wait():
                idle.append(slot)
                for result in results:
                    self.ran[result.key] = result
                    del unfinished[result.key]
                    durations.add(result)
                left = durations.left(list(unfinished.values()), len(slots))
                self.watcher.batch_ends(slot, results, left)

    def _start_all(self, idle: list[Slot], queue: TrialQueue) -> list[Slot]:
        """Give a batch to each idle slot; return those for which nothing is left."""
        rest = []
        for slot in idle:
            batch = queue.take(slot)
            if batch is None:
                rest.append(slot)
            else:
                self.engine.start(slot, batch)
                self.watcher.batch_begins(slot, batch)
        return rest
