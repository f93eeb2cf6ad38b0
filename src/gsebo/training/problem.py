"""Node classification as a bilevel problem: weights inside, strengths outside."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeGuard, final

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector

from gsebo.bilevel import Iterate, Optimizer, State, Tree
from gsebo.bilevel.derivatives import (
    Derivatives,
    FirstDerivatives,
    HandDifferentiated,
    first_derivatives,
)
from gsebo.bilevel.tree import unflatten
from gsebo.graph import Topology
from gsebo.nn.base import Backbone, Features, LayerStrengths
from gsebo.sparse import Noise, Pattern
from gsebo.sparse.symbol import Untraceable
from gsebo.structure import Predictions, Structure
from gsebo.training.consistency import Consistency
from gsebo.training.history import Progress
from gsebo.training.outer_step import OuterStep
from gsebo.training.tape_derivatives import FLAT, Programs, TapeDerivatives
from gsebo.training.turns import Trainable, Turn, WholeTurn, started

Reduction = Literal["mean", "sum"]
"""What is made of the losses of several nodes."""


@final
@dataclass(frozen=True, eq=False)
class Task:
    """What is to be classified, by which network, whose parameters are initial weights.

    Only the labels of the inner nodes are read.

    Attributes:
        backbone: The network; its parameters are the initial weights.
        features: Of the nodes.
        graph: The entries that have strengths.
        labels: Class of each node.
        inner_nodes: Nodes that the loss is taken over.
        weight_decay: λ of the penalty λ/2 ‖W‖², whatever the reduction is.
        seed: Of dropout.
        inner_reduction: Whether the loss is the ``"mean"`` over these nodes, or the
            ``"sum"``.
    """

    backbone: Backbone
    features: Features
    graph: Topology
    labels: Tensor
    inner_nodes: Tensor
    weight_decay: float
    seed: int
    inner_reduction: Reduction = "mean"

    def initial_weights(self) -> Tree:
        """All weights of the network as one vector."""
        return {FLAT: parameters_to_vector(self.trained_weights.values()).detach()}

    def named_weights(self, weights: Tree) -> Tree:
        """Cut the flat vector into the parameters of the network."""
        return unflatten(weights[FLAT], self.trained_weights)

    @cached_property
    def trained_weights(self) -> Tree:
        """The trained parameters of the network, in the order of the vector."""
        named = self.backbone.named_parameters()
        return {name: weight for name, weight in named if weight.requires_grad}

    def logits(
        self,
        weights: Tree,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None,
        noise: Noise | None,
    ) -> Tensor:
        """Scores of every node, ``[nodes, classes]``."""
        inputs = (self.features, pattern, strengths, noise)
        scores: Tensor = functional_call(
            self.backbone, self.named_weights(weights), inputs
        )
        return scores

    def loss_of(self, logits: Tensor) -> Tensor:
        """Cross-entropy of the inner nodes, their mean or their sum."""
        chosen = logits.index_select(0, self.inner_nodes)
        labels = self.labels[self.inner_nodes]
        return cross_entropy(chosen, labels, reduction=self.inner_reduction)

    def penalty(self, weights: Tree) -> Tensor:
        """λ/2 ‖W‖² over all weights."""
        flat = weights[FLAT]
        return flat.dot(flat) * (self.weight_decay / 2)

    def first_layer_penalty(self, weights: Tree) -> Tensor:
        """The same over the weights of the first layer alone."""
        named = self.named_weights(weights)
        first = [w for name, w in named.items() if name.startswith("layers.0.")]
        squares = torch.stack([weight.square().sum() for weight in first])
        return squares.sum() * (self.weight_decay / 2)

    @cached_property
    def initial_strengths(self) -> Tensor:
        """Strengths of the vanilla propagation on the given graph, ``[entries]``."""
        pattern, weights = self.graph.pattern, self.graph.weights
        return self.backbone.initial_strength(pattern, weights=weights).detach()

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.graph.num_nodes

    @cached_property
    def num_classes(self) -> int:
        """Number of classes that are told apart."""
        with torch.no_grad():
            scores = self.backbone(self.features, self.graph.pattern, None, None)
        return int(scores.shape[-1])

    @property
    def device(self) -> torch.device:
        """Where everything lies."""
        return self.labels.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of all numbers."""
        return self.features.dtype


