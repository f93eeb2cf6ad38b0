"""Second derivatives by autograd, from a few recorded steps or by recording again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor

from gsebo.bilevel.derivatives import AutogradDerivatives, Derivatives, inner_gradient
from gsebo.bilevel.problem import BilevelProblem, vjp
from gsebo.bilevel.tree import Tree, add, detach, require_grad


def graph_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of all distinct memory that the graph of ``tensors`` holds.

    Inputs that would be there anyway count too: the result is an upper bound of what
    forgetting the graph sets free.
    """
    held: dict[int, int] = {}
    seen: set[Any] = set()
    waiting = [tensor.grad_fn for tensor in tensors]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for saved in _saved_tensors(node):
            storage = saved.untyped_storage()
            held[storage.data_ptr()] = storage.nbytes()
        waiting += [before for before, _ in node.next_functions]
    return sum(held.values())


def _saved_tensors(node: Any) -> Iterator[Tensor]:
    for name in _saved_names(cast(Hashable, type(node))):
        value = getattr(node, name)
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, Tensor) and each.layout == torch.strided:
                yield each


@cache
def _saved_names(kind: Any) -> tuple[str, ...]:
    """Names under which a kind of node shows what it saved (autograd's notes)."""
    ours = issubclass(kind, torch.autograd.function.BackwardCFunction)
    names = ("saved_tensors",) if ours else dir(kind)
    return tuple(n for n in names if n == "saved_tensors" or n.startswith("_saved_"))


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
