"""Bilevel training where every labelled node is judged by a network that never saw it.

The labelled nodes are divided into K parts. Network k learns from all parts but its
own, and its own part is the outer loss:

before each turn of network k:
    P ← what network k predicts, and with it the strengths S(φ, P)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor

from gsebo.bilevel import Optimizer, Tree
from gsebo.bilevel.derivatives import FirstDerivatives
from gsebo.structure import Predictions
from gsebo.training.division import Division
from gsebo.training.history import Progress
from gsebo.training.outer_step import OuterStep
from gsebo.training.problem import NodeClassification
from gsebo.training.turns import Turn, WholeTurn, each_network, started


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

    def start(self, optimizer: Optimizer, outer_step: OuterStep | None) -> Progress:
        """The state before the first step."""
        base = self.base
        return started(
            base.initial_weights(),
            base.initial_outer(),
            optimizer,
            outer_step,
            networks=self.num_networks,
        )

    def as_given(self) -> NodeClassification:
        """One network that learns from the training nodes."""
        return self.base

    def turn(self, number: int, steps: range) -> Turn:
        """The losses of the network whose turn it is."""
        return WholeTurn(partial(self.problem, number), self.base.structure)

    def training(self, steps: range, outer: Tree) -> FirstDerivatives:
        """Of that one network."""
        return self.base.training(steps, outer)

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
        return each_network(weights, self.num_networks)

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
