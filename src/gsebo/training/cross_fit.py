"""Bilevel training where every labelled node is judged by a network that never saw it.

The labelled nodes are divided into K parts. Network k learns from all parts but its
own, and its own part is the outer loss:

repeat in rounds, for k = 1 ... K:
    P ← what network k predicts, and with it the strengths S(φ, P)
    W_k ← τ inner steps on the other parts            (W_k is never reset)
    φ ← φ - η_o d F_k(W_k(φ)) / dφ                    (one step of the shared structure)

A record is made after each round, when all networks have moved.

One network with a fixed division is the special case K = 1. Where all labelled nodes
are divided anew before each step instead, networks remember nodes that are outside now.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from gsebo.bilevel import Hypergradient, Iterate, Optimizer, State, Tree, begin
from gsebo.structure import Predictions
from gsebo.training.history import Advance, Progress
from gsebo.training.loop import LoopSettings, run_loop
from gsebo.training.problem import NodeClassification
from gsebo.training.tape_derivatives import FLAT


class Division(ABC):
    """Which labelled nodes a step trains on, and which it is judged by.

    Attributes:
        num_networks: Number of networks that take turns.
    """

    num_networks: int

    @abstractmethod
    def nodes(self, step: int) -> tuple[Tensor, Tensor]:
        """Nodes to train on and nodes to judge by in an outer step, from 0."""

    def problem(self, base: NodeClassification, step: int) -> NodeClassification:
        """The problem of an outer step; steps count from 0."""
        return base.with_nodes(*self.nodes(step))

    @abstractmethod
    def held_out(self, network: int) -> Tensor:
        """Labelled nodes that one of the networks never learns from."""


@final
class Folds(Division):
    """Parts that stay as they are; each network leaves one of them out.

    Args:
        inner: Nodes that each network learns from.
        outer: Nodes that each is judged by.
    """

    def __init__(self, inner: Sequence[Tensor], outer: Sequence[Tensor]) -> None:
        self._inner, self._outer = inner, outer
        self._problems: dict[int, NodeClassification] = {}
        self.num_networks = len(inner)

    def nodes(self, step: int) -> tuple[Tensor, Tensor]:
        """The nodes of the network whose turn it is."""
        turn = step % self.num_networks
        return self._inner[turn], self._outer[turn]

    def problem(self, base: NodeClassification, step: int) -> NodeClassification:
        """The problem of the network whose turn it is, always the same one."""
        turn = step % self.num_networks
        if turn not in self._problems:
            self._problems[turn] = base.with_nodes(*self.nodes(step))
        return self._problems[turn]

    def held_out(self, network: int) -> Tensor:
        """The part that the network leaves out."""
        return self._outer[network]


@final
class Redrawn(Division):
    """All labelled nodes divided anew before each step, for one network.

    Every division has kernel calls of its own, which takes time, above all on a GPU.

    Args:
        labelled: The nodes.
        inner_share: Share of them that is trained on.
        seed: Of all divisions.
    """

    num_networks = 1

    def __init__(self, labelled: Tensor, inner_share: float, seed: int) -> None:
        self._labelled = labelled
        count = round(inner_share * labelled.numel())
        self._inner_count = min(max(count, 1), labelled.numel() - 1)
        self._seed = seed

    def nodes(self, step: int) -> tuple[Tensor, Tensor]:
        """The division of this step: a function of seed and step."""
        # A generator takes no more than 63 bits.
        seed = (self._seed * 1_000_003 + step) % 2**63
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(self._labelled.numel(), generator=generator)
        shuffled = self._labelled[order.to(self._labelled.device)]
        inner, outer = shuffled[: self._inner_count], shuffled[self._inner_count :]
        return inner.sort().values, outer.sort().values

    def held_out(self, network: int) -> Tensor:
        """None: the network has learned from every node at some time."""
        return self._labelled[:0]


@final
class CrossFit:
    """Networks that take turns, and the structure that they share.

    Args:
        base: Network, structure and graph; its nodes are those that a record shows.
        division: Which nodes serve what.
        guesses: What is known of the classes without the graph, ``[nodes, classes]``
            for each network; the structure looks at it and at the network's own
            prediction. Without, the structure looks at no predictions.
        own_predictions: Whether the structure looks at the network's predictions too.
    """

    def __init__(
        self,
        base: NodeClassification,
        division: Division,
        guesses: Sequence[Tensor] | None,
        *,
        own_predictions: bool = True,
    ) -> None:
        self.base = base
        self.division = division
        self._guesses = guesses
        self._own_predictions = own_predictions
        self._last_state: Predictions | None = None

    @property
    def labels(self) -> Tensor:
        """Class of each node."""
        return self.base.labels

    @property
    def inner_nodes(self) -> Tensor:
        """Nodes of the training accuracy that a record shows."""
        return self.base.inner_nodes

    @property
    def num_networks(self) -> int:
        """Number of networks that take turns."""
        return self.division.num_networks

    def initial_weights(self) -> Tree:
        """The same start for every network, ``[networks, weights]``."""
        flat = self.base.initial_weights()[FLAT]
        return {FLAT: flat.expand(self.num_networks, -1).clone()}

    def problem(self, step: int, weights: Tree, outer: Tree) -> NodeClassification:
        """The problem of an outer step, at what its network predicts now."""
        network = step % self.num_networks
        state = self.state(network, weights, outer)
        return self.division.problem(self.base, step).with_state(state)

    @torch.no_grad()
    def state(self, network: int, weights: Tree, outer: Tree) -> Predictions | None:
        """What the structure looks at: the guess, and what the network makes of it."""
        if self._guesses is None:
            return None
        guess = self._guesses[network]
        return seen_state(
            self.base, weights, outer, guess, own_predictions=self._own_predictions
        )

    @torch.no_grad()
    def predictions(self, weights: Tree, outer: Tree) -> list[Tensor]:
        """Class probabilities by each of the networks, ``[nodes, classes]``."""
        found = []
        for network, own in enumerate(self.networks(weights)):
            self._last_state = self.state(network, own, outer)
            here = self.base.with_state(self._last_state)
            found.append(here.scores(own, outer).softmax(-1))
        return found

    def networks(self, weights: Tree) -> list[Tree]:
        """The weights of each network alone."""
        return [{FLAT: row} for row in weights[FLAT]]

    @torch.no_grad()
    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        """Scores of every node, a labelled one's by the network that left it out."""
        predicted = self.predictions(weights, outer)
        mean = torch.stack(predicted).mean(0)
        for network, own in enumerate(predicted):
            nodes = self.division.held_out(network)
            mean[nodes] = own[nodes]
        return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()

    def changed_edges(self, outer: Tree, runs: int) -> tuple[Tensor, Tensor]:
        """Told of the strengths that the last of the networks sees."""
        edges = slice(0, self.base.graph.num_edges)
        alone = {name: leaf[0] for name, leaf in outer.items()}
        now = self.base.with_state(self._last_state).strengths(alone)[..., edges]
        start = self.base.initial_strengths[..., edges]
        moved = now != start
        ever = moved if moved.dim() == 1 else moved.any(0)
        ratio = torch.where(moved, now / start, 0).sum() / moved.sum().clamp(min=1)
        return ever.sum().expand(runs), torch.where(ever.any(), ratio, 1).expand(runs)


