"""A graph auto-encoder, plain or variational (Kipf and Welling, 2016), over all pairs.

    H = ELU(Â X W₀),   μ = Â H W₁,   log s = Â H W₂,   Z = μ + ε s

with Â = D^-1/2 (A + I) D^-1/2 and sigmoid(z_i · z_j) the probability of a link. Without
s it is the plain one.
"""

import math
from typing import Literal, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from gsebo.sparse import Noise, Pattern, SparseFeatures, row_sum, spmm, uniform
from gsebo.structure.pair_likelihood import reconstruction_loss
from gsebo.structure.propagation import Propagation

_SITE = 1000


class Embedding(NamedTuple):
    """A normal distribution for each node, or its mean alone.

    Attributes:
        mean: μ, ``[nodes, channels]``.
        log_deviation: log s, alike; ``None`` where nothing is random.
    """

    mean: Tensor
    log_deviation: Tensor | None

    def sample(self, noise: Noise) -> Tensor:
        """Draw Z; the mean where nothing is random."""
        if self.log_deviation is None:
            return self.mean
        drawn = _normal(tuple(self.mean.shape), noise, self.mean)
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
    """Embeds the nodes of a graph, so that products of two rows tell links.

    Args:
        in_channels: Number of features.
        hidden_channels: Width of the first layer.
        out_channels: Width of the embedding.
        variational: Whether there is a deviation besides the mean.
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        variational: bool,
    ) -> None:
        super().__init__()
        self.first = _glorot(in_channels, hidden_channels)
        self.mean = _glorot(hidden_channels, out_channels)
        self.deviation = _glorot(hidden_channels, out_channels) if variational else None

    def forward(
        self, features: Tensor | SparseFeatures, normalised: Propagation
    ) -> Embedding:
        """Embed the nodes; ``normalised`` is Â."""
        hidden = elu(spmm(*normalised, features @ self.first))
        mean = spmm(*normalised, hidden @ self.mean)
        if self.deviation is None:
            return Embedding(mean, None)
        return Embedding(mean, spmm(*normalised, hidden @ self.deviation))


def auto_encoder_loss(
    embedding: Embedding, links: Pattern, noise: Noise, *, both_ways: bool = True
) -> Tensor:
    """Return what an auto-encoder is trained on.

    Args:
        embedding: Of all n nodes.
        links: Pairs of the graph, as in :func:`reconstruction_loss`.
        noise: Randomness of the step.
        both_ways: As there.
    """
    drawn = embedding.sample(noise)
    reconstruction = reconstruction_loss(drawn, links, both_ways=both_ways)
    return reconstruction + embedding.divergence() / drawn.shape[0]


def scaled_rows(
    features: Tensor | SparseFeatures, by: Literal["sum", "max"]
) -> Tensor | SparseFeatures:
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


def _normal(shape: tuple[int, ...], noise: Noise, like: Tensor) -> Tensor:
    """Draw standard normal numbers (Box and Muller), the same on every device."""
    radius = uniform(shape, noise, _SITE, like).log().mul(-2).sqrt()
    return radius * uniform(shape, noise, _SITE + 1, like).mul(2 * math.pi).cos()


def _glorot(*shape: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape)))
