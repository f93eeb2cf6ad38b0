"""Kernel calls on the features, which are constants: dropout and products."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, final

from torch import Tensor

from gsebo.sparse.features import SparseFeatures
from gsebo.sparse.symbol import Product
from gsebo.sparse.tape.memory import Randomness, Results, Weights
from gsebo.sparse.tape.reach import Reach
from gsebo.sparse.tape.trace import Step, Tape

Call = Callable[[], Any]


@final
class SourceBinder:
    """Binds the steps that read the features.

    Dense features are kept as ``[replicas or 1, rows, channels]``, sparse ones as
    stored values ``[replicas or 1, stored]``, row after row.
    """

    def __init__(
        self,
        kernels: ModuleType,
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
