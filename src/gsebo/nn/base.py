"""What a backbone is: a network that classifies nodes, given the strengths."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Integral
from typing import Any, cast

import torch
from torch import Tensor, nn

from gsebo.errors import InvalidInput
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
        sums_messages: Whether strengths are used as they are, so that where only some
            of the edges are at hand, each has to stand for several. Attention that
            sums to one over what is there does so by itself.
    """

    self_loops: bool = True
    traceable: bool = False
    sums_messages: bool = True
    num_propagations: int

    def prepare(self, features: Features, pattern: Pattern, num_classes: int) -> None:
        """Get ready for a graph: make weights that wait for their input, if any do.

        Raises:
            InvalidInput: The network cannot be used on it.
        """

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
    def initial_strength(
        self, pattern: Pattern, degree: Tensor | None = None
    ) -> Tensor:
        """Strengths with which the backbone equals its vanilla form, ``[entries]``.

        Args:
            pattern: Entries, self-loops included where the network has any.
            degree: Entries of each row, ``[nodes]``, where the pattern is only a part
                of the graph; those of the pattern by default.
        """

    @abstractmethod
    def normalise(
        self, pattern: Pattern, weights: Tensor, sums: Tensor | None = None
    ) -> Tensor:
        """The vanilla propagation of a weighted graph, by differentiable operations.

        With weights of one it is :meth:`initial_strength`.

        Args:
            pattern: Entries, self-loops included where the network has any.
            weights: Not negative, ``[..., entries]``.
            sums: Sum of the weights of each row, ``[..., nodes]``, where the pattern is
                only a part of the graph; those of the pattern by default.
        """


class Layer(nn.Module, ABC):
    """One propagation: ``(h, pattern, strength) -> h``.

    Attributes:
        weight: What ``h`` is multiplied by before it is propagated.
        bias: One number for each channel of the result.
        heads: How many numbers each entry gets on the way.
    """

    weight: nn.Parameter
    bias: nn.Parameter
    heads: int = 1

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
        joins_layers: Whether the read-out looks at more than the last layer.
    """

    layers: nn.ModuleList
    activation: Callable[[Tensor], Tensor]
    dropout: float
    input_dropout: bool = True
    joins_layers: bool = False

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        """Return the logits, ``[nodes, classes]``."""
        return self.read_out(self.outputs(features, pattern, strengths, noise))

    @abstractmethod
    def read_out(self, outputs: list[Tensor]) -> Tensor:
        """Logits of each node from what the layers gave there, the last one last."""

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
        for number in range(len(self.layers)):
            given = outputs[-1] if outputs else features
            outputs.append(self.output(number, given, pattern, strengths, noise))
        return outputs

    def output(
        self,
        number: int,
        given: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths,
        noise: Noise | None,
    ) -> Tensor:
        """Run one layer; return what it gives, before the activation.

        Args:
            number: Of the layer.
            given: What the layer before gave; the features for the first.
            pattern: As for :meth:`forward`.
            strengths: As for :meth:`forward`.
            noise: As for :meth:`forward`.
        """
        # Only features may be sparse, and they come first.
        h = self.activation(cast(Tensor, given)) if number else given
        if callable(strengths):
            strength = strengths(number, h)
        else:
            strength = strengths if strengths.dim() == 1 else strengths[number]
        if number or self.input_dropout:
            h = dropout(h, self.dropout, noise, 2 * number)
        return cast(Tensor, self.layers[number](h, pattern, strength, noise))


# Computed one after the other, and beside each other.
_MOST = {"hops": 1000, "heads": 1000, "output_heads": 1000}


def require_counts(**options: Any) -> None:
    """Each option of a backbone must be a whole number of at least 1."""
    for name, value in options.items():
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if not whole or value < 1:
            raise InvalidInput(f"{name}={value!r} given; expected an integer >= 1.")
        if name in _MOST and value > _MOST[name]:
            raise InvalidInput(
                f"{name} of more than {_MOST[name]} given; expected an integer from 1 "
                f"to {_MOST[name]}."
            )


def glorot(*shape: int) -> nn.Parameter:
    """Glorot-uniform parameter; the last two sizes are fan-in and fan-out."""
    values = torch.empty(shape)
    if values.is_meta:
        # There to be counted: of very many matrices, even the list would take memory.
        return nn.Parameter(values)
    for matrix in values.view(-1, *shape[-2:]):
        nn.init.xavier_uniform_(matrix)
    return nn.Parameter(values)
