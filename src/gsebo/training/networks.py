"""Networks that take turns on a graph, and the one structure that they share.

The labelled nodes are divided among K networks. Network k learns from its own nodes and
is judged by others. Where the structure compares predictions, it sees, before each turn
of network k, what features alone say of the nodes and what network k makes of that.

It makes no difference here whether a source is a whole graph or batches of one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import final

import torch
from torch import Tensor

from gsebo.bilevel import Optimizer, Tree
from gsebo.bilevel.derivatives import BilevelProblem, FirstDerivatives
from gsebo.structure import Predictions
from gsebo.training.history import Progress
from gsebo.training.inoculation import Inoculation
from gsebo.training.outer_step import OuterStep
from gsebo.training.problem import NodeClassification, changed_strengths
from gsebo.training.turns import Turn, WholeTurn, started


class Division(ABC):
    """Which labelled nodes a step trains on, and which it is judged by."""

    num_networks: int

    @abstractmethod
    def nodes(self, step: int) -> tuple[Tensor, Tensor]:
        """Nodes to train on and nodes to judge by in an outer step, from 0."""

    @abstractmethod
    def held_out(self, network: int) -> Tensor:
        """Labelled nodes that one of the networks never learns from."""


@final
class Folds(Division):
    """Folds that stay as they are; each network leaves one of them out.

    Args:
        inner: Nodes that each network learns from.
        outer: Nodes that it leaves out.
    """

    def __init__(self, inner: Sequence[Tensor], outer: Sequence[Tensor]) -> None:
        self._inner, self._outer = inner, outer
        self.num_networks = len(inner)

    def nodes(self, step: int) -> tuple[Tensor, Tensor]:
        network = step % self.num_networks
        return self._inner[network], self._outer[network]

    def held_out(self, network: int) -> Tensor:
        return self._outer[network]


@final
class Redrawn(Division):
    """All labelled nodes divided anew before each step, for one network.

    Every division has kernel calls of its own, which takes time, above all on a GPU.

    Args:
        labelled: Numbers of the labelled nodes.
        inner_share: Share of them that the inner loss is taken over.
        seed: Draws the divisions.
    """

    num_networks = 1

    def __init__(self, labelled: Tensor, inner_share: float, seed: int) -> None:
        self._labelled = labelled
        count = round(inner_share * labelled.numel())
        self._inner_count = min(max(count, 1), labelled.numel() - 1)
        self._seed = seed

    def nodes(self, step: int) -> tuple[Tensor, Tensor]:
        # A function of seed and step; a generator takes no more than 63 bits.
        seed = (self._seed * 1_000_003 + step) % 2**63
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(self._labelled.numel(), generator=generator)
        shuffled = self._labelled[order.to(self._labelled.device)]
        inner, outer = shuffled[: self._inner_count], shuffled[self._inner_count :]
        return inner.sort().values, outer.sort().values

    def held_out(self, network: int) -> Tensor:
        return self._labelled[:0]


StateAt = Callable[[NodeClassification, Tree, Tree], Predictions | None]
"""What the structure sees on a graph, at some weights and outer variables."""

FeaturesOnly = Callable[[NodeClassification], Tensor]
"""What features alone say of the nodes of a graph, ``[nodes, classes]``."""


@torch.no_grad()
def seen_state(
    problem: NodeClassification,
    weights: Tree,
    outer: Tree,
    *,
    features_only: FeaturesOnly | None,
    network: bool,
) -> Predictions | None:
    """What features alone say, and what a network predicts where only that is known.

    Nothing of earlier steps is needed, so that it can be found for new nodes too.
    Without ``network`` the former stands for the latter.
    """
    if features_only is None:
        return None
    first = features_only(problem)
    if not network:
        return first, first
    seen = problem.with_state((first, first))
    return first, seen.scores(weights, outer).softmax(-1)


class TrainingGraph(ABC):
    """What networks learn on: a whole graph, or batches of one.

    Attributes:
        nodes: Numbers of the nodes that are evaluated, ascending, on the CPU.
        labels: Their classes.
        inner_nodes: Which of them count for the training accuracy.
    """

    nodes: Tensor
    labels: Tensor
    inner_nodes: Tensor

    @abstractmethod
    def start(
        self, optimizer: Optimizer, outer_step: OuterStep | None, networks: int
    ) -> Progress:
        """The state before the first step."""

    @abstractmethod
    def turn(
        self, division: Division, number: int, steps: range, state_at: StateAt
    ) -> Turn:
        """The losses of an outer step."""

    @abstractmethod
    def training(self, nodes: Tensor, steps: range, outer: Tree) -> FirstDerivatives:
        """Derivatives of the loss of some nodes, on a structure that stays as it is."""

    @abstractmethod
    def scores(
        self, weights: Tree, outer: Tree, state_at: StateAt, places: Tensor
    ) -> Tensor:
        """Scores without dropout of the evaluated nodes at some places."""

    @abstractmethod
    def changed_edges(self, outer: Tree, runs: int) -> tuple[Tensor, Tensor]:
        """As :meth:`~gsebo.training.turns.Trainable.changed_edges`."""

    def as_given(self) -> TrainingGraph:
        """The same with the strengths as they were before anything was learned."""
        return self


@final
class FullBatch(TrainingGraph):
    """All of a graph at once.

    Args:
        base: The problem; it says which nodes are shown as training nodes.
        inoculation: With it the structure is judged on graphs with false edges.
    """

    def __init__(
        self, base: NodeClassification, inoculation: Inoculation | None = None
    ) -> None:
        self.base, self._inoculation = base, inoculation
        self.nodes = torch.arange(base.graph.num_nodes)
        self.labels, self.inner_nodes = base.labels, base.inner_nodes
        self._by_fold: dict[int, tuple[Tensor, NodeClassification]] = {}
        self._last_state: Predictions | None = None

    def start(
        self, optimizer: Optimizer, outer_step: OuterStep | None, networks: int
    ) -> Progress:
        weights, outer = self.base.initial_weights(), self.base.initial_outer()
        return started(weights, outer, optimizer, outer_step, networks=networks)

    def turn(
        self, division: Division, number: int, steps: range, state_at: StateAt
    ) -> Turn:
        here = self.problem(division, number)

        def problem(weights: Tree, outer: Tree) -> BilevelProblem:
            def state_on(graph: NodeClassification) -> Predictions | None:
                return state_at(graph, weights, outer)

            if self._inoculation is None:
                return here.with_state(state_on(self.base))
            return self._inoculation.problem(here, number, state_on)

        return WholeTurn(problem, self.base.structure)

    def problem(self, division: Division, number: int) -> NodeClassification:
        """The losses of an outer step; kernel calls of a fold that stays are kept."""
        inner, outer = division.nodes(number)
        network = number % division.num_networks
        nodes, found = self._by_fold.get(network, (None, None))
        if found is None or nodes is not inner:
            found = self.base.with_nodes(inner, outer)
            self._by_fold[network] = inner, found
        return found

    def training(self, nodes: Tensor, steps: range, outer: Tree) -> FirstDerivatives:
        return self.base.training(steps, outer)

    def scores(
        self, weights: Tree, outer: Tree, state_at: StateAt, places: Tensor
    ) -> Tensor:
        self._last_state = state_at(self.base, weights, outer)
        found = self.base.with_state(self._last_state).scores(weights, outer)
        return found.index_select(0, places)

    def changed_edges(self, outer: Tree, runs: int) -> tuple[Tensor, Tensor]:
        """Told of the strengths that the network sees that was evaluated last."""
        base = self.base
        alone = {name: leaf[0] for name, leaf in outer.items()}
        now = base.with_state(self._last_state).strengths(alone).unsqueeze(0)
        changed = changed_strengths(now, base.initial_strengths, base.graph.num_edges)
        return changed[0].expand(runs), changed[1].expand(runs)


@final
class Networks:
    """Networks that take turns, as a trainer sees them.

    Args:
        source: What they learn on.
        division: Which labelled nodes serve what.
        features_only: What features alone say of the nodes, for each network; without,
            the structure sees no predictions.
        own_predictions: Whether the structure sees the network's predictions too.
    """

    def __init__(
        self,
        source: TrainingGraph,
        division: Division,
        features_only: Sequence[FeaturesOnly] | None = None,
        *,
        own_predictions: bool = True,
    ) -> None:
        self.source, self.division = source, division
        self._features_only = features_only
        self._own_predictions = own_predictions
        # Which network has never seen each node; -1: all of them are asked.
        judge = torch.full((len(source.nodes),), -1)
        for network in range(division.num_networks):
            held_out = division.held_out(network).cpu()
            judge[torch.isin(source.nodes, held_out)] = network
        self._judge = judge.to(source.labels.device)

    @property
    def num_networks(self) -> int:
        """How many take turns."""
        return self.division.num_networks

    @property
    def labels(self) -> Tensor:
        """Class of each evaluated node."""
        return self.source.labels

    @property
    def inner_nodes(self) -> Tensor:
        """Evaluated training nodes."""
        return self.source.inner_nodes

    def as_given(self) -> Networks:
        """The same without anything learned."""
        other = copy(self)
        other.source, other._features_only = self.source.as_given(), None
        return other

    def start(self, optimizer: Optimizer, outer_step: OuterStep | None) -> Progress:
        """The state before the first step."""
        return self.source.start(optimizer, outer_step, self.num_networks)

    def turn(self, number: int, steps: range) -> Turn:
        """The losses of the network whose turn it is."""
        state_at = self.state_at(number % self.num_networks)
        return self.source.turn(self.division, number, steps, state_at)

    def training(self, steps: range, outer: Tree) -> FirstDerivatives:
        """Derivatives of the training loss of the first network."""
        return self.source.training(self.division.nodes(0)[0], steps, outer)

    def state_at(self, network: int) -> StateAt:
        """What the structure sees when one of the networks has its turn."""
        chosen = self._features_only
        return partial(
            seen_state,
            features_only=None if chosen is None else chosen[network],
            network=self._own_predictions,
        )

    def networks(self, weights: Tree) -> list[Tree]:
        """The weights of each network alone."""
        if self.num_networks == 1:
            return [weights]
        return [
            {name: leaf[network] for name, leaf in weights.items()}
            for network in range(self.num_networks)
        ]

    @torch.no_grad()
    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        """Scores of the evaluated nodes, each by the network that left it out."""
        count, total = self.num_networks, torch.empty(0)
        for network, own in enumerate(self.networks(weights)):
            asked = (self._judge == network) | (self._judge < 0)
            places = asked.nonzero().squeeze(-1)
            if not len(places):
                continue
            state_at = self.state_at(network)
            scores = self.source.scores(own, outer, state_at, places)
            if count == 1:
                return scores
            predicted = scores.softmax(-1)
            if not len(total):
                total = predicted.new_zeros(len(self._judge), predicted.shape[-1])
            share = torch.where(self._judge[places] < 0, 1 / count, 1.0)
            total[places] += predicted * share.to(predicted).unsqueeze(-1)
        return total.clamp(min=torch.finfo(total.dtype).tiny).log()

    def changed_edges(self, outer: Tree, runs: int) -> tuple[Tensor, Tensor]:
        """How many edges differ from the start, and by which factor on average."""
        return self.source.changed_edges(outer, runs)
