"""A network that votes: neighbors with other predictions do not count.

Every node begins with what its features say, p_i = softmax(MLP(x_i)), and hears its
neighbors several times:

    b_ij = max(0, 1 - ‖f_i - f_j‖² / c²)²                         (Tukey's biweight)
    f_i <- (λ p_i + Σ_j s_ij b_ij f_j) / (λ + Σ_j s_ij b_ij),     f = p at first,

with strengths s that sum to one over the neighbors of a node and itself. Three things
bound what somebody who adds edges can do: a neighbor says a distribution, not a vector
of any length; one who says something too different is not heard at all; and what is
not heard is not made up for by the others, but leaves more to the node's own features.

The idea to let the influence of an edge fall back to zero is that of RUNG (Hou, Feng,
Derr and Liu, *Robust Graph Neural Networks via Unbiased Aggregation*, NeurIPS 2024),
which does so for logits, with another penalty and the symmetric normalisation.
"""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from gsebo.nn.base import (
    BY_ROW,
    Features,
    LayerStrengths,
    SizedBackbone,
    require_between,
    require_counts,
    strength_at,
)
from gsebo.nn.mlp import MLP
from gsebo.sparse import Noise, Pattern, row_expand, row_sum, sddmm, spmm

# Of a class that nobody votes for, the logarithm is finite.
_LEAST = 1e-6


def biweight(pattern: Pattern, f: Tensor, scale: float) -> Tensor:
    """How far both ends of each entry hear each other, ``[entries]`` from 0 to 1.

    One where both rows of ``f``, ``[nodes, channels]``, are the same, and zero from a
    distance of ``scale`` on.
    """
    squares = f.square().sum(-1)
    ends = row_expand(pattern, squares) + row_expand(pattern.T, squares)
    apart = ends - 2 * sddmm(pattern, f, f)
    return (1 - apart / scale**2).clamp(0, 1).square()


@final
@dataclass(kw_only=True, eq=False, repr=False)
class BiweightNet(SizedBackbone):
    """Votes of neighbors, of whom those with too different predictions do not count.

    Args:
        scale: Distance of two predictions, from 0 to √2, from which on nodes do not
            hear each other: c.
        anchor: What the features of a node count beside all of its neighbors: λ.
        hops: How many times neighbors are heard.
    """

    # Strengths are shares of one node's hearing.
    normalisation = BY_ROW
    scale: float = 1.2
    anchor: float = 0.5
    hops: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between(1e-3, 1e3, scale=self.scale, anchor=self.anchor)
        require_counts(hops=self.hops)
        self.num_propagations = self.hops
        sizes = self.in_channels, self.hidden_channels, self.out_channels
        self.mlp = MLP(*sizes, num_layers=self.num_layers, dropout=self.dropout)

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        if strengths is None:
            strengths = self.initial_strength(pattern)
        alone: Tensor = self.mlp(features, pattern, None, noise).softmax(-1)
        f = alone
        for number in range(self.hops):
            strength = strength_at(strengths, number, f)
            heard = strength * biweight(pattern, f, self.scale)
            total = self.anchor + row_sum(pattern, heard)
            f = (self.anchor * alone + spmm(pattern, heard, f)) / total.unsqueeze(-1)
        return (f + _LEAST).log()
