"""A tape, bound to memory: every run is a list of kernel calls and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.memory import require_memory
from gsebo.sparse.backend import Call
from gsebo.sparse.operators import SparseFeatures
from gsebo.sparse.pattern import Pattern
from gsebo.sparse.symbol import Attend, Concat, Product, Propagate, Standardise, Sum
from gsebo.tape.backend import (
    AttentionStep,
    FeatureKernels,
    FeatureStep,
    Gradients,
    PointwiseStep,
    StandardiseStep,
    StepKernels,
    tape_kernels_for,
)
from gsebo.tape.trace import (
    Randomness,
    Reach,
    Results,
    Step,
    StrengthBlocks,
    Tape,
    Weights,
)


@final
class Program:
    """The cross-entropy of some nodes and its gradient by weights and strengths.

    With ``lanes=1`` a run computes the loss and its gradient by the weights (and, if
    asked for, by the strengths ``Z``). With ``lanes=2`` the weights carry a tangent
    ``v``, and a run computes the derivatives of both gradients in the direction ``v``:
    one pass gives ``v . d(grad W)/dW`` and ``v . d(grad W)/dZ``, because second
    derivatives commute. Gradients by strengths add up over runs.

    The loss is the mean or the sum over the nodes that ``reach`` begins with, whose
    classes are ``labels``, and ``decay / 2`` times the sum of the weights' squares;
    without labels a run only computes ``output``, the scores of these nodes
    ``[replicas, nodes, classes]``. There is one replica for each seed. ``weights`` and
    ``strengths`` are loaded before a run, and have the gradients after it.
    """

    def __init__(
        self,
        tape: Tape,
        reach: Reach,
        features: Tensor | SparseFeatures,
        labels: Tensor | None,
        *,
        mean: bool,
        seeds: list[int],
        lanes: int,
        strength_gradient: bool,
        decay: float = 0.0,
    ) -> None:
        like = features if isinstance(features, Tensor) else features.values
        shape = (len(seeds), lanes)
        needed = _numbers_and_indices(tape, reach, features, shape, labels is not None)
        require_memory(needed[0] * like.element_size() + needed[1] * 8, like.device)
        self._randomness = Randomness(seeds, like.device)
        self.weights = Weights(tape, *shape, like)
        self.strengths = StrengthBlocks(reach, len(seeds), like)
        self.loss = like.new_zeros(len(seeds))
        results = Results(tape, reach, shape, like)
        binder = _Binder(self, tape, reach, features, results, strength_gradient)
        calls = binder.forward()
        self._drawing, self.drawn = binder.drawing, binder.drawn
        if labels is not None:
            scale = 1.0 / max(labels.numel(), 1) if mean else 1.0
            calls += binder.backward(labels, scale, self.loss)
        self._calls, self._device, self._decay = calls, like.device, decay
        self._kernels = tape_kernels_for(like)
        whole = self.calls_to(self.weights.gradient)
        self._run = self._kernels.together(whole, like.device)
        self.output = results.value(len(tape.steps) - 1)[:, :, 0]

    def run(self, step: int = 0) -> None:
        """Compute everything for the weights and strengths that are loaded.

        On a CUDA device, in the stream that is current.
        """
        self._randomness.step.fill_(step)
        self._run()

    @property
    def step(self) -> Tensor:
        """The number of the step, from which masks are drawn; ``[1]``."""
        return self._randomness.step

    def calls_to(self, gradient: Tensor, *, draw: bool = True) -> list[Call]:
        """The calls of a run that puts the gradient by the weights somewhere.

        Without ``draw`` it reads what is in ``drawn``, of features, already.
        """
        weights, calls = self.weights, [*self._drawing * draw, *self._calls]
        if self._decay == 0 and gradient is weights.gradient:
            return calls
        moving = weights.tangent if weights.tangent.shape[1] else weights.value
        loss = self.loss if moving is weights.value else self.loss[:0]
        given = moving, self._decay, weights.gradient, gradient, loss
        return [*calls, self._kernels.penalty(*given)]

    def kernel_seconds(self, repeats: int = 20) -> float:
        """Sum over the calls of the shortest time that each took, one by one."""
        seconds, device = self._kernels.seconds, self._device
        calls = self.calls_to(self.weights.gradient)
        return sum(seconds(call, device, repeats) for call in calls)


def _numbers_and_indices(
    tape: Tape,
    reach: Reach,
    features: Tensor | SparseFeatures,
    shape: tuple[int, int],
    gradients: bool,
) -> tuple[int, int]:
    """How many a program allocates, at most, for so many replicas and lanes."""
    replicas, lanes = shape
    if isinstance(features, Tensor):
        stored = reach.sizes[-1] * features.shape[1]
    else:
        stored = int(features.pattern.row_counts.index_select(0, reach.order).sum())
    numbers, indices = stored * (2 * replicas + 1), 0
    for step, depth in zip(tape.steps, tape.depths, strict=True):
        if step.arguments:
            size = replicas * reach.sizes[depth] * lanes * step.channels
            numbers += (2 if gradients else 1) * size
            if step.pointwise is None and isinstance(step.node, Standardise):
                # Five arrays of one lane for all rows that are looked at.
                rows = reach.sizes[depth + step.looks_everywhere]
                numbers += 5 * replicas * rows * step.channels
        if step.propagates:
            entries = reach.blocks[depth].entries.numel()
            numbers += 2 * replicas * entries
            if isinstance(step.node, Attend):
                numbers += 3 * replicas * entries * lanes * step.node.heads
            # The transpose, the row of each entry, and how rows are dealt out.
            indices += 3 * entries + 2 * reach.sizes[depth + 1]
    size = sum(torch.Size(shape).numel() for shape in tape.shapes.values())
    # The weights, their tangents, the gradients, and a weight beside its tangent.
    return numbers + 5 * replicas * size, indices


class _Binder:
    """From the steps of a tape to kernel calls on memory, forwards, then backwards.

    Dense features, and what is left of them by dropout, are kept as ``[replicas or 1,
    rows, channels]``; sparse ones as their kernels like it best.
    """

    def __init__(
        self,
        program: Program,
        tape: Tape,
        reach: Reach,
        features: Tensor | SparseFeatures,
        results: Results,
        strength_gradient: bool,
    ) -> None:
        self._tape, self._reach, self._features = tape, reach, features
        self._weights, self._strengths = program.weights, program.strengths
        self._randomness, self._results = program._randomness, results
        self._strength_gradient = strength_gradient
        self._kernels = tape_kernels_for(program.loss)
        self.drawing: list[Call] = []
        self.drawn: list[Tensor] = []
        self._dense: dict[int, Tensor] = {}
        self._sparse: dict[int, FeatureKernels] = {}
        self._kept: dict[int, StepKernels] = {}
        self._vectors: dict[str, tuple[Tensor, Tensor]] = {}

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
            self._kernels.zero(self._weights.gradient),
        ]
        learned = [each for each in range(last + 1) if not results.constant[each]]
        calls += [
            self._kernels.zero(results.grad(number))
            for number in learned[:-1]
            if results.is_shared(number)
        ]
        for number in reversed(learned):
            calls += self._backward(number, self._tape.steps[number])
        return calls

    def _forward(self, number: int, step: Step) -> Iterator[Call]:
        results, rows = self._results, self._results.rows[number]
        if results.constant[number]:
            yield from self._prepare_features(number, step)
            return
        out = results.value(number)
        if step.pointwise is not None:
            yield from self._gather(step.pointwise.bias)
            yield self._kernels.pointwise(self._pointwise(number, step), out)
            return
        match step.node:
            case Product():
                yield from self._product(number, step, step.node.weight)
            case Propagate():
                pattern, values, _ = self._block(number, step.node)
                x = results.value(step.arguments[0], pattern.num_columns)
                yield self._kernels.spmm(pattern, values, _wide(x), _wide(out))
            case Sum():
                parts = zip(step.arguments, step.node.factors, strict=True)
                for count, (part, factor) in enumerate(parts):
                    x, add = results.value(part, rows), count > 0
                    yield self._kernels.scaled(x, factor, out, add=add)
            case Concat():
                for part, place in self._parts(step, out):
                    x = results.value(part, rows)
                    yield self._kernels.scaled(x, 1.0, place, add=False)
            case Attend():
                yield from self._attention(number, step.node).forward(out)
            case Standardise():
                yield from self._gather(step.node.weight)
                yield from self._standardise(number, step.node).forward(out)

    def _backward(self, number: int, step: Step) -> Iterator[Call]:
        results, rows = self._results, self._results.rows[number]
        grad = results.grad(number)
        if step.pointwise is not None:
            gradients = self._gradients(number, step, step.pointwise.bias, rows)
            out, done = results.value(number), self._pointwise(number, step)
            yield self._kernels.pointwise_back(done, out, gradients)
            return
        match step.node:
            case Product():
                yield from self._product_back(number, step, step.node.weight)
            case Propagate():
                yield from self._propagate_back(number, step, step.node)
            case Sum():
                for argument, factor in zip(
                    step.arguments, step.node.factors, strict=True
                ):
                    to = results.grad(argument, rows)
                    add = results.is_shared(argument)
                    if add or to.data_ptr() != grad.data_ptr():
                        yield self._kernels.scaled(grad, factor, to, add=add)
            case Concat():
                for part, place in self._parts(step, grad):
                    to = results.grad(part, rows)
                    add = results.is_shared(part)
                    yield self._kernels.scaled(place, 1.0, to, add=add)
            case Attend():
                pattern, _, to_strength = self._block(number, step.node)
                gradients = self._gradients(
                    number, step, step.node.weight, pattern.num_columns
                )
                if self._strength_gradient:
                    gradients = gradients._replace(strength=to_strength)
                yield from self._attention(number, step.node).back(gradients)
            case Standardise():
                looked_at = results.rows[step.arguments[0]]
                read = looked_at if step.looks_everywhere else rows
                gradients = self._gradients(number, step, step.node.weight, read)
                yield from self._standardise(number, step.node).back(gradients)

    def _gradients(
        self, number: int, step: Step, weight: str | None, rows: int
    ) -> Gradients:
        (argument,), gradient = step.arguments, self._weights.gradient
        return Gradients(
            self._results.grad(number),
            self._results.grad(argument, rows),
            self._weights.view(gradient, weight) if weight else None,
            None,
            self._results.is_shared(argument),
        )

    def _prepare_features(self, number: int, step: Step) -> Iterator[Call]:
        """Take the rows that are needed, or drop some numbers of them."""
        rows = self._reach.order[: self._results.rows[number]]
        if not isinstance(self._features, Tensor):
            self._prepare_sparse(number, step, self._features, rows.numel())
            return
        if step.pointwise is None:
            self._dense[number] = self._features.index_select(0, rows).unsqueeze(0)
            return
        whole = self._dense[step.arguments[0]]
        replicas, size = self._weights.value.shape[0], rows.numel()
        drop = self._randomness.drop(step.pointwise.site, step.pointwise.rate, rows)
        out = whole.new_empty(replicas, size, 1, whole.shape[-1])
        self._dense[number] = out[:, :, 0]
        z = whole[:, :size].expand(replicas, -1, -1).unsqueeze(2)
        yield self._kernels.pointwise(PointwiseStep("identity", z, None, drop), out)

    def _prepare_sparse(
        self, number: int, step: Step, features: SparseFeatures, rows: int
    ) -> None:
        """The same of sparse features, which nobody reads but products."""
        readers = self._tape.readers(number)
        if all(self._results.constant[each] for each in readers):
            return
        block, drop = self._reach.rows_of(features.pattern, rows), None
        if step.pointwise is not None:
            site, rate = step.pointwise.site, step.pointwise.rate
            drop = self._randomness.drop(site, rate, block.entries)
        self._sparse[number] = kernels = self._kernels.features(
            FeatureStep(
                block.pattern,
                features.values.index_select(0, block.entries),
                drop,
                self._weights.value.shape[0],
                lambda rows: self._reach.rows_of(features.pattern, rows).pattern,
            )
        )
        self.drawing += kernels.draw()
        self.drawn += kernels.drawn()

    def _times_features(
        self, number: int, step: Step, pair: tuple[Tensor, Tensor], out: Tensor
    ) -> Iterator[Call]:
        """Multiply the features that a step reads by a weight."""
        (argument,), lanes = step.arguments, self._results.lanes
        if argument in self._sparse:
            yield from self._sparse[argument].times(pair, out)
            return
        weight = pair[0]
        if lanes == 2:
            weight = torch.stack(pair, 2)
            yield self._kernels.widen(*pair, weight)
        features = self._dense[argument][:, : self._results.rows[number]]
        features = features.expand(out.shape[0], -1, -1)
        yield self._kernels.matmul(features, weight.flatten(2), out.flatten(2))

    def _product(self, number: int, step: Step, name: str) -> Iterator[Call]:
        """``h W``, and with a tangent ``h' W + h W'``."""
        out, (argument,) = self._results.value(number), step.arguments
        weight, tangent = self._weights.pair(name)
        if self._results.constant[argument]:
            yield from self._times_features(number, step, (weight, tangent), out)
            return
        h = self._results.value(argument, self._results.rows[number])
        yield self._kernels.matmul(_tall(h), weight, _tall(out))
        if self._results.lanes == 2:
            yield self._kernels.matmul(h[:, :, 0], tangent, out[:, :, 1], add=True)

    def _product_back(self, number: int, step: Step, name: str) -> Iterator[Call]:
        """``g W^T`` and ``h^T g``, or the tangents of both."""
        results, matmul, (argument,) = (
            self._results,
            self._kernels.matmul,
            step.arguments,
        )
        grad = results.grad(number)
        to_weight = self._weights.view(self._weights.gradient, name)
        if results.constant[argument]:
            last = grad[:, :, -1]
            if argument in self._sparse:
                yield from self._sparse[argument].turned_times(last, to_weight)
                return
            features = self._dense[argument][:, : last.shape[1]]
            features = features.expand(last.shape[0], -1, -1)
            yield matmul(features.mT, last, to_weight)
            return
        rows = results.rows[number]
        h, to_h = results.value(argument, rows), results.grad(argument, rows)
        weight, tangent = self._weights.pair(name)
        add = results.is_shared(argument)
        yield matmul(_tall(grad), weight.mT, _tall(to_h), add=add)
        if results.lanes == 2:
            yield matmul(grad[:, :, 0], tangent.mT, to_h[:, :, 1], add=True)
            yield matmul(h[:, :, 1].mT, grad[:, :, 0], to_weight)
        last = grad[:, :, -1]
        yield matmul(h[:, :, 0].mT, last, to_weight, add=results.lanes == 2)

    def _propagate_back(
        self, number: int, step: Step, node: Propagate
    ) -> Iterator[Call]:
        results, (argument,) = self._results, step.arguments
        pattern, values, to_values = self._block(number, node)
        grad, to_x = results.grad(number), results.grad(argument, pattern.num_columns)
        if self._strength_gradient:
            x = results.value(argument, pattern.num_columns)
            yield self._kernels.dots(pattern, grad, x, to_values)
        shared = results.is_shared(argument)
        if results.only_tangent(argument):
            grad = grad[:, :, 1:]
        out = torch.empty_like(to_x) if shared else to_x
        yield self._kernels.spmm(pattern.T, values, _wide(grad), _wide(out))
        if shared:
            yield self._kernels.scaled(out, 1.0, to_x, add=True)

    def _block(
        self, number: int, node: Propagate | Attend
    ) -> tuple[Pattern, Tensor, Tensor]:
        return self._strengths.use(self._tape.depths[number], node.layer)

    def _pointwise(self, number: int, step: Step) -> PointwiseStep:
        assert step.pointwise is not None
        done, rows = step.pointwise, self._results.rows[number]
        z = self._results.value(step.arguments[0], rows)
        bias = self._vectors[done.bias] if done.bias else None
        drop = self._randomness.drop(done.site, done.rate, self._reach.order[:rows])
        return PointwiseStep(done.activation, z, bias, drop)

    def _gather(self, name: str | None) -> Iterator[Call]:
        """Lay a vector of all replicas side by side, as a vector loop wants them."""
        if name is None or name in self._vectors:
            return
        pair = self._weights.pair(name)
        self._vectors[name] = gathered = pair[0].contiguous(), pair[1].contiguous()
        for source, to in zip(pair, gathered, strict=True):
            if to is not source:
                to, source = (each[:, None, None] for each in (to, source))
                yield self._kernels.scaled(source, 1.0, to, add=False)

    def _parts(self, step: Step, whole: Tensor) -> Iterator[tuple[int, Tensor]]:
        widths = [self._tape.steps[argument].channels for argument in step.arguments]
        yield from zip(step.arguments, whole.split_with_sizes(widths, -1), strict=True)

    def _standardise(self, number: int, node: Standardise) -> StepKernels:
        if number not in self._kept:
            (argument,) = self._tape.steps[number].arguments
            rows = None if node.kind == "batch" else self._results.rows[number]
            z, weight = self._results.value(argument, rows), self._vectors[node.weight]
            if rows is None and z.shape[1] != self._reach.num_nodes:
                raise InvalidInput(
                    f"a reach of {z.shape[1]} nodes given to a network that looks at "
                    f"all nodes, expected {self._reach.num_nodes}"
                )
            step = StandardiseStep(node.kind, z, weight, node.epsilon)
            self._kept[number] = self._kernels.standardise(step)
        return self._kept[number]

    def _attention(self, number: int, node: Attend) -> StepKernels:
        if number not in self._kept:
            pattern, values, _ = self._block(number, node)
            (argument,) = self._tape.steps[number].arguments
            entries = self._reach.blocks[self._tape.depths[number]].entries
            step = AttentionStep(
                pattern,
                values,
                self._results.value(argument, pattern.num_columns),
                *self._weights.pair(node.weight),
                node.slope,
                self._randomness.drop(node.site, node.rate, entries),
                self._reach.whole_entries,
            )
            self._kept[number] = self._kernels.attention(step)
        return self._kept[number]


def _wide(x: Tensor) -> Tensor:
    """Lanes side by side: ``[replicas, rows, lanes * channels]``."""
    return x[:, :, 0] if x.shape[2] == 1 else x.flatten(2)


def _tall(x: Tensor) -> Tensor:
    """Lanes one below the other: ``[replicas, rows * lanes, channels]``."""
    return x.flatten(1, 2)
