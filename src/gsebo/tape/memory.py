"""The numbers that a program reads and writes: allocated once, reused by every run."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor

from gsebo.sparse.kernels.random_bits import Drop
from gsebo.sparse.pattern import Pattern
from gsebo.sparse.symbol import Product, Source, Sum
from gsebo.tape.reach import Reach, ReachBlock
from gsebo.tape.trace import Tape


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
        self._values: dict[tuple[int, int], Tensor] = {}
        self._grads: dict[tuple[int, int], Tensor] = {}

    def use(self, depth: int, layer: int) -> tuple[Pattern, Tensor, Tensor]:
        """Pattern, strengths and gradients for one propagation.

        Args:
            depth: Propagations between its result and the output.
            layer: Which strengths.
        """
        block = self._reach.blocks[depth]
        key = depth, layer
        if key not in self._values:
            shape = self._replicas, block.entries.numel()
            self._values[key] = self._like.new_zeros(shape)
            self._grads[key] = self._like.new_zeros(shape)
        return block.pattern, self._values[key], self._grads[key]

    def load(self, strengths: Tensor) -> None:
        """Take strengths ``[replicas or 1, layers, entries]``, forget gradients."""
        for (depth, layer), values in self._values.items():
            chosen = strengths[:, min(layer, strengths.shape[1] - 1)]
            values.copy_(chosen.index_select(-1, self._entries(depth)))
            self._grads[depth, layer].zero_()

    def gradient(self, layers: int, num_entries: int) -> Tensor:
        """Gradient by all strengths, ``[replicas, layers, entries]``."""
        total = self._like.new_zeros(self._replicas, layers, num_entries)
        for (depth, layer), grad in self._grads.items():
            total[:, min(layer, layers - 1)].index_add_(-1, self._entries(depth), grad)
        return total

    def _entries(self, depth: int) -> Tensor:
        block: ReachBlock = self._reach.blocks[depth]
        return block.entries


@final
class Weights:
    """All weights of a network in one row per replica, with tangents and gradients.

    Attributes:
        value: The weights, ``[replicas, size]``.
        tangent: Their tangents; of size 0 where there are none.
        gradient: The gradient of the loss, or with tangents the tangent of it.
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
    """Seeds and step, as tensors that a bound kernel call reads.

    Attributes:
        seeds: One per replica.
        step: Number of the training step.
    """

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

    A number has one lane, a number with its tangent two. Of features (and what is left
    of them by dropout) there is no tangent and no gradient: they are constants.

    Attributes:
        rows: Number of rows of each step.
        values: ``[replicas, rows, lanes, channels]``, None for a sparse constant.
        grads: The same for the gradients, None for constants.
    """

    def __init__(
        self,
        tape: Tape,
        reach: Reach,
        replicas: int,
        lanes: int,
        like: Tensor,
        *,
        gradients: bool,
    ) -> None:
        self._tape = tape
        self.lanes = lanes
        self.rows = [reach.sizes[depth] for depth in tape.depths]
        self.constant = _constants(tape)
        self.values: list[Tensor | None] = []
        self.grads: list[Tensor | None] = [None] * len(tape.steps)
        for number, step in enumerate(tape.steps):
            shape = (replicas, self.rows[number], lanes, step.channels)
            constant = self.constant[number]
            self.values.append(None if constant else like.new_empty(shape))
        for number in range(len(tape.steps) - 1, -1, -1):
            if gradients and not self.constant[number]:
                self.grads[number] = self._gradient_memory(number)

    def value(self, number: int, rows: int | None = None) -> Tensor:
        """The result of a step, or its first rows."""
        found = self.values[number]
        assert found is not None
        return found if rows is None else found[:, :rows]

    def grad(self, number: int, rows: int | None = None) -> Tensor:
        """The gradient by a step, or its first rows."""
        found = self.grads[number]
        assert found is not None
        return found if rows is None else found[:, :rows]

    def is_shared(self, number: int) -> bool:
        """Whether several uses, or a use of some rows only, add to one gradient."""
        readers = list(self._tape.readers(number))
        fewer = any(
            self._rows_read(number, each) < self.rows[number] for each in readers
        )
        return len(readers) > 1 or fewer

    def _rows_read(self, number: int, reader: int) -> int:
        step = self._tape.steps[reader]
        return self.rows[number if step.propagates else reader]

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
        value = self.value(number)
        if self.only_tangent(number):
            return torch.empty_like(value[:, :, :1])
        for reader in self._tape.readers(number):
            step = self._tape.steps[reader]
            in_place = step.pointwise is not None or isinstance(step.node, Sum)
            if in_place and not self.is_shared(number):
                return self.grad(reader)
        return torch.empty_like(value)


def _constants(tape: Tape) -> list[bool]:
    constant: list[bool] = []
    for step in tape.steps:
        kept = step.pointwise is not None and step.pointwise.bias is None
        constant.append(
            isinstance(step.node, Source)
            if not step.arguments
            else kept and constant[step.arguments[0]]
        )
    return constant
