"""Second derivatives by autograd, from a few recorded steps or by recording again."""

from __future__ import annotations

from typing import NamedTuple, final

from torch import Tensor

from gsebo.bilevel.autodiff import vjp
from gsebo.bilevel.derivatives import AutogradDerivatives, Derivatives
from gsebo.bilevel.graph_memory import graph_bytes
from gsebo.bilevel.inner import inner_gradient
from gsebo.bilevel.problem import BilevelProblem
from gsebo.bilevel.tree import Tree, add, detach, require_grad


class _Graph(NamedTuple):
    """One inner gradient that can be differentiated by its weights and by ``Z``."""

    weights: Tree
    gradients: Tree


@final
class RecordedDerivatives(Derivatives):
    """Keep the graphs of the last steps that fit into a bound; replay the others.

    Args:
        problem: The losses.
        outer: ``Z``.
        steps: Numbers of the inner steps that will be pulled back.
        kept_graphs: How many steps' graphs may be alive at once, 0 to replay every
            step; None is as many as fit into ``graph_memory``, but at least one.
        graph_memory: Bound for the kept graphs, in bytes.
    """

    def __init__(
        self,
        problem: BilevelProblem,
        outer: Tree,
        steps: range,
        *,
        kept_graphs: int | None,
        graph_memory: int,
    ) -> None:
        self._problem = problem
        self._outer = require_grad(outer)
        self._first = AutogradDerivatives(problem, outer)
        self._steps = steps
        self._kept_graphs = kept_graphs
        self._graph_memory = graph_memory
        self._graphs: dict[int, _Graph] = {}
        self._total: Tree = {}

    def inner_gradient(self, weights: Tree, step: int) -> tuple[Tree, Tensor]:
        """Record the step if its graph is going to be kept."""
        kept = self._kept_graphs
        if step not in self._steps or (kept is not None and not self._is_kept(step)):
            return self._first.inner_gradient(weights, step)
        graph, loss = self._record(weights, step)
        if kept is None:
            # The first step is recorded to see how many would fit.
            size = max(graph_bytes(graph.gradients.values()), 1)
            self._kept_graphs = max(self._graph_memory // size, 1)
        if self._is_kept(step):
            self._graphs[step] = graph
        return detach(graph.gradients), loss

    def outer_gradient(
        self, weights: Tree, *, direct_term: bool
    ) -> tuple[Tensor, Tree, Tree]:
        """Record the outer loss and differentiate it."""
        return self._first.outer_gradient(weights, direct_term=direct_term)

    def pull_back(self, weights: Tree, step: int, cotangent: Tree) -> Tree:
        """Differentiate the recorded gradient of a step."""
        graph = self._graphs.pop(step, None) or self._record(weights, step)[0]
        # The cotangent of the oldest weights is not needed by anyone.
        leaves = graph.weights if step > self._steps.start else {}
        by_outer, by_weights = vjp(graph.gradients, cotangent, self._outer, leaves)
        self._total = add(self._total, by_outer)
        return by_weights

    def gathered(self) -> Tree:
        """Return the sum over all steps that were pulled back."""
        return self._total

    def _is_kept(self, step: int) -> bool:
        assert self._kept_graphs is not None
        return step >= self._steps.stop - self._kept_graphs

    def _record(self, weights: Tree, step: int) -> tuple[_Graph, Tensor]:
        leaves = require_grad(weights)
        gradients, loss = inner_gradient(
            self._problem, leaves, self._outer, step, create_graph=True
        )
        return _Graph(leaves, gradients), loss
