"""Several seeds at once: one leading axis on weights and strengths, one graph."""

from collections.abc import Iterator, Sequence
from typing import final

import torch
from torch import Tensor

from gsebo.bilevel import Iterate, State, Tree
from gsebo.bilevel.derivatives import Derivatives, HandDifferentiated
from gsebo.structure import Structure
from gsebo.training.problem import NodeClassification
from gsebo.training.progress import Advance, Progress
from gsebo.training.tape_derivatives import Programs, TapeDerivatives


def stackable(problems: Sequence[NodeClassification]) -> bool:
    """Whether problems differ in nothing but their seeds, and programs serve them.

    Two problems on one graph share its tensors: what is equal is the same object.
    """
    first = problems[0]
    return len(problems) > 1 and all(
        each.programs is not None
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
    def structure(self) -> Structure:
        """The structure that all have in common, but for its parameters."""
        return self._first.structure

    def derivatives(self, outer: Tree) -> Derivatives:
        """Derivatives of all problems, each by its own weights and strengths."""
        return self._derivatives(outer)

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """There is no graph to record: whoever needs one trains one after another."""
        raise NotImplementedError("a stack knows its derivatives, not its losses")

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        """As the inner loss."""
        raise NotImplementedError("a stack knows its derivatives, not its losses")

    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        """Scores of every node, ``[problems, nodes, classes]``."""
        return self._derivatives(outer).scores(weights)

    def _derivatives(self, outer: Tree) -> TapeDerivatives:
        return TapeDerivatives(
            self._programs,
            self._first.strengths,
            outer,
            weight_decay=self._first.weight_decay,
            replicated=True,
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

    def split(self, taken: Advance) -> Iterator[Advance]:
        """Undo :meth:`join` after a step."""
        for place, loss in enumerate(taken.train_loss):
            iterate = Iterate(
                _taken(taken.iterate.weights, place),
                _taken_state(taken.iterate.state, place),
                taken.iterate.step,
            )
            outer_state = _taken_state(taken.outer_state, place)
            yield Advance(iterate, _taken(taken.outer, place), outer_state, loss)


def _stacked(trees: Sequence[Tree]) -> Tree:
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}


def _stacked_state(states: Sequence[State]) -> State:
    return State(states[0].count, _stacked([state.slots for state in states]))


def _taken(tree: Tree, place: int) -> Tree:
    # A copy, so that the best state of one run does not keep all runs in memory.
    return {name: leaf[place].clone() for name, leaf in tree.items()}


def _taken_state(state: State, place: int) -> State:
    return State(state.count, _taken(state.slots, place))
