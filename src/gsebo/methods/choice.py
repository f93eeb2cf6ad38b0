"""What was tried, what was chosen, and why."""

from dataclasses import asdict, dataclass
from typing import Any, final

from gsebo.schema import Name, NotNegative, Share, Size, Text


@final
@dataclass(frozen=True)
class Tried:
    """One candidate.

    Attributes:
        candidate: Name of the method.
        preparation: Name of what is done to the features.
        epochs: Chosen number of training steps; ``None`` for a method that decides on
            its own validation nodes when to stop, and where no look was taken.
        fold_accuracy: Accuracy in each fold that it was tried on.
        accuracy: Over all its held-out nodes.
        log_loss: Mean negative log-likelihood of the same nodes.
        seconds: That trying it took.
        chosen: Whether it was chosen.
        reason: Why or why not, in words.
    """

    candidate: Name
    preparation: Name
    epochs: Size | None
    fold_accuracy: tuple[Share, ...]
    accuracy: Share | None
    log_loss: float | None
    seconds: NotNegative
    chosen: bool
    reason: Text

    def to_json(self) -> dict[str, Any]:
        """All of it in the form of JSON."""
        return {**asdict(self), "fold_accuracy": list(self.fold_accuracy)}


@final
@dataclass(frozen=True, eq=False)
class Choice:
    """What an automatic fit decided.

    Attributes:
        tried: All candidates; exactly one is chosen.
        parameters: Of the chosen method, in the form of JSON.
    """

    tried: tuple[Tried, ...]
    parameters: dict[str, Any]

    def __post_init__(self) -> None:
        chosen = sum(each.chosen for each in self.tried)
        if chosen != 1:
            raise ValueError(f"{chosen} candidates are chosen, not one")

    @property
    def chosen(self) -> Tried:
        """The chosen candidate."""
        (found,) = (each for each in self.tried if each.chosen)
        return found
