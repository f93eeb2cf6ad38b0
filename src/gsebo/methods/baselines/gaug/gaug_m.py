"""GAug-M: rank all pairs by an auto-encoder, rewire once, then train as usual.

The graph auto-encoder is plain or variational (Kipf and Welling, 2016), over all pairs:

    H = ELU(Â X W₀),   μ = Â H W₁,   log s = Â H W₂,   Z = μ + ε s

with Â = D^-1/2 (A + I) D^-1/2 and sigmoid(z_i · z_j) the probability of a link.

How well the products x_ij = z_i · z_j tell linked pairs from all others is computed
block by block. With targets t_ij in {0, 1} over all ordered pairs of n nodes,

    Σ_ij [ p t_ij softplus(-x_ij) + (1 - t_ij) softplus(x_ij) ]
      = Σ_ij softplus(x_ij) + Σ over t_ij = 1 of [ p softplus(-x_ij) - softplus(x_ij) ]

so only the first sum runs over n² numbers. Its derivative is known: it is computed on
the way, and no n x n matrix is ever held.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call
from torch.nn.functional import elu, logsigmoid

from gsebo.bilevel import Tree, make_optimizer
from gsebo.graph import Graph, Propagation
from gsebo.methods.baselines.pairs import (
    highest_unlinked_pairs,
    linked_pairs,
    lowest_linked_pairs,
    nodes_of,
    rewired,
    row_blocks,
)
from gsebo.methods.baselines.shared import minimise, normalised_adjacency, weights_of
from gsebo.methods.fitting import Outcome, PreparedGraph
from gsebo.methods.parameters import Rate, ShareBelowOne, SideWidth, Steps
from gsebo.methods.run import Run, threads_for
from gsebo.methods.schedule import EpochClassifier, train_on_fixed_structure
from gsebo.nn.base import Features, glorot
from gsebo.sparse import Noise, Pattern, SparseFeatures, normal, row_sum, sddmm, spmm

_SITE = 1000
_BLOCK = 1 << 20
"""Products that are held together."""


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GAugM(EpochClassifier):
    """Training on a graph from which an auto-encoder has taken edges and put others in.

    Zhao et al., AAAI 2021, the variant that changes the graph once. A (variational)
    graph auto-encoder is trained on the links; the least likely of them are removed and
    the most likely pairs without one are added. The network is trained and predicts on
    the new graph.

    Pairs have no direction: in a directed graph the auto-encoder sees each edge both
    ways, a pair that goes loses the edges of both directions, a new one gets both, and
    all other edges stay as they are.

    Args:
        remove_share: How many pairs are removed, as a share of all that are linked.
        add_share: How many pairs are added, as a share of all that are linked.
        predictor: ``"vgae"`` (variational, ranks by the means) or ``"gae"``.
        predictor_epochs: Number of its training steps; the last one counts.
        predictor_hidden: Width of its hidden layer.
        predictor_dim: Width of its embedding.
        predictor_lr: Its learning rate, of Adam.
        predictor_scaling: Rows of features are divided by their ``"sum"``, as the
            authors do, or by their largest number (``"max"``). The sum makes features
            of many entries so small that training takes several times as long;
            ``"max"`` was looked for because test figures missed the published ones.
        compat: Do as the authors' code: the auto-encoder is trained to find each link
            in one direction only, and pairs are ranked by one random draw instead of
            by the means.
    """

    remove_share: ShareBelowOne = 0.02
    add_share: ShareBelowOne = 0.3
    predictor: Literal["vgae", "gae"] = "vgae"
    predictor_epochs: Steps = 200
    predictor_hidden: SideWidth = 32
    predictor_dim: SideWidth = 16
    predictor_lr: Rate = 0.01
    predictor_scaling: Literal["sum", "max"] = "max"
    compat: bool = False

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        prepared = PreparedGraph(data, runs[0].device)
        outcomes = []
        for run in runs:
            edges = self._changed_edges(prepared, run.seed)
            outcomes += train_on_fixed_structure(
                data, [run], self.network(), self.schedule(), graph=edges
            )
        return outcomes

    def _changed_edges(self, prepared: PreparedGraph, seed: int) -> Tensor:
        """The graph that the network is trained on, ``[2, edges]``."""
        edges = prepared.graph.edge_index.to(prepared.device)
        num_nodes = prepared.graph.num_nodes
        linked = linked_pairs(edges, num_nodes)
        # Rounded down, but 0.57 of 100 is 57, whatever the floats say.
        num_removed, num_added = (
            int(round(linked.numel() * share, 6))
            for share in (self.remove_share, self.add_share)
        )
        if num_removed == num_added == 0:
            return edges
        with threads_for(num_nodes**2 * self.predictor_dim):
            embedding = self._embedding(prepared, linked, seed)
            return rewired(
                edges,
                num_nodes,
                added=highest_unlinked_pairs(embedding, linked, num_added),
                removed=lowest_linked_pairs(embedding, linked, num_removed),
            )

    def _embedding(self, prepared: PreparedGraph, linked: Tensor, seed: int) -> Tensor:
        """Train the auto-encoder; return one row for each node."""
        features = scaled_rows(prepared.features, self.predictor_scaling)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            encoder = GraphEncoder(
                features.shape[1],
                self.predictor_hidden,
                self.predictor_dim,
                variational=self.predictor == "vgae",
            ).to(prepared.device, prepared.dtype)
        num_nodes, device = prepared.graph.num_nodes, prepared.device
        nodes = nodes_of(linked, num_nodes)
        links = Pattern.from_positions(nodes[0], nodes[1], num_nodes)
        graph = normalised_adjacency(nodes, num_nodes, prepared.dtype, device)

        def embedded(weights: Tree) -> Embedding:
            found: Embedding = functional_call(encoder, weights, (features, graph))
            return found

        def loss(weights: Tree, step: int) -> Tensor:
            return auto_encoder_loss(
                embedded(weights), links, Noise(seed, step), both_ways=not self.compat
            )

        optimizer = make_optimizer("adam", self.predictor_lr)
        weights = minimise(loss, weights_of(encoder), optimizer, self.predictor_epochs)
        with torch.no_grad():
            final = embedded(weights)
            if not self.compat:
                return final.mean
            return final.sample(Noise(seed, self.predictor_epochs))


def pair_reconstruction_loss(
    embedding: Tensor, links: Pattern, *, both_ways: bool = True, block: int = _BLOCK
) -> Tensor:
    """Weighted cross-entropy of sigmoid(z_i · z_j) to A + I (Kipf and Welling, 2016).

        n² / (2 (n² - S)) · mean BCE(Z Zᵀ, A + I), an edge counting (n² - S) / S times

    with S the sum of A, which is taken to be symmetric. The links are its pairs, at
    least one, from the smaller node to the larger one; each is an edge both ways in the
    target, or only as it is there.
    """
    num_nodes = embedding.shape[0]
    edges = 2 * links.num_entries
    others = num_nodes**2 - edges
    on_pairs = sddmm(links, embedding, embedding)
    on_loops = embedding.square().sum(-1)
    found = _surplus(on_pairs, others / edges) * (2 if both_ways else 1)
    found = found + _surplus(on_loops, others / edges)
    everywhere: Tensor = _SoftplusOfProducts.apply(  # type: ignore[no-untyped-call]
        embedding, block
    )
    return (everywhere + found) / (2 * others)


def _surplus(products: Tensor, weight: float) -> Tensor:
    """Σ weight · softplus(-x) - softplus(x): what targets of one change in the sum."""
    return logsigmoid(-products).sum() - weight * logsigmoid(products).sum()


class _SoftplusOfProducts(torch.autograd.Function):
    """Z ↦ Σ_ij softplus(z_i · z_j), whose derivative by z_i is 2 Σ_j sigmoid(x_ij) z_j.

    The products are symmetric: a block of rows starts at its diagonal and counts twice
    behind it.
    """

    @staticmethod
    def forward(ctx: Any, embedding: Tensor, block: int) -> Tensor:
        derivative = torch.zeros_like(embedding)
        # In double precision, because it is the sum of n² numbers.
        total = torch.zeros((), dtype=torch.float64, device=embedding.device)
        for start, stop in row_blocks(embedding.shape[0], block):
            rows, behind = embedding[start:stop], embedding[start:]
            products = rows @ behind.mT
            softplus = logsigmoid(-products).neg_()
            own = softplus[:, : stop - start].sum(dtype=torch.float64)
            total += 2 * softplus.sum(dtype=torch.float64) - own
            likely = products.sigmoid_()
            derivative[start:stop] += likely @ behind
            derivative[stop:] += likely[:, stop - start :].mT @ rows
        ctx.save_for_backward(derivative.mul_(2))
        return total.to(embedding.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor, None]:
        (derivative,) = ctx.saved_tensors
        return cotangent * derivative, None


class Embedding(NamedTuple):
    """A normal distribution for each node, or its mean alone."""

    mean: Tensor  # μ, [nodes, channels]
    log_deviation: Tensor | None  # log s, alike; None where nothing is random.

    def sample(self, noise: Noise) -> Tensor:
        """Draw Z; the mean where nothing is random."""
        if self.log_deviation is None:
            return self.mean
        drawn = normal(tuple(self.mean.shape), noise, _SITE, self.mean)
        return self.mean + drawn * self.log_deviation.exp()

    def divergence(self) -> Tensor:
        """KL divergence from the standard normal, mean over the nodes; 0 without s.

        -1/2 mean_i Σ_d (1 + 2 log s - μ² - s²)
        """
        if self.log_deviation is None:
            return self.mean.new_zeros(())
        twice = 2 * self.log_deviation
        terms = 1 + twice - self.mean.square() - twice.exp()
        return -terms.sum(-1).mean() / 2


@final
class GraphEncoder(nn.Module):
    """Embeds the nodes of a graph, so that products of two rows tell links."""

    def __init__(
        self, in_channels: int, hidden: int, out_channels: int, *, variational: bool
    ) -> None:
        super().__init__()
        self.first = glorot(in_channels, hidden)
        self.mean = glorot(hidden, out_channels)
        self.deviation = glorot(hidden, out_channels) if variational else None

    def forward(self, features: Features, normalised: Propagation) -> Embedding:
        """Embed the nodes; ``normalised`` is Â."""
        hidden = elu(spmm(*normalised, features @ self.first))
        mean = spmm(*normalised, hidden @ self.mean)
        if self.deviation is None:
            return Embedding(mean, None)
        return Embedding(mean, spmm(*normalised, hidden @ self.deviation))


def auto_encoder_loss(
    embedding: Embedding, links: Pattern, noise: Noise, *, both_ways: bool = True
) -> Tensor:
    """What an auto-encoder is trained on; see :func:`pair_reconstruction_loss`."""
    drawn = embedding.sample(noise)
    reconstruction = pair_reconstruction_loss(drawn, links, both_ways=both_ways)
    return reconstruction + embedding.divergence() / drawn.shape[0]


def scaled_rows(features: Features, by: Literal["sum", "max"]) -> Features:
    """Divide each row by the sum, or by the largest, of its absolute values.

    Rows of zeros stay zero.
    """
    if isinstance(features, Tensor):
        sizes = features.abs()
        size = sizes.sum(dim=1) if by == "sum" else sizes.amax(dim=1)
        return features / size.masked_fill(size == 0, 1).unsqueeze(1)
    pattern, values = features.pattern, features.values
    if by == "sum":
        size = row_sum(pattern, values.abs())
    else:
        size = values.new_zeros(pattern.num_rows)
        size = size.scatter_reduce(0, pattern.row_of_entry, values.abs(), "amax")
    size = size.masked_fill(size == 0, 1)[pattern.row_of_entry]
    return SparseFeatures(pattern, values / size)
