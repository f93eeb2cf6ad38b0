"""What a network does, for which nodes, and the memory that it takes.

A network is written down once, as a list of steps that can be run anywhere. Numbers are
allocated once and reused by every run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn.functional import pad

from gsebo.errors import InvalidInput
from gsebo.sparse.pattern import Pattern
from gsebo.sparse.random_bits import Drop
from gsebo.sparse.symbol import (
    Activation,
    Attend,
    Bias,
    Dropout,
    Node,
    Product,
    Propagate,
    Scaled,
    Standardise,
    Sum,
    Symbol,
    Untraceable,
)


@final
@dataclass(frozen=True)
class Pointwise:
    """``dropout(activation(base + bias))``: what is done to each number on its own."""

    bias: str | None = None
    activation: str = "identity"  # or "relu", "elu"
    site: int = 0
    rate: float = 0.0


@final
@dataclass(frozen=True, eq=False)
class Step:
    """One result that is kept in memory, and the numbers of the steps it is made of.

    A pointwise step holds the node that ends its chain, and says what the chain does.
    """

    node: Node
    arguments: tuple[int, ...]
    pointwise: Pointwise | None = None

    @property
    def channels(self) -> int:
        return self.node.channels

    @property
    def propagates(self) -> bool:
        """Whether a row of the result is a sum over neighbors."""
        return self.pointwise is None and isinstance(self.node, Propagate | Attend)

    @property
    def looks_everywhere(self) -> bool:
        """Whether a row of the result depends on all rows of the argument."""
        if self.pointwise is not None or not isinstance(self.node, Standardise):
            return False
        return self.node.kind == "batch"

    @property
    def mixes_rows(self) -> bool:
        """Whether a row of the result depends on other rows of the argument."""
        return self.propagates or self.looks_everywhere


@final
@dataclass(frozen=True, eq=False)
class Tape:
    """The steps of a network in the order of computation; the last one is its output.

    ``shapes`` are those of the weights, in the order of the network's parameters.
    """

    steps: tuple[Step, ...]
    shapes: dict[str, tuple[int, ...]]

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Steps that mix rows between each and the output: the most over all ways."""
        depths = [0] * len(self.steps)
        for number, step in reversed(list(enumerate(self.steps))):
            for argument in step.arguments:
                further = depths[number] + step.mixes_rows
                depths[argument] = max(depths[argument], further)
        return tuple(depths)

    @property
    def depth(self) -> int:
        """How many steps that mix rows the network chains."""
        return max(self.depths)

    @property
    def everywhere_from(self) -> int | None:
        """The least depth at which all nodes are needed, if there is any."""
        steps = zip(self.steps, self.depths, strict=True)
        looking = (depth + 1 for step, depth in steps if step.looks_everywhere)
        return min(looking, default=None)

    def readers(self, number: int) -> Iterator[int]:
        """Numbers of the steps that use a step, once for every use."""
        for other, step in enumerate(self.steps):
            yield from (other for argument in step.arguments if argument == number)


def trace(output: object, weights: Mapping[str, Tensor]) -> Tape:
    """Write down what a network has done to a symbol of its features.

    Raises:
        Untraceable: It does something for which there is no kernel call.
    """
    if not isinstance(output, Symbol):
        raise Untraceable("an output that is not computed from the features")
    steps: list[Step] = []
    _list_steps(output.node, steps, {})
    _require_bindable(steps)
    shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
    return Tape(tuple(steps), shapes)


def _list_steps(node: Node, steps: list[Step], numbers: dict[int, int]) -> int:
    """List what is behind a node, pointwise chains as one step, and number it."""
    if id(node) not in numbers:
        base, pointwise = _chain(node)
        if isinstance(base, Scaled):
            raise Untraceable("a product with a number outside of a sum")
        behind = node.arguments if pointwise is None else (base,)
        arguments = tuple(_list_steps(each, steps, numbers) for each in behind)
        numbers[id(node)] = len(steps)
        steps.append(Step(node, arguments, pointwise))
    return numbers[id(node)]


def _chain(node: Node) -> tuple[Node, Pointwise | None]:
    """Split off the longest ``dropout(activation(base + bias))`` that ends here."""
    done, start = Pointwise(), node
    if isinstance(node, Dropout):
        done, (node,) = replace(done, site=node.site, rate=node.rate), node.arguments
    if isinstance(node, Activation):
        done, (node,) = replace(done, activation=node.kind), node.arguments
    if isinstance(node, Bias):
        done, (node,) = replace(done, bias=node.weight), node.arguments
    return node, None if node is start else done


