"""Multi-layer perceptron: the control that sees no edges."""

from dataclasses import dataclass
from typing import cast, final

import torch
from torch import Tensor, nn

from gsebo.nn.base import Features, LayerStrengths, SizedBackbone, glorot
from gsebo.sparse import Noise, Pattern, dropout


@final
@dataclass(eq=False, repr=False)
class MLP(SizedBackbone):
    """``H(k) = ReLU(H(k-1) W(k) + b(k))``; strengths have no effect."""

    self_loops = False
    traceable = True
    sums_messages = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.weights = nn.ParameterList(glorot(*size) for size in self.sizes())
        self.biases = nn.ParameterList(torch.zeros(out) for _, out in self.sizes())

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        h: Features = features
        layers = zip(self.weights, self.biases, strict=True)
        for number, (weight, bias) in enumerate(layers):
            if number > 0:
                h = torch.relu(cast(Tensor, h))
            h = dropout(h, self.dropout, noise, 2 * number)
            h = h @ weight + bias
        return cast(Tensor, h)
