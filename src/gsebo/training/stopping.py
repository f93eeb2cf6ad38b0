"""When to stop, and which step to keep: decided on labelled nodes only."""

from typing import Literal, NamedTuple

from gsebo.training.history import StepRecord

SelectBy = Literal["loss", "accuracy", "first_accuracy", "last"]


class Patience(NamedTuple):
    """Early stopping: give up after ``patience`` steps without a better one.

    Attributes:
        select_by: ``"loss"`` (lower validation loss is better) or ``"accuracy"``
            (higher is better, and of two equal ones the lower loss),
            ``"first_accuracy"`` (of equal ones the first, as much public code does), or
            ``"last"``: every step is better than those before it, so that nothing is
            selected.
        patience: How many steps in a row may pass without a better one.
    """

    select_by: SelectBy
    patience: int

    def is_better(self, new: StepRecord, best: StepRecord | None) -> bool:
        """Whether ``new`` should be kept instead of ``best``."""
        if best is None or self.select_by == "last":
            return True
        if self.select_by == "first_accuracy":
            return new.val_accuracy > best.val_accuracy
        if self.select_by == "accuracy" and new.val_accuracy != best.val_accuracy:
            return new.val_accuracy > best.val_accuracy
        return new.val_loss < best.val_loss

    def is_over(self, step: int, best: StepRecord | None) -> bool:
        """Whether to stop after ``step``."""
        return best is not None and step - best.step >= self.patience
