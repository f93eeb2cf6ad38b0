"""A graph auto-encoder that proposes edges, and graphs drawn from its proposals.

The edge predictor of GAug-O (Zhao et al., AAAI 2021), with Â = normalised A + I:

    Z = ReLU(Â (Â X W₀) W₁),   L = Z Zᵀ,   P = a L / max(L) + (1 - a) (A + I)

Every matrix here is dense: that each pair of nodes may become an edge is the method.
"""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from gsebo.sparse import Noise, Pattern, SparseFeatures, sddmm, spmm, uniform
from gsebo.structure.propagation import Propagation

_SITE = 1000


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
    half = uniform(((nodes + 1) // 2, nodes), noise, _SITE, probability)
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
