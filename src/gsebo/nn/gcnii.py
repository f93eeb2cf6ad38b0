"""GCNII (Chen, Wei, Huang, Ding and Li, ICML 2020) with edge strengths."""

import math
from dataclasses import dataclass
from typing import cast, final

import torch
from torch import Tensor, nn

from gsebo.nn.base import (
    SYMMETRIC,
    Features,
    LayerStrengths,
    Linear,
    SizedBackbone,
    glorot,
    require_between,
    strength_at,
)
from gsebo.sparse import Noise, Pattern, dropout, spmm


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GCNII(SizedBackbone):
    """Graph convolutions that keep the first layer and stay close to the identity.

        H(0) = ReLU(X W_in + b_in),    U = (1 - a) S H(l-1) + a H(0),
        H(l) = ReLU((1 - β_l) U + β_l U W(l)),    β_l = log(θ / l + 1),

    and a linear map of the last one, with dropout before every map and propagation. S
    are the strengths, vanilla 1 / √(d_i d_j). It is made for many layers: 8 to 64.

    Args:
        alpha: Share of the first layer in each: a.
        theta: How much the layers' weights count: θ, in the paper λ.
    """

    traceable = True
    normalisation = SYMMETRIC
    alpha: float = 0.1
    theta: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        require_between(0, 1, alpha=self.alpha)
        require_between(1e-6, 1e6, theta=self.theta)
        width = self.hidden_channels
        self.projection = Linear(self.in_channels, width)
        layers = range(self.num_layers)
        self.weights = nn.ParameterList(glorot(width, width) for _ in layers)
        self.classifier = Linear(width, self.out_channels)

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        if strengths is None:
            strengths = self.initial_strength(pattern)
        given = dropout(features, self.dropout, noise, 0)
        h = first = torch.relu(self.projection(given))
        for number, weight in enumerate(self.weights):
            # Before the first propagation these are all that is known of a node.
            strength = strength_at(strengths, number, h if number else features)
            h = dropout(h, self.dropout, noise, 2 * number + 2)
            mixed = (1 - self.alpha) * spmm(pattern, strength, h) + self.alpha * first
            beta = math.log(self.theta / (number + 1) + 1)
            h = torch.relu((1 - beta) * mixed + beta * (mixed @ weight))
        h = dropout(h, self.dropout, noise, 2 * self.num_layers + 2)
        return cast(Tensor, self.classifier(h))
