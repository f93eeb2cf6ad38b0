"""APPNP (Gasteiger, Bojchevski and Günnemann, ICLR 2019) with edge strengths."""

from dataclasses import dataclass
from typing import final

from torch import Tensor

from gsebo.nn.base import (
    SYMMETRIC,
    Features,
    LayerStrengths,
    SizedBackbone,
    require_between,
    require_counts,
    strength_at,
)
from gsebo.nn.mlp import MLP
from gsebo.sparse import Noise, Pattern, spmm


@final
@dataclass(kw_only=True, eq=False, repr=False)
class APPNP(SizedBackbone):
    """What a perceptron says of each node, spread by personalised PageRank.

        H = MLP(X),    Z <- (1 - a) S Z + a H,    Z = H at first,

    with the strengths S, vanilla 1 / √(d_i d_j). There is dropout in the perceptron
    only, whose layers ``num_layers`` counts.

    Args:
        hops: How many steps of PageRank there are: K.
        alpha: Share of a node's own prediction in each step: a.
    """

    traceable = True
    normalisation = SYMMETRIC
    hops: int = 10
    alpha: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_counts(hops=self.hops)
        require_between(0, 1, alpha=self.alpha)
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
        alone: Tensor = self.mlp(features, pattern, None, noise)
        z = alone
        for number in range(self.hops):
            # What the network knows of a node before anything is spread.
            known = z if number else features
            spread = spmm(pattern, strength_at(strengths, number, known), z)
            z = (1 - self.alpha) * spread + self.alpha * alone
        return z
