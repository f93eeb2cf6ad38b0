"""SLAPS: a graph made of the features alone, which also has to restore them.

A generator gives every node itself and k others, the entries of a sparse matrix S:

    fp       elu(θ_ij) + 1 for the nearest by the features, each with its own θ = 0
    mlp_d    the cosines of X diag(w₀), ReLU, diag(w₁), nothing below 0
    mlp      the same with matrices and biases in the place of w₀ and w₁

The entries of the last two are where those cosines are largest, and change as the
layers learn; only there they are kept, and differentiated. The graph is (S + Sᵀ) / 2,
normalised as a GCN does.

It is trained by the training labels through a GCN, and by a denoising auto-encoder: a
second GCN on the same graph has to say which masked features were there. Where features
are 0 or 1 it is shown some of the ones as zeros, and asked for these and for some true
zeros by cross-entropy; otherwise it is shown zeros in the place of some numbers, and
asked for these by their squared errors. Only masked numbers are computed.
"""

from typing import Literal, final

import torch
from torch import Tensor
from torch.nn.functional import elu

from gsebo.bilevel import Tree
from gsebo.graph import Propagation
from gsebo.methods.baselines.pairs import dense_features
from gsebo.methods.baselines.shared import EntrySum, with_itself
from gsebo.nn.base import Features
from gsebo.sparse import Pattern, sddmm, spmm
from gsebo.sparse.operators import unit_rows
from gsebo.structure.candidates import nearest_neighbors

GeneratorKind = Literal["fp", "mlp", "mlp_d"]
_SCORE = "score"
_ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}
Activation = Literal["relu", "tanh"]


@final
class TakenPairs:
    """The entries of (S + Sᵀ) / 2, for one choice of what each node takes.

    Args:
        taken: Others and those who take them, ``[2, pairs]``.
        size: Number of nodes.
    """

    def __init__(self, taken: Tensor, size: int) -> None:
        row, column = with_itself(taken, size)
        self.entries = Pattern.from_positions(row, column, size)
        self._sum = EntrySum(size, (row, column), (column, row))

    def symmetric(self, values: Tensor) -> tuple[Pattern, Tensor]:
        """Entries and weights of (S + Sᵀ) / 2, from the entries of S."""
        return self._sum.pattern, self._sum(values, values) / 2


@final
class GraphGenerator:
    """Makes graphs of features; its parameters are a tree.

    Args:
        features: Of the nodes.
        kind: Which generator.
        num_neighbors: k.
        activation: Between two layers.
        on: A graph over which both layers propagate; without, none does.
    """

    def __init__(
        self,
        features: Features,
        kind: GeneratorKind,
        num_neighbors: int,
        activation: Activation,
        on: Propagation | None = None,
    ) -> None:
        self._kind, self._num_neighbors, self._on = kind, num_neighbors, on
        self._activation = _ACTIVATIONS[activation]
        self._size, self._channels = features.shape
        self._like = torch.zeros((), dtype=features.dtype, device=features.device)
        if kind == "fp":
            taken = nearest_neighbors(features, num_neighbors)
            self._nearest = TakenPairs(taken, self._size)
        else:
            self._features = self._propagated(dense_features(features))

    def initial(self) -> Tree:
        """Parameters with which the graph is that of the nearest by features."""
        if self._kind == "fp":
            return {_SCORE: self._like.new_zeros(self._nearest.entries.num_entries)}
        one, zero = self._like.new_ones, self._like.new_zeros
        if self._kind == "mlp_d":
            return {f"weight{layer}": one(self._channels) for layer in range(2)}
        layers = {}
        for layer in range(2):
            layers[f"weight{layer}"] = one(self._channels).diag()
            layers[f"bias{layer}"] = zero(self._channels)
        return layers

    @torch.no_grad()
    def search(self, parameters: Tree) -> TakenPairs:
        """Let every node take those that are most similar to it."""
        if self._kind == "fp":
            return self._nearest
        embedding = self._embedding(parameters)
        taken = nearest_neighbors(embedding, self._num_neighbors)
        return TakenPairs(taken, self._size)

    def graph(self, parameters: Tree, pairs: TakenPairs) -> tuple[Pattern, Tensor]:
        """Entries and weights, differentiable; entries of S are those of ``pairs``."""
        if self._kind == "fp":
            return pairs.symmetric(elu(parameters[_SCORE]) + 1)
        unit = unit_rows(self._embedding(parameters))
        return pairs.symmetric(sddmm(pairs.entries, unit, unit).relu())

    def _embedding(self, parameters: Tree) -> Tensor:
        hidden = self._activation(self._layer(parameters, 0, self._features))
        return self._layer(parameters, 1, self._propagated(hidden))

    def _layer(self, parameters: Tree, layer: int, x: Tensor) -> Tensor:
        weight = parameters[f"weight{layer}"]
        if weight.dim() == 1:
            return x * weight
        return x @ weight + parameters[f"bias{layer}"]

    def _propagated(self, x: Tensor) -> Tensor:
        return x if self._on is None else spmm(*self._on, x)