@final
@dataclass(frozen=True, eq=False)
class NodeClassification(HandDifferentiated):
    """The two losses of GSEBO.

        L(W, Z) = mean over training nodes of the cross-entropy + λ/2 ‖W‖²
        F(W, Z) = sum over outer (validation) nodes of the cross-entropy

    The outer loss is a sum, as printed in the paper: its learning rate counts on it.
    The paper prints a sum inside, too: that is ``inner_reduction="sum"``.
    All weights live in one flat vector, so that the optimiser and its adjoint are a
    handful of operations however many layers there are. Parameters of ``backbone`` and
    ``structure`` are only the initial ones.

    Attributes:
        backbone: The network; its parameters are the initial ones.
        structure: What the strengths are; the same holds of its parameters.
        features: Of the nodes.
        graph: The entries that have strengths.
        labels: Class of each node.
        inner_nodes: Nodes of the inner loss.
        outer_nodes: Nodes of the outer loss.
        weight_decay: λ of the penalty.
        seed: Of dropout.
        inner_reduction: Whether the inner loss is the ``"mean"`` over its nodes, or the
            ``"sum"``.
        state: Class probabilities that the structure compares, if it compares any.
        by_hand: Whether kernel calls are written down for it, where there are kernels:
            not worth it on a GPU for a graph that is used once.
        nodes: Numbers of the nodes in the graph that this is a batch of, on the CPU.
        consistency: What nodes without labels teach, if they do: then there are no
            kernel calls.
    """

    backbone: Backbone
    structure: Structure
    features: Features
    graph: Topology
    labels: Tensor
    inner_nodes: Tensor
    outer_nodes: Tensor
    weight_decay: float
    seed: int
    state: Predictions | None = None
    by_hand: bool = True
    nodes: Tensor | None = None
    inner_reduction: Reduction = "mean"
    consistency: Consistency | None = None

    def with_state(self, state: Predictions | None) -> "NodeClassification":
        """The same problem while the structure looks at other probabilities."""
        other = replace(self, state=state)
        # Kernel calls read strengths, wherever those come from: they serve both.
        other.__dict__["programs"] = self.programs
        return other

    def with_nodes(self, inner: Tensor, outer: Tensor) -> "NodeClassification":
        """The same problem with other nodes inside and outside."""
        return replace(self, inner_nodes=inner, outer_nodes=outer)

    @cached_property
    def task(self) -> Task:
        """The same without a structure."""
        return Task(
            backbone=self.backbone,
            features=self.features,
            graph=self.graph,
            labels=self.labels,
            inner_nodes=self.inner_nodes,
            weight_decay=self.weight_decay,
            seed=self.seed,
            inner_reduction=self.inner_reduction,
        )

    def initial_weights(self) -> Tree:
        """All weights of the backbone as one vector."""
        return self.task.initial_weights()

    def initial_outer(self) -> Tree:
        """The parameters of the structure."""
        return {
            name: parameter.detach().clone()
            for name, parameter in self.structure.named_parameters()
        }

    @property
    def num_networks(self) -> int:
        return 1

    def start(self, optimizer: Optimizer, outer_step: OuterStep | None) -> Progress:
        weights, outer = self.initial_weights(), self.initial_outer()
        return started(weights, outer, optimizer, outer_step)

    def as_given(self) -> "NodeClassification":
        return self

    def turn(self, number: int, steps: range) -> Turn:
        return WholeTurn(lambda weights, outer: self, self.structure)

    def training(self, steps: range, outer: Tree) -> FirstDerivatives:
        return first_derivatives(self, outer)

    def named_weights(self, weights: Tree) -> Tree:
        """Cut the flat vector into the parameters of the backbone."""
        return self.task.named_weights(weights)

    @property
    def trained_weights(self) -> Tree:
        """The trained parameters of the backbone, in the order of the vector."""
        return self.task.trained_weights

    def derivatives(self, outer: Tree) -> Derivatives | None:
        """Derivatives by hand, where there are kernels for the network and device."""
        if self.programs is None:
            return None
        return self._tape_derivatives(self.programs, outer, recorded=True)

    def _tape_derivatives(
        self, programs: Programs, outer: Tree, *, recorded: bool
    ) -> TapeDerivatives:
        return TapeDerivatives(
            programs,
            self.strengths,
            outer,
            replicated=False,
            recorded=recorded,
        )

    @cached_property
    def programs(self) -> Programs | None:
        """Kernel calls for this problem, None where there are none."""
        by_hand = self.by_hand and self.consistency is None
        if not (self.backbone.traceable and by_hand):
            return None
        try:
            return Programs(self, [self.seed])
        except Untraceable:
            return None

    def strengths(self, outer: Tree) -> Tensor:
        """Strength of every entry, ``[entries]`` or ``[layers, entries]``."""
        inputs = (self.graph, self.state)
        strengths: Tensor = functional_call(self.structure, outer, inputs)
        return strengths

    @cached_property
    def initial_strengths(self) -> Tensor:
        """Strengths before anything is learned."""
        with torch.no_grad():
            return self.strengths(self.initial_outer())

    @torch.no_grad()
    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        if self.programs is None:
            return self.logits(weights, outer, None)
        quiet = self._tape_derivatives(self.programs, outer, recorded=False)
        return quiet.scores(weights)

    def logits(self, weights: Tree, outer: Tree, noise: Noise | None) -> Tensor:
        """Scores of every node, ``[nodes, classes]``."""
        pattern, strengths = self.graph.pattern, self.strengths(outer)
        return self.task.logits(weights, pattern, strengths, noise)

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        noise, loss_of = Noise(self.seed, step), self.task.loss_of
        if self.consistency is None:
            loss = loss_of(self.logits(weights, outer, noise))
        else:
            pattern, strengths = self.graph.pattern, self.strengths(outer)

            def logits(noise: Noise) -> Tensor:
                return self.task.logits(weights, pattern, strengths, noise)

            nodes = self._classified_nodes
            loss = self.consistency.loss(logits, loss_of, noise, nodes)
        if self.weight_decay == 0:
            return loss
        flat = weights[FLAT]
        return torch.add(loss, flat.dot(flat), alpha=self.weight_decay / 2)

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        logits = self.logits(weights, outer, None)
        chosen = logits.index_select(0, self.outer_nodes)
        return cross_entropy(chosen, self._outer_labels, reduction="sum")

    def changed_edges(self, outer: Tree, runs: int) -> tuple[Tensor, Tensor]:
        start = self.initial_strengths
        if not outer:
            return start.new_zeros(runs), start.new_ones(runs)
        return changed_strengths(self.strengths(outer), start, self.graph.num_edges)

    @cached_property
    def _classified_nodes(self) -> Tensor | None:
        """Nodes of the one type that has classes; ``None`` where all have."""
        types = self.graph.graph.types
        if types is None or types.classified is None:
            return None
        found = (types.node_type == types.classified).nonzero().squeeze(-1)
        return found.to(self.labels.device)

    @cached_property
    def _outer_labels(self) -> Tensor:
        return self.labels[self.outer_nodes]


