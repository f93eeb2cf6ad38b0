"""Write down a network once, as a list of steps that can be run anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import final

from torch import Tensor

from gsebo.sparse.symbol import (
    Activation,
    Attend,
    Bias,
    Concat,
    Dropout,
    Node,
    Product,
    Propagate,
    Source,
    Strengths,
    Sum,
    Symbol,
    Untraceable,
)


@final
@dataclass(frozen=True)
class Pointwise:
    """``dropout(activation(base + bias))``: what is done to each number on its own.

    Attributes:
        bias: Name of the weight that is added, if any.
        activation: ``"identity"``, ``"relu"`` or ``"elu"``.
        site: Of the dropout.
        rate: Of the dropout; 0 is none.
    """

    bias: str | None = None
    activation: str = "identity"
    site: int = 0
    rate: float = 0.0


@final
@dataclass(frozen=True, eq=False)
class Step:
    """One result that is kept in memory.

    Attributes:
        node: What is computed: a source, a product, a propagation ...; a pointwise
            step holds the node that ends its chain.
        arguments: Numbers of the steps it is computed from.
        channels: Width of the result.
        pointwise: What a pointwise step does, else None.
    """

    node: Node
    arguments: tuple[int, ...]
    channels: int
    pointwise: Pointwise | None = None

    @property
    def propagates(self) -> bool:
        """Whether a row of the result depends on other rows of the argument."""
        return self.pointwise is None and isinstance(self.node, Propagate | Attend)


@final
@dataclass(frozen=True, eq=False)
class Tape:
    """The steps of a network in the order of computation; the last one is its output.

    Attributes:
        steps: The steps.
        shapes: Shape of every weight, in the order of the network's parameters.
        depths: For each step, how many propagations lie between it and the output.
    """

    steps: tuple[Step, ...]
    shapes: dict[str, tuple[int, ...]]
    depths: tuple[int, ...]

    @property
    def depth(self) -> int:
        """How many propagations the network chains."""
        return max(self.depths)

    def readers(self, number: int) -> Iterator[int]:
        """Numbers of the steps that use a step, once for every use."""
        for other, step in enumerate(self.steps):
            yield from (other for argument in step.arguments if argument == number)


Network = Callable[[Symbol, Strengths], object]


def trace(
    network: Network,
    weights: Mapping[str, Tensor],
    in_channels: int,
    *,
    per_layer: bool,
) -> Tape:
    """Run ``network`` on symbols and return what it did.

    Args:
        network: From features and strengths to scores.
        weights: The parameters it uses, by name.
        in_channels: Number of features.
        per_layer: Whether every propagation has strengths of its own.

    Raises:
        Untraceable: It does something for which there is no kernel call.
    """
    names = {id(weight): name for name, weight in weights.items()}
    output = network(Symbol(Source(in_channels), names), Strengths(per_layer))
    if not isinstance(output, Symbol):
        raise Untraceable("an output that is not computed from the features")
    builder = _Builder()
    builder.step_of(output.node)
    steps = tuple(builder.steps)
    _require_bindable(steps)
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    return Tape(steps, shapes, _depths(steps))


class _Builder:
    """Lists the nodes behind an output, with pointwise chains as one step each."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._numbers: dict[int, int] = {}

    def step_of(self, node: Node) -> int:
        """Number of the step that computes ``node``, which is added if it is new."""
        if id(node) not in self._numbers:
            base, pointwise = _chain(node)
            if pointwise is None:
                arguments = tuple(self.step_of(each) for each in _arguments(node))
            else:
                arguments = (self.step_of(base),)
            self._numbers[id(node)] = len(self.steps)
            self.steps.append(Step(node, arguments, node.channels, pointwise))
        return self._numbers[id(node)]


def _arguments(node: Node) -> tuple[Node, ...]:
    match node:
        case Source():
            return ()
        case Sum():
            return node.left, node.right
        case Concat():
            return node.parts
        case Product() | Propagate() | Attend():
            return (node.argument,)
    raise AssertionError(node)  # pointwise nodes belong to a chain


def _chain(node: Node) -> tuple[Node, Pointwise | None]:
    """Split off the longest ``dropout(activation(base + bias))`` that ends here."""
    done = Pointwise()
    start = node
    if isinstance(node, Dropout):
        done, node = replace(done, site=node.site, rate=node.rate), node.argument
    if isinstance(node, Activation):
        done, node = replace(done, activation=node.kind), node.argument
    if isinstance(node, Bias):
        done, node = replace(done, bias=node.weight), node.argument
    return node, None if node is start else done


def _require_bindable(steps: tuple[Step, ...]) -> None:
    """Refuse what programs leave out because no network of ours does it."""
    used: set[str] = set()
    features = {number for number, step in enumerate(steps) if not step.arguments}
    for number, step in enumerate(steps):
        for name in _weights_of(step):
            if name in used:
                raise Untraceable(f"the weight {name} used twice")
            used.add(name)
        if features.isdisjoint(step.arguments):
            continue
        if step.pointwise is None and not isinstance(step.node, Product):
            raise Untraceable("features that are not multiplied by a weight first")
        if step.pointwise is not None:
            dropped = Pointwise(site=step.pointwise.site, rate=step.pointwise.rate)
            if step.pointwise != dropped:
                raise Untraceable("a function of the features")
            features.add(number)


def _weights_of(step: Step) -> Iterator[str]:
    if step.pointwise is not None:
        # A bias may be added in several chains: its gradients are added too.
        return
    if isinstance(step.node, Product | Attend):
        yield step.node.weight


def _depths(steps: tuple[Step, ...]) -> tuple[int, ...]:
    """Propagations between each step and the output: the most over all ways."""
    depths = [0] * len(steps)
    for number in range(len(steps) - 1, -1, -1):
        further = depths[number] + steps[number].propagates
        for argument in steps[number].arguments:
            depths[argument] = max(depths[argument], further)
    return tuple(depths)
