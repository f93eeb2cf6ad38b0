"""IDGL: the graph is learned from the embeddings that it leads to, over and over.

Nodes are joined by their similarity, with learned weights of the channels:

    s_ij = mean over heads p of cos(w_p ⊙ x_i, w_p ⊙ x_j),   0 where not above epsilon

It is asked of such a graph that similar nodes are joined, that no node is left alone,
and that the numbers are small.
"""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, final

import torch
from msgspec import Meta
from torch import Tensor

from gsebo.bilevel import Optimizer, Tree, make_optimizer
from gsebo.files import Count, Share
from gsebo.graph import Graph, Propagation
from gsebo.methods.baselines.pairs import dense_features, gram_matrix
from gsebo.methods.baselines.shared import BaselineProblem, JointBaseline, run_layers
from gsebo.methods.parameters import Rate, Samples, ShareBelowOne, Steps
from gsebo.sparse import Noise, dropout, uniform
from gsebo.training import Member, Task

_TINY = 1e-12
_FEATURE_SITE, _GRAPH_SITE, _EMBEDDING_SITE, _HEAD_SITE = 1000, 1001, 1002, 1003
_FEATURE_HEADS, _EMBEDDING_HEADS = "feature_heads", "embedding_heads"
# A similarity to everything is full of numbers that no prediction notices.
_NEGLIGIBLE = 1e-6


