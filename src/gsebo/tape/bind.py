"""From the steps of a tape to kernel calls on memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import torch
from torch import Tensor

from gsebo.sparse.features import SparseFeatures
from gsebo.sparse.kernels.backend import Call
from gsebo.sparse.symbol import Attend, Concat, Product, Propagate, Sum
from gsebo.tape.backend import AttentionStep, TapeKernels, tape_kernels_for
from gsebo.tape.memory import Randomness, Results, StrengthBlocks, Weights
from gsebo.tape.reach import Reach
from gsebo.tape.trace import Pointwise, Step, Tape


@final
class AttentionBinder:
    """Binds one attention step.

    Args:
        kernels: Where the kernel calls come from.
        tape: The network.
        weights: Of the network.
        strengths: Of the entries.
        randomness: Of the dropout.
        results: Of the steps.
        number: Which step of the tape it is.
        entries: Which entry of the whole graph each entry of the block is.
        whole_entries: How many the whole graph has.
        strength_gradient: Whether the gradient by the strengths is computed.
    """

    def __init__(
        self,
        kernels: TapeKernels,
        tape: Tape,
        weights: Weights,
        strengths: StrengthBlocks,
        randomness: Randomness,
        results: Results,
        number: int,
        *,
        entries: Tensor,
        whole_entries: int,
        strength_gradient: bool,
    ) -> None:
        node = tape.steps[number].node
        assert isinstance(node, Attend)
        (self._argument,) = tape.steps[number].arguments
        self._weights, self._results = weights, results
        self._number, self._name = number, node.weight
        pattern, values, to_values = strengths.use(tape.depths[number], node.layer)
        self._to_strength = to_values if strength_gradient else None
        weight, tangent = weights.pair(node.weight)
        self._columns = pattern.num_columns
        step = AttentionStep(
            pattern,
            values,
            results.value(self._argument, self._columns),
            weight,
            tangent,
            node.slope,
            randomness.drop(node.site, node.rate, entries),
            whole_entries,
        )
        self._attention = kernels.attention(step)

    def forward(self) -> list[Call]:
        """Calls that compute the result."""
        return self._attention.forward(self._results.value(self._number))

    def backward(self) -> list[Call]:
        """Calls that pull the gradient back."""
        return self._attention.back(
            self._results.grad(self._number),
            self._results.grad(self._argument, self._columns),
            self._weights.view(self._weights.gradient, self._name),
            self._to_strength,
            accumulate=self._results.is_shared(self._argument),
        )


@final
class SourceBinder:
    """Binds the steps that read the features.

    Dense features are kept as ``[replicas or 1, rows, channels]``, sparse ones as
    stored values ``[replicas or 1, stored]``, row after row.
    """

    def __init__(
        self,
        kernels: TapeKernels,
        tape: Tape,
        reach: Reach,
        features: Tensor | SparseFeatures,
        weights: Weights,
        randomness: Randomness,
        results: Results,
    ) -> None:
        self._kernels, self._tape, self._reach = kernels, tape, reach
        self._features, self._weights = features, weights
        self._randomness, self._results = randomness, results
        self._numbers: dict[int, Tensor] = {}

    def prepare(self, number: int, step: Step) -> Iterator[Call]:
        """Take the rows that are needed, or drop some numbers of them."""
        rows = self._reach.order[: self._results.rows[number]]
        if not step.arguments:
            self._numbers[number] = self._taken(rows)
            return
        assert step.pointwise is not None
        whole = self._numbers[step.arguments[0]]
        drop_of = self._randomness.drop
        site, rate = step.pointwise.site, step.pointwise.rate
        replicas = self._weights.value.shape[0]
        if isinstance(self._features, SparseFeatures):
            entries = self._reach.rows_of(self._features.pattern, rows.numel()).entries
            drop = drop_of(site, rate, entries)
            assert drop is not None  # nobody writes down a dropout of nothing
            out = whole.new_empty(replicas, entries.numel())
            self._numbers[number] = out
            yield self._kernels.drop_values(whole[0, : entries.numel()], drop, out)
            return
        drop = drop_of(site, rate, rows)
        out = whole.new_empty(replicas, rows.numel(), 1, whole.shape[-1])
        self._numbers[number] = out[:, :, 0]
        z = whole[:, : rows.numel()].expand(replicas, -1, -1).unsqueeze(2)
        yield self._kernels.pointwise("identity", z, None, drop, out)

    def product(self, number: int, step: Step) -> Iterator[Call]:
        """``X W``, or ``[X W, X W']`` in one pass."""
        assert isinstance(step.node, Product)
        out = self._results.value(number).flatten(2)
        weight = yield from self._lanes_of_weight(step.node.weight)
        numbers = self._numbers[step.arguments[0]]
        rows = self._reach.order[: self._results.rows[number]]
        if isinstance(self._features, SparseFeatures):
            block = self._reach.rows_of(self._features.pattern, rows.numel())
            values = numbers[:, : block.entries.numel()]
            yield self._kernels.spmm(block.pattern, values, weight, out)
            return
        x = numbers[:, : rows.numel()].expand(out.shape[0], -1, -1)
        yield from self._kernels.matmul(x, weight, out)

    def product_back(self, number: int, step: Step) -> Iterator[Call]:
        """``X^T g``, or the tangent of it."""
        assert isinstance(step.node, Product)
        grad = self._results.grad(number)[:, :, -1]
        to_weight = self._weights.view(self._weights.gradient, step.node.weight)
        numbers = self._numbers[step.arguments[0]]
        rows = self._reach.order[: self._results.rows[number]]
        if isinstance(self._features, SparseFeatures):
            block = self._reach.rows_of(self._features.pattern, rows.numel())
            values = numbers[:, : block.entries.numel()]
            yield self._kernels.spmm(block.pattern.T, values, grad, to_weight)
            return
        x = numbers[:, : rows.numel()].expand(grad.shape[0], -1, -1)
        yield from self._kernels.matmul(x.mT, grad, to_weight)

    def _taken(self, rows: Tensor) -> Tensor:
        if isinstance(self._features, SparseFeatures):
            entries = self._reach.rows_of(self._features.pattern, rows.numel()).entries
            return self._features.values.index_select(0, entries).unsqueeze(0)
        return self._features.index_select(0, rows).unsqueeze(0)

    def _lanes_of_weight(self, name: str) -> Any:
        """The weight, and its tangent beside it where there is one."""
        weight, tangent = self._weights.pair(name)
        if self._results.lanes == 1:
            return weight
        replicas, rows, channels = weight.shape
        wide = weight.new_empty(replicas, rows, 2, channels)
        yield self._kernels.widen(weight, tangent, wide)
        return wide.flatten(2)


@final
class Binder:
    """Binds one step after the other, forwards and then backwards."""

    def __init__(
        self,
        tape: Tape,
        reach: Reach,
        features: Tensor | SparseFeatures,
        weights: Weights,
        strengths: StrengthBlocks,
        randomness: Randomness,
        results: Results,
        *,
        strength_gradient: bool,
    ) -> None:
        like = features if isinstance(features, Tensor) else features.values
        self._kernels = tape_kernels_for(like)
        self._tape, self._reach = tape, reach
        self._weights, self._strengths = weights, strengths
        self._randomness, self._results = randomness, results
        self._strength_gradient = strength_gradient
        self._attentions: dict[int, AttentionBinder] = {}
        self._biases: dict[str, tuple[Tensor, ...]] = {}
        self._source = SourceBinder(
            self._kernels, tape, reach, features, weights, randomness, results
        )

    def forward(self) -> list[Call]:
        """Every step, one after the other."""
        calls: list[Call] = []
        for number, step in enumerate(self._tape.steps):
            calls += self._forward(number, step)
        return calls

    def backward(self, labels: Tensor, scale: float, loss: Tensor) -> list[Call]:
        """The loss and then the gradients, from the last step to the first."""
        results, last = self._results, len(self._tape.steps) - 1
        logits, grad = results.value(last), results.grad(last)
        calls: list[Call] = [
            self._kernels.cross_entropy(logits, labels, scale, grad, loss),
            self._weights.gradient.zero_,
        ]
        calls += [
            results.grad(number).zero_
            for number in range(last)
            if not results.constant[number] and results.is_shared(number)
        ]
        for number in range(last, -1, -1):
            calls += self._backward(number, self._tape.steps[number])
        return calls

    def _forward(self, number: int, step: Step) -> Iterator[Call]:
        results = self._results
        if results.constant[number]:
            yield from self._source.prepare(number, step)
            return
        out, rows = results.value(number), results.rows[number]
        if step.pointwise is not None:
            z = results.value(step.arguments[0], rows)
            yield from self._gather_bias(step.pointwise.bias)
            bias, drop = self._pointwise(number, step.pointwise)
            kind = step.pointwise.activation
            yield self._kernels.pointwise(kind, z, bias, drop, out)
            return
        match step.node:
            case Product() if results.constant[step.arguments[0]]:
                yield from self._source.product(number, step)
            case Product():
                yield from self._product(step, out, rows)
            case Propagate():
                pattern, values, _ = self._block(number, step.node)
                x = results.value(step.arguments[0], pattern.num_columns)
                yield self._kernels.spmm(pattern, values, _wide(x), _wide(out))
            case Sum():
                left, right = (results.value(each, rows) for each in step.arguments)
                yield lambda: torch.add(left, right, out=out)
            case Concat():
                for part, place in self._parts(step, out):
                    source = results.value(part, rows)
                    yield _copy(source, place)
            case Attend():
                yield from self._attention(number, step).forward()

    def _backward(self, number: int, step: Step) -> Iterator[Call]:
        results = self._results
        if results.constant[number]:
            return
        grad, rows = results.grad(number), results.rows[number]
        if step.pointwise is not None:
            (argument,) = step.arguments
            bias, drop = self._pointwise(number, step.pointwise)
            name = step.pointwise.bias
            yield self._kernels.pointwise_back(
                step.pointwise.activation,
                results.value(argument, rows),
                bias,
                drop,
                grad,
                results.grad(argument, rows),
                self._weights.view(self._weights.gradient, name) if name else None,
                accumulate=results.is_shared(argument),
            )
            return
        match step.node:
            case Product() if results.constant[step.arguments[0]]:
                yield from self._source.product_back(number, step)
            case Product():
                yield from self._product_back(step, grad, rows)
            case Propagate():
                yield from self._propagate_back(number, step)
            case Sum():
                for argument in step.arguments:
                    to = results.grad(argument, rows)
                    if results.is_shared(argument):
                        yield _add(grad, to)
            case Concat():
                for part, place in self._parts(step, grad):
                    to = results.grad(part, rows)
                    add = results.is_shared(part)
                    yield _add(place, to) if add else _copy(place, to)
            case Attend():
                yield from self._attention(number, step).backward()

    def _product(self, step: Step, out: Tensor, rows: int) -> Iterator[Call]:
        """``h W``, and with a tangent ``h' W + h W'``."""
        assert isinstance(step.node, Product)
        h = self._results.value(step.arguments[0], rows)
        weight, tangent = self._weights.pair(step.node.weight)
        yield from self._kernels.matmul(_tall(h), weight, _tall(out))
        if self._results.lanes == 2:
            yield from self._kernels.matmul(h[:, :, 0], tangent, out[:, :, 1], add=True)

    def _product_back(self, step: Step, grad: Tensor, rows: int) -> Iterator[Call]:
        """``g W^T`` and ``h^T g``, or the tangents of both."""
        assert isinstance(step.node, Product)
        (argument,) = step.arguments
        matmul = self._kernels.matmul
        h, to_h = (
            self._results.value(argument, rows),
            self._results.grad(argument, rows),
        )
        weight, tangent = self._weights.pair(step.node.weight)
        to_weight = self._weights.view(self._weights.gradient, step.node.weight)
        add = self._results.is_shared(argument)
        yield from matmul(_tall(grad), weight.mT, _tall(to_h), add=add)
        if self._results.lanes == 1:
            yield from matmul(h[:, :, 0].mT, grad[:, :, 0], to_weight)
            return
        yield from matmul(grad[:, :, 0], tangent.mT, to_h[:, :, 1], add=True)
        yield from matmul(h[:, :, 1].mT, grad[:, :, 0], to_weight)
        yield from matmul(h[:, :, 0].mT, grad[:, :, 1], to_weight, add=True)

    def _propagate_back(self, number: int, step: Step) -> Iterator[Call]:
        assert isinstance(step.node, Propagate)
        (argument,) = step.arguments
        pattern, values, to_values = self._block(number, step.node)
        grad = self._results.grad(number)
        if self._strength_gradient:
            x = self._results.value(argument, pattern.num_columns)
            yield self._kernels.dots(pattern, grad, x, to_values)
        to_x = self._results.grad(argument, pattern.num_columns)
        if self._results.is_shared(argument):
            fresh = torch.empty_like(to_x)
            yield self._kernels.spmm(pattern.T, values, _wide(grad), _wide(fresh))
            yield _add(fresh, to_x)
            return
        if self._results.only_tangent(argument):
            grad = grad[:, :, 1:]
        yield self._kernels.spmm(pattern.T, values, _wide(grad), _wide(to_x))

    def _block(self, number: int, node: Propagate | Attend) -> Any:
        return self._strengths.use(self._tape.depths[number], node.layer)

    def _pointwise(self, number: int, pointwise: Pointwise) -> Any:
        """The bias and the dropout of a pointwise step, None where it has none."""
        bias = self._biases[pointwise.bias] if pointwise.bias else None
        positions = self._reach.order[: self._results.rows[number]]
        drop = self._randomness.drop(pointwise.site, pointwise.rate, positions)
        return bias, drop

    def _gather_bias(self, name: str | None) -> Iterator[Call]:
        """Lay the biases of all replicas side by side, as a vector loop wants them."""
        if name is None or name in self._biases:
            return
        pair = self._weights.pair(name)
        gathered = tuple(each.contiguous() for each in pair)
        self._biases[name] = gathered
        for source, to in zip(pair, gathered, strict=True):
            if to is not source:
                yield _copy(source, to)

    def _parts(self, step: Step, whole: Tensor) -> Iterator[tuple[int, Tensor]]:
        start = 0
        for argument in step.arguments:
            end = start + self._tape.steps[argument].channels
            yield argument, whole[..., start:end]
            start = end

    def _attention(self, number: int, step: Step) -> AttentionBinder:
        if number not in self._attentions:
            self._attentions[number] = AttentionBinder(
                self._kernels,
                self._tape,
                self._weights,
                self._strengths,
                self._randomness,
                self._results,
                number,
                entries=self._reach.blocks[self._tape.depths[number]].entries,
                whole_entries=self._reach.whole_entries,
                strength_gradient=self._strength_gradient,
            )
        return self._attentions[number]


def _wide(x: Tensor) -> Tensor:
    """Lanes side by side: ``[replicas, rows, lanes * channels]``."""
    return x[:, :, 0] if x.shape[2] == 1 else x.flatten(2)


def _tall(x: Tensor) -> Tensor:
    """Lanes one below the other: ``[replicas, rows * lanes, channels]``."""
    return x.flatten(1, 2)


def _copy(source: Tensor, to: Tensor) -> Call:
    return lambda: to.copy_(source)


def _add(source: Tensor, to: Tensor) -> Call:
    return lambda: to.add_(source)