def _require_bindable(steps: list[Step]) -> None:
    """Refuse what programs leave out because no network of ours does it."""
    used: set[str] = set()
    features = {number for number, step in enumerate(steps) if not step.arguments}
    for number, step in enumerate(steps):
        # A bias may be added in several chains: its gradients are added too.
        if step.pointwise is None and isinstance(
            step.node, Product | Attend | Standardise
        ):
            if step.node.weight in used:
                raise Untraceable(f"the weight {step.node.weight} used twice")
            used.add(step.node.weight)
        if features.isdisjoint(step.arguments):
            continue
        if step.pointwise is None and not isinstance(step.node, Product):
            raise Untraceable("features that are not multiplied by a weight first")
        if step.pointwise is not None:
            dropped = Pointwise(site=step.pointwise.site, rate=step.pointwise.rate)
            if step.pointwise != dropped:
                raise Untraceable("a function of the features")
            features.add(number)


class ReachBlock(NamedTuple):
    """One propagation, restricted to the rows that matter.

    Rows and columns of the pattern count along ``Reach.order``; ``entries`` says which
    entry of the whole pattern each of its entries, in CSR order, is.
    """

    pattern: Pattern
    entries: Tensor


@final
class Reach:
    """The nodes within 0, 1, 2 ... propagations of some output nodes.

    The loss of a few labelled nodes depends on their surroundings only. The nodes are
    listed by distance and then by number (``order``), so that those within ``k``
    propagations are the first ``sizes[k]``, and whatever is needed for fewer nodes is a
    slice of the rest. ``blocks[k]`` propagates from the first ``sizes[k + 1]`` nodes to
    the first ``sizes[k]``. The whole pattern has ``num_nodes`` rows and
    ``whole_entries`` entries.

    Where a network looks at all nodes at once, these are within ``everywhere_from``.

    >>> path = Pattern.from_positions(torch.tensor([0, 1]), torch.tensor([1, 2]), 3)
    >>> Reach(path, torch.tensor([1]), 1).order.tolist()
    [1, 2]
    """

    def __init__(
        self,
        pattern: Pattern,
        outputs: Tensor,
        depth: int,
        everywhere_from: int | None = None,
    ) -> None:
        if pattern.num_rows != pattern.num_columns:
            raise InvalidInput(f"{pattern!r} given, expected a square one")
        outputs = outputs.to(pattern.device, torch.int64)
        place = outputs.new_full((pattern.num_rows,), -1)
        place[outputs] = torch.arange(outputs.numel(), device=outputs.device)
        if int((place >= 0).sum()) != outputs.numel():
            raise InvalidInput("an output node is given twice, expected distinct ones")
        self.num_nodes, self.whole_entries = pattern.num_rows, pattern.num_entries
        self.order = outputs
        self.sizes = [outputs.numel()]
        self._rows: dict[tuple[int, int], tuple[Pattern, ReachBlock]] = {}
        cuts: list[_Cut] = []
        for number in range(1, depth + 1):
            everywhere = everywhere_from is not None and number >= everywhere_from
            whole = self.sizes[-1] == pattern.num_rows
            same = len(cuts) > 0 and self.sizes[-1] == self.sizes[-2]
            if same and (whole or not everywhere):
                # Nothing new was found: the block is the same.
                self.sizes.append(self.sizes[-1])
                cuts.append(cuts[-1])
                continue
            cut = _entries_of_rows(pattern, self.order)
            found = torch.zeros_like(place, dtype=torch.bool)
            found[slice(None) if everywhere else cut[1]] = True
            new = (found & (place < 0)).nonzero().squeeze(-1)
            start = self.sizes[-1]
            place[new] = torch.arange(start, start + new.numel(), device=new.device)
            self.order = torch.cat([self.order, new])
            self.sizes.append(self.order.numel())
            cuts.append(cut)
        self.blocks: list[ReachBlock] = []
        for number, (cut, columns) in enumerate(zip(cuts, self.sizes[1:], strict=True)):
            again = number > 0 and cut is cuts[number - 1]
            block = self.blocks[-1] if again else _block(cut, place, columns)
            self.blocks.append(block)

    def rows_of(self, pattern: Pattern, size: int) -> ReachBlock:
        """The rows of another pattern for the first ``size`` nodes; made only once."""
        key = id(pattern), size
        if key not in self._rows:
            # The pattern is kept too, so that no other can get its number.
            self._rows[key] = pattern, leading_rows(pattern, self.order[:size])
        return self._rows[key][1]


