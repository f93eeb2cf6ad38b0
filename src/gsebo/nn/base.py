"""What a backbone is: a network that classifies nodes, given the strengths."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple, cast, final, get_args, get_origin

import torch
from torch import Tensor, nn

from gsebo.errors import InvalidInput
from gsebo.sparse import Noise, Pattern, SparseFeatures, dropout, row_expand, row_sum
from gsebo.sparse.symbol import Standardise, Symbol

Features = Tensor | SparseFeatures
"""Node features ``[nodes, channels]``, dense or sparse."""

LayerStrengths = Callable[[int, Features], Tensor]
"""Strengths ``[entries]`` from the number of a layer and its input."""


class Normalisation(NamedTuple):
    """The vanilla propagation of a graph, and the same of a weighted graph."""

    of_graph: Callable[[Pattern, torch.dtype, Tensor | None], Tensor]
    of_weights: Callable[[Pattern, Tensor, Tensor | None], Tensor]


def symmetric_normalisation(
    pattern: Pattern, dtype: torch.dtype, degree: Tensor | None = None
) -> Tensor:
    """1 / √(d_i d_j) at each entry, d = entries of the row, loops included."""
    degree = pattern.row_counts if degree is None else degree
    scale = degree.to(dtype).clamp(min=1).rsqrt()
    return scale[pattern.row_of_entry] * scale[pattern.column_of_entry]


def _weighted_symmetric(
    pattern: Pattern, weights: Tensor, sums: Tensor | None
) -> Tensor:
    """w_ij / √(d_i d_j), d = sum of the weights of the row; 0 where that is 0."""
    degree = row_sum(pattern, weights) if sums is None else sums
    empty = degree == 0
    # Not a clamp: its derivative would be infinite before it is cut off.
    scale = degree.masked_fill(empty, 1).rsqrt().masked_fill(empty, 0)
    return weights * row_expand(pattern, scale) * row_expand(pattern.T, scale)


def _by_row(pattern: Pattern, dtype: torch.dtype, degree: Tensor | None) -> Tensor:
    """1 / d_i at each entry, d = number of entries of the row."""
    degree = pattern.row_counts if degree is None else degree
    return degree.to(dtype).clamp(min=1).reciprocal()[pattern.row_of_entry]


def _weighted_by_row(pattern: Pattern, weights: Tensor, sums: Tensor | None) -> Tensor:
    """w_ij / d_i, d = sum of the weights of the row; 0 where that is 0."""
    degree = row_sum(pattern, weights) if sums is None else sums
    empty = degree == 0
    scale = degree.masked_fill(empty, 1).reciprocal().masked_fill(empty, 0)
    return weights * row_expand(pattern, scale)


def _ones(pattern: Pattern, dtype: torch.dtype, degree: Tensor | None) -> Tensor:
    return torch.ones(pattern.num_entries, dtype=dtype, device=pattern.device)


SYMMETRIC = Normalisation(symmetric_normalisation, _weighted_symmetric)
BY_ROW = Normalisation(_by_row, _weighted_by_row)
UNCHANGED = Normalisation(_ones, lambda pattern, weights, sums: weights)


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
        normalisation: What strengths are at first. By default they are one, beside what
            the network, by attention for example, does itself.
    """

    self_loops: bool = True
    traceable: bool = False
    sums_messages: bool = True
    num_propagations: int
    normalisation: Normalisation = UNCHANGED

    def prepare(self, features: Features, pattern: Pattern, num_classes: int) -> None:
        """Make weights that wait for their input, and refuse what cannot be used."""

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

    def initial_strength(
        self,
        pattern: Pattern,
        degree: Tensor | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Strengths with which the backbone equals its vanilla form, ``[entries]``.

        Args:
            pattern: Entries, self-loops included where the network has any.
            degree: Sum of the weights of each row, ``[nodes]``, where the pattern is
                only a part of the graph; those of the pattern by default.
            weights: Of the entries; by default all weigh one.
        """
        floating = (p.dtype for p in self.parameters() if p.is_floating_point())
        dtype = next(floating, torch.get_default_dtype())
        if weights is None:
            return self.normalisation.of_graph(pattern, dtype, degree)
        sums = None if degree is None else degree.to(dtype)
        return self.normalise(pattern, weights.to(dtype), sums)

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
        return self.normalisation.of_weights(pattern, weights, sums)


def strength_at(strengths: Tensor | LayerStrengths, number: int, h: Features) -> Tensor:
    """Strengths ``[entries]`` of one layer, whose input is ``h``."""
    if callable(strengths):
        return strengths(number, h)
    return strengths if strengths.dim() == 1 else strengths[number]


@dataclass(eq=False, repr=False)
class SizedBackbone(Backbone):
    """A network that is made from its sizes; each option is a field.

    Args:
        in_channels: Number of features.
        hidden_channels: Width of the hidden layers.
        out_channels: Number of classes.
        num_layers: Number of layers.
        dropout: Rate of dropout before each layer.
    """

    in_channels: int
    hidden_channels: int
    out_channels: int
    _: KW_ONLY
    num_layers: int = 2
    dropout: float = 0.5

    def __post_init__(self) -> None:
        super().__init__()
        for option in fields(self):
            value, choices = getattr(self, option.name), get_args(option.type)
            if get_origin(option.type) is Literal and value not in choices:
                *others, last = map(repr, choices)
                expected = f"{', '.join(others)} or {last}"
                raise InvalidInput(f"{option.name} is {value!r}, expected {expected}")
        self.num_propagations = self.num_layers

    def sizes(self) -> list[tuple[int, int]]:
        """Width before and after each layer."""
        hidden = [self.hidden_channels] * (self.num_layers - 1)
        return list(pairwise([self.in_channels, *hidden, self.out_channels]))


# Added to variances, as torch does.
_VARIANCE_FLOOR = 1e-5


def standardise(x: Tensor, weight: Tensor, kind: Literal["layer", "batch"]) -> Tensor:
    """``(x - mean) / √(variance + ε) * weight`` of numbers ``[nodes, channels]``.

    Mean and variance (of the numbers at hand, not an estimate of more) are those of
    each row with ``"layer"``, and of each column with ``"batch"``.
    """
    if isinstance(x, Symbol):
        return x.then(Standardise, kind, x.weight_name(weight), _VARIANCE_FLOOR)
    axis = -1 if kind == "layer" else -2
    centred = x - x.mean(axis, keepdim=True)
    variance = centred.square().mean(axis, keepdim=True)
    return centred * (variance + _VARIANCE_FLOOR).rsqrt() * weight


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


class Layer(nn.Module, ABC):
    """One propagation: ``(h, pattern, strength) -> h``."""

    weight: nn.Parameter  # What h is multiplied by before it is propagated.
    bias: nn.Parameter
    heads: int = 1  # How many numbers each entry gets on the way.

    @abstractmethod
    def forward(
        self, h: Features, pattern: Pattern, strength: Tensor, noise: Noise | None
    ) -> Tensor:
        """Propagate ``h`` with one strength per entry, ``[entries]``."""


@dataclass(kw_only=True, eq=False, repr=False)
class LayeredBackbone(SizedBackbone):
    """A network of layers that follow each other.

    Without options, layer k gives ``conv(h)`` for its input ``h = dropout(relu(·))`` of
    what the one before gave, and the last layer gives the logits. With all of them it
    is the arrangement of Luo, Shi and Wu (*Classic GNNs are Strong Baselines*, NeurIPS
    2024): from a hidden state to the next by

        h <- dropout(relu(norm(conv(h) + h W_res))).

    Args:
        input_dropout: Whether there is dropout of the features too.
        residual: Add ``h W_res``, a learned linear map of the layer's input, to what
            each layer gives. Its bias would be that of the layer, so it has none.
        norm: What is given between two layers is normalised before its activation:
            ``"layer"`` over the channels of each node, ``"batch"`` each channel over
            all nodes at hand, both with a learned scale and shift. Statistics of a
            batch are always those of the nodes that the network is run on, also when
            it predicts: there are no running averages, so a prediction depends on the
            whole graph, and on mini-batches (or new nodes) on theirs.
        input_projection: Map the features to the hidden width, ``dropout(relu(x W +
            b))``, before the first layer; let all layers be hidden, with norm,
            activation and dropout; and read the classes out by a linear map of the
            last one (in JK-Nets of all, as ever).
    """

    joins_layers: ClassVar[bool] = False  # Whether the read-out looks at several.
    reads_out: ClassVar[bool] = False  # Whether all layers are hidden ones anyway.
    input_dropout: bool = True
    residual: bool = False
    norm: Literal["none", "layer", "batch"] = "none"
    input_projection: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require_flags(residual=self.residual, input_projection=self.input_projection)
        self.activation: Callable[[Tensor], Tensor] = torch.relu  # Between two layers.
        made = (self.layer(number, *size) for number, size in enumerate(self.sizes()))
        self.layers = nn.ModuleList(made)  # Each a Layer.
        # Networks without these options have neither their weights nor their draws.
        layers = [cast(Layer, each) for each in self.layers]
        if self.residual:
            shapes = ((each.weight.shape[0], each.bias.numel()) for each in layers)
            self.residuals = nn.ParameterList(glorot(*shape) for shape in shapes)
        all_hidden = self.input_projection or self.reads_out
        hidden = layers if all_hidden else layers[:-1]
        if self.norm != "none":
            widths = (each.bias.numel() for each in hidden)
            self.norms = nn.ModuleList(FeatureNorm(each, self.norm) for each in widths)
        if self.input_projection:
            self.projection = Linear(self.in_channels, self.hidden_channels)
            if not self.reads_out:
                width = layers[-1].bias.numel()
                self.classifier = Linear(width, self.out_channels)

    @abstractmethod
    def layer(self, number: int, in_channels: int, out_channels: int) -> Layer:
        """Make one of the layers."""

    def sizes(self) -> list[tuple[int, int]]:
        if self.input_projection:
            return [(self.hidden_channels, self.hidden_channels)] * self.num_layers
        return super().sizes()

    def read_out(self, outputs: list[Tensor], noise: Noise | None = None) -> Tensor:
        """Logits of each node from what the layers gave there, the last one last."""
        if not self.input_projection:
            return outputs[-1]
        h = self.activation(outputs[-1])
        h = dropout(h, self.dropout, noise, 2 * self.num_layers)
        return cast(Tensor, self.classifier(h))

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        if strengths is None:
            strengths = self.initial_strength(pattern)
        outputs: list[Tensor] = []
        for number in range(len(self.layers)):
            given = outputs[-1] if outputs else features
            outputs.append(self.output(number, given, pattern, strengths, noise))
        return self.read_out(outputs, noise)

    def output(
        self,
        number: int,
        given: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths,
        noise: Noise | None,
    ) -> Tensor:
        """Run one layer on what the one before gave, before its activation."""
        # Only features may be sparse, and they come first.
        h = self.activation(cast(Tensor, given)) if number else given
        strength = strength_at(strengths, number, h)
        if number == 0 and self.input_projection:
            if self.input_dropout:
                h = dropout(h, self.dropout, noise, 2 * self.num_layers + 2)
            h = self.activation(self.projection(h))
        if number or self.input_dropout or self.input_projection:
            h = dropout(h, self.dropout, noise, 2 * number)
        out = cast(Tensor, self.layers[number](h, pattern, strength, noise))
        if self.residual:
            out = out + h @ self.residuals[number]
        if self.norm != "none" and number < len(self.norms):
            out = self.norms[number](out)
        return out


@final
class Linear(nn.Module):
    """``h W + b``, also of sparse features."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.weight = glorot(in_channels, out_channels)
        self.bias = nn.Parameter(torch.zeros(out_channels))

    def forward(self, h: Features) -> Tensor:
        return h @ self.weight + self.bias


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


def require_flags(**options: Any) -> None:
    """Each option of a backbone must be yes or no."""
    for name, value in options.items():
        if not isinstance(value, bool):
            raise InvalidInput(f"{name}={value!r} given; expected true or false.")


def require_between(least: float, below: float, **options: Any) -> None:
    """Each option of a backbone must be a number from ``least`` to under ``below``."""
    for name, value in options.items():
        number = isinstance(value, Real) and not isinstance(value, bool)
        if not number or not least <= value < below:
            raise InvalidInput(
                f"{name}={value!r} given; expected {least:g} <= {name} < {below:g}."
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
