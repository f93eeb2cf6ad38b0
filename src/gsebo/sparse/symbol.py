"""Stand-ins for numbers: a network that is run on them writes down what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import msgspec
import torch
from torch import Tensor


class Untraceable(Exception):
    """The network does something for which there is no kernel call."""


class Node(msgspec.Struct, frozen=True, eq=False):
    """One result, ``[nodes, channels]``, and the results that it is computed from."""

    channels: int
    arguments: tuple[Node, ...]


class Source(Node, frozen=True):
    """The features; they do not depend on any weight."""


class Product(Node, frozen=True):
    """``argument @ weight``."""

    weight: str


class Propagate(Node, frozen=True):
    """Sum of the argument over the entries of each row, times their strength."""

    layer: int


class Attend(Node, frozen=True):
    """The same, times an attention that is computed from the argument."""

    layer: int
    weight: str
    heads: int
    slope: float
    site: int
    rate: float


class Bias(Node, frozen=True):
    """``argument + weight``, the same for every node."""

    weight: str


class Activation(Node, frozen=True):
    """A function of each number."""

    kind: str


class Dropout(Node, frozen=True):
    """Numbers left out at random."""

    site: int
    rate: float


class Standardise(Node, frozen=True):
    """The argument less its mean, by its deviation, times a weight for each channel.

    Of each row (``"layer"``), or of each column over all nodes (``"batch"``), with
    ``epsilon`` added to the variance.
    """

    kind: str
    weight: str
    epsilon: float


class Scaled(Node, frozen=True):
    """The argument times a number, until it becomes part of a sum."""

    factor: float


class Sum(Node, frozen=True):
    """Sum of two results, each times a number."""

    factors: tuple[float, float] = (1.0, 1.0)


class Concat(Node, frozen=True):
    """Several results side by side."""


@final
class Symbol:
    """Stands for a matrix ``[nodes, channels]`` inside a network."""

    def __init__(self, node: Node, weights: Mapping[int, str]) -> None:
        self.node = node
        self._weights = weights

    @classmethod
    def of_features(cls, channels: int, weights: Mapping[str, Tensor]) -> Symbol:
        """The features that a network with these weights reads."""
        names = {id(weight): name for name, weight in weights.items()}
        return cls(Source(channels, ()), names)

    def then(self, kind: type[Node], *values: Any, channels: int = 0) -> Symbol:
        """Return the symbol of a result that was computed from this one alone."""
        node = kind(channels or self.node.channels, (self.node,), *values)
        return Symbol(node, self._weights)

    def weight_name(self, weight: Tensor) -> str:
        """Name of a weight of the network."""
        if id(weight) not in self._weights:
            raise Untraceable("a tensor that is not a weight of the network")
        return self._weights[id(weight)]

    def __matmul__(self, weight: Tensor) -> Symbol:
        name = self.weight_name(weight)
        return self.then(Product, name, channels=weight.shape[-1])

    def __add__(self, other: Tensor | Symbol) -> Symbol:
        if isinstance(other, Symbol):
            if isinstance(self.node, Bias):
                # Added last, it is one step with the activation that may follow.
                (before,), bias = self.node.arguments, self.node.weight
                return (Symbol(before, self._weights) + other).then(Bias, bias)
            left, first = _parted(self.node)
            right, second = _parted(other.node)
            both = Sum(self.node.channels, (left, right), (first, second))
            return Symbol(both, self._weights)
        name = self.weight_name(other)
        if other.shape != (self.node.channels,):
            raise Untraceable(f"a sum with a weight of shape {tuple(other.shape)}")
        return self.then(Bias, name)

    def __rmul__(self, factor: float) -> Symbol:
        if not isinstance(factor, int | float):
            raise Untraceable(f"a product with a {type(factor).__name__}")
        return self.then(Scaled, float(factor))

    def __getattr__(self, name: str) -> Any:
        raise Untraceable(name)

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Sequence[type],
        arguments: tuple[Any, ...] = (),
        options: dict[str, Any] | None = None,
    ) -> Symbol:
        first = arguments[0]
        if function is torch.cat and (options or {}) == {"dim": -1}:
            parts = tuple(part.node for part in first)
            width = sum(part.channels for part in parts)
            return Symbol(Concat(width, parts), first[0]._weights)
        if function in _ACTIVATIONS and isinstance(first, Symbol):
            return first.then(Activation, _ACTIVATIONS[function])
        raise Untraceable(function.__name__)


def _parted(node: Node) -> tuple[Node, float]:
    """A node without the number that it is multiplied by, and that number."""
    if isinstance(node, Scaled):
        return node.arguments[0], node.factor
    return node, 1.0


_ACTIVATIONS = {torch.relu: "relu", torch.nn.functional.elu: "elu"}


@final
class Strengths:
    """Stands for the strengths of the entries, one set or one for each layer."""

    def __init__(self, per_layer: bool, layer: int = 0) -> None:
        self._per_layer = per_layer
        self.layer = layer

    def dim(self) -> int:
        """Number of axes."""
        return 2 if self._per_layer else 1

    def __getitem__(self, layer: int) -> Strengths:
        return Strengths(False, layer)