# Entries of chosen rows, row after row: counts of the rows, columns, entries.
_Cut = tuple[Tensor, Tensor, Tensor]


def _entries_of_rows(pattern: Pattern, rows: Tensor) -> _Cut:
    start = pattern.indptr.index_select(0, rows)
    counts = pattern.indptr.index_select(0, rows + 1) - start
    total = int(counts.sum())
    # The position of an entry is the start of its row plus its rank inside the row.
    before = counts.cumsum(0) - counts
    shift = torch.repeat_interleave(start - before, counts, output_size=total)
    positions = shift + torch.arange(total, device=rows.device)
    columns = pattern.columns.index_select(0, positions).long()
    return counts, columns, pattern.entries.index_select(0, positions).long()


def _block(cut: _Cut, place: Tensor, columns: int) -> ReachBlock:
    counts, stored, entries = cut
    indptr, rows = pad(counts.cumsum(0), (1, 0)), counts.numel()
    index = Pattern.index_dtype(max(entries.numel(), rows, columns))
    number = torch.arange(entries.numel(), device=place.device, dtype=index)
    own = place.index_select(0, stored).to(index)
    return ReachBlock(Pattern(rows, columns, indptr, own, number), entries)


def leading_rows(pattern: Pattern, rows: Tensor) -> ReachBlock:
    """Take ``rows`` out of a pattern, in their order; all columns stay."""
    everywhere = torch.arange(pattern.num_columns, device=rows.device)
    return _block(_entries_of_rows(pattern, rows), everywhere, pattern.num_columns)


@final
class StrengthBlocks:
    """The strengths that a program reads and the gradients by them.

    Every propagation has its block of the graph and, where strengths are per layer,
    its own layer of them.
    """

    def __init__(self, reach: Reach, replicas: int, like: Tensor) -> None:
        self._reach = reach
        self._replicas = replicas
        self._like = like
        self._used: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def use(self, depth: int, layer: int) -> tuple[Pattern, Tensor, Tensor]:
        """Pattern, strengths and gradients for one propagation.

        ``depth`` counts the propagations between its result and the output.
        """
        block = self._reach.blocks[depth]
        if (depth, layer) not in self._used:
            shape = self._replicas, block.entries.numel()
            both = self._like.new_zeros(shape), self._like.new_zeros(shape)
            self._used[depth, layer] = both
        return block.pattern, *self._used[depth, layer]

    def load(self, strengths: Tensor) -> None:
        """Take strengths ``[replicas or 1, layers, entries]``, forget gradients."""
        for (depth, layer), (values, grad) in self._used.items():
            chosen = strengths[:, min(layer, strengths.shape[1] - 1)]
            entries = self._reach.blocks[depth].entries
            values.copy_(chosen.index_select(-1, entries))
            grad.zero_()

    def gradient(self, layers: int, num_entries: int) -> Tensor:
        """Gradient by all strengths, ``[replicas, layers, entries]``."""
        total = self._like.new_zeros(self._replicas, layers, num_entries)
        for (depth, layer), (_, grad) in self._used.items():
            entries = self._reach.blocks[depth].entries
            total[:, min(layer, layers - 1)].index_add_(-1, entries, grad)
        return total


@final
class Weights:
    """All weights of a network in one row per replica, with tangents and gradients.

    Where there are tangents the gradient is the tangent of it, else they have size 0.
    """

    def __init__(self, tape: Tape, replicas: int, lanes: int, like: Tensor) -> None:
        self._places: dict[str, tuple[int, tuple[int, ...]]] = {}
        size = 0
        for name, shape in tape.shapes.items():
            self._places[name] = size, shape
            size += torch.Size(shape).numel()
        self.value = like.new_zeros(replicas, size)
        self.tangent = like.new_zeros(replicas, size if lanes == 2 else 0)
        self.gradient = like.new_zeros(replicas, size)

    def view(self, of: Tensor, name: str) -> Tensor:
        """The part of ``value``, ``tangent`` or ``gradient`` that is one weight."""
        start, shape = self._places[name]
        end = start + torch.Size(shape).numel()
        return of[:, start:end].view(of.shape[0], *shape)

    def pair(self, name: str) -> tuple[Tensor, Tensor]:
        """A weight and its tangent; without tangents, the weight twice."""
        tangent = self.tangent if self.tangent.shape[1] else self.value
        return self.view(self.value, name), self.view(tangent, name)


