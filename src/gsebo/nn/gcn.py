"""Graph convolutional network (Kipf and Welling, ICLR 2017) with edge strengths."""

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from gsebo.nn.base import SYMMETRIC, Features, Layer, LayeredBackbone, glorot
from gsebo.sparse import Noise, Pattern, spmm


@final
class GCNLayer(Layer):
    """H' = S (H W) + b, plus H W_self where the node is not among its entries."""

    def __init__(
        self, in_channels: int, out_channels: int, *, self_weight: bool = False
    ) -> None:
        super().__init__()
        self.weight = glorot(in_channels, out_channels)
        self.self_weight = glorot(in_channels, out_channels) if self_weight else None
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(
        self, h: Features, pattern: Pattern, strength: Tensor, noise: Noise | None
    ) -> Tensor:
        out = spmm(pattern, strength, h @ self.weight)
        if self.self_weight is not None:
            out = out + h @ self.self_weight
        return out + self.bias


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GCN(LayeredBackbone):
    """GCN: ``H(k) = ReLU(S H(k-1) W(k))``, S = strengths, vanilla 1 / √(d_i d_j)."""

    traceable = True
    normalisation = SYMMETRIC

    def layer(self, number: int, in_channels: int, out_channels: int) -> GCNLayer:
        return GCNLayer(in_channels, out_channels)
