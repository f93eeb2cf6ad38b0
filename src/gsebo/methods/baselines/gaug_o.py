"""GAug-O: every training step sees another graph, drawn from predicted edges.

A graph auto-encoder that proposes edges, and graphs drawn from its proposals.

The edge predictor of GAug-O (Zhao et al., AAAI 2021), with Â = normalised A + I:

    Z = ReLU(Â (Â X W₀) W₁),   L = Z Zᵀ,   P = a L / max(L) + (1 - a) (A + I)

Every matrix here is dense: that each pair of nodes may become an edge is the method.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import softplus

from gsebo.bilevel import Optimizer, Tree, make_optimizer, scheduled
from gsebo.graph import Propagation, Topology
from gsebo.graph.graph import Graph
from gsebo.methods.base import Run
from gsebo.methods.baselines.fit_module import minimise
from gsebo.methods.baselines.pairs import require_dense_memory
from gsebo.methods.outcome import Outcome
from gsebo.methods.parameters import Positive, Rate, SideWidth, StepsOrZero
from gsebo.methods.schedule import EpochClassifier
from gsebo.nn import Backbone
from gsebo.nn.base import symmetric_normalisation
from gsebo.nn.gat import GAT, GATLayer
from gsebo.nn.gcn import GCN
from gsebo.nn.jk import JKNet
from gsebo.nn.mlp import MLP
from gsebo.nn.sage import SAGE
from gsebo.schema import Share
from gsebo.sparse import (
    CompletePattern,
    Noise,
    Pattern,
    SparseFeatures,
    sddmm,
    spmm,
    uniform,
)
from gsebo.training import JointProblem, Member, Task


def can_leave_out(backbone: Backbone) -> bool:
    """Whether an edge of weight 0 can be the same as no edge for a network.

    A network from elsewhere counts its neighbours itself, whatever their weights.
    """
    return isinstance(backbone, GCN | SAGE | JKNet | GAT | MLP)


def leaving_out(task: Task) -> Task:
    """The task with attention that passes over edges of strength 0."""
    if not isinstance(task.backbone, GAT):
        return task
    backbone = copy.deepcopy(task.backbone)
    for layer in _attention_layers(backbone):
        layer.renormalise = True
    return replace(task, backbone=backbone)


def num_heads(backbone: Backbone) -> int:
    """Matrices of attention that one pass computes, 0 without attention."""
    return sum(layer.heads for layer in _attention_layers(backbone))


def _attention_layers(backbone: Backbone) -> list[GATLayer]:
    return [layer for layer in backbone.modules() if isinstance(layer, GATLayer)]


_PREDICTOR_SITE = 1000


@final
class EdgePredictor(nn.Module):
    """Embeddings of the nodes whose products say which pairs are edges.

    Args:
        in_channels: Number of features.
        hidden_channels: Width of the first layer.
        out_channels: Width of the embedding.
    """

    def __init__(
        self, in_channels: int, hidden_channels: int, out_channels: int
    ) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.empty(in_channels, hidden_channels))
        self.second = nn.Parameter(torch.empty(hidden_channels, out_channels))
        nn.init.xavier_uniform_(self.first)
        nn.init.xavier_uniform_(self.second)

    def forward(
        self, features: Tensor | SparseFeatures, normalised: Propagation
    ) -> Tensor:
        """Return Z, ``[nodes, out_channels]``."""
        hidden = spmm(*normalised, features @ self.first)
        return torch.relu(spmm(*normalised, hidden @ self.second))


def edge_probabilities(embedding: Tensor, observed: Pattern, alpha: float) -> Tensor:
    """P, ``[nodes, nodes]``: how likely each pair is an edge.

    Args:
        embedding: Z; none of its numbers is negative.
        observed: Positions of A + I.
        alpha: Weight of the predicted edges; the rest is that of the observed ones.
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

    Args:
        probability: p; what is at 0 or 1 is certain and has no derivative.
        temperature: The smaller, the nearer is the relaxed number to the sample.
        drawn: u, uniform in (0, 1), like ``probability``.
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

    Args:
        probability: ``[nodes, nodes]``; what is above the diagonal is read.
        temperature: Of the relaxation.
        noise: Randomness of the step.
        self_loops: Whether the diagonal holds ones or zeros.
    """
    nodes = probability.shape[0]
    # Turned by 180 degrees the lower triangle is the upper one: half the draws do.
    half = uniform(((nodes + 1) // 2, nodes), noise, _PREDICTOR_SITE, probability)
    drawn = torch.cat([half, half[: nodes // 2].flip(0, 1)])
    upper = straight_through_bernoulli(probability, temperature, drawn).triu(1)
    return (upper + upper.mT).fill_diagonal_(float(self_loops))


def reconstruction_loss(embedding: Tensor, observed: Pattern) -> Tensor:
    """Weighted cross-entropy of sigmoid(L) to A + I over all pairs.

    Edges and pairs without one have the same weight in all, 1/2 each:

        n² / (2 (n² - S)) · mean BCE(L, A + I), an edge counting (n² - S) / S times

    with S the number of entries of A + I.

    Args:
        embedding: Z.
        observed: Positions of A + I.
    """
    edges = observed.num_entries
    others = embedding.shape[0] ** 2 - edges
    on_edges = sddmm(observed, embedding, embedding)
    missed = softplus(-on_edges).sum() / (2 * edges)
    if others == 0:
        return missed
    everywhere = softplus(embedding @ embedding.mT).sum()
    return missed + (everywhere - softplus(on_edges).sum()) / (2 * others)


_SITE = 1001
# Dense matrices that are held at the peak of a step, measured.
_MATRICES = 14
_MATRICES_PER_HEAD = 12


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GAugO(EpochClassifier):
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

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        recipe = Recipe(
            alpha=self.alpha,
            beta=self.beta,
            temperature=self.temperature,
            edge_optimizer=make_optimizer("adam", self.predictor_lr),
            edge_steps=self.pretrain_edge_epochs,
            weight_optimizer=make_optimizer(self.inner_optimizer, self.inner_lr),
            weight_steps=self.pretrain_weight_epochs,
            through_attention=not self.compat,
        )

        def problem(task: Task, run: Run) -> GAugOProblem:
            net = _new_predictor(task, self.predictor_hidden, self.predictor_dim)
            return GAugOProblem(task, net, recipe)

        optimizer = recipe.edge_optimizer
        if self.warmup and not self.compat:
            optimizer = scheduled(
                optimizer, lambda step: warm(step, self.max_epochs, self.warmup)
            )
        return self.train_jointly(data, runs, problem, structure_optimizer=optimizer)


class Recipe(NamedTuple):
    """How graphs are drawn, what is minimised, and what is trained alone before.

    Attributes:
        alpha: Weight of the predicted edges.
        beta: Weight of the reconstruction.
        temperature: Of the relaxation.
        edge_optimizer: Trains the auto-encoder alone.
        edge_steps: For so many steps.
        weight_optimizer: Trains the backbone alone.
        weight_steps: For so many steps.
        through_attention: Whether a GAT's loss is differentiated by the drawn edges.
    """

    alpha: float
    beta: float
    temperature: float
    edge_optimizer: Optimizer
    edge_steps: int
    weight_optimizer: Optimizer
    weight_steps: int
    through_attention: bool


@final
class GAugOProblem(JointProblem):
    """Training loss on drawn graphs and reconstruction of the given one.

    The outer variables are the weights of the auto-encoder. It takes the graph as
    undirected.

    Args:
        task: The network, the graph and the labels.
        predictor: The auto-encoder.
        recipe: What is done with both.
    """

    dense = True
    learned = False

    def __init__(self, task: Task, predictor: EdgePredictor, recipe: Recipe) -> None:
        super().__init__(task)
        self._predictor = predictor
        self._recipe = recipe
        heads = num_heads(task.backbone)
        through = not heads or recipe.through_attention
        self._differentiable = through and can_leave_out(task.backbone)
        matrices = _MATRICES + _MATRICES_PER_HEAD * heads * self._differentiable
        require_dense_memory(
            "gaug_o", matrices, task.num_nodes, task.dtype, task.device
        )
        self._on_drawn = leaving_out(task)
        self._pairs = CompletePattern(task.num_nodes, task.device)
        edges = task.graph.graph.edge_index
        self._observed = Topology.from_edges(
            torch.cat([edges, edges.flip(0)], dim=1),
            task.num_nodes,
            self_loops=True,
            device=task.device,
        ).pattern
        self._normalised = Propagation(
            self._observed, symmetric_normalisation(self._observed, task.dtype)
        )
        self._given = Propagation(task.graph.pattern, self.initial_strengths)

    def initial_outer(self) -> Tree:
        """The auto-encoder after its training alone."""
        named = self._predictor.named_parameters()
        return minimise(
            lambda outer, step: self._reconstruction(self.embedding(outer)),
            {name: weight.detach().clone() for name, weight in named},
            self._recipe.edge_optimizer,
            self._recipe.edge_steps,
        )

    def initial_weights(self) -> Tree:
        """The backbone after its training alone, on the given graph."""

        def loss(weights: Tree, step: int) -> Tensor:
            noise = Noise(self.task.seed, step)
            logits = self.task.logits(weights, *self._given, noise)
            return self.task.loss_of(logits) + self.task.penalty(weights)

        return minimise(
            loss,
            self.task.initial_weights(),
            self._recipe.weight_optimizer,
            self._recipe.weight_steps,
        )

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        """Mean cross-entropy of the training nodes on a drawn graph, and the rest."""
        # The first steps have drawn their masks in the training of the backbone alone.
        noise = Noise(self.task.seed, self._recipe.weight_steps + step)
        embedding = self.embedding(outer)
        logits = self._on_drawn.logits(weights, *self.drawn(embedding, noise), noise)
        loss = self.task.loss_of(logits) + self.task.penalty(weights)
        if self._recipe.beta == 0:
            return loss
        return loss + self._recipe.beta * self._reconstruction(embedding)

    def embedding(self, outer: Tree) -> Tensor:
        """Z, ``[nodes, channels]``."""
        inputs = (self.task.features, self._normalised)
        embedding: Tensor = functional_call(self._predictor, outer, inputs)
        return embedding

    def drawn(self, embedding: Tensor, noise: Noise) -> Propagation:
        """A graph drawn from the predictions, in the backbone's propagation."""
        backbone, recipe = self.task.backbone, self._recipe
        if not self._differentiable:
            embedding = embedding.detach()
        graph = sample_graph(
            edge_probabilities(embedding, self._observed, recipe.alpha),
            recipe.temperature,
            noise,
            self_loops=backbone.self_loops,
        )
        if self._differentiable:
            weights = self._pairs.values(graph)
            return Propagation(self._pairs, backbone.normalise(self._pairs, weights))
        pattern = Topology.from_edges(
            graph.nonzero().mT,
            self.task.num_nodes,
            self_loops=backbone.self_loops,
            device=self.task.device,
        ).pattern
        return Propagation(pattern, backbone.initial_strength(pattern))

    def members(self, weights: Tree, outer: Tree) -> Sequence[Member]:
        """The given graph."""
        return [Member(self._given)]

    def _reconstruction(self, embedding: Tensor) -> Tensor:
        return reconstruction_loss(embedding, self._observed)


def warm(step: int, steps: int, width: float) -> float:
    """Rise from 0 to 1 over so many steps, as the sigmoid from -width to width."""
    place = step / max(steps - 1, 1)
    # sigmoid(x) = (1 + tanh(x / 2)) / 2, whose ends are brought to 0 and 1.
    return (1 + math.tanh(width * (place - 0.5)) / math.tanh(width / 2)) / 2


def _new_predictor(task: Task, hidden: int, out: int) -> EdgePredictor:
    with torch.random.fork_rng(devices=[]):
        # Not the seed itself, from which the backbone drew its weights.
        torch.manual_seed(Noise(task.seed, 0).keys(_SITE)[0])
        predictor = EdgePredictor(task.features.shape[1], hidden, out)
    return predictor.to(task.device, task.dtype)
