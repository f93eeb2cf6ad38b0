"""All pairs of nodes, numbered instead of stored, and random ones among them.

With nodes in some order, the pairs of the first node come first, then those of the
second with later ones, and so on: pair (a, b), a < b, of N nodes has the number

    a (2 N - a - 1) / 2 + (b - a - 1).

Where one end has to be among M nodes, those M come first in the order, and the pairs
are the numbers below M (2 N - M - 1) / 2.
"""

from __future__ import annotations

from typing import final

import numpy as np
import torch
from torch import Tensor


@final
class CandidatePairs:
    """Pairs of different nodes, of which one may have to be among some nodes.

    Args:
        num_nodes: Number of nodes, ``N``.
        ends: Nodes of which every pair has one or two, int64; all by default.

    >>> CandidatePairs(4, torch.tensor([2])).pairs(torch.arange(3)).tolist()
    [[0, 2], [1, 2], [2, 3]]
    """

    def __init__(self, num_nodes: int, ends: Tensor | None = None) -> None:
        self.num_nodes = num_nodes
        if ends is None:
            self._first, self._order = num_nodes, torch.arange(num_nodes)
        else:
            chosen = torch.zeros(num_nodes, dtype=torch.bool)
            chosen[ends.cpu().long()] = True
            self._first = int(chosen.sum())
            self._order = torch.cat(
                [part.nonzero().squeeze(1) for part in (chosen, ~chosen)]
            )
        self._place = torch.empty_like(self._order)
        self._place[self._order] = torch.arange(num_nodes)

    @property
    def count(self) -> int:
        """How many pairs there are."""
        return self._before(self._first)

    def _before(self, place: int) -> int:
        """How many pairs have their first node before a place of the order."""
        return place * (2 * self.num_nodes - place - 1) // 2

    def pairs(self, numbers: Tensor) -> Tensor:
        """The pairs with these numbers, int64 ``[numbers, 2]``, smaller node first."""
        first = row_of(numbers, self.num_nodes)
        second = numbers - row_start(first, self.num_nodes) + first + 1
        return torch.stack([self._order[first], self._order[second]], 1).sort(1).values

    def numbers(self, pairs: Tensor) -> Tensor:
        """The number of each pair ``[pairs, 2]``, whichever end comes first."""
        first, second = self._place[pairs].sort(1).values.unbind(1)
        return row_start(first, self.num_nodes) + second - first - 1

    def contains(self, pairs: Tensor) -> Tensor:
        """Which pairs ``[pairs, 2]`` are among these, bool ``[pairs]``."""
        return self._place[pairs].amin(1) < self._first

    def draw(
        self,
        wanted: int,
        generator: np.random.Generator,
        *,
        without: Tensor | None = None,
    ) -> Tensor:
        """Numbers of ``wanted`` different pairs, evenly drawn, sorted.

        Where there are fewer, it is all of them. Memory is that of what is drawn.

        Args:
            wanted: How many.
            generator: Where chance comes from.
            without: Numbers that are not to be drawn, each once.
        """
        taken = torch.empty(0, dtype=torch.int64) if without is None else without
        free = self.count - len(taken)
        if wanted >= free:
            every = torch.arange(self.count)
            return every[~torch.isin(every, taken)]
        # The k-th number that is free, for k drawn: no drawing again, however few are.
        drawn = generator.choice(free, size=wanted, replace=False, shuffle=False)
        rank = torch.from_numpy(np.sort(drawn).astype(np.int64))
        taken = taken.sort().values
        free_before = taken - torch.arange(len(taken))
        return rank + torch.searchsorted(free_before, rank, right=True)


def row_start(first: Tensor, num_nodes: int) -> Tensor:
    """Number of the first pair of each node of the order."""
    return first * (2 * num_nodes - first - 1) // 2


def row_of(numbers: Tensor, num_nodes: int) -> Tensor:
    """Place of the first node of the pairs with these numbers."""
    width = 2 * num_nodes - 1
    root = (float(width) ** 2 - 8.0 * numbers.double()).clamp(min=0).sqrt()
    found = ((width - root) / 2).long().clamp(0, num_nodes - 2)
    # Of numbers above 2^53 the root is rounded, by little.
    while bool((high := row_start(found, num_nodes) > numbers).any()):
        found = found - high.long()
    while bool((low := row_start(found + 1, num_nodes) <= numbers).any()):
        found = found + low.long()
    return found
