"""Cross-fitted training on batches: no node is judged by a network that saw it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.bilevel import Tree
from gsebo.distributed.entries import Entries
from gsebo.distributed.tables import EntryTable
from gsebo.graph.arrays import GraphArrays
from gsebo.loader.batch import Batch
from gsebo.loader.sampler import BoundSampler, piece_of_epoch, pieces_of_epoch
from gsebo.nn.base import Features
from gsebo.structure.base import Predictions
from gsebo.training.batched_bilevel import Evaluated
from gsebo.training.batched_graph import BatchedGraph, Nodes
from gsebo.training.batched_plain import initial_weights
from gsebo.training.cross_fit import Division, network_of, with_network
from gsebo.training.history import Advance, Progress
from gsebo.training.loop import LoopSettings, run_loop
from gsebo.training.outer_update import OuterUpdate
from gsebo.training.problem import NodeClassification
from gsebo.training.tape_derivatives import FLAT

Integers = NDArray[np.int64]


@final
class RowSampler(BoundSampler):
    """Draws nodes and no edges.

    Args:
        arrays: The graph.
        batch_size: Number of nodes.
        seed: Of the order.
    """

    def __init__(self, arrays: GraphArrays, batch_size: int, seed: int) -> None:
        self._arrays = arrays
        self._size = batch_size
        self._seed = seed

    def batch(self, nodes: Integers, number: int) -> Batch:
        """So many of the nodes, others each time until all had their turn."""
        return self._of(
            nodes[piece_of_epoch(len(nodes), self._size, number, self._seed)]
        )

    def batches_in_pass(self, nodes: Integers) -> int:
        """How many pieces the nodes make."""
        return pieces_of_epoch(len(nodes), self._size)

    def cover(self, nodes: Integers) -> Iterator[Batch]:
        """All of the nodes in their order."""
        for begin in range(0, len(nodes), self._size):
            yield self._of(nodes[begin : begin + self._size])

    def _of(self, nodes: Integers) -> Batch:
        nodes = np.sort(nodes)
        none = np.empty(0, np.int64)
        degree = self._arrays.degree(nodes)
        return Batch.of(nodes, none, none, np.zeros_like(nodes), degree, nodes)


Guess = Callable[[Features], Tensor]
"""Class probabilities from features alone, ``[nodes, classes]``."""


@torch.no_grad()
def seen_on_part(
    problem: NodeClassification,
    weights: Tree,
    outer: Tree,
    *,
    guess: Guess | None,
    own_predictions: bool,
) -> Predictions | None:
    """What a structure looks at on a part: a guess, and what a network makes of it."""
    if guess is None:
        return None
    guessed = guess(problem.features)
    if not own_predictions:
        return guessed, guessed
    here = problem.with_state((guessed, guessed))
    return guessed, here.logits(weights, outer, None).softmax(-1)


@final
class BatchedCrossFit:
    """Networks that take turns on batches, as the loop sees them.

    Args:
        graph: What batches are made of.
        division: Which labelled nodes serve what.
        train_nodes: Evaluated for the training accuracy of a record.
        val_nodes: Evaluated for the validation loss of a record.
        guesses: What is known of the classes without edges, for each network.
        own_predictions: Whether the structure looks at the network's predictions too.
        table: What each edge has of its own.
    """

    def __init__(
        self,
        graph: BatchedGraph,
        division: Division,
        train_nodes: Nodes,
        val_nodes: Nodes,
        guesses: Sequence[Guess] | None,
        *,
        own_predictions: bool,
        table: EntryTable | None,
    ) -> None:
        self.graph, self.division, self.table = graph, division, table
        self.evaluated = Evaluated(graph, train_nodes, val_nodes)
        self._guesses = guesses
        self._own_predictions = own_predictions

    @property
    def labels(self) -> Tensor:
        """Class of each evaluated node."""
        return self.evaluated.labels

    @property
    def inner_nodes(self) -> Tensor:
        """Evaluated training nodes."""
        return self.evaluated.inner_nodes

    def state_at(
        self, network: int, problem: NodeClassification, weights: Tree, outer: Tree
    ) -> Predictions | None:
        """What the structure looks at when one of the networks has its turn."""
        return seen_on_part(
            problem,
            weights,
            outer,
            guess=None if self._guesses is None else self._guesses[network],
            own_predictions=self._own_predictions,
        )

    @torch.no_grad()
    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        """Scores of the evaluated nodes, each by a network that left it out."""
        nodes, found = self.evaluated.nodes, None
        judge = np.zeros(len(nodes), np.int64)
        for network in range(self.division.num_networks):
            judge[np.isin(nodes, self.division.held_out(network).numpy())] = network
        for network, row in enumerate(weights[FLAT]):
            own = judge == network
            if not own.any():
                continue
            logits = self.evaluated.scores(
                {FLAT: row},
                outer,
                self.table,
                partial(self.state_at, network),
                nodes[own],
            )
            if found is None:
                found = logits.new_zeros(len(nodes), logits.shape[-1])
            found[torch.from_numpy(own).to(found.device)] = logits
        assert found is not None
        return found

    def changed_edges(self, outer: Tree, runs: int) -> tuple[Tensor, Tensor]:
        """Not known."""
        return self.evaluated.unknown_change(runs)


def train_cross_fitted_on_batches(
    problem: BatchedCrossFit,
    update: OuterUpdate,
    *,
    inner_steps: int,
    settings: LoopSettings,
) -> Progress:
    """Learn a structure that all networks share.

    Args:
        problem: The networks and their batches.
        update: Makes the outer steps; the inner optimiser's state lives on across them.
        inner_steps: τ.
        settings: When to stop, and what to keep.
    """
    graph, networks = problem.graph, problem.division.num_networks

    def turn(at: Advance, table: EntryTable | None, number: int) -> Advance:
        network = number % networks
        own = network_of(at.iterate, network, number // networks * inner_steps)
        inner, outer = (nodes.numpy() for nodes in problem.division.nodes(number))
        plan = graph.plan(
            inner,
            outer,
            number=number,
            steps=range(own.step, own.step + inner_steps),
        )
        moved = update.run(
            plan,
            own,
            at.outer,
            at.outer_state,
            table,
            inner_steps=inner_steps,
            state_at=partial(problem.state_at, network),
        )
        # Written before the loop has looked: what diverged must not be.
        if table is not None and moved.changed is not None and _finite(moved.changed):
            table.write(*moved.changed)
        iterate = with_network(at.iterate, network, moved.iterate)
        return Advance(
            iterate, moved.shared, moved.state, moved.train_loss, moved.shared
        )

    def step(here: BatchedCrossFit, progress: Progress) -> Advance:
        outer = progress.outer
        at = Advance(
            progress.iterate, outer, progress.outer_state, torch.zeros(()), outer
        )
        begun = progress.iterate.step // inner_steps
        for number in range(begun, begun + networks):
            at = turn(at, progress.table, number)
        return at

    flat = initial_weights(graph)[FLAT]
    weights = {FLAT: flat.expand(networks, -1).clone()}
    start = update.start(weights, problem.table)
    (progress,) = run_loop([problem], step, [start], [settings])
    return progress


def _finite(entries: Entries) -> bool:
    return all(bool(leaf.isfinite().all()) for leaf in entries.values.values())
