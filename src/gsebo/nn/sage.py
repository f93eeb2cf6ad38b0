"""GraphSAGE (Hamilton et al., NeurIPS 2017) with edge strengths, two aggregators."""

from itertools import pairwise
from typing import Literal, final

import torch
from torch import Tensor, nn

from gsebo.errors import InvalidInput
from gsebo.nn.base import Features, Layer, LayeredBackbone, glorot
from gsebo.sparse import Noise, Pattern, row_expand, row_sum, spmm


def row_normalisation(
    pattern: Pattern, dtype: torch.dtype, degree: Tensor | None = None
) -> Tensor:
    """1 / d_i at each entry, d = number of entries of the row."""
    degree = pattern.row_counts if degree is None else degree
    scale = degree.to(dtype).clamp(min=1).reciprocal()
    return scale[pattern.row_of_entry]


def weighted_row_normalisation(
    pattern: Pattern, weights: Tensor, sums: Tensor | None = None
) -> Tensor:
    """w_ij / d_i, d = sum of the weights of the row; 0 where that is 0."""
    degree = row_sum(pattern, weights) if sums is None else sums
    empty = degree == 0
    scale = degree.masked_fill(empty, 1).reciprocal().masked_fill(empty, 0)
    return weights * row_expand(pattern, scale)


@final
class SAGELayer(Layer):
    """H' = S (H W) + b, plus H W_self where the node is not among its entries."""

    def __init__(
        self, in_channels: int, out_channels: int, *, self_weight: bool
    ) -> None:
        super().__init__()
        self.weight = glorot(in_channels, out_channels)
        self.self_weight = glorot(in_channels, out_channels) if self_weight else None
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(
        self, h: Features, pattern: Pattern, strength: Tensor, noise: Noise | None
    ) -> Tensor:
        """Aggregate the neighbours, then add the node itself."""
        out = spmm(pattern, strength, h @ self.weight)
        if self.self_weight is not None:
            out = out + h @ self.self_weight
        return out + self.bias


@final
class SAGE(LayeredBackbone):
    """GraphSAGE.

    Args:
        in_channels: Number of features.
        hidden_channels: Width of the hidden layers.
        out_channels: Number of classes.
        num_layers: Number of layers.
        dropout: Rate of dropout before each layer.
        aggregator: ``"mean"``: mean of the neighbours, with a weight matrix of its own
            for the node; ``"gcn"``: mean of the neighbours and the node.
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
        aggregator: Literal["mean", "gcn"] = "mean",
        input_dropout: bool = True,
    ) -> None:
        super().__init__()
        if aggregator not in ("mean", "gcn"):
            raise InvalidInput(
                f"aggregator is {aggregator!r}, expected 'mean' or 'gcn'"
            )
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.self_loops = aggregator == "gcn"
        self.layers = nn.ModuleList(
            SAGELayer(*pair, self_weight=not self.self_loops)
            for pair in pairwise(sizes)
        )
        self.activation = torch.relu
        self.dropout, self.input_dropout = dropout, input_dropout
        self.num_propagations = num_layers

    def read_out(self, outputs: list[Tensor]) -> Tensor:
        """What the last layer gave."""
        return outputs[-1]

    def initial_strength(
        self, pattern: Pattern, degree: Tensor | None = None
    ) -> Tensor:
        """1 / d_i."""
        return row_normalisation(pattern, next(self.parameters()).dtype, degree)

    def normalise(
        self, pattern: Pattern, weights: Tensor, sums: Tensor | None = None
    ) -> Tensor:
        """w_ij / d_i."""
        return weighted_row_normalisation(pattern, weights, sums)