@final
class Randomness:
    """Seeds (one per replica) and step, as tensors that a bound kernel call reads."""

    def __init__(self, seeds: list[int], device: torch.device) -> None:
        # As 64 bits with a sign, whose bits are those of the seed.
        signed = [(seed + 2**63) % 2**64 - 2**63 for seed in seeds]
        self.seeds = torch.tensor(signed, dtype=torch.int64, device=device)
        self.step = torch.zeros(1, dtype=torch.int64, device=device)

    def drop(self, site: int, rate: float, positions: Tensor) -> Drop | None:
        """Dropout at one place, or None where nothing would be dropped."""
        if rate == 0.0:
            return None
        return Drop(self.seeds, self.step, site, rate, positions)


@final
class Results:
    """What the steps of a tape compute, and the gradients by it.

    Both are ``[replicas, rows, lanes, channels]``. A number has one lane, a number with
    its tangent two. Of features (and what is left of them by dropout) there is neither:
    they are constants.
    """

    def __init__(
        self, tape: Tape, reach: Reach, shape: tuple[int, int], like: Tensor
    ) -> None:
        self._tape = tape
        replicas, self.lanes = shape
        self.rows = [reach.sizes[depth] for depth in tape.depths]
        self.constant: list[bool] = []
        self._values: dict[int, Tensor] = {}
        self._grads: dict[int, Tensor] = {}
        for number, step in enumerate(tape.steps):
            kept = step.pointwise is not None and step.pointwise.bias is None
            behind = all(self.constant[each] for each in step.arguments)
            self.constant.append(behind and (kept or not step.arguments))
            if not self.constant[number]:
                size = (replicas, self.rows[number], self.lanes, step.channels)
                self._values[number] = like.new_empty(size)

    def value(self, number: int, rows: int | None = None) -> Tensor:
        """The result of a step, or its first rows."""
        return self._values[number][:, :rows]

    def grad(self, number: int, rows: int | None = None) -> Tensor:
        """The gradient by a step, or its first rows; allocated when it is asked for."""
        if number not in self._grads:
            self._grads[number] = self._gradient_memory(number)
        return self._grads[number][:, :rows]

    def is_shared(self, number: int) -> bool:
        """Whether several uses, or a use of some rows only, add to one gradient."""
        readers = list(self._tape.readers(number))
        fewer = any(
            self.rows[each] < self.rows[number]
            for each in readers
            if not self._tape.steps[each].mixes_rows
        )
        return len(readers) > 1 or fewer

    def only_tangent(self, number: int) -> bool:
        """Whether of a step's gradient only the tangent is ever read.

        So it is with a product of the features that is propagated: its gradient goes
        to the weight alone, of which only the tangent is asked for.
        """
        step = self._tape.steps[number]
        if self.lanes == 1 or not isinstance(step.node, Product) or step.pointwise:
            return False
        readers = [self._tape.steps[each] for each in self._tape.readers(number)]
        propagated = len(readers) == 1 and readers[0].propagates
        return self.constant[step.arguments[0]] and propagated

    def _gradient_memory(self, number: int) -> Tensor:
        """Memory of its own, or that of a reader which needs it no longer."""
        value = self._values[number]
        if self.only_tangent(number):
            return torch.empty_like(value[:, :, :1])
        # A chain overwrites its gradient, which the other part of a sum may need.
        overwrites = self._tape.steps[number].pointwise is not None
        for reader in self._tape.readers(number):
            step = self._tape.steps[reader]
            in_place = step.pointwise is not None
            if not in_place and not overwrites and isinstance(step.node, Sum):
                in_place = step.node.factors == (1.0, 1.0)
            if in_place and not self.is_shared(number):
                return self.grad(reader)
        return torch.empty_like(value)
