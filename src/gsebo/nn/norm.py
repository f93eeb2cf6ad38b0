"""Normalisation of what a layer gives, over the channels of a node or over nodes."""

from typing import Literal, final

import torch
from torch import Tensor, nn

from gsebo.sparse.symbol import Standardise, Symbol

_EPSILON = 1e-5


def standardise(x: Tensor, weight: Tensor, kind: Literal["layer", "batch"]) -> Tensor:
    """``(x - mean) / √(variance + ε) * weight`` of numbers ``[nodes, channels]``.

    Mean and variance (of the numbers at hand, not an estimate of more) are those of
    each row with ``"layer"``, and of each column with ``"batch"``.
    """
    if isinstance(x, Symbol):
        return x.then(Standardise, kind, x.weight_name(weight), _EPSILON)
    axis = -1 if kind == "layer" else -2
    centred = x - x.mean(axis, keepdim=True)
    variance = centred.square().mean(axis, keepdim=True)
    return centred * (variance + _EPSILON).rsqrt() * weight


@final
class FeatureNorm(nn.Module):
    """:func:`standardise` with a learned scale, at first one, plus a learned shift."""

    def __init__(self, channels: int, kind: Literal["layer", "batch"]) -> None:
        super().__init__()
        self.kind: Literal["layer", "batch"] = kind
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, h: Tensor) -> Tensor:
        return standardise(h, self.weight, self.kind) + self.bias
