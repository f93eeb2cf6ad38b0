"""What runs batches, wherever that is."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self, final

from msgspec.structs import replace

from gsebo.experiments.result import Result
from gsebo.experiments.trial import Trial, same_graph_for_all_seeds
from gsebo.methods import METHODS


@dataclass(frozen=True)
class Lane:
    """A place where one batch runs at a time.

    Attributes:
        name: Told apart from others by it.
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
        file: Name of the file of the store that the results belong to.
        trials: One, or several that differ by their seeds alone, which count up.
        again: Whether those that have failed meanwhile, or before, are run.
    """

    file: str
    trials: tuple[Trial, ...]
    again: bool = False


@final
class Waiting:
    """Trials that nobody has taken yet.

    Args:
        file: Name of the file of the store that the results belong to.
        trials: What is to be run, in this order.
        lanes: Everybody who takes some. Where one of them is a GPU, those on a CPU
            leave it the methods of dense matrices.
        again: Whether trials that failed are run once more.
    """

    def __init__(
        self,
        file: str,
        trials: Iterable[Trial],
        lanes: Iterable[Lane],
        *,
        again: bool = False,
    ) -> None:
        self._file = file
        self._again = again
        self._trials = {trial.key: trial for trial in trials}
        self._for_gpu = any(lane.device == "cuda" for lane in lanes)

    def __len__(self) -> int:
        return len(self._trials)

    def take(self, lane: Lane) -> TrialBatch | None:
        """Take the next trial, with others that can be fitted at the same time.

        Returns:
            ``None`` where nothing is left for such a lane.
        """
        first = self._next(lane)
        if first is None:
            return None
        trials = self._companions(first, lane.replicas)
        for trial in trials:
            del self._trials[trial.key]
        return TrialBatch(self._file, tuple(trials), self._again)

    def _next(self, lane: Lane) -> Trial | None:
        dense = (one for one in self._trials.values() if is_dense(one))
        other = (one for one in self._trials.values() if not is_dense(one))
        if lane.device == "cuda":
            return next(dense, None) or next(other, None)
        if self._for_gpu:
            return next(other, None)
        return next(iter(self._trials.values()), None)

    def _companions(self, trial: Trial, number: int) -> list[Trial]:
        if trial.curves or not same_graph_for_all_seeds(trial):
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
    return METHODS[trial.method].dense


class Engine(ABC):
    """Runs one batch in each of its lanes, and sees to it that results are stored.

    It is entered before the first batch and left after the last one, or when the run is
    given up: then whatever still runs is ended.
    """

    @property
    @abstractmethod
    def lanes(self) -> Sequence[Lane]:
        """Where batches can run; known once the engine is entered."""

    @abstractmethod
    def start(self, lane: Lane, batch: TrialBatch) -> None:
        """Begin with a batch in a lane where none is running."""

    @abstractmethod
    def wait(self) -> list[tuple[Lane, list[Result]]]:
        """Wait until a batch ends; return its results, which are stored by then."""

    @abstractmethod
    def open(self) -> None:
        """Get ready for the first batch."""

    @abstractmethod
    def close(self) -> None:
        """End everything that is still there."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
