"""What a bilevel problem is, training in it, and where its derivatives come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from functools import cache
from typing import Any, NamedTuple, Protocol, cast, final

import torch
from torch import Tensor

from gsebo.bilevel.optimizers import Optimizer, State
from gsebo.bilevel.tree import Tree, add, detach, filled, gradient, require_grad, vjp
from gsebo.errors import InvalidInput


class BilevelProblem(Protocol):
    """Minimise an outer loss over weights that an inner loss has trained.

    With inner loss ``L`` and outer loss ``F``,

        min_Z F(W_tau(Z), Z)   where   W_t = step(W_{t-1}, grad_W L(W_{t-1}, Z, t)).
    """

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Return ``L(W, Z, step)``, a scalar and a pure function of its arguments.

        Args:
            weights: the inner variables ``W``.
            outer: the outer variables ``Z``.
            step: the number of the inner step since training began. Anything random,
                such as a dropout mask, has to be a function of it: a step is replayed
                by calling this again with the same arguments.
        """
        ...

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        """Return ``F(W, Z)``, a scalar and a pure function of its arguments."""
        ...


class Iterate(NamedTuple):
    """Where inner training stands: weights, and the number of the next inner step.

    Attributes:
        weights: The inner variables, by their names.
        state: What the optimiser remembers.
        step: Number of the next inner step, from 0 on.
    """

    weights: Tree
    state: State
    step: int


def begin(optimizer: Optimizer, weights: Tree, *, step: int = 0) -> Iterate:
    """Return the iterate before any training, with a fresh optimiser state.

    Args:
        optimizer: What will train the weights.
        weights: The initial ones; they are detached.
        step: Number of the first step.
    """
    weights = detach(weights)
    return Iterate(weights, optimizer.init(weights), step)


@torch.no_grad()
def advance(optimizer: Optimizer, iterate: Iterate, gradients: Tree) -> Iterate:
    """Return the next iterate, given the gradient at this one."""
    weights, state = optimizer.update(gradients, iterate.state, iterate.weights)
    return Iterate(weights, state, iterate.step + 1)


class FirstDerivatives(ABC):
    """First derivatives of the two losses at fixed outer variables ``Z``."""

    @abstractmethod
    def inner_gradient(self, weights: Tree, step: int) -> tuple[Tree, Tensor]:
        """Return ``g = grad_W L(W, Z, step)`` and the loss, new tensors both."""

    @abstractmethod
    def outer_gradient(
        self, weights: Tree, *, direct_term: bool
    ) -> tuple[Tensor, Tree, Tree]:
        """Return ``F(W, Z)``, ``partial F/partial W`` and ``partial F/partial Z``.

        In both trees a missing name means zero; without the direct term the second is
        empty.
        """


class Derivatives(FirstDerivatives):
    """The same with second derivatives of the inner loss."""

    @abstractmethod
    def pull_back(self, weights: Tree, step: int, cotangent: Tree) -> Tree:
        """Return ``cotangent . d g/dW``, and add ``cotangent . d g/dZ`` to a sum."""

    @abstractmethod
    def gathered(self) -> Tree:
        """Return that sum over all calls of ``pull_back`` so far."""


class StepsAtOnce(ABC):
    """So many inner steps with fixed ``Z``, without Python in between."""

    @abstractmethod
    def train(self, iterate: Iterate) -> tuple[Iterate, list[Tensor]]:
        """Take all steps, as ``descend``."""

    @abstractmethod
    def walk_back(self, cotangent: Tree) -> None:
        """Pull a cotangent of the last weights back through what was trained.

        What comes to ``Z`` is added to the sum that ``Derivatives.gathered`` returns.
        """


class Compilable(Derivatives):
    """Derivatives that compiled code can compute."""

    @abstractmethod
    def compiled(
        self, optimizer: Optimizer, steps: int, kept: int
    ) -> StepsAtOnce | None:
        """So many steps, of which the last ``kept`` can be walked back.

        None where there is no compiled code for the device or the optimiser.
        """


def compiled_steps(
    derivatives: FirstDerivatives, optimizer: Optimizer, steps: int, kept: int
) -> StepsAtOnce | None:
    """Compiled code for so many steps, if there is any."""
    if isinstance(derivatives, Compilable) and steps > 0:
        return derivatives.compiled(optimizer, steps, kept)
    return None


class HandDifferentiated(ABC):
    """A bilevel problem that knows its derivatives better than autograd does."""

    @abstractmethod
    def derivatives(self, outer: Tree) -> Derivatives | None:
        """Return the derivatives at ``outer``, or None to leave them to autograd.

        The result is only good until the next call.
        """


def known_derivatives(problem: BilevelProblem, outer: Tree) -> Derivatives | None:
    """Return what the problem itself knows of its derivatives, if anything."""
    if isinstance(problem, HandDifferentiated):
        return problem.derivatives(detach(outer))
    return None


def first_derivatives(problem: BilevelProblem, outer: Tree) -> FirstDerivatives:
    """Return the derivatives that training needs, the problem's own if it has any."""
    return known_derivatives(problem, outer) or AutogradDerivatives(problem, outer)