@final
@dataclass(kw_only=True, eq=False, repr=False)
class IDGL(JointBaseline):
    """Graph and embeddings are learned from each other (Chen et al., NeurIPS 2020).

    A first graph joins nodes with similar features, by a learned cosine; the following
    ones join nodes that the network gave similar embeddings on the graph before. Each
    is mixed with the given graph, and the network is trained on all of them. The
    defaults are the authors' for Cora. (For Citeseer: ``graph_skip`` 0.6,
    ``update_ratio`` 0.5, ``num_heads`` 1, ``epsilon`` 0.3, ``smoothness`` 0.4,
    ``sparsity`` 0.2, ``tolerance`` 1e-3, ``graph_dropout`` and ``embedding_dropout``
    0.)

    Args:
        graph_skip: λ, how much of each graph is the given one.
        update_ratio: η, how much of the later graphs is not the first one.
        num_heads: Cosines that the similarity is the mean of.
        epsilon: Similarities up to this count as none.
        smoothness: Weight of the penalty on joining nodes with different features.
        connectivity: Weight of the penalty on nodes with hardly any edges.
        sparsity: Weight of the penalty on large similarities.
        max_iterations: Graphs after the first, at most.
        tolerance: They end with one that changes the similarities by less than this
            share, in squares.
        graph_dropout: Rate of dropout on the features that the first graph is learned
            from, and on that graph.
        embedding_dropout: Rate of dropout on the embeddings that the later graphs are
            learned from.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("gcn",)

    max_epochs: Steps = 10000
    patience: Count = 100
    graph_skip: Share = 0.8
    update_ratio: Share = 0.1
    num_heads: Annotated[int, Meta(ge=1, le=1000)] = 4
    epsilon: ShareBelowOne = 0.0
    smoothness: Rate = 0.2
    connectivity: Rate = 0.0
    sparsity: Rate = 0.0
    max_iterations: Samples = 10
    tolerance: Rate = 4e-5
    graph_dropout: ShareBelowOne = 0.5
    embedding_dropout: ShareBelowOne = 0.5

    def _problem(self, task: Task) -> "IDGLProblem":
        return IDGLProblem(task, self)

    def _structure_optimizer(self) -> Optimizer:
        return make_optimizer(self.inner_optimizer, self.inner_lr)

    def _dense_matrices(self, data: Graph, runs: int) -> int:
        num_nodes, channels = data.x.shape
        # Measured: of a training step, or of storing a graph with all edges if that is
        # more. Beside it there are the features under each head.
        matrices = max(4 * self.max_iterations + 8, 36)
        return matrices - (-4 * self.num_heads * channels // num_nodes)


def weighted_cosine(x: Tensor, heads: Tensor) -> Tensor:
    """Mean of the cosines under each head w, ``[nodes, nodes]``.

    A row of zeros is similar to nothing, itself included.
    """
    seen = x.unsqueeze(1) * heads
    squares = seen.square().sum(-1, keepdim=True) * len(heads)
    unit = seen * torch.where(squares > 0, squares, 1).rsqrt()
    flat = unit.flatten(1)
    return flat @ flat.mT


def above(similarity: Tensor, epsilon: float) -> Tensor:
    """The same with 0 for all that does not exceed ``epsilon``."""
    return torch.where(similarity > epsilon, similarity, 0)


def row_normalised(weights: Tensor) -> Tensor:
    """Each row divided by its sum; a row of zeros stays as it is."""
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total > 0, total, 1)


def dirichlet_energy(weights: Tensor, gram: Tensor) -> Tensor:
    """``tr(Xᵀ L X) = ½ Σ_ij s_ij ‖x_i - x_j‖²``, L = D - S with D the row sums.

    S is symmetric; with ``X Xᵀ`` given a step costs nothing per channel.
    """
    return torch.dot(weights.sum(-1), gram.diagonal()) - (weights * gram).sum()


def disconnection(weights: Tensor) -> Tensor:
    """Mean over the nodes of -log of their degree: large where one is left alone."""
    return -(weights.sum(-1) + _TINY).log().mean()


def relative_change(new: Tensor, old: Tensor, first: Tensor) -> float:
    """``‖new - old‖² / ‖first‖²``."""
    with torch.no_grad():
        size = first.square().sum().clamp(min=_TINY)
        return float((new - old).square().sum() / size)


class GraphPass(NamedTuple):
    """One graph, and what the network makes of it."""

    similarity: Tensor  # What was learned, symmetric, [nodes, nodes].
    mixture: Tensor  # The same normalised and mixed with other graphs.
    logits: Tensor
    embedding: Tensor  # What the last layer reads, [nodes, channels].


@final
class IDGLProblem(BaselineProblem[IDGL]):
    """Training loss and penalty on the first graph, and their mean on the others."""

    dense = True

    def __init__(self, task: Task, method: IDGL) -> None:
        super().__init__(task, method)
        # The vanilla propagation of the given graph, [nodes, nodes].
        given, start = task.graph.pattern, self.initial_strengths
        self._given = start.new_zeros(task.num_nodes, task.num_nodes)
        self._given[given.row_of_entry, given.column_of_entry] = start
        self._gram = gram_matrix(task.features) if method.smoothness else None

    def initial_outer(self) -> Tree:
        task, heads = self.task, self.method.num_heads
        with torch.no_grad():
            weights = task.initial_weights()
            _, embedding = self._run_network(weights, self._given, None)
        widths = {
            _FEATURE_HEADS: task.features.shape[1],
            _EMBEDDING_HEADS: embedding.shape[1],
        }
        outer = {}
        for place, (name, width) in enumerate(widths.items(), start=_HEAD_SITE):
            drawn = uniform((heads, width), Noise(task.seed, 0), place, embedding)
            outer[name] = (2 * drawn - 1) * math.sqrt(6 / (heads + width))
        return outer

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        first, *later = map(self._loss_of, self.passes(weights, outer, step))
        heads = torch.cat([leaf.flatten() for leaf in outer.values()])
        decay = self.task.penalty(weights)
        decay = decay + heads.dot(heads) * (self.task.weight_decay / 2)
        return first + torch.stack(later).mean() + decay

    @torch.no_grad()
    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        mixture = self.passes(weights, outer, None)[-1].mixture.clamp(0, 1)
        noticed = mixture.masked_fill_(mixture < _NEGLIGIBLE, 0)
        return [Member(Propagation(self.all_pairs, self.all_pairs.values(noticed)))]

    def passes(self, weights: Tree, outer: Tree, step: int | None) -> list[GraphPass]:
        """Learn one graph after another until they hardly change.

        The step is that of training, or ``None`` to evaluate.
        """
        options, found, change = self.method, list[GraphPass](), math.inf
        # Not "change > tolerance", which would take NaN for an end.
        while len(found) <= options.max_iterations and not change <= options.tolerance:
            noise = None
            if step is not None:
                # Every pass of a training step has dropout of its own.
                number = step * (options.max_iterations + 1) + len(found)
                noise = Noise(self.task.seed, number)
            if not found:
                rate = options.graph_dropout
                seen = dropout(self.task.features, rate, noise, _FEATURE_SITE)
                heads = outer[_FEATURE_HEADS]
                similarity, mixture = self._learned(dense_features(seen), heads)
                mixture = dropout(mixture, rate, noise, _GRAPH_SITE)
            else:
                first, before = found[0], found[-1]
                rate, heads = options.embedding_dropout, outer[_EMBEDDING_HEADS]
                embedding = dropout(before.embedding, rate, noise, _EMBEDDING_SITE)
                similarity, mixture = self._learned(embedding, heads)
                mixture = torch.lerp(first.mixture, mixture, options.update_ratio)
                graphs = similarity, before.similarity, first.similarity
                change = relative_change(*graphs)
            ran = self._run_network(weights, mixture, noise)
            found.append(GraphPass(similarity, mixture, *ran))
        return found

    def _learned(self, seen: Tensor, heads: Tensor) -> tuple[Tensor, Tensor]:
        """Similarities, and their mixture with the given graph."""
        similarity = above(weighted_cosine(seen, heads), self.method.epsilon)
        own = row_normalised(similarity)
        return similarity, torch.lerp(own, self._given, self.method.graph_skip)

    def _run_network(
        self, weights: Tree, mixture: Tensor, noise: Noise | None
    ) -> tuple[Tensor, Tensor]:
        """Logits, and what the last layer reads, before dropout."""
        graph = Propagation(self.all_pairs, self.all_pairs.values(mixture))
        logits, read = run_layers(self.task, weights, graph, noise)
        return logits, dense_features(read[-1])

    def _loss_of(self, found: GraphPass) -> Tensor:
        """Training loss and what is asked of a learned graph."""
        options, similarity = self.method, found.similarity
        loss = self.task.loss_of(found.logits)
        if self._gram is not None:
            energy = dirichlet_energy(similarity, self._gram) / similarity.numel()
            loss = loss + options.smoothness * energy
        if options.connectivity:
            loss = loss + options.connectivity * disconnection(similarity)
        if options.sparsity:
            loss = loss + options.sparsity * similarity.square().mean()
        return loss
