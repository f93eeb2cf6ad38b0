"""Stand-ins for numbers: a network that is run on them writes down what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor


class Untraceable(Exception):
    """The network does something for which there is no kernel call."""


@dataclass(frozen=True, eq=False)
class Node:
    """One result, ``[nodes, channels]``."""

    channels: int


@final
@dataclass(frozen=True, eq=False)
class Source(Node):
    """The features; they do not depend on any weight."""


@final
@dataclass(frozen=True, eq=False)
class Product(Node):
    """``argument @ weight``."""

    argument: Node
    weight: str


@final
@dataclass(frozen=True, eq=False)
class Propagate(Node):
    """Sum of the argument over the entries of each row, times their strength."""

    argument: Node
    layer: int


@final
@dataclass(frozen=True, eq=False)
class Attend(Node):
    """The same, times an attention that is computed from the argument."""

    argument: Node
    layer: int
    weight: str
    heads: int
    slope: float
    site: int
    rate: float


@final
@dataclass(frozen=True, eq=False)
class Bias(Node):
    """``argument + weight``, the same for every node."""

    argument: Node
    weight: str


@final
@dataclass(frozen=True, eq=False)
class Activation(Node):
    """A function of each number."""

    argument: Node
    kind: str


@final
@dataclass(frozen=True, eq=False)
class Dropout(Node):
    """Numbers left out at random."""

    argument: Node
    site: int
    rate: float


@final
@dataclass(frozen=True, eq=False)
class Sum(Node):
    """``left + right``."""

    left: Node
    right: Node


@final
@dataclass(frozen=True, eq=False)
class Concat(Node):
    """Several results side by side."""

    parts: tuple[Node, ...]


@final
class Symbol:
    """Stands for a matrix ``[nodes, channels]`` inside a network."""

    def __init__(self, node: Node, weights: Mapping[int, str]) -> None:
        self.node = node
        self._weights = weights

    def then(self, node: Node) -> Symbol:
        """Return the symbol of a result that was computed from this one."""
        return Symbol(node, self._weights)

    def weight_name(self, weight: Tensor) -> str:
        """Name of a weight of the network."""
        if id(weight) not in self._weights:
            raise Untraceable("a tensor that is not a weight of the network")
        return self._weights[id(weight)]

    def __matmul__(self, weight: Tensor) -> Symbol:
        name = self.weight_name(weight)
        return self.then(Product(weight.shape[-1], self.node, name))

    def __add__(self, other: Tensor | Symbol) -> Symbol:
        if isinstance(other, Symbol):
            return self.then(Sum(self.node.channels, self.node, other.node))
        name = self.weight_name(other)
        if other.shape != (self.node.channels,):
            raise Untraceable(f"a sum with a weight of shape {tuple(other.shape)}")
        return self.then(Bias(self.node.channels, self.node, name))

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
            symbols: Sequence[Symbol] = first
            parts = tuple(part.node for part in symbols)
            width = sum(part.channels for part in parts)
            return symbols[0].then(Concat(width, parts))
        if function in _ACTIVATIONS and isinstance(first, Symbol):
            kind = _ACTIVATIONS[function]
            return first.then(Activation(first.node.channels, first.node, kind))
        raise Untraceable(function.__name__)


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
