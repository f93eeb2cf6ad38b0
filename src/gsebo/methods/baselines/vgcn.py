"""VGCN: the graph is unknown, and an approximate posterior of it is learned.

Edges are coin flips made smooth, by their logits:

    B = (l + log u - log(1 - u)) / t,   A = sigmoid(B),   u uniform in (0, 1)

(Maddison, Mnih and Teh, ICLR 2017.) A exceeds 1/2 with probability sigmoid(l), whatever
the temperature t; the lower it is, the nearer A is to 0 or 1. B follows the logistic
distribution with mean l / t and scale 1 / t. Densities are taken of B: their ratios are
those of A, and nothing is lost where A rounds to 0 or 1.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple, final

import torch
from msgspec import Meta
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from gsebo.bilevel import Tree, make_optimizer
from gsebo.errors import InvalidInput
from gsebo.files import Count
from gsebo.graph import Graph, Propagation
from gsebo.methods.baselines.pairs import PairMatrix, require_dense_memory
from gsebo.methods.baselines.shared import BaselineProblem
from gsebo.methods.fitting import Outcome
from gsebo.methods.parameters import Rate, Samples, Steps
from gsebo.methods.run import Run
from gsebo.methods.schedule import EpochClassifier
from gsebo.sparse import Noise, uniform
from gsebo.structure.candidates import nearest_neighbors
from gsebo.training import Member, Task

_SITE, _TEST_SITE = 1000, 1001
_LOGITS = "logits"
_EDGE_PRIOR = {"graph": 0.99, "knn": 0.5}
# The authors' code always splits the validation nodes the same way.
_HALVING_SEED = 1
# Relaxed samples are full of numbers that no prediction notices.
_NEGLIGIBLE = 1e-6

_Probability = Annotated[float, Meta(gt=0, lt=1)]
_Temperature = Annotated[float, Meta(gt=0)]


@final
@dataclass(kw_only=True, eq=False, repr=False)
class VGCN(EpochClassifier):
    """A distribution over graphs is learned with the GCN (Elinas et al., NeurIPS 2020).

    Each pair of nodes has an edge with a probability of its own, which starts at a
    prior and is trained by the evidence lower bound: the likelihood of the training
    labels on graphs drawn from the distribution, relaxed so that gradients pass, minus
    β KL(posterior ‖ prior). Predictions are averaged over graphs drawn once for all.
    The weights and the logits of the pairs have the same learning rate; weight decay
    acts on the first layer alone. A directed graph is read as an undirected one.

    Args:
        prior: Where the prior expects edges: in the given ``"graph"``, or between
            nearest neighbors by the cosine of the features (``"knn"``), in which case
            the given graph is not used at all.
        edge_prior: Prior probability of those edges; ``None`` is 0.99 for ``"graph"``
            and 0.5 for ``"knn"``. (On graphs with adversarial edges the authors took
            0.25 with ``posterior_temperature`` 0.5 and ``beta`` 0.01.)
        other_prior: Prior probability of an edge between any other two nodes.
        num_neighbors: Neighbors of each node in the ``"knn"`` prior.
        prior_temperature: Of the relaxed prior.
        posterior_temperature: Of the relaxed graphs that are drawn.
        beta: β.
        samples: Graphs drawn in each training step.
        test_samples: Graphs that predictions are averaged over.
        compat: Do as the authors' code: half of the validation nodes are trained on,
            and of the nearest neighbors of a node only those before it count.
    """

    uses_edge_weight: ClassVar[bool] = False
    supported_backbones: ClassVar[tuple[str, ...]] = ("gcn",)

    inner_lr: Rate = 1e-3
    max_epochs: Steps = 5000
    evaluate_every: Steps = 10
    patience: Count = 500
    prior: Literal["graph", "knn"] = "graph"
    edge_prior: _Probability | None = None
    other_prior: _Probability = 1e-5
    num_neighbors: Count = 10
    prior_temperature: _Temperature = 0.1
    posterior_temperature: _Temperature = 0.1
    beta: Rate = 1.0
    samples: Samples = 3
    test_samples: Samples = 16
    compat: bool = False

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        # Measured: of a training step, or of the graphs of a prediction if those are
        # more. Every further run keeps its logits, the best of them and two moments.
        matrices = 8 + max(6 * self.samples, 2 * self.test_samples) + 2 * len(runs)
        dtype = data.x.dtype if data.x.dtype == torch.float64 else torch.float32
        require_dense_memory("vgcn", matrices, data.num_nodes, dtype, runs[0].device)
        if self.compat:
            data = _half_of_validation_trained_on(data)
        prior: tuple[PairMatrix, BinaryConcrete] | None = None

        def problem(task: Task, run: Run) -> VGCNProblem:
            nonlocal prior
            prior = prior or self.prior_of(task)
            return VGCNProblem(task, self, *prior)

        optimizer = make_optimizer(self.inner_optimizer, self.inner_lr)
        return self.train_jointly(data, runs, problem, structure_optimizer=optimizer)

    def prior_of(self, task: Task) -> "tuple[PairMatrix, BinaryConcrete]":
        """Lay the prior over the pairs of a graph."""
        edges = task.graph.graph.edge_index
        if self.prior == "knn":
            edges = nearest_neighbors(task.features, self.num_neighbors)
            if self.compat:
                edges = edges[:, edges[0] < edges[1]]
        inside = self.edge_prior or _EDGE_PRIOR[self.prior]
        pairs = PairMatrix(task.num_nodes, task.device)
        numbers = torch.tensor([self.other_prior, inside], dtype=torch.float64)
        absent, present = numbers.logit().to(task.device, task.dtype)
        logits = torch.where(pairs.joined(edges), present, absent)
        return pairs, BinaryConcrete(logits, self.prior_temperature)


class BinaryConcrete(NamedTuple):
    """One smooth coin flip for each logit l, ``[..., flips]``, at temperature t > 0."""

    logits: Tensor
    temperature: float

    def sample(self, uniform: Tensor) -> Tensor:
        """Draw B, with a derivative by the logits, from one u for each."""
        noise = uniform.log() - (-uniform).log1p()
        return (self.logits + noise) / self.temperature

    def log_density(self, b: Tensor) -> Tensor:
        """Logarithm of the density of B at ``b``, ``[..., flips]``."""
        centred = self.temperature * b - self.logits
        return math.log(self.temperature) - centred - 2 * softplus(-centred)


def divergence_of_sample(
    posterior: BinaryConcrete, prior: BinaryConcrete, b: Tensor
) -> Tensor:
    """Log q(b) - log p(b), summed over the flips, whose mean is KL(q || p)."""
    # In log q(b) the logits cancel: t b - l is the noise. So it has no derivative.
    fixed = BinaryConcrete(posterior.logits.detach(), posterior.temperature)
    return (fixed.log_density(b.detach()) - prior.log_density(b)).sum(-1)


@final
class VGCNProblem(BaselineProblem[VGCN]):
    """The evidence lower bound of the training labels, by importance weighting.

        -mean over training nodes i of log mean over samples s of
            exp(log p(y_i | A_s) - β/n (log q(B_s) - log p(B_s)))

    The logits of q are learned and start at those of the prior p.
    """

    dense = True

    def __init__(
        self, task: Task, method: VGCN, pairs: PairMatrix, prior: BinaryConcrete
    ) -> None:
        super().__init__(task, method)
        self._pairs, self._prior = pairs, prior
        self._share = method.beta / task.inner_nodes.numel()

    def initial_outer(self) -> Tree:
        return {_LOGITS: self._prior.logits.clone()}

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        posterior, samples = self._posterior(outer), self.method.samples
        nodes = self.inner_nodes
        terms = []
        for number in range(samples):
            # Every sample has a step of its own, and with it dropout of its own.
            noise = Noise(self.task.seed, step * samples + number)
            b = self._draw(posterior, noise, _SITE)
            logits = self.task.logits(weights, *self._relaxed(b), noise)
            missed = cross_entropy(
                logits.index_select(0, nodes), self.labels[nodes], reduction="none"
            )
            divergence = divergence_of_sample(posterior, self._prior, b)
            terms.append(-missed - self._share * divergence)
        bound = torch.stack(terms).logsumexp(0) - math.log(samples)
        return self.task.first_layer_penalty(weights) - bound.mean()

    @torch.no_grad()
    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        """Graphs drawn with the same noise in every evaluation."""
        posterior, noise = self._posterior(outer), Noise(self.task.seed, 0)
        members = []
        for number in range(self.method.test_samples):
            b = self._draw(posterior, noise, _TEST_SITE + number)
            pattern, strengths = self._relaxed(b)
            noticed = strengths.masked_fill_(strengths < _NEGLIGIBLE, 0)
            members.append(Member(Propagation(pattern, noticed)))
        return members

    def _posterior(self, outer: Tree) -> BinaryConcrete:
        return BinaryConcrete(outer[_LOGITS], self.method.posterior_temperature)

    def _draw(self, posterior: BinaryConcrete, noise: Noise, site: int) -> Tensor:
        logits = posterior.logits
        return posterior.sample(uniform(tuple(logits.shape), noise, site, logits))

    def _relaxed(self, b: Tensor) -> Propagation:
        """The relaxed graph of a draw, with self-loops and normalised."""
        return self.weighted_pairs(self._pairs.symmetric(b.sigmoid(), diagonal=1.0))


def _half_of_validation_trained_on(data: Graph) -> Graph:
    nodes = data.val_mask.nonzero().squeeze(-1)
    if nodes.numel() < 2:
        raise InvalidInput(
            f"compat=True given with {nodes.numel()} validation node; expected at "
            "least 2, because half of them are trained on."
        )
    generator = torch.Generator().manual_seed(_HALVING_SEED)
    order = torch.randperm(nodes.numel(), generator=generator).to(nodes.device)
    moved = nodes[order[: nodes.numel() // 2]]
    changed = copy.copy(data)
    changed.train_mask = data.train_mask.index_fill(0, moved, True)
    changed.val_mask = data.val_mask.index_fill(0, moved, False)
    return changed