@torch.no_grad()
def seen_state(
    problem: NodeClassification,
    weights: Tree,
    outer: Tree,
    guess: Tensor,
    *,
    own_predictions: bool = True,
) -> tuple[Tensor, Tensor]:
    """A guess of the classes, and what a network predicts where only that is known.

    Nothing of earlier steps is needed, so that it can be found for new nodes too.

    Args:
        problem: Network, structure and graph.
        weights: Of the network.
        outer: Of the structure.
        guess: ``[nodes, classes]``.
        own_predictions: Otherwise the guess stands for the prediction too.

    Returns:
        Two times ``[nodes, classes]``.
    """
    at_first = guess, guess
    if not own_predictions:
        return at_first
    predicted = problem.with_state(at_first).scores(weights, outer).softmax(-1)
    return guess, predicted


def train_cross_fitted(
    problems: Sequence[CrossFit],
    hypergradient: Hypergradient,
    inner_optimizer: Optimizer,
    outer_optimizer: Optimizer,
    *,
    inner_steps: int,
    settings: Sequence[LoopSettings],
) -> list[Progress]:
    """Learn a structure that all networks share.

    Args:
        problems: One for each run; one is trained after another.
        hypergradient: How to differentiate through the inner steps.
        inner_optimizer: Makes the inner steps; its state lives on across outer steps.
        outer_optimizer: Makes the outer steps.
        inner_steps: τ.
        settings: When to stop, and what to keep; one for each run.
    """

    def turn(problem: CrossFit, at: Advance, number: int) -> Advance:
        network = number % problem.num_networks
        earlier = number // problem.num_networks * inner_steps
        own = network_of(at.iterate, network, earlier)
        result = hypergradient.run(
            problem.problem(number, own.weights, at.outer),
            inner_optimizer,
            own,
            at.outer,
            inner_steps,
        )
        moved, outer_state = outer_optimizer.update(
            result.gradient, at.outer_state, at.outer
        )
        outer = problem.base.structure.project(moved)
        iterate = with_network(at.iterate, network, result.iterate)
        # Weights and structure are judged as they are now: in the end both are kept.
        return Advance(iterate, outer, outer_state, result.inner_losses[-1], outer)

    def step(problem: CrossFit, progress: Progress) -> Advance:
        at = Advance(
            progress.iterate,
            progress.outer,
            progress.outer_state,
            torch.zeros(()),
            progress.outer,
        )
        begun = progress.iterate.step // inner_steps
        for number in range(begun, begun + problem.num_networks):
            at = turn(problem, at, number)
        return at

    starts = []
    for problem in problems:
        outer = problem.base.initial_outer()
        iterate = begin(inner_optimizer, problem.initial_weights())
        starts.append(Progress(iterate, outer, outer_optimizer.init(outer)))
    return run_loop(problems, step, starts, settings)


def network_of(together: Iterate, network: int, count: int) -> Iterate:
    """Weights and optimiser of one network, which has made ``count`` steps."""
    slots = {name: leaf[network] for name, leaf in together.state.slots.items()}
    weights = {name: leaf[network] for name, leaf in together.weights.items()}
    return Iterate(weights, State(count, slots), together.step)


def with_network(together: Iterate, network: int, own: Iterate) -> Iterate:
    """The networks with one of them replaced."""
    weights = _replaced(together.weights, network, own.weights)
    slots = _replaced(together.state.slots, network, own.state.slots)
    return Iterate(weights, State(own.state.count, slots), own.step)


def _replaced(together: Tree, network: int, own: Tree) -> Tree:
    changed = {name: leaf.clone() for name, leaf in together.items()}
    for name, leaf in own.items():
        changed[name][network] = leaf
    return changed
