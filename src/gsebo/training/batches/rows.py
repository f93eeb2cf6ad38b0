"""Batches of nodes without any edges, for networks that read features alone."""

from collections.abc import Iterator
from typing import final

import numpy as np
from numpy.typing import NDArray

from gsebo.data.arrays import GraphArrays
from gsebo.training.batches.batch import Batch
from gsebo.training.batches.sampler import BoundSampler, piece_of_epoch, pieces_of_epoch

Integers = NDArray[np.int64]


@final
class RowSampler(BoundSampler):
    """Draws nodes and no edges.

    Args:
        arrays: The graph.
        batch_size: Number of nodes.
        seed: Of the order.
    """

    def __init__(self, arrays: GraphArrays, batch_size: int, seed: int) -> None:
        self._arrays = arrays
        self._size = batch_size
        self._seed = seed

    def batch(self, nodes: Integers, number: int) -> Batch:
        """So many of the nodes, others each time until all had their turn."""
        return self._of(
            nodes[piece_of_epoch(len(nodes), self._size, number, self._seed)]
        )

    def batches_in_pass(self, nodes: Integers) -> int:
        """How many pieces the nodes make."""
        return pieces_of_epoch(len(nodes), self._size)

    def cover(self, nodes: Integers) -> Iterator[Batch]:
        """All of the nodes in their order."""
        for begin in range(0, len(nodes), self._size):
            yield self._of(nodes[begin : begin + self._size])

    def _of(self, nodes: Integers) -> Batch:
        nodes = np.sort(nodes)
        none = np.empty(0, np.int64)
        degree = self._arrays.degree(nodes)
        return Batch.of(nodes, none, none, np.zeros_like(nodes), degree, nodes)
