"""Kernel calls of an attention step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, final

from torch import Tensor

from gsebo.sparse.kernels.attention_step import AttentionStep
from gsebo.sparse.symbol import Attend
from gsebo.sparse.tape.memory import Randomness, Results, Weights
from gsebo.sparse.tape.strength import StrengthBlocks
from gsebo.sparse.tape.trace import Tape

Call = Callable[[], Any]


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
        kernels: ModuleType,
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
        self._kernels, self._weights, self._results = kernels, weights, results
        self._number, self._name = number, node.weight
        pattern, values, to_values = strengths.use(tape.depths[number], node.layer)
        self._to_strength = to_values if strength_gradient else None
        weight, tangent = weights.pair(node.weight)
        self._columns = pattern.num_columns
        self._step = AttentionStep(
            pattern,
            values,
            results.value(self._argument, self._columns),
            weight,
            tangent,
            node.slope,
            randomness.drop(node.site, node.rate, entries),
            whole_entries,
        )
        self._memory = kernels.attention_memory(self._step)

    def forward(self) -> Iterator[Call]:
        """Calls that compute the result."""
        out = self._results.value(self._number)
        yield from self._kernels.attention_forward(self._step, self._memory, out)

    def backward(self) -> Iterator[Call]:
        """Calls that pull the gradient back."""
        yield from self._kernels.attention_back(
            self._step,
            self._memory,
            self._results.grad(self._number),
            self._results.grad(self._argument, self._columns),
            self._weights.view(self._weights.gradient, self._name),
            self._to_strength,
            accumulate=self._results.is_shared(self._argument),
        )