def changed_strengths(
    now: Tensor, start: Tensor, num_edges: int
) -> tuple[Tensor, Tensor]:
    """How many edges of each run differ, and by which factor on average.

    ``now`` is ``[runs, ..., entries]``, ``start`` the same for one run.
    """
    now, start = now[..., :num_edges], start[..., :num_edges]
    moved = now != start
    count = moved.flatten(1).sum(-1)
    total = torch.where(moved, now / start, 0).flatten(1).sum(-1)
    ever = moved if moved.dim() == 2 else moved.any(dim=1)
    return ever.sum(-1), torch.where(count > 0, total / count, 1)


def stackable(problems: Sequence[Trainable]) -> TypeGuard[list[NodeClassification]]:
    """Whether problems differ in nothing but their seeds, and programs serve them.

    Two problems on one graph share its tensors: what is equal is the same object.
    """
    first = problems[0]
    if len(problems) == 1 or not isinstance(first, NodeClassification):
        return False
    return all(
        isinstance(each, NodeClassification)
        and each.programs is not None
        and each.features is first.features
        and each.graph is first.graph
        and each.weight_decay == first.weight_decay
        and each.inner_reduction == first.inner_reduction
        and torch.equal(each.inner_nodes, first.inner_nodes)
        and torch.equal(each.outer_nodes, first.outer_nodes)
        for each in problems
    )


@final
class Stack(HandDifferentiated):
    """Problems with different seeds as one: a leading axis on weights and strengths."""

    def __init__(self, problems: Sequence[NodeClassification]) -> None:
        self._first = problems[0]
        self._programs = Programs(self._first, [each.seed for each in problems])

    @property
    def num_networks(self) -> int:
        """One for each problem, all of which move at once."""
        return 1

    def turn(self, number: int, steps: range) -> Turn:
        return WholeTurn(lambda weights, outer: self, self._first.structure)

    def training(self, steps: range, outer: Tree) -> FirstDerivatives:
        return self.derivatives(outer)

    def derivatives(self, outer: Tree) -> Derivatives:
        """Derivatives of all problems, each by its own weights and strengths."""
        return self._derivatives(outer, recorded=True)

    def inner_loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        # There is no graph to record: whoever needs one trains one after another.
        raise NotImplementedError("a stack knows its derivatives, not its losses")

    def outer_loss(self, weights: Tree, outer: Tree) -> Tensor:
        raise NotImplementedError("a stack knows its derivatives, not its losses")

    def scores(self, weights: Tree, outer: Tree) -> Tensor:
        return self._derivatives(outer, recorded=False).scores(weights)

    def _derivatives(self, outer: Tree, *, recorded: bool) -> TapeDerivatives:
        return TapeDerivatives(
            self._programs,
            self._first.strengths,
            outer,
            replicated=True,
            recorded=recorded,
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

    def select(self, together: Progress, places: list[int]) -> Progress:
        """Keep the runs at some places only."""
        chosen = torch.tensor(places, device=self._first.labels.device)

        def rows(tree: Tree) -> Tree:
            return {name: leaf.index_select(0, chosen) for name, leaf in tree.items()}

        def rows_of(state: State) -> State:
            return State(state.count, rows(state.slots))

        weights, state, step = together.iterate
        return Progress(
            Iterate(rows(weights), rows_of(state), step),
            rows(together.outer),
            rows_of(together.outer_state),
        )

    def take(self, tree: Tree, place: int) -> Tree:
        """What belongs to one run: a copy, so that it does not keep all in memory."""
        return {name: leaf[place].clone() for name, leaf in tree.items()}


def _stacked(trees: Sequence[Tree]) -> Tree:
    return {name: torch.stack([tree[name] for tree in trees]) for name in trees[0]}


def _stacked_state(states: Sequence[State]) -> State:
    return State(states[0].count, _stacked([state.slots for state in states]))
