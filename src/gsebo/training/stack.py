"""Several seeds at once: one leading axis on weights and strengths, one graph."""

from collections.abc import Sequence
from typing import TypeGuard, final

import torch
from torch import Tensor

from gsebo.bilevel import Iterate, State, Tree
from gsebo.bilevel.derivatives import (
    Derivatives,
    FirstDerivatives,
    HandDifferentiated,
)
from gsebo.training.history import Progress
from gsebo.training.problem import NodeClassification
from gsebo.training.tape_derivatives import Programs, TapeDerivatives
from gsebo.training.turns import Trainable, Turn, WholeTurn


def stackable(problems: Sequence[Trainable]) -> TypeGuard[list[NodeClassification]]:
    """Whether problems differ in nothing but their seeds, and programs serve them.

    Two problems on one graph share its tensors: what is equal is the same object.
    """
    first = problems[0]
    if len(problems) == 1 or not isinstance(first, NodeClassification):
        return False
    return all(
        isinstance(each, NodeClassification)
        and each.programs is not None
        and each.features is first.features
        and each.graph is first.graph
        and each.weight_decay == first.weight_decay
        and torch.equal(each.inner_nodes, first.inner_nodes)
        and torch.equal(each.outer_nodes, first.outer_nodes)
        for each in problems
    )


@final
class Stack(HandDifferentiated):
    """Problems with different seeds as one.

    Args:
        problems: The problems, which have to be stackable.
    """

    def __init__(self, problems: Sequence[NodeClassification]) -> None:
        self._first = problems[0]
        self._programs = Programs(self._first, [each.seed for each in problems])

    @property
    def num_networks(self) -> int:
        """One for each problem, all of which move at once."""
        return 1

    def turn(self, number: int, steps: range) -> Turn:
        """The losses of all problems; they have one structure, but its parameters."""
        return WholeTurn(lambda weights, outer: self, self._first.structure)

    def training(self, steps: range, outer: Tree) -> FirstDerivatives:
        """Derivatives of all inner losses."""
        return self.derivatives(outer)

    def derivatives(self, outer: Tree) -> Derivatives:
        """Derivatives of all problems, each by its own weights and strengths."""
        return self._derivatives(outer, recorded=True)

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """There is no graph to record: whoever needs one trains one after another."""
        raise NotImplementedError("a stack knows its derivatives, not its losses")

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        """As the inner loss."""
        raise NotImplementedError("a stack knows its derivatives, not its losses")

    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        """Scores of every node, ``[problems, nodes, classes]``."""
        return self._derivatives(outer, recorded=False).scores(weights)

    def _derivatives(self, outer: Tree, *, recorded: bool) -> TapeDerivatives:
        return TapeDerivatives(
            self._programs,
            self._first.strengths,
            outer,
            weight_decay=self._first.weight_decay,
            replicated=True,
            recorded=recorded,
        )

    def join(self, runs: Sequence[Progress]) -> Progress:
        """Lay the states of all runs on top of each other."""
        iterates = [run.iterate for run in runs]
        iterate = Iterate(
            _stacked([each.weights for each in iterates]),
            _stacked_state([each.state for each in iterates]),
            iterates[0].step,
        )
        outer = _stacked([run.outer for run in runs])
        return Progress(
            iterate, outer, _stacked_state([run.outer_state for run in runs])
        )

    def select(self, together: Progress, places: list[int]) -> Progress:
        """Keep the runs at some places only."""
        chosen = torch.tensor(places, device=self._first.labels.device)

        def rows(tree: Tree) -> Tree:
            return {name: leaf.index_select(0, chosen) for name, leaf in tree.items()}

        def rows_of(state: State) -> State:
            return State(state.count, rows(state.slots))

        weights, state, step = together.iterate
        return Progress(
            Iterate(rows(weights), rows_of(state), step),
            rows(together.outer),
            rows_of(together.outer_state),
        )

    def take(self, tree: Tree, place: int) -> Tree:
        """What belongs to one run: a copy, so that it does not keep all in memory."""
        return {name: leaf[place].clone() for name, leaf in tree.items()}


def _stacked(trees: Sequence[Tree]) -> Tree:
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}


def _stacked_state(states: Sequence[State]) -> State:
    return State(states[0].count, _stacked([state.slots for state in states]))
