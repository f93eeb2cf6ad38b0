"""The pattern in which every position is stored: products are matrix products.

A network on a dense graph is the same network on this pattern, so that methods which
weigh all n² pairs of nodes need no second version of any layer.
"""

from __future__ import annotations

from functools import cached_property
from typing import final

import torch
from torch import Tensor

from gsebo.sparse.pattern import Pattern


@final
class CompletePattern(Pattern):
    """All positions of a square matrix, row by row: entry ``i * size + j`` is (i, j).

    Args:
        size: Number of rows and of columns.
        device: Where values live.

    >>> CompletePattern(2, "cpu").matrix(torch.arange(4)).tolist()
    [[0, 1], [2, 3]]
    """

    def __init__(self, size: int, device: torch.device | str) -> None:
        self.num_rows = self.num_columns = size
        self._device = torch.device(device)
        self._transposed = False

    def matrix(self, values: Tensor) -> Tensor:
        """View values ``[..., entries]`` as ``[..., rows, columns]``."""
        square = values.view(*values.shape[:-1], self.num_rows, self.num_columns)
        return square.mT if self._transposed else square

    def values(self, matrix: Tensor) -> Tensor:
        """Lay a matrix ``[..., rows, columns]`` out as ``[..., entries]``."""
        return (matrix.mT if self._transposed else matrix).flatten(-2)

    @property
    def num_entries(self) -> int:
        """Number of positions."""
        return self.num_rows * self.num_columns

    @property
    def device(self) -> torch.device:
        """Device of the values."""
        return self._device

    @cached_property
    def indptr(self) -> Tensor:  # type: ignore[override]
        """Start of each row."""
        starts = torch.arange(self.num_rows + 1, device=self._device)
        return starts * self.num_columns

    @cached_property
    def columns(self) -> Tensor:  # type: ignore[override]
        """Column of each stored position."""
        each = torch.arange(self.num_columns, device=self._device)
        return each.repeat(self.num_rows)

    @cached_property
    def entries(self) -> Tensor:  # type: ignore[override]
        """Entry that each stored position holds."""
        every = torch.arange(self.num_entries, device=self._device)
        return self.matrix(every).flatten()

    def _transpose(self) -> CompletePattern:
        twin = CompletePattern(self.num_rows, self._device)
        twin._transposed = not self._transposed
        return twin

    def to(self, device: torch.device | str) -> CompletePattern:
        """Return the pattern on ``device``."""
        moved = CompletePattern(self.num_rows, device)
        moved._transposed = self._transposed
        return moved