@torch.no_grad()
def descend(
    derivatives: FirstDerivatives,
    optimizer: Optimizer,
    iterate: Iterate,
    steps: int,
    remember: Callable[[Iterate, Tree], None] | None = None,
) -> tuple[Iterate, list[Tensor]]:
    """Take inner steps with fixed ``Z``; return the last iterate and the losses.

    ``remember`` is told of each step: the iterate before it and the gradient there.
    """
    if remember is None:
        compiled = compiled_steps(derivatives, optimizer, steps, 0)
        if compiled is not None:
            return compiled.train(iterate)
    losses = []
    for _ in range(steps):
        gradients, loss = derivatives.inner_gradient(iterate.weights, iterate.step)
        if remember is not None:
            remember(iterate, gradients)
        iterate = advance(optimizer, iterate, gradients)
        losses.append(loss)
    return iterate, losses


def require_steps(steps: int) -> None:
    """Refuse to differentiate through no step at all."""
    if steps < 1:
        raise InvalidInput(f"{steps!r} inner steps given; expected at least 1.")


def inner_gradient(
    problem: BilevelProblem,
    weights: Tree,
    outer: Tree,
    step: int,
    *,
    create_graph: bool = False,
) -> tuple[Tree, Tensor]:
    """Return ``g = grad_W L(W, Z, step)`` by autograd, and the detached loss.

    With ``create_graph`` the gradient can be differentiated again, by the weights and
    by what requires a gradient of ``outer``.
    """
    with torch.enable_grad():
        loss = problem.inner_loss(weights, outer, step)
    (found,) = gradient(loss, weights, create_graph=create_graph)
    return filled(found, weights), loss.detach()


class _Graph(NamedTuple):
    """One inner gradient that can be differentiated by its weights and by ``Z``."""

    gradients: Tree
    weights: Tree
    outer: Tree


@final
class AutogradDerivatives(Derivatives):
    """By autograd: keep the graphs of the last steps that fit, record others again.

    ``steps`` will be pulled back. Of so many steps graphs may be alive at once, of none
    to replay every step; None is as many as fit into ``graph_memory`` bytes, but at
    least one.
    """

    def __init__(
        self,
        problem: BilevelProblem,
        outer: Tree,
        steps: range = range(0),
        *,
        kept_graphs: int | None = 0,
        graph_memory: int = 0,
    ) -> None:
        self._problem, self._outer, self._steps = problem, detach(outer), steps
        self._kept_graphs, self._graph_memory = kept_graphs, graph_memory
        self._graphs: dict[int, _Graph] = {}
        self._total: Tree = {}

    def inner_gradient(self, weights: Tree, step: int) -> tuple[Tree, Tensor]:
        kept = self._kept_graphs
        if step not in self._steps or (kept is not None and not self._is_kept(step)):
            leaves = require_grad(weights)
            return inner_gradient(self._problem, leaves, self._outer, step)
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
        weights = require_grad(weights)
        outer = require_grad(self._outer) if direct_term else self._outer
        with torch.enable_grad():
            loss = self._problem.outer_loss(weights, outer)
        by_weights, by_outer = gradient(loss, weights, outer if direct_term else {})
        return loss.detach(), by_weights, by_outer

    def pull_back(self, weights: Tree, step: int, cotangent: Tree) -> Tree:
        graph = self._graphs.pop(step, None) or self._record(weights, step)[0]
        # The cotangent of the oldest weights is not needed by anyone.
        leaves = graph.weights if step > self._steps.start else {}
        by_outer, by_weights = vjp(graph.gradients, cotangent, graph.outer, leaves)
        self._total = add(self._total, by_outer)
        return by_weights

    def gathered(self) -> Tree:
        return self._total

    def _is_kept(self, step: int) -> bool:
        assert self._kept_graphs is not None
        return step >= self._steps.stop - self._kept_graphs

    def _record(self, weights: Tree, step: int) -> tuple[_Graph, Tensor]:
        leaves, outer = require_grad(weights), require_grad(self._outer)
        gradients, loss = inner_gradient(
            self._problem, leaves, outer, step, create_graph=True
        )
        return _Graph(gradients, leaves, outer), loss


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
        for name in _saved_names(cast(Hashable, type(node))):
            value = getattr(node, name)
            for saved in value if isinstance(value, tuple) else (value,):
                if isinstance(saved, Tensor) and saved.layout == torch.strided:
                    storage = saved.untyped_storage()
                    held[storage.data_ptr()] = storage.nbytes()
        waiting += [before for before, _ in node.next_functions]
    return sum(held.values())


@cache
def _saved_names(kind: Any) -> tuple[str, ...]:
    """Names under which a kind of node shows what it saved (autograd's notes)."""
    ours = issubclass(kind, torch.autograd.function.BackwardCFunction)
    names = ("saved_tensors",) if ours else dir(kind)
    return tuple(n for n in names if n == "saved_tensors" or n.startswith("_saved_"))
