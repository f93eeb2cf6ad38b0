"""What happened at each step, which step is kept, and when to stop."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from torch import Tensor

from gsebo.bilevel import Iterate, State, Tree
from gsebo.distributed.tables import Entries, EntryTable
from gsebo.files import Count, NotNegative, Share, Size
from gsebo.metrics import METRICS, MetricName


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
        val_score: The metric that selects, over the nodes that decide when to stop,
            where it is another one than loss and accuracy.
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
    val_score: float | None = None


SelectBy = Literal["loss", "accuracy", "first_accuracy", "last", MetricName]


class Patience(NamedTuple):
    """Early stopping: give up after ``patience`` steps without a better one.

    Attributes:
        select_by: ``"loss"`` (lower validation loss is better) or ``"accuracy"``
            (higher is better, and of two equal ones the lower loss),
            ``"first_accuracy"`` (of equal ones the first, as much public code does), or
            ``"last"``: every step is better than those before it, so that nothing is
            selected; or another metric, where again of two equal ones the lower loss.
        patience: How many steps in a row may pass without a better one.
    """

    select_by: SelectBy
    patience: int

    @property
    def metric(self) -> str | None:
        """The metric that selects, if it is none that every step has."""
        own = self.select_by != "accuracy" and self.select_by in METRICS
        return self.select_by if own else None

    def is_better(self, new: StepRecord, best: StepRecord | None) -> bool:
        """Whether ``new`` should be kept instead of ``best``."""
        if best is None or self.select_by == "last":
            return True
        if self.select_by == "first_accuracy":
            return new.val_accuracy > best.val_accuracy
        if self.select_by == "accuracy" and new.val_accuracy != best.val_accuracy:
            return new.val_accuracy > best.val_accuracy
        if self.metric is not None and new.val_score != best.val_score:
            assert new.val_score is not None and best.val_score is not None
            return new.val_score > best.val_score
        return new.val_loss < best.val_loss

    def is_over(self, step: int, best: StepRecord | None) -> bool:
        """Whether to stop after ``step``."""
        return best is not None and step - best.step >= self.patience


Watcher = Callable[[StepRecord, Tensor], bool | None]
"""Called after each outer step with its record and the logits of all nodes; where it
returns ``True``, training ends there, and the best step so far is kept."""


class Advance(NamedTuple):
    """What one step of training changes.

    ``belongs`` are the parameters of the structure that the weights are judged with:
    those from before the step where weights and structure take turns. ``changed`` is
    what becomes of single entries, where those are kept in a table.
    """

    iterate: Iterate
    outer: Tree
    outer_state: State
    train_loss: Tensor
    belongs: Tree
    changed: Entries | None = None


@dataclass
class Progress:
    """State of a training loop between two steps.

    Attributes:
        iterate: Weights, and where their training stands.
        outer: Parameters of the structure.
        outer_state: What their optimiser remembers.
        best_weights: Those of the best step so far.
        best_outer: The structure of the best step.
        best: Record of the best step.
        history: Records of all steps.
        table: What each entry has of its own, where that is kept in a table.
        best_table: The same at the best step so far; ``None``: as it is in the table.
        own_columns: Columns of the table that are learned; the others say how.
        stopped: Whether a watcher has ended the training.
    """

    iterate: Iterate
    outer: Tree
    outer_state: State
    best_weights: Tree = field(default_factory=dict)
    best_outer: Tree = field(default_factory=dict)
    best: StepRecord | None = None
    history: list[StepRecord] = field(default_factory=list)
    table: EntryTable | None = None
    best_table: EntryTable | None = None
    own_columns: tuple[str, ...] = ()
    stopped: bool = False

    def keep(self, taken: Advance) -> None:
        """Remember a step as the best so far."""
        self.best_weights = taken.iterate.weights
        self.best_outer = taken.belongs
        if self.table is not None and taken.changed is not None:
            self.best_table = self.table.copy(self.own_columns)

    def advance(self, taken: Advance) -> None:
        """Go on from where a step has led."""
        self.iterate, self.outer = taken.iterate, taken.outer
        self.outer_state = taken.outer_state
        if self.table is not None and taken.changed is not None:
            self.table.write(*taken.changed)
