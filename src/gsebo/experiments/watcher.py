"""Who is told how a run goes on."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from gsebo.experiments.batches import Batch, Lane
from gsebo.experiments.result import Result
from gsebo.experiments.survey import Stage


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
    def batch_begins(self, lane: Lane, batch: Batch) -> None:
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
