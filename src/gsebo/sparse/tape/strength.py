"""Strengths of the entries that matter, block by block."""

from __future__ import annotations

from typing import final

from torch import Tensor

from gsebo.sparse.pattern import Pattern
from gsebo.sparse.tape.reach import Block, Reach


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
        block: Block = self._reach.blocks[depth]
        return block.entries
