"""What a trainer asks of a graph: scores to evaluate, and losses to learn from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar, final

from torch import Tensor

from gsebo.bilevel import HypergradientStep, Optimizer, State, Tree, begin
from gsebo.bilevel.derivatives import BilevelProblem, FirstDerivatives
from gsebo.distributed.tables import Entries, EntryTable
from gsebo.structure import Structure
from gsebo.training.history import Progress
from gsebo.training.outer_step import Found, OuterStep


class Trainable(Protocol):
    """Something with labelled nodes whose scores can be evaluated."""

    @property
    def labels(self) -> Tensor:
        """Class of each node."""

    @property
    def inner_nodes(self) -> Tensor:
        """Nodes that the weights are trained on."""

    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        """Scores of every node without dropout, ``[nodes, classes]``."""

    def changed_edges(self, outer: Tree, runs: int) -> tuple[Tensor, Tensor]:
        """How many edges differ from the start, and by which factor on average.

        Both ``[runs]``, as ``outer`` has a leading axis of runs; NaN where finding out
        would take too long.
        """


class Moved(NamedTuple):
    """Where an outer step leads; nothing is written yet.

    ``changed`` is what becomes of single entries, where those are kept in a table.
    """

    outer: Tree
    state: State
    changed: Entries | None = None


class Turn(ABC):
    """The losses that one network learns from, and is judged by, in one outer step."""

    def at_hand(self, outer: Tree, table: EntryTable | None) -> Tree:
        """All parameters of the structure that this turn needs, also from a table."""
        return outer

    @abstractmethod
    def problem(self, weights: Tree, outer: Tree) -> BilevelProblem:
        """The losses, at the weights before the inner steps and the structure now."""

    @abstractmethod
    def move(
        self,
        outer_step: OuterStep,
        result: HypergradientStep,
        outer: Tree,
        state: State,
        table: EntryTable | None,
    ) -> Moved:
        """Step on the structure, as its hypergradient says."""


@final
class WholeTurn(Turn):
    """A turn on a whole graph, all of whose parameters are held in memory."""

    def __init__(
        self, problem_at: Callable[[Tree, Tree], BilevelProblem], structure: Structure
    ) -> None:
        self._problem_at, self._structure = problem_at, structure

    def problem(self, weights: Tree, outer: Tree) -> BilevelProblem:
        return self._problem_at(weights, outer)

    def move(
        self,
        outer_step: OuterStep,
        result: HypergradientStep,
        outer: Tree,
        state: State,
        table: EntryTable | None,
    ) -> Moved:
        structure = self._structure
        found = Found(
            result.gradient, result.outer_loss, structure.units(), structure.project
        )
        return Moved(*outer_step.update(found, state, outer))


class Losses(Protocol):
    """Networks that share a structure, and where their losses come from."""

    @property
    def num_networks(self) -> int:
        """How many take turns; weights of several have a first axis of networks."""

    def turn(self, number: int, steps: range) -> Turn:
        """The losses of outer step ``number``, from 0, with these inner steps."""

    def training(self, steps: range, outer: Tree) -> FirstDerivatives:
        """Derivatives of the training loss alone, on a structure that stays."""


class Learnable(Losses, Trainable, Protocol):
    """Both: something that a structure can be learned on."""

    def as_given(self) -> Learnable:
        """The same without anything learned, to train weights on."""

    def start(self, optimizer: Optimizer, outer_step: OuterStep | None) -> Progress:
        """The state before the first step; without an outer step nothing is learned."""


Source = TypeVar("Source", bound=Learnable)


def started(
    weights: Tree,
    outer: Tree,
    optimizer: Optimizer,
    outer_step: OuterStep | None,
    *,
    networks: int = 1,
) -> Progress:
    """The state before the first step: every network begins with the same weights."""
    if networks > 1:
        weights = {
            name: leaf.expand(networks, *leaf.shape).clone()
            for name, leaf in weights.items()
        }
    state = State(0, {}) if outer_step is None else outer_step.init(outer)
    return Progress(begin(optimizer, weights), outer, state)
