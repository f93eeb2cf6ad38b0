"""GAug-O: every training step sees another graph, drawn from predicted edges.

The edge predictor is Z = ReLU(Â (Â X W₀) W₁) with Â = normalised A + I. Every other
matrix is dense: that each pair of nodes may become an edge is the method.
"""

import copy
import math
from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import softplus

from gsebo.bilevel import Optimizer, Tree, make_optimizer, scheduled
from gsebo.files import Share
from gsebo.graph import Propagation
from gsebo.methods.baselines.pairs import require_dense_memory
from gsebo.methods.baselines.shared import (
    BaselineProblem,
    JointBaseline,
    minimise,
    new_network,
    normalised_adjacency,
    weights_of,
)
from gsebo.methods.parameters import Positive, Rate, SideWidth, StepsOrZero
from gsebo.nn import GAT, GCN, MLP, SAGE, Backbone, JKNet
from gsebo.nn.base import Features, glorot
from gsebo.nn.gat import GATLayer
from gsebo.sparse import Noise, Pattern, sddmm, spmm, uniform
from gsebo.training import Member, Task

# Places that draw: graphs, and the weights of the predictor.
_GRAPH_SITE, _PREDICTOR_SITE = 1000, 1001
# Dense matrices that are held at the peak of a step, measured.
_MATRICES, _MATRICES_PER_HEAD = 14, 12
# To these an edge of weight 0 can be the same as no edge. A network from elsewhere
# counts its neighbors itself, whatever their weights.
_LEAVE_OUT = (GCN, SAGE, JKNet, GAT, MLP)


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GAugO(JointBaseline):
    """Training on graphs drawn from an edge predictor (GAug-O, Zhao et al., AAAI 2021).

    A graph auto-encoder gives each pair of nodes the probability

        P = alpha L / max(L) + (1 - alpha) (A + I),   L = Z Zᵀ

    and each step trains the backbone on an undirected graph drawn from P, and the
    auto-encoder through that graph and by how well it reconstructs the given one. Both
    are trained alone before. Predictions, those on validation nodes included, use the
    given graph: the auto-encoder only serves training.

    Args:
        alpha: Weight of the predicted edges in P, from 0 to 1.
        beta: Weight of the reconstruction in the loss.
        temperature: Of the relaxation by which a drawn graph is differentiated.
        pretrain_edge_epochs: Steps of the auto-encoder alone, on the reconstruction.
        pretrain_weight_epochs: Steps of the backbone alone, on the given graph. Neither
            these nor the former count as epochs, and none of them can be selected.
        warmup: Let the learning rate of the auto-encoder rise over ``max_epochs`` as
            the sigmoid does from -warmup to warmup; 0 keeps it constant.
        predictor_lr: Learning rate of the auto-encoder.
        predictor_hidden: Width of its first layer.
        predictor_dim: Width of Z.
        compat: Do as the authors' code does: ignore ``warmup``, and learn nothing about
            edges through attention, which only reads where the drawn graph has some.
    """

    uses_edge_weight: ClassVar[bool] = False

    alpha: Share = 1.0
    beta: Rate = 0.5
    temperature: Positive = 0.2
    pretrain_edge_epochs: StepsOrZero = 200
    pretrain_weight_epochs: StepsOrZero = 20
    warmup: Rate = 3.0
    predictor_lr: Rate = 0.01
    predictor_hidden: SideWidth = 128
    predictor_dim: SideWidth = 32
    compat: bool = False

    def _problem(self, task: Task) -> "GAugOProblem":
        return GAugOProblem(task, self)

    def _structure_optimizer(self) -> Optimizer:
        adam = make_optimizer("adam", self.predictor_lr)
        if not self.warmup or self.compat:
            return adam
        return scheduled(adam, lambda step: warm(step, self.max_epochs, self.warmup))


def warm(step: int, steps: int, width: float) -> float:
    """Rise from 0 to 1 over so many steps, as the sigmoid from -width to width."""
    place = step / max(steps - 1, 1)
    # sigmoid(x) = (1 + tanh(x / 2)) / 2, whose ends are brought to 0 and 1.
    return (1 + math.tanh(width * (place - 0.5)) / math.tanh(width / 2)) / 2


