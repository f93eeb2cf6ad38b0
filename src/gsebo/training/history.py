"""What happened at each outer step, and what is being looked at while it does."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from gsebo.schema import Count, NotNegative, Share, Size


@dataclass(frozen=True)
class StepRecord:
    """One outer step (or one evaluation of plain training).

    Attributes:
        step: Number of the outer step, from 1.
        inner_steps: Number of inner steps so far.
        train_loss: Inner loss at the last inner step, weight decay included.
        val_loss: Mean cross-entropy over the nodes that decide when to stop.
        train_accuracy: Accuracy over the training nodes.
        val_accuracy: Accuracy over the nodes that decide when to stop.
        changed_edges: Number of edges whose strength differs from the start, where
            that is known during training.
        changed_strength: Mean of strength / start over those edges, 1 without any.
        seconds: Since the fit began, earlier runs of a resumed fit included.
    """

    step: Count
    inner_steps: Size
    train_loss: float
    val_loss: float
    train_accuracy: Share
    val_accuracy: Share
    changed_edges: Size | None
    changed_strength: float | None
    seconds: NotNegative


Watcher = Callable[[StepRecord, Tensor], None]
"""Called after each outer step with its record and the logits of all nodes."""
