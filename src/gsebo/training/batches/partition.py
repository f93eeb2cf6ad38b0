"""Batches of whole clusters of a graph (Cluster-GCN, Chiang et al., 2019)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from gsebo.data.arrays import GraphArrays
from gsebo.errors import InvalidInput
from gsebo.sparse.kernels.numba_sample import Rows, induced_rows
from gsebo.training.batches.batch import Batch
from gsebo.training.batches.metis import partition_graph
from gsebo.training.batches.sampler import (
    BoundSampler,
    Sampler,
    ascending,
    check_any,
    check_sizes,
    piece_of_epoch,
    pieces_of_epoch,
)

Integers = NDArray[np.int64]


@final
@dataclass(frozen=True)
class PartitionSampler(Sampler):
    """A batch is a few clusters, chosen at random, with all edges between them.

    ``batch_size`` is about the number of nodes of a batch.

    Attributes:
        num_parts: Number of clusters; ``None`` takes so many that a batch has about
            ``batch_size`` nodes.
        clusters_per_batch: How many make a batch. If there are no more in all, a batch
            is the whole graph.
    """

    num_parts: int | None = None
    clusters_per_batch: int = 20

    def __post_init__(self) -> None:
        for name in ("num_parts", "clusters_per_batch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidInput(f"{name} is {value}; expected at least 1.")

    def bind(
        self, arrays: GraphArrays, *, num_layers: int, batch_size: int, seed: int
    ) -> "BoundPartition":
        """Get ready to draw from a graph; it is divided when the first batch is."""
        check_sizes(num_layers, batch_size)
        num_parts = self.num_parts
        if num_parts is None:
            wanted = -(-arrays.num_nodes * self.clusters_per_batch // batch_size)
            wanted = min(wanted, arrays.num_nodes)
            num_parts = max(wanted, self.clusters_per_batch)
        elif num_parts > arrays.num_nodes:
            raise InvalidInput(
                f"num_parts is {num_parts}; expected at most {arrays.num_nodes}, "
                "the number of nodes."
            )
        return BoundPartition(arrays, num_parts, self.clusters_per_batch, seed)


@final
class BoundPartition(BoundSampler):
    """Draws clusters of one graph.

    Args:
        arrays: The graph.
        num_parts: Number of clusters.
        clusters_per_batch: How many make a batch.
        seed: Of all that is drawn; the clusters do not depend on it.
    """

    def __init__(
        self, arrays: GraphArrays, num_parts: int, clusters_per_batch: int, seed: int
    ) -> None:
        self._arrays, self._rows = arrays, Rows.of(arrays.indptr, arrays.source)
        self._num_parts, self._seed = num_parts, seed
        self._clusters_per_batch = clusters_per_batch

    @cached_property
    def partition(self) -> NDArray[np.int32]:
        """Cluster of each node, int32 ``[nodes]``."""
        if self._is_whole:
            return np.zeros(self._arrays.num_nodes, np.int32)
        return partition_graph(self._arrays, self._num_parts)

    def batch(self, nodes: Integers, number: int) -> Batch:
        """Draw the next clusters of those that hold any of the nodes."""
        check_any(nodes)
        nodes = ascending(nodes, self._arrays.num_nodes)
        if self._is_whole:
            return Batch.full(self._arrays, nodes)
        clusters = self._holding(nodes)
        piece = piece_of_epoch(
            len(clusters), self._clusters_per_batch, number, self._seed
        )
        return self._union(clusters[piece], nodes)

    def batches_in_pass(self, nodes: Integers) -> int:
        """How many groups those clusters make that hold any of the nodes."""
        if self._is_whole:
            return 1
        return pieces_of_epoch(len(self._holding(nodes)), self._clusters_per_batch)

    def cover(self, nodes: Integers) -> Iterator[Batch]:
        """Take the clusters that hold any of the nodes, one group after the other."""
        nodes = ascending(nodes, self._arrays.num_nodes)
        if self._is_whole:
            if len(nodes):
                yield Batch.full(self._arrays, nodes)
            return
        clusters = self._holding(nodes)
        for begin in range(0, len(clusters), self._clusters_per_batch):
            chosen = clusters[begin : begin + self._clusters_per_batch]
            yield self._union(chosen, nodes)

    @property
    def _is_whole(self) -> bool:
        return self._num_parts <= self._clusters_per_batch

    @cached_property
    def _members(self) -> tuple[Integers, Integers]:
        """The nodes, cluster after cluster, and where each cluster begins."""
        sizes = np.bincount(self.partition, minlength=self._num_parts)
        begin = np.concatenate([[0], np.cumsum(sizes)])
        return np.argsort(self.partition, kind="stable"), begin

    def _holding(self, nodes: Integers) -> Integers:
        held = np.bincount(self.partition[nodes], minlength=self._num_parts)
        return np.flatnonzero(held)

    def _union(self, clusters: Integers, asked: Integers) -> Batch:
        order, begin = self._members
        parts = [order[begin[one] : begin[one + 1]] for one in clusters]
        nodes = np.sort(np.concatenate(parts))
        is_chosen = np.zeros(self._num_parts, bool)
        is_chosen[clusters] = True
        found = induced_rows(self._rows, nodes)
        return Batch.of(
            nodes,
            found.positions,
            found.columns,
            found.counts,
            self._rows.counts(nodes),
            asked[is_chosen[self.partition[asked]]],
        )
