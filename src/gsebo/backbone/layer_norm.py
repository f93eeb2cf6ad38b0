"""Layer normalisation by the unbiased deviation, also of sparse features."""

from typing import final

import torch
from torch import Tensor, nn

from gsebo.backbone.base import Features
from gsebo.sparse import SparseFeatures, row_sum

_EPSILON = 1e-6


@final
class DeviationNorm(nn.Module):
    """``scale ⊙ (x - mean) / (deviation + 1e-6) + shift`` of each node's channels.

    The deviation is the unbiased one, divided by channels - 1. Channels that are all
    equal, or only one, give the shift.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, h: Tensor) -> Tensor:
        """Normalise ``[nodes, channels]``."""
        centred = h - h.mean(-1, keepdim=True)
        deviation = _deviation(centred.square().sum(-1, keepdim=True), h.shape[-1])
        return centred / (deviation + _EPSILON) * self.scale + self.shift

    def times(self, h: Features, weight: Tensor) -> Tensor:
        """Normalise, then multiply by ``weight`` ``[channels, width]``.

        Sparse features stay sparse: the product is linear in what is subtracted.
        """
        if not isinstance(h, SparseFeatures):
            normalised: Tensor = self(h)
            return normalised @ weight
        channels = h.shape[-1]
        mean = row_sum(h.pattern, h.values) / channels
        away = h.values - mean[h.pattern.row_of_entry]
        absent = channels - h.pattern.row_counts
        squares = row_sum(h.pattern, away.square()) + absent * mean.square()
        divisor = _deviation(squares, channels) + _EPSILON
        scaled = self.scale.unsqueeze(-1) * weight
        centred = h @ scaled - torch.outer(mean, scaled.sum(0))
        return centred / divisor.unsqueeze(-1) + self.shift @ weight


def _deviation(squares: Tensor, channels: int) -> Tensor:
    """Root of the mean of squares, with derivative 0 where they are 0."""
    # Not "squares > 0", which would turn NaN into 0.
    zero = squares == 0
    variance = squares.masked_fill(zero, 1) / max(channels - 1, 1)
    return variance.sqrt().masked_fill(zero, 0)
