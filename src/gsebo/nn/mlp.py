"""Multi-layer perceptron: the control that sees no edges."""

from itertools import pairwise
from typing import cast, final

import torch
from torch import Tensor, nn

from gsebo.nn.base import Backbone, Features, LayerStrengths, glorot
from gsebo.sparse import Noise, Pattern, dropout


@final
class MLP(Backbone):
    """``H(k) = ReLU(H(k-1) W(k) + b(k))``; strengths have no effect."""

    self_loops = False
    traceable = True
    sums_messages = False

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        pairs = list(pairwise(sizes))
        self.weights = nn.ParameterList(glorot(*pair) for pair in pairs)
        self.biases = nn.ParameterList(torch.zeros(out) for _, out in pairs)
        self.dropout = dropout
        self.num_propagations = num_layers

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        """Return the logits, ``[nodes, classes]``."""
        h: Features = features
        layers = zip(self.weights, self.biases, strict=True)
        for number, (weight, bias) in enumerate(layers):
            if number > 0:
                h = torch.relu(cast(Tensor, h))
            h = dropout(h, self.dropout, noise, 2 * number)
            h = h @ weight + bias
        return cast(Tensor, h)

    def initial_strength(
        self, pattern: Pattern, degree: Tensor | None = None
    ) -> Tensor:
        """One; it is never read."""
        return torch.ones(
            pattern.num_entries, dtype=self.weights[0].dtype, device=pattern.device
        )

    def normalise(
        self, pattern: Pattern, weights: Tensor, sums: Tensor | None = None
    ) -> Tensor:
        """The weights; they are never read."""
        return weights