@final
class EdgePredictor(nn.Module):
    """Embeddings of the nodes whose products say which pairs are edges."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.first = glorot(in_channels, hidden)
        self.second = glorot(hidden, out_channels)

    def forward(self, features: Features, normalised: Propagation) -> Tensor:
        """Return Z, ``[nodes, out_channels]``."""
        hidden = spmm(*normalised, features @ self.first)
        return torch.relu(spmm(*normalised, hidden @ self.second))


def edge_probabilities(embedding: Tensor, observed: Pattern, alpha: float) -> Tensor:
    """P, ``[nodes, nodes]``: how likely each pair is an edge.

    No number of the embedding Z is negative; the observed entries are A + I.
    """
    # The largest product of two rows is one of a row with itself.
    largest = embedding.square().sum(1).amax()
    nothing = largest == 0
    scaled = embedding * (alpha / largest.masked_fill(nothing, 1))
    return (scaled @ embedding.mT).index_put(
        (observed.row_of_entry, observed.column_of_entry),
        embedding.new_full((observed.num_entries,), 1 - alpha),
        accumulate=True,
    )


def straight_through_bernoulli(
    probability: Tensor, temperature: float, drawn: Tensor
) -> Tensor:
    """1 with the given probability, else 0; differentiated as the relaxed Bernoulli.

        relaxed = sigmoid((logit p - logit u) / temperature),   sample = round(relaxed)

    Where p is 0 or 1 it is certain and has no derivative. The drawn u are uniform.
    """
    smallest = torch.finfo(probability.dtype).eps
    score = torch.logit(probability, smallest) - torch.logit(drawn)
    relaxed = torch.sigmoid(score / temperature)
    # The rounded number without its rounding errors, so that 0 and 1 are certain.
    sample = (drawn < probability).to(probability.dtype)
    return sample + (relaxed - relaxed.detach())


def sample_graph(
    probability: Tensor, temperature: float, noise: Noise, *, self_loops: bool
) -> Tensor:
    """Draw each unordered pair once: a symmetric matrix of zeros and ones.

    Of the probabilities ``[nodes, nodes]`` those above the diagonal are read.
    """
    nodes = probability.shape[0]
    # Turned by 180 degrees the lower triangle is the upper one: half the draws do.
    half = uniform(((nodes + 1) // 2, nodes), noise, _GRAPH_SITE, probability)
    drawn = torch.cat([half, half[: nodes // 2].flip(0, 1)])
    upper = straight_through_bernoulli(probability, temperature, drawn).triu(1)
    return (upper + upper.mT).fill_diagonal_(float(self_loops))


def reconstruction_loss(embedding: Tensor, observed: Pattern) -> Tensor:
    """Weighted cross-entropy of sigmoid(L) to A + I over all pairs.

    Edges and pairs without one have the same weight in all, 1/2 each:

        n² / (2 (n² - S)) · mean BCE(L, A + I), an edge counting (n² - S) / S times

    with S the number of (observed) entries of A + I.
    """
    edges = observed.num_entries
    others = embedding.shape[0] ** 2 - edges
    on_edges = sddmm(observed, embedding, embedding)
    missed = softplus(-on_edges).sum() / (2 * edges)
    if others == 0:
        return missed
    everywhere = softplus(embedding @ embedding.mT).sum()
    return missed + (everywhere - softplus(on_edges).sum()) / (2 * others)


@final
class GAugOProblem(BaselineProblem[GAugO]):
    """Training loss on drawn graphs and reconstruction of the given one.

    The outer variables are the weights of the auto-encoder. It takes the graph as
    undirected.
    """

    dense = True
    learned = False

    def __init__(self, task: Task, method: GAugO) -> None:
        super().__init__(task, method)
        heads = sum(layer.heads for layer in _attention_layers(task.backbone))
        through = not heads or not method.compat
        self._differentiable = through and isinstance(task.backbone, _LEAVE_OUT)
        needed = _MATRICES + _MATRICES_PER_HEAD * heads * self._differentiable
        require_dense_memory("gaug_o", needed, task.num_nodes, task.dtype, task.device)
        sizes = task.features.shape[1], method.predictor_hidden, method.predictor_dim
        self._predictor = new_network(task, _PREDICTOR_SITE, EdgePredictor, *sizes)
        self._on_drawn = task
        if heads:
            # Attention on drawn graphs passes over edges of strength 0.
            self._on_drawn = replace(task, backbone=copy.deepcopy(task.backbone))
            for layer in _attention_layers(self._on_drawn.backbone):
                layer.renormalise = True
        edges = task.graph.graph.edge_index
        self._normalised = normalised_adjacency(
            edges, task.num_nodes, task.dtype, task.device
        )
        self._observed = self._normalised.pattern

    def initial_outer(self) -> Tree:
        """The auto-encoder after its training alone."""
        return minimise(
            lambda outer, step: self._reconstruction(self.embedding(outer)),
            weights_of(self._predictor),
            make_optimizer("adam", self.method.predictor_lr),
            self.method.pretrain_edge_epochs,
        )

    def initial_weights(self) -> Tree:
        """The backbone after its training alone, on the given graph."""
        method, seed = self.method, self.task.seed
        return minimise(
            lambda weights, step: self.loss_on(self.given, weights, Noise(seed, step)),
            self.task.initial_weights(),
            make_optimizer(method.inner_optimizer, method.inner_lr),
            method.pretrain_weight_epochs,
        )

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        # The first steps have drawn their masks in the training of the backbone alone.
        noise = Noise(self.task.seed, self.method.pretrain_weight_epochs + step)
        embedding = self.embedding(outer)
        logits = self._on_drawn.logits(weights, *self.drawn(embedding, noise), noise)
        loss = self.task.loss_of(logits) + self.task.penalty(weights)
        if self.method.beta == 0:
            return loss
        return loss + self.method.beta * self._reconstruction(embedding)

    def embedding(self, outer: Tree) -> Tensor:
        """Z, ``[nodes, channels]``."""
        inputs = (self.task.features, self._normalised)
        embedding: Tensor = functional_call(self._predictor, outer, inputs)
        return embedding

    def drawn(self, embedding: Tensor, noise: Noise) -> Propagation:
        """A graph drawn from the predictions, in the backbone's propagation."""
        if not self._differentiable:
            embedding = embedding.detach()
        graph = sample_graph(
            edge_probabilities(embedding, self._observed, self.method.alpha),
            self.method.temperature,
            noise,
            self_loops=self.task.backbone.self_loops,
        )
        if self._differentiable:
            return self.weighted_pairs(graph)
        return self.unweighted(graph.nonzero().mT)

    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        return [Member(self.given)]

    def _reconstruction(self, embedding: Tensor) -> Tensor:
        return reconstruction_loss(embedding, self._observed)


def _attention_layers(backbone: Backbone) -> list[GATLayer]:
    return [layer for layer in backbone.modules() if isinstance(layer, GATLayer)]
