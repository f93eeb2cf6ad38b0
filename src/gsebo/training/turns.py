"""What a trainer asks of a graph: scores to look at, and losses to learn from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar, final

from torch import Tensor

from gsebo.bilevel import HypergradientStep, Optimizer, State, Tree, begin
from gsebo.bilevel.derivatives import FirstDerivatives
from gsebo.bilevel.problem import BilevelProblem
from gsebo.distributed.entries import Entries
from gsebo.distributed.tables import EntryTable
from gsebo.structure import Structure
from gsebo.training.history import Progress
from gsebo.training.outer_step import Found, OuterStep

ProblemAt = Callable[[Tree, Tree], BilevelProblem]


class Trainable(Protocol):
    """Something with labelled nodes whose scores can be looked at."""

    @property
    def labels(self) -> Tensor:
        """Class of each node."""
        ...

    @property
    def inner_nodes(self) -> Tensor:
        """Nodes that the weights are trained on."""
        ...

    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        """Scores of every node without noise, ``[nodes, classes]``."""
        ...

    def changed_edges(self, outer: Tree, runs: int) -> tuple[Tensor, Tensor]:
        """How many edges differ from the start, and by which factor on average.

        Args:
            outer: Parameters of the structure, with a leading axis of runs.
            runs: Number of runs.

        Returns:
            Two tensors ``[runs]``; NaN where finding out would take too long.
        """
        ...


class Moved(NamedTuple):
    """Where an outer step leads; nothing is written yet.

    Attributes:
        outer: Parameters of the structure that are held in memory.
        state: How those are optimised.
        changed: What becomes of single entries, where those are kept in a table.
    """

    outer: Tree
    state: State
    changed: Entries | None = None


class Turn(ABC):
    """The losses that one network learns from, and is judged by, in one outer step."""

    def at_hand(self, outer: Tree, table: EntryTable | None) -> Tree:
        """All parameters of the structure that this turn needs.

        Args:
            outer: Those that are held in memory.
            table: Those of single entries, where they are kept in a table.
        """
        return outer

    @abstractmethod
    def problem(self, weights: Tree, outer: Tree) -> BilevelProblem:
        """The losses, as things are now.

        Args:
            weights: Of the network, before its inner steps.
            outer: Parameters of the structure at hand.
        """

    @abstractmethod
    def move(
        self,
        outer_step: OuterStep,
        result: HypergradientStep,
        outer: Tree,
        state: State,
        table: EntryTable | None,
    ) -> Moved:
        """Step on the structure.

        Args:
            outer_step: How.
            result: What the inner steps led to, and the hypergradient.
            outer: Parameters that are held in memory.
            state: How those are optimised.
            table: Those of single entries, and how they are optimised.
        """


@final
class WholeTurn(Turn):
    """A turn on a whole graph, all of whose parameters are held in memory.

    Args:
        problem_at: The losses at some weights and parameters of the structure.
        structure: Says what is allowed, and what counts as one.
    """

    def __init__(self, problem_at: ProblemAt, structure: Structure) -> None:
        self._problem_at, self._structure = problem_at, structure

    def problem(self, weights: Tree, outer: Tree) -> BilevelProblem:
        """The losses, as things are now."""
        return self._problem_at(weights, outer)

    def move(
        self,
        outer_step: OuterStep,
        result: HypergradientStep,
        outer: Tree,
        state: State,
        table: EntryTable | None,
    ) -> Moved:
        """Step on all parameters."""
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
        ...

    def turn(self, number: int, steps: range) -> Turn:
        """The losses of an outer step, from 0.

        Args:
            number: Of the step: networks take turns.
            steps: Numbers of its inner steps.
        """
        ...

    def training(self, steps: range, outer: Tree) -> FirstDerivatives:
        """Derivatives of the training loss alone, for some steps.

        Args:
            steps: Their numbers.
            outer: Parameters of the structure, which stays as it is.
        """
        ...


class Learnable(Losses, Trainable, Protocol):
    """Both: something that a structure can be learned on."""

    def as_given(self) -> Learnable:
        """The same without anything learned, to train weights on."""
        ...

    def start(self, optimizer: Optimizer, outer_step: OuterStep | None) -> Progress:
        """The state before the first step.

        Args:
            optimizer: Of the weights.
            outer_step: Of the structure, if it learns.
        """
        ...


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


def each_network(weights: Tree, networks: int) -> list[Tree]:
    """The weights of each network alone."""
    if networks == 1:
        return [weights]
    return [
        {name: leaf[network] for name, leaf in weights.items()}
        for network in range(networks)
    ]
