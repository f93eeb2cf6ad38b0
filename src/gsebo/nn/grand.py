"""Random propagation (Feng et al., NeurIPS 2020) with edge strengths."""

from dataclasses import dataclass
from typing import final

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
    require_counts,
    require_flags,
    strength_at,
)
from gsebo.sparse import Noise, Pattern, dropout, spmm
from gsebo.sparse.operators import keep_mask


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GRAND(SizedBackbone):
    """Features of nodes near by, of which some are left out, read by a perceptron.

        H = (I + S + S² + ... + S^K) X W_1 / (K + 1),    logits = MLP(ReLU(H + b_1)),

    with the strengths S, vanilla 1 / √(d_i d_j). In a training step whole nodes are
    left out of X, beside the dropout of single numbers, so that what is said of a node
    may not hang on any one neighbor. Made to be trained with ``consistency``.

    Args:
        hops: How far features go: K.
        node_dropout: Share of the nodes that are left out in a training step.
        feature_gates: Whether each feature has a factor of its own, which is learned
            and decays as all weights do: diag(g) W_1 in place of W_1. A squared penalty
            on both factors is one on the size of a row, not on its square, so features
            that tell little vanish, and do so within few steps.
    """

    normalisation = SYMMETRIC
    hops: int = 8
    node_dropout: float = 0.5
    feature_gates: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_counts(hops=self.hops)
        require_between(0, 1, node_dropout=self.node_dropout)
        require_flags(feature_gates=self.feature_gates)
        self.num_propagations = self.hops
        (given, width), *others = self.sizes()
        self.weight = glorot(given, width)
        if self.feature_gates:
            self.gates = nn.Parameter(torch.ones(given, 1))
        self.bias = nn.Parameter(torch.zeros(width))
        self.layers = nn.ModuleList(Linear(*size) for size in others)

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        if strengths is None:
            strengths = self.initial_strength(pattern)
        # Whether rows are left out before or after a linear map makes no difference,
        # and neither does it where that map is before what is spread: it is narrower.
        weight = self.weight * self.gates if self.feature_gates else self.weight
        z = dropout(features, self.dropout, noise, 0) @ weight
        if noise is not None and self.node_dropout:
            z = z * keep_mask(z[:, :1], self.node_dropout, noise, 1)
        total = z
        for number in range(self.hops):
            known = z if number else features
            z = spmm(pattern, strength_at(strengths, number, known), z)
            total = total + z
        h = total / (self.hops + 1) + self.bias
        for number, layer in enumerate(self.layers, start=1):
            h = layer(dropout(torch.relu(h), self.dropout, noise, 2 * number))
        return h
