"""GRCN: similar nodes become neighbors beside those that a graph gives.

Two layers without a nonlinearity at the end embed the nodes, Â = normalised A + I:

    Z = Â (tanh(Â X W₀)) W₁,   each row divided by its length

Every node takes itself and the K - 1 nodes of the largest products z_i · z_j: these are
the entries of a sparse matrix S. The graph of the classifier is A + I + S + Sᵀ, so that
a product counts twice where two nodes took each other, and for a node itself.

Â X does not change, and W₀, W₁ may be diagonal: a vector for the channels. The nodes
are compared in blocks, and products are only kept, and differentiated, where S has an
entry.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from gsebo.bilevel import Optimizer, Tree, make_optimizer
from gsebo.files import Count
from gsebo.graph import Propagation
from gsebo.memory import require_memory
from gsebo.methods.baselines.pairs import dense_features
from gsebo.methods.baselines.shared import (
    BaselineProblem,
    EntrySum,
    JointBaseline,
    LastOf,
    with_itself,
    without_zeros,
)
from gsebo.methods.parameters import FeaturesName, Rate, SideWidth, Steps, Width
from gsebo.sparse import Noise, Pattern, sddmm, spmm, uniform
from gsebo.sparse.operators import unit_rows
from gsebo.structure.candidates import nearest_neighbors
from gsebo.training import Member, Task
from gsebo.training.history import SelectBy

_FIRST, _SECOND = "first", "second"
_SITE = 1000
# Matrices of the size of an embedding that a step holds.
_EMBEDDINGS = 8


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GRCN(JointBaseline):
    """Graph-revised convolutional network (Yu et al., ECML 2020).

    A small network embeds the nodes on the given graph, every node is joined to those
    with the most similar embeddings, as strongly as they are similar, and the GCN
    classifies on both graphs together. Both networks follow the training loss, each
    with its own learning rate. A similarity below zero joins nothing. The defaults are
    the authors' for Cora, where they have no dropout before the first layer
    (``backbone_options={"input_dropout": False}``). (For Citeseer: ``inner_lr`` 0.05,
    ``num_neighbors`` 300, ``normalize`` False, 200 epochs.)

    Args:
        num_neighbors: K, how many nodes each one takes, itself included.
        structure_lr: Learning rate of the embedding.
        embedding: Its layers: a weight for each feature (``"diagonal"``), which begins
            at one, or a matrix (``"dense"``), which begins at random.
        embedding_hidden: Width of the first of two dense layers.
        embedding_channels: Width of the second.
        normalize: Divide embeddings by their length, so that products are cosines.
        fast: Choose the neighbors once, before the first step, and only learn how
            strongly they are joined: the authors' Fast-GRCN.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("gcn",)

    hidden_channels: Width = 32
    features: FeaturesName = "largest"
    inner_lr: Rate = 5e-3
    weight_decay: Rate = 5e-3
    max_epochs: Steps = 300
    patience: Count = 300
    select_by: SelectBy = "first_accuracy"
    num_neighbors: Count = 150
    structure_lr: Rate = 1e-3
    embedding: Literal["diagonal", "dense"] = "diagonal"
    embedding_hidden: SideWidth = 100
    embedding_channels: SideWidth = 10
    normalize: bool = True
    fast: bool = False

    def _problem(self, task: Task) -> "GRCNProblem":
        return GRCNProblem(task, self)

    def _structure_optimizer(self) -> Optimizer:
        return make_optimizer(self.inner_optimizer, self.structure_lr)


def weighed(x: Tensor, weight: Tensor) -> Tensor:
    """``x W``, where a vector stands for the diagonal matrix of its numbers."""
    return x * weight if weight.dim() == 1 else x @ weight


@final
class RevisedGraph:
    """The entries of A + I + S + Sᵀ for one choice of neighbors.

    Args:
        given: The entries of A + I.
        taken: Sources and targets ``[2, pairs]`` of the others that nodes take.
    """

    def __init__(self, given: Pattern, taken: Tensor) -> None:
        size = given.num_rows
        row, column = with_itself(taken, size)
        self._taken = Pattern.from_positions(row, column, size)
        entries = given.row_of_entry, given.column_of_entry
        self._sum = EntrySum(size, entries, (row, column), (column, row))

    def weighted(self, given: Tensor, embedding: Tensor) -> tuple[Pattern, Tensor]:
        """Entries and weights, from the weights ``[entries]`` of A + I."""
        similarity = sddmm(self._taken, embedding, embedding).relu()
        return self._sum.pattern, self._sum(given, similarity, similarity)


@final
class GRCNProblem(BaselineProblem[GRCN]):
    """Training loss on the revised graph."""

    def __init__(self, task: Task, method: GRCN) -> None:
        super().__init__(task, method)
        numbers = task.num_nodes * self._widest
        require_memory(
            _EMBEDDINGS * numbers * task.dtype.itemsize,
            task.device,
            what=f"an embedding of {task.num_nodes} nodes in {self._widest} channels",
        )
        given, weights = task.graph.pattern, task.graph.weights
        if weights is None:
            weights = torch.ones(given.num_entries, device=task.device)
        self._weights = weights.to(task.dtype)
        with torch.no_grad():
            self._propagated = spmm(*self.given, dense_features(task.features))
        self._graph_of = LastOf(self._searched)
        self._first = self._searched(self.initial_outer()) if method.fast else None

    @property
    def _widest(self) -> int:
        method, channels = self.method, self.task.features.shape[1]
        dense = method.embedding == "dense"
        return max(channels, method.embedding_hidden) if dense else channels

    def initial_outer(self) -> Tree:
        method, channels = self.method, self.task.features.shape[1]
        if method.embedding == "diagonal":
            one = torch.ones(channels, dtype=self.task.dtype, device=self.task.device)
            return {_FIRST: one, _SECOND: one.clone()}
        shapes = {
            _FIRST: (channels, method.embedding_hidden),
            _SECOND: (method.embedding_hidden, method.embedding_channels),
        }
        noise, like = Noise(self.task.seed, 0), self._weights
        return {
            name: (2 * uniform(shape, noise, place, like) - 1) * (6 / sum(shape)) ** 0.5
            for place, (name, shape) in enumerate(shapes.items(), start=_SITE)
        }

    def embedding(self, outer: Tree) -> Tensor:
        """Z, ``[nodes, channels]``."""
        hidden = torch.tanh(weighed(self._propagated, outer[_FIRST]))
        found = spmm(*self.given, weighed(hidden, outer[_SECOND]))
        return unit_rows(found) if self.method.normalize else found

    def revised(self, outer: Tree) -> Propagation:
        """The graph of the classifier in its vanilla propagation, differentiable."""
        graph = self._first or self._graph_of(outer)
        return self.weighted(*graph.weighted(self._weights, self.embedding(outer)))

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        return self.loss_on(self.revised(outer), weights, Noise(self.task.seed, step))

    @torch.no_grad()
    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        return [Member(without_zeros(self.revised(outer)))]

    @torch.no_grad()
    def _searched(self, outer: Tree) -> RevisedGraph:
        """Let every node take itself and the nodes that are most similar to it."""
        others, cosine = self.method.num_neighbors - 1, self.method.normalize
        found = nearest_neighbors(self.embedding(outer), others, cosine=cosine)
        return RevisedGraph(self.task.graph.pattern, found)
