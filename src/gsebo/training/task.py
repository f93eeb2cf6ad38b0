"""A network on a graph with labelled nodes, before any structure is chosen."""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from gsebo.backbone.base import Backbone, Features, LayerStrengths
from gsebo.bilevel import Tree
from gsebo.bilevel.tree import flatten, unflatten
from gsebo.sparse import Noise, Pattern
from gsebo.structure import Topology
from gsebo.training.tape_derivatives import FLAT


@final
@dataclass(frozen=True, eq=False)
class Task:
    """What is to be classified, by which network.

    Attributes:
        backbone: The network; its own parameters are only the initial weights.
        features: Node features.
        graph: Entries of the given graph.
        labels: Class of each node; only those of the inner nodes are read here.
        inner_nodes: Nodes that the weights are trained on.
        weight_decay: λ of the penalty λ/2 ‖W‖².
        seed: Of everything random in a step.
    """

    backbone: Backbone
    features: Features
    graph: Topology
    labels: Tensor
    inner_nodes: Tensor
    weight_decay: float
    seed: int

    def initial_weights(self) -> Tree:
        """All weights of the network as one vector."""
        return {FLAT: flatten(self.trained_weights).detach()}

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
        """Mean cross-entropy of the inner nodes."""
        chosen = logits.index_select(0, self.inner_nodes)
        return cross_entropy(chosen, self.labels[self.inner_nodes])

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
