"""One number for each unordered pair of nodes, laid out as a symmetric matrix."""

from typing import final

import torch
from torch import Tensor


@final
class PairMatrix:
    """The pairs of nodes below the diagonal, row by row.

    Args:
        num_nodes: Number of nodes, n.
        device: Where the numbers live.

    >>> PairMatrix(3, "cpu").symmetric(torch.tensor([1, 2, 3])).tolist()
    [[0, 1, 2], [1, 0, 3], [2, 3, 0]]
    """

    def __init__(self, num_nodes: int, device: torch.device | str) -> None:
        self.num_nodes = num_nodes
        larger, smaller = torch.tril_indices(num_nodes, num_nodes, -1, device=device)
        self._position: Tensor = larger * num_nodes + smaller

    @property
    def num_pairs(self) -> int:
        """Number of pairs, n (n - 1) / 2."""
        return self._position.numel()

    def joined(self, edge_index: Tensor) -> Tensor:
        """Whether one of the edges ``[2, edges]`` joins the pair, bool ``[pairs]``."""
        source, target = edge_index.to(self._position.device)
        found = self._position.new_zeros(self.num_nodes**2, dtype=torch.bool)
        larger, smaller = torch.maximum(source, target), torch.minimum(source, target)
        found[larger * self.num_nodes + smaller] = True
        return found[self._position]

    def symmetric(self, values: Tensor, *, diagonal: float = 0.0) -> Tensor:
        """Put ``[pairs]`` on both sides of a constant diagonal, ``[nodes, nodes]``."""
        flat = values.new_zeros(self.num_nodes**2)
        lower = flat.index_copy(0, self._position, values).view(self.num_nodes, -1)
        return (lower + lower.mT).fill_diagonal_(diagonal)
