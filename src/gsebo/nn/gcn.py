"""Graph convolutional network (Kipf and Welling, ICLR 2017) with edge strengths."""

from itertools import pairwise
from typing import final

import torch
from torch import Tensor, nn

from gsebo.nn.base import Features, Layer, LayeredBackbone, glorot
from gsebo.sparse import Noise, Pattern, row_expand, row_sum, spmm


def symmetric_normalisation(
    pattern: Pattern, dtype: torch.dtype, degree: Tensor | None = None
) -> Tensor:
    """1 / √(d_i d_j) at each entry, d = entries of the row, loops included."""
    degree = pattern.row_counts if degree is None else degree
    scale = degree.to(dtype).clamp(min=1).rsqrt()
    return scale[pattern.row_of_entry] * scale[pattern.column_of_entry]


def weighted_symmetric_normalisation(
    pattern: Pattern, weights: Tensor, sums: Tensor | None = None
) -> Tensor:
    """w_ij / √(d_i d_j), d = sum of the weights of the row; 0 where that is 0."""
    degree = row_sum(pattern, weights) if sums is None else sums
    empty = degree == 0
    # Not a clamp: its derivative would be infinite before it is cut off.
    scale = degree.masked_fill(empty, 1).rsqrt().masked_fill(empty, 0)
    return weights * row_expand(pattern, scale) * row_expand(pattern.T, scale)


@final
class GCNLayer(Layer):
    """H' = S (H W) + b."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = glorot(in_channels, out_channels)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(
        self, h: Features, pattern: Pattern, strength: Tensor, noise: Noise | None
    ) -> Tensor:
        """Transform, then propagate."""
        return spmm(pattern, strength, h @ self.weight) + self.bias


@final
class GCN(LayeredBackbone):
    """GCN: ``H(k) = ReLU(S H(k-1) W(k))``, S = strengths, vanilla 1 / √(d_i d_j).

    Args:
        in_channels: Number of features.
        hidden_channels: Width of the hidden layers.
        out_channels: Number of classes.
        num_layers: Number of layers.
        dropout: Rate of dropout before each layer.
        input_dropout: Whether there is dropout before the first layer too.
    """

    traceable = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        *,
        num_layers: int = 2,
        dropout: float = 0.5,
        input_dropout: bool = True,
    ) -> None:
        super().__init__()
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.layers = nn.ModuleList(GCNLayer(*pair) for pair in pairwise(sizes))
        self.activation = torch.relu
        self.dropout, self.input_dropout = dropout, input_dropout
        self.num_propagations = num_layers

    def read_out(self, outputs: list[Tensor]) -> Tensor:
        """What the last layer gave."""
        return outputs[-1]

    def initial_strength(
        self, pattern: Pattern, degree: Tensor | None = None
    ) -> Tensor:
        """1 / √(d_i d_j)."""
        dtype = next(self.parameters()).dtype
        return symmetric_normalisation(pattern, dtype, degree)

    def normalise(
        self, pattern: Pattern, weights: Tensor, sums: Tensor | None = None
    ) -> Tensor:
        """w_ij / √(d_i d_j)."""
        return weighted_symmetric_normalisation(pattern, weights, sums)
