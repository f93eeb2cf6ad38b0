"""How far a fit has come: everything that is needed to go on, and nothing else."""

from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

from gsebo.bilevel import Iterate, State, Tree
from gsebo.training.distributed.entries import Entries
from gsebo.training.distributed.tables import EntryTable
from gsebo.training.history import StepRecord


class Advance(NamedTuple):
    """What one step of training changes.

    Attributes:
        iterate: The weights and how they are optimised.
        outer: Parameters of the structure for the next step.
        outer_state: How those are optimised.
        train_loss: The last training loss.
        belongs: Parameters of the structure that the weights are judged with: those
            from before the step where weights and structure take turns.
        changed: What becomes of single entries, where those are kept in a table.
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
        iterate: Weights, optimiser state and number of inner steps.
        outer: Parameters of the structure.
        outer_state: State of the outer optimiser.
        best_weights: Weights of the best step so far.
        best_outer: Structure of the best step so far.
        best: Record of the best step so far.
        history: One record per step.
        table: What each entry has of its own, where that is kept in a table.
        best_table: The same at the best step so far; ``None``: as it is in the table.
        own_columns: Columns of the table that are learned; the others say how.
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
