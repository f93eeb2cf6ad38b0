"""DenNE: the given graph is a generated graph plus noise, and both are estimated.

Only the description of the method is to be had, not its equations. These are ours, made
from it: a generator with communities and power-law degrees and a noise generator that
adapts to the graph are fitted together by maximum likelihood, which turns into
different penalties on the true graph and on the noise.

Nodes have memberships z_ik >= 0 in communities, between which the generator makes no
links; s_i = Σ_k z_ik is how inclined a node is to links at all. Noise links any two
nodes alike. The odds of a link are the sum of both:

    o_ij = z_i · z_j + η

All linked pairs are read, and each of the others with the probability r, so that the
odds among what is read are o / r. With N_ij, the part that noise has in a link, the
penalised log-likelihood is up to a constant

    L = Σ_linked [(1 - N) log(z_i · z_j) + N log η - λ N + H(N)] - Σ_read log(r + o)
        - κ Σ_i [Σ_k log(1 + z_ik / ε) - log(1 + s_i / ε)]    few communities each
        - δ Σ_i log(1 + s_i / m)                              power-law degrees

where H is the entropy and m the s of a node of mean degree. N is penalised by its sum,
and is near 0 but where there is a link that the generator would hardly make. Where
there is no link there is no noise either, for noise only adds. The best N is

    N = η e^-λ / (z_i · z_j + η e^-λ)

Given N, L is bounded from below by a function that touches it at the present numbers
and whose maximum is known (tangents for logarithms of sums that are subtracted,
Jensen's inequality for the others), so that no round lowers L. With w = 1 / (r + o),

    z_ik <- z_ik √(u_ik / v_ik),   η <- Σ_linked N / Σ_read w
    u_ik = Σ_j (1 - N_ij) z_jk / (z_i · z_j) + κ / (ε + s_i)       j linked with i
    v_ik = Σ_j w_ij z_jk + κ / (ε + z_ik) + δ / (m + s_i)          pairs ij read

and u - v is the derivative of L. Links with N above a threshold are taken out. Memory
and time grow with the linked pairs and those that are read.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from gsebo.bilevel import Tree
from gsebo.data import num_classes
from gsebo.data.preparation import Preparation, fit_preparation
from gsebo.errors import InvalidInput, escaped
from gsebo.graph import CanonicalGraph, Graph, Propagation
from gsebo.memory import require_memory
from gsebo.methods.baselines.pairs import (
    linked_pairs,
    nodes_of,
    number_of,
    sample_links,
)
from gsebo.methods.baselines.shared import BaselineProblem, both_ways
from gsebo.methods.fitting import Outcome, PreparedGraph
from gsebo.methods.parameters import Rate, Samples, ShareBelowOne, SideWidth, Steps
from gsebo.methods.run import Run, threads_for
from gsebo.methods.schedule import EpochClassifier, train_on_fixed_structure
from gsebo.nn import Backbone
from gsebo.sparse import Noise, Pattern, normal, sddmm, spmm
from gsebo.training import Member, Task

# Places that draw: pairs without a link take several, the start takes two.
_START_SITE = 900
# ε, in links that a membership stands for: far less of one costs next to nothing.
_NEGLIGIBLE_LINKS = 0.3
# What noise has made of the links, and how even memberships are, before anything is
# known. Both are soon forgotten, but must not be zero, which no product leaves.
_FIRST_NOISE, _FIRST_EVENNESS = 0.3, 0.1
# Enough to tell directions apart that are nearly as smooth.
_SMOOTHINGS = 100
# Divided by in place of zero.
_LEAST = 1e-300
# Matrices of the size of the memberships that a round holds, and bytes for each pair:
# its entries both ways, with their transposes, and some numbers.
_MATRICES, _BYTES_PER_PAIR = 12, 160
_FIRST_LAYER, _LAST_LAYER = "layers.0.", "layers.1."


@final
@dataclass(kw_only=True, eq=False, repr=False)
class DenNE(EpochClassifier):
    """Denoising network embedding (Wang et al., ICDM 2020), from its description.

    The given graph is read as a graph with communities and power-law degrees to which
    noise has added edges. Both are estimated by maximum likelihood, from the edges
    alone; the memberships in communities are representations of the nodes. Either a
    GCN is trained on the features and the graph without its noise, or logistic
    regression on the representations.

    **The equations are ours**, made from the published description (arXiv 2012.02434),
    and so are all figures: none can be compared with the paper's. Nothing is added to
    the graph: noise that only adds says nothing of edges that may be missing.

    Pairs have no direction: in a directed graph a pair of noise loses the edges of both
    directions. Weights of edges are left to the GCN.

    Args:
        classifier: What is trained: ``"gcn"``, on the features and the graph without
            noise, or ``"logistic"``, on the representations alone. The second tells
            nodes apart by their numbers, as ``features="identity"`` does.
        num_communities: How many there are, at most one for each node; ``None``: as
            many as classes.
        denoise: Whether there is noise at all. Without, the same generator explains
            every edge, and none is taken out: the control of what the noise is good
            for.
        noise_penalty: λ, what it costs to call an edge noise.
        community_penalty: κ, what it costs a node to have more than one community.
        degree_exponent: δ, how fast inclinations beyond the mean become rare; about
            that many links are taken for luck at a hub.
        rounds: How often generator and noise are improved in turns.
        num_negative_samples: How many pairs without an edge are read for each with one.
        threshold: Pairs are taken out that noise has made more likely than this.

    Attributes:
        representation_: Share of each community in a node, ``[nodes, communities]``,
            zeros where a node has no edges. Nodes as in the given graph.
        noise_: How likely noise has made each edge, in the order of the user's
            ``edge_index``, ``[edges]``; 0 for self-loops, which nothing is known of,
            and for all without ``denoise``.
        denoised_edge_index_: The given edges without those above the threshold, in
            their order, ``[2, edges]``.
    """

    supported_backbones: ClassVar[tuple[str, ...]] = ("gcn",)

    classifier: Literal["gcn", "logistic"] = "gcn"
    num_communities: SideWidth | None = None
    denoise: bool = True
    noise_penalty: Rate = 0.5
    community_penalty: Rate = 4.0
    degree_exponent: Rate = 2.5
    rounds: Steps = 100
    num_negative_samples: Samples = 10
    threshold: ShareBelowOne = 0.5

    def _check_parameters(self) -> None:
        if self.classifier != "logistic":
            return
        if self.num_layers != 2 or self.backbone_options:
            options = escaped(repr(self.backbone_options), longest=80)
            raise InvalidInput(
                f"classifier='logistic' given with num_layers={self.num_layers} and "
                f"backbone_options={options}; expected 2 layers and no options, as "
                "the first layer holds the representations and the second is the "
                "regression."
            )

    def _prepared(self, data: Graph) -> tuple[Preparation | None, Graph]:
        if self.classifier != "logistic":
            return super()._prepared(data)
        preparation = fit_preparation("identity", data)
        return preparation, preparation.apply(data)

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        prepared = PreparedGraph(data, runs[0].device)
        classes, outcomes = num_classes(data), list[Outcome]()
        for run in runs:
            found = self._estimated(prepared.graph, classes, run.seed, run.device)
            if self.classifier == "logistic":
                trained = self._trained_on(found.representation, data, run)
            else:
                kept = found.noise_of_edges(prepared.graph) <= self.threshold
                edges = prepared.graph.edge_index[:, kept]
                trained = train_on_fixed_structure(
                    data, [run], self.network(), self.schedule(), graph=edges
                )
            _ESTIMATES[trained[0].model.backbone] = found
            outcomes += trained
        return outcomes

    def _trained_on(
        self, representation: Tensor, data: Graph, run: Run
    ) -> list[Outcome]:
        """Logistic regression."""
        width = representation.shape[1]
        if width > self.hidden_channels:
            raise InvalidInput(
                f"classifier='logistic' given with {width} communities and "
                f"hidden_channels={self.hidden_channels}; expected a channel for each "
                "community."
            )
        return self.train_jointly(
            data, [run], lambda task, run: LogisticProblem(task, self, representation)
        )

    def _estimated(
        self, graph: CanonicalGraph, classes: int, seed: int, device: torch.device
    ) -> "Estimate":
        """Generator and noise of a graph."""
        size = graph.num_nodes
        communities = min(self.num_communities or classes, size)
        linked = linked_pairs(graph.edge_index.to(device), size)
        read = linked.numel() * (self.num_negative_samples + 1)
        require_memory(
            size * communities * 8 * _MATRICES + read * _BYTES_PER_PAIR,
            device,
            what=f"estimating {communities} communities of {size} nodes",
            instead="a smaller graph, fewer communities or negative samples",
        )
        with threads_for(read * communities):
            noise = Noise(seed, 0)
            absent, rate = absent_pairs(linked, size, self.num_negative_samples, noise)
            penalties = Penalties(
                self.noise_penalty, self.community_penalty, self.degree_exponent
            )
            likelihood = Likelihood(linked, absent, rate, size, communities, penalties)
            model = likelihood.start(noise, denoise=self.denoise)
            bound = likelihood.bound(model)
            values = [bound.value]
            for _ in range(self.rounds):
                model = bound.highest(model)
                bound = likelihood.bound(model)
                values.append(bound.value)
        found = model.membership.cpu(), linked.cpu(), bound.noise.cpu()
        return Estimate(*found, (*values,))

    @property
    def estimate_(self) -> "Estimate":
        """What was estimated; of a model that was loaded, estimated again."""
        self.require_fitted()
        model = self.model_
        if model.backbone not in _ESTIMATES:
            _ESTIMATES[model.backbone] = self._estimated(
                model.held[0], model.num_classes, self.seed_, model.device
            )
        return _ESTIMATES[model.backbone]

    @property
    def representation_(self) -> Tensor:
        """Share of each community in a node, ``[nodes, communities]``."""
        return self.estimate_.representation.to(self.model_.dtype)

    @property
    def noise_(self) -> Tensor:
        """How likely noise has made each edge of the user, float64 ``[edges]``."""
        found, graph = self.estimate_, self.model_.held[0]
        on_edges = found.noise_of_edges(graph)
        return graph.to_user_order(on_edges, on_edges.new_zeros(graph.num_nodes))

    @property
    def denoised_edge_index_(self) -> Tensor:
        """The edges of the user that noise has not made, ``[2, edges]``."""
        edges = self.model_.held[0].user_edge_index()
        return edges[:, self.noise_ <= self.threshold]


class Estimate(NamedTuple):
    """Generator and noise of a graph."""

    membership: Tensor  # z, float64 [nodes, communities].
    linked: Tensor  # Numbers of the linked pairs, sorted, [pairs].
    noise: Tensor  # N of each, float64 [pairs].
    log_likelihood: tuple[float, ...]  # L before each round, and after the last.

    @property
    def representation(self) -> Tensor:
        """Share of each community in a node, ``[nodes, communities]``."""
        total = self.membership.sum(-1, keepdim=True)
        return self.membership / total.clamp(min=_LEAST)

    def noise_of_edges(self, graph: CanonicalGraph) -> Tensor:
        """N of each edge of the graph, in canonical order, ``[edges]``."""
        ends = graph.edge_index.cpu()
        pairs = number_of(ends[0], ends[1], graph.num_nodes)
        return self.noise[torch.searchsorted(self.linked, pairs)]


_ESTIMATES: WeakKeyDictionary[Backbone, Estimate] = WeakKeyDictionary()
"""What was estimated before each network was trained, as long as that is in use."""


def absent_pairs(
    linked: Tensor, num_nodes: int, per_link: int, noise: Noise
) -> tuple[Tensor, float]:
    """Draw pairs without a link, and with which probability each was drawn.

    About ``per_link`` for each linked pair, or all there are.
    """
    absent = num_nodes * (num_nodes - 1) // 2 - linked.numel()
    rate = min(per_link * linked.numel() / max(absent, 1), 1.0)
    first, second = sample_links(
        linked.new_zeros(num_nodes),
        torch.tensor([rate], dtype=torch.float64),
        0.0,
        noise,
    )
    drawn = number_of(first, second, num_nodes)
    return drawn[~torch.isin(drawn, linked)], rate


class Penalties(NamedTuple):
    """What the priors cost."""

    noise: float  # λ
    community: float  # κ
    degree: float  # δ


class NoisyGenerator(NamedTuple):
    """A generated graph and noise."""

    membership: Tensor  # z, [nodes, communities].
    level: Tensor  # η, [].


def _both_ways(pairs: Tensor, num_nodes: int) -> Pattern:
    """Entries of pairs, one way and then the other."""
    row, column = both_ways(nodes_of(pairs, num_nodes))
    return Pattern.from_positions(row, column, num_nodes)


class Bound(NamedTuple):
    """What is nowhere above L, and touches it at a mixture."""

    value: float  # L there.
    up: Tensor  # u and v, whose difference is the derivative of L by z.
    down: Tensor
    level: Tensor  # The best η.
    noise: Tensor  # N of each linked pair.

    def highest(self, model: NoisyGenerator) -> NoisyGenerator:
        """The mixture at the maximum of the bound."""
        step = (self.up / self.down.clamp(min=_LEAST)).sqrt()
        return NoisyGenerator(model.membership * step, self.level)


@final
class Likelihood:
    """L of what is read of a graph.

    Args:
        linked: Numbers of the linked pairs, at least one.
        absent: Those of pairs without a link.
        rate: r, with which probability one of these is there.
        num_nodes: Number of nodes.
        num_communities: Number of communities.
        penalties: What the priors cost.
    """

    def __init__(
        self,
        linked: Tensor,
        absent: Tensor,
        rate: float,
        num_nodes: int,
        num_communities: int,
        penalties: Penalties,
    ) -> None:
        self.linked, self.absent = (
            _both_ways(pairs, num_nodes) for pairs in (linked, absent)
        )
        self._rate, self._penalties = rate, penalties
        self._num_communities = num_communities
        # What stands for one link in a community of the mean size.
        self._unit = math.sqrt(num_communities / self.linked.num_entries)
        self._negligible = _NEGLIGIBLE_LINKS * self._unit
        self._mean_degree = self.linked.num_entries / num_nodes * self._unit
        self._noise_odds = math.exp(-penalties.noise)

    def start(self, noise: Noise, *, denoise: bool) -> NoisyGenerator:
        """Memberships by the smoothest directions of the graph, and some noise."""
        links, size = self.linked, self.linked.num_rows
        like = torch.empty((), dtype=torch.float64, device=links.device)
        drawn = normal((size, self._num_communities), noise, _START_SITE, like)
        shares = anchored(smoothest(links, drawn))
        even = 1 / self._num_communities
        shares = shares + _FIRST_EVENNESS * (even - shares)
        membership = links.row_counts.unsqueeze(1) * shares * self._unit
        pairs = size * (size - 1)
        first = _FIRST_NOISE * links.num_entries / pairs if denoise else 0.0
        return NoisyGenerator(membership, like.new_tensor(first))

    def bound(self, model: NoisyGenerator) -> Bound:
        """L at these numbers, and what bounds it from below elsewhere."""
        (z, level), (_, community, degree) = model, self._penalties
        generated = sddmm(self.linked, z, z).clamp(min=_LEAST)
        seeming = level * self._noise_odds
        noise = seeming / (generated + seeming)
        # With the best N, its terms are the logarithm of a sum.
        value = (generated + seeming).log().sum()
        down, read = torch.zeros_like(z), torch.zeros_like(level)
        for pattern in (self.linked, self.absent):
            odds = self._rate + sddmm(pattern, z, z) + level
            weight = odds.reciprocal()
            value = value - odds.log().sum()
            down, read = down + spmm(pattern, weight, z), read + weight.sum()
        sums, least = z.sum(-1, keepdim=True), self._negligible
        spread = (z / least).log1p().sum() - (sums / least).log1p().sum()
        inclined = (sums / self._mean_degree).log1p().sum()
        up = spmm(self.linked, (1 - noise) / generated, z) + community / (least + sums)
        down = down + community / (least + z) + degree / (self._mean_degree + sums)
        # Every pair has an entry in both directions.
        value = value / 2 - community * spread - degree * inclined
        own = noise[: self.linked.num_entries // 2]
        return Bound(float(value), up, down, noise.sum() / read, own)


def smoothest(links: Pattern, start: Tensor) -> Tensor:
    """Orthonormal columns, ``[nodes, columns]``, that differ little along the links.

    They span nearly the largest eigenvectors of the symmetrically normalised graph.
    To each degree the mean one is added, without which small components apart from the
    rest would be the smoothest of all.
    """
    degree = links.row_counts.to(start)
    scale = (degree + degree.mean()).rsqrt()
    strengths = scale[links.row_of_entry] * scale[links.column_of_entry]
    basis = start
    for _ in range(_SMOOTHINGS):
        smoothed: Tensor = torch.linalg.qr(spmm(links, strengths, basis) + basis).Q
        basis = smoothed
    return basis


def anchored(basis: Tensor) -> Tensor:
    """Turn orthonormal columns so that each belongs to a group of nodes.

    Nodes that are as different as possible are the anchors of groups, and the columns
    are turned until anchors lie along them (Damle, Minden and Ying, 2019). What is
    below zero then is dropped, and rows are divided by their sums.
    """
    rest, chosen = basis.clone(), list[int]()
    for _ in range(basis.shape[1]):
        lengths = rest.square().sum(-1)
        anchor = int(lengths.argmax())
        chosen.append(anchor)
        direction = rest[anchor] / lengths[anchor].sqrt().clamp(min=_LEAST)
        rest = rest - (rest @ direction).unsqueeze(1) * direction
    left, _, right = torch.linalg.svd(basis[chosen].mT)
    turned: Tensor = basis @ (left @ right)
    shares = turned.clamp(min=0)
    return shares / shares.sum(-1, keepdim=True).clamp(min=_LEAST)


@final
class LogisticProblem(BaselineProblem[DenNE]):
    """Logistic regression on representations, as a GCN on a graph without edges.

    Its features are the numbers of the nodes, its first layer the table of their
    representations, which are not negative and stay as they are; the second layer is
    the regression.
    """

    def __init__(self, task: Task, method: DenNE, representation: Tensor) -> None:
        super().__init__(task, method)
        self._representation = representation.to(task.device, task.dtype)
        nodes = torch.arange(task.num_nodes, device=task.device)
        pattern = Pattern.from_positions(nodes, nodes, task.num_nodes)
        ones = torch.ones(task.num_nodes, dtype=task.dtype, device=task.device)
        self._alone = Propagation(pattern, ones)

    def initial_weights(self) -> Tree:
        named = self.task.named_weights(super().initial_weights())
        start = {name: torch.zeros_like(weight) for name, weight in named.items()}
        width = self._representation.shape[1]
        start[f"{_FIRST_LAYER}weight"][:, :width] = self._representation
        (flat,) = super().initial_weights()
        return {flat: torch.cat([weight.flatten() for weight in start.values()])}

    def initial_outer(self) -> Tree:
        return {}

    def loss(self, weights: Tree, outer: Tree, step: int) -> Tensor:
        named = self.task.named_weights(weights)
        weight, bias = (named[f"{_LAST_LAYER}{each}"] for each in ("weight", "bias"))
        weight = weight[: self._representation.shape[1]]
        decay = (weight.square().sum() + bias.square().sum()) / 2
        loss = self.task.loss_of(self._representation @ weight + bias)
        return loss + self.task.weight_decay * decay

    def members(self, weights: Tree, outer: Tree) -> list[Member]:
        return [Member(self._alone)]
