"""What a backbone is: a network that classifies nodes, given the strengths."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gsebo.sparse import Noise, Pattern, SparseFeatures, dropout

Features = Tensor | SparseFeatures
"""Node features ``[nodes, channels]``, dense or sparse."""

LayerStrengths = Callable[[int, Features], Tensor]
"""Strengths ``[entries]`` from the number of a layer and its input."""


class Backbone(nn.Module, ABC):
    """A graph neural network whose propagation weights come from outside.

    Attributes:
        self_loops: Whether the pattern must hold a self-loop for every node.
        num_propagations: Number of layers that propagate, for strengths per layer.
        traceable: Whether ``forward`` may be run on symbols to write down what it does,
            so that training needs no autograd. It must not ask for types then.
    """

    self_loops: bool = True
    traceable: bool = False
    num_propagations: int

    @abstractmethod
    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        """Return the logits of every node, ``[nodes, classes]``.

        Args:
            features: Node features.
            pattern: Entries of A + I (or A), rows = targets.
            strengths: ``[entries]`` or ``[layers, entries]``; vanilla when ``None``. In
                some networks also a function of each layer's number and input.
            noise: Randomness of a training step, or ``None`` to evaluate.
        """

    @abstractmethod
    def initial_strength(self, pattern: Pattern) -> Tensor:
        """Strengths with which the backbone equals its vanilla form, ``[entries]``."""

    @abstractmethod
    def normalise(self, pattern: Pattern, weights: Tensor) -> Tensor:
        """The vanilla propagation of a weighted graph, by differentiable operations.

        With weights of one it is :meth:`initial_strength`.

        Args:
            pattern: Entries, self-loops included where the network has any.
            weights: Not negative, ``[..., entries]``.
        """


class Layer(nn.Module, ABC):
    """One propagation: ``(h, pattern, strength) -> h``."""

    @abstractmethod
    def forward(
        self, h: Features, pattern: Pattern, strength: Tensor, noise: Noise | None
    ) -> Tensor:
        """Propagate ``h`` with one strength per entry, ``[entries]``."""


class LayeredBackbone(Backbone):
    """A network of layers that follow each other.

    Attributes:
        layers: Each a :class:`Layer`.
        activation: Between two layers.
        dropout: Rate of dropout before each layer.
        input_dropout: Whether there is dropout before the first layer too.
    """

    layers: nn.ModuleList
    activation: Callable[[Tensor], Tensor]
    dropout: float
    input_dropout: bool = True

    def outputs(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None,
        noise: Noise | None,
    ) -> list[Tensor]:
        """Run the layers; return what each of them gives, before the activation."""
        if strengths is None:
            strengths = self.initial_strength(pattern)
        outputs: list[Tensor] = []
        h: Features = features
        for number, layer in enumerate(self.layers):
            if outputs:
                h = self.activation(outputs[-1])
            if callable(strengths):
                strength = strengths(number, h)
            else:
                strength = strengths if strengths.dim() == 1 else strengths[number]
            if outputs or self.input_dropout:
                h = dropout(h, self.dropout, noise, 2 * number)
            outputs.append(layer(h, pattern, strength, noise))
        return outputs


def glorot(*shape: int) -> nn.Parameter:
    """Glorot-uniform parameter; the last two sizes are fan-in and fan-out."""
    values = torch.empty(shape)
    for matrix in values.view(-1, *shape[-2:]):
        nn.init.xavier_uniform_(matrix)
    return nn.Parameter(values)
