"""Plain training of fresh weights on batches, on a structure that stays as it is."""

from __future__ import annotations

import numpy as np
import torch

from gsebo.bilevel import Optimizer, Tree, begin
from gsebo.bilevel.derivatives import advance, descend, first_derivatives
from gsebo.bilevel.tree import flatten
from gsebo.distributed.tables import EntryTable
from gsebo.loader.prefetch import ahead
from gsebo.training.batched_graph import BatchedGraph, Nodes, Plan
from gsebo.training.outer_update import StateAt, looking, own_of
from gsebo.training.tape_derivatives import FLAT

# Steps: what training takes must not grow with the graph for ever.
_LONGEST_EPOCH = 10


def initial_weights(graph: BatchedGraph) -> Tree:
    """All weights of the network as one vector."""
    named = graph.backbone.named_parameters()
    trained: Tree = {name: weight for name, weight in named if weight.requires_grad}
    return {FLAT: flatten(trained).detach()}


@torch.no_grad()
def train_weights(
    graph: BatchedGraph,
    nodes: Nodes,
    optimizer: Optimizer,
    epochs: int,
    *,
    shared: Tree,
    table: EntryTable | None = None,
    state_at: StateAt | None = None,
) -> Tree:
    """Train for a number of passes over the nodes, each cut short where it is long.

    Args:
        graph: What batches are made of.
        nodes: Labelled nodes to train on.
        optimizer: Makes the steps.
        epochs: Number of passes.
        shared: What all edges share.
        table: What each entry has of its own.
        state_at: What the structure looks at.
    """
    iterate = begin(optimizer, initial_weights(graph))
    none = np.empty(0, np.int64)
    steps = range(epochs * min(graph.steps_in_pass(nodes), _LONGEST_EPOCH))

    def plan_of(step: int) -> Plan:
        return graph.plan(nodes, none, number=0, steps=range(step, step + 1))

    for step, plan in enumerate(ahead(plan_of, steps)):
        outer = {**shared, **own_of(graph.structure, table, plan.ids, graph.device)}
        seen = looking(state_at, iterate.weights, outer)
        derivatives = plan.problem(seen).first_derivatives(outer)
        gradients, _ = derivatives.inner_gradient(iterate.weights, step)
        iterate = advance(optimizer, iterate, gradients)
    return iterate.weights


@torch.no_grad()
def train_on_one_batch(
    graph: BatchedGraph, nodes: Nodes, optimizer: Optimizer, steps: int
) -> Tree:
    """Train on nodes that make a single batch, with nothing learned of the edges."""
    (part,) = graph.cover(nodes)
    problem = graph.problem(part, graph.own_entries(part), used_again=True)
    start = begin(optimizer, initial_weights(graph))
    iterate, _ = descend(first_derivatives(problem, {}), optimizer, start, steps)
    return iterate.weights
