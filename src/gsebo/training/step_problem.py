"""The losses of one outer step on batches, as one problem.

    L_t(W, Z) = mean over the training nodes in the batches of inner step t
    F(W, Z)   = sum over the outer nodes, estimated from the outer batches

Every batch is a problem of its own on a small graph. What is computed for several of
them, here or by other processes, is added up, so that one problem comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import torch
from torch import Tensor

from gsebo.bilevel import Tree
from gsebo.bilevel.derivatives import (
    AutogradDerivatives,
    Derivatives,
    FirstDerivatives,
    HandDifferentiated,
)
from gsebo.bilevel.tree import add, filled
from gsebo.distributed.group import Group
from gsebo.training.problem import NodeClassification

_LOSS = "loss"


class Weighted(NamedTuple):
    """A batch's problem, and how much it counts."""

    problem: NodeClassification
    share: float


@final
class StepProblem(HandDifferentiated):
    """The losses of one outer step.

    ``inner`` has, for each inner step from ``first_step``, the batches that this
    process computes; ``outer`` the same for each draw of the outer loss.
    """

    def __init__(
        self,
        inner: Sequence[Sequence[Weighted]],
        first_step: int,
        outer: Sequence[Sequence[Weighted]],
        group: Group,
    ) -> None:
        self.inner, self.first_step = inner, first_step
        self.outer, self.group = outer, group

    def at(self, step: int) -> Sequence[Weighted]:
        """The batches of an inner step."""
        return self.inner[step - self.first_step]

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Mean cross-entropy of the training nodes at hand, plus weight decay."""
        losses = [
            problem.inner_loss(weights, outer, step) * part
            for problem, part in self.at(step)
        ]
        return torch.stack(losses).sum(0)

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        """Summed cross-entropy of all outer nodes, judged by those at hand."""
        losses = [
            problem.outer_loss(weights, outer) * part
            for batches in self.outer
            for problem, part in batches
        ]
        return torch.stack(losses).sum(0)

    def derivatives(self, outer: Tree) -> Derivatives:
        """Derivatives of every batch, by the weights added up.

        Those by the outer variables stay apart, ``[batches, ...]`` for each name, one
        for each of the batches that this process computes at a time: whoever adds them
        up in order rounds as one process does.
        """
        # The graph of a batch's last step is kept until the walk back.
        return _SummedDerivatives(self, outer, kept_graphs=1)

    def first_derivatives(self, outer: Tree) -> FirstDerivatives:
        """The same where nothing will be walked back."""
        return _SummedDerivatives(self, outer, kept_graphs=0)


@final
class _SummedDerivatives(Derivatives):
    def __init__(self, problem: StepProblem, outer: Tree, *, kept_graphs: int) -> None:
        self._problem, self._outer = problem, outer
        self._kept_graphs = kept_graphs
        self._known: dict[int, Derivatives] = {}
        # With the place of the batch among those of its step.
        self._pulled: dict[int, tuple[int, Derivatives]] = {}

    def _of(self, problem: NodeClassification) -> Derivatives:
        """Of one batch, which may serve several steps."""
        if id(problem) not in self._known:
            known = problem.derivatives(self._outer)
            self._known[id(problem)] = known or self._recorded(problem)
        return self._known[id(problem)]

    def _recorded(self, problem: NodeClassification) -> Derivatives:
        first, last = self._problem.first_step, 0
        for place, batches in enumerate(self._problem.inner):
            if any(each.problem is problem for each in batches):
                last = place
        return AutogradDerivatives(
            problem,
            self._outer,
            range(first, first + last + 1),
            kept_graphs=self._kept_graphs,
        )

    def inner_gradient(self, weights: Tree, step: int) -> tuple[Tree, Tensor]:
        found = []
        for problem, part in self._problem.at(step):
            gradients, loss = self._of(problem).inner_gradient(weights, step)
            found.append(_times({**gradients, _LOSS: loss}, part))
        summed = self._together(found, weights)
        loss = summed.pop(_LOSS)
        return summed, loss

    def outer_gradient(
        self, weights: Tree, *, direct_term: bool
    ) -> tuple[Tensor, Tree, Tree]:
        # A sum for each of the batches of a draw, as in ``gathered``.
        places = range(len(self._problem.outer[0]))
        found: list[Tree] = [{} for _ in places]
        by_outer: list[Tree] = [{} for _ in places]
        for batches in self._problem.outer:
            for place, (problem, part) in enumerate(batches):
                loss, gradients, direct = self._of(problem).outer_gradient(
                    weights, direct_term=direct_term
                )
                judged = _times({**gradients, _LOSS: loss}, part)
                found[place] = add(found[place], judged)
                by_outer[place] = add(by_outer[place], _times(direct, part))
        summed = self._together(found, weights)
        loss = summed.pop(_LOSS)
        return loss, summed, self._stacked(by_outer) if direct_term else {}

    def pull_back(self, weights: Tree, step: int, cotangent: Tree) -> Tree:
        found = []
        for place, (problem, part) in enumerate(self._problem.at(step)):
            derivatives = self._of(problem)
            self._pulled[id(problem)] = place, derivatives
            found.append(derivatives.pull_back(weights, step, _times(cotangent, part)))
        summed = self._together(found, weights)
        del summed[_LOSS]
        return summed

    def gathered(self) -> Tree:
        """The sum over the inner steps, for each batch of a step."""
        batches: list[Tree] = [{} for _ in self._problem.inner[0]]
        for place, derivatives in self._pulled.values():
            batches[place] = add(batches[place], derivatives.gathered())
        return self._stacked(batches)

    def _stacked(self, batches: Sequence[Tree]) -> Tree:
        if not batches:
            return {name: leaf[None][:0] for name, leaf in self._outer.items()}
        every = [filled(batch, self._outer) for batch in batches]
        return {
            name: torch.stack([batch[name] for batch in every]) for name in self._outer
        }

    def _together(self, found: list[Tree], weights: Tree) -> Tree:
        zero = next(iter(weights.values())).new_zeros(())
        like = {**weights, _LOSS: zero}
        whole = [
            {
                name: each.get(name, torch.zeros_like(leaf))
                for name, leaf in like.items()
            }
            for each in found
        ]
        # One after another, whoever has them: any number of processes rounds alike.
        return self._problem.group.sum_in_order(whole, like)


def _times(tree: Tree, share: float) -> Tree:
    # Alone, a batch is what it is, to the last bit.
    return tree if share == 1 else {name: leaf * share for name, leaf in tree.items()}
