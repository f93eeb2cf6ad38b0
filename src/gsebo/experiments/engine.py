"""What runs batches, wherever that is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from gsebo.experiments.batches import Batch, Lane
from gsebo.experiments.result import Result


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
    def start(self, lane: Lane, batch: Batch) -> None:
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
