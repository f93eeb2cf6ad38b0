"""Batches of whole clusters of a graph (Cluster-GCN, Chiang et al., 2019)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from gsebo.errors import InvalidInput
from gsebo.graph.arrays import GraphArrays
from gsebo.loader.batch import Batch, Integers
from gsebo.loader.kernels import CSRRows, induced_rows
from gsebo.loader.sampler import (
    BoundSampler,
    Sampler,
    ascending,
    check_sizes,
    piece_of_epoch,
    pieces_of_epoch,
)

_MOST_EDGES = 2**28
# The k-way scheme starts from about so many nodes for each part; with fewer it leaves
# parts empty, while repeated bisection fills them.
_NODES_PER_PART = 30
# Up to so many parts, bisection gives the better cut.
_FEW_PARTS = 8
# One partition for a graph, whatever the seed of the training.
_SEED = 0


def partition_graph(arrays: GraphArrays, num_parts: int) -> NDArray[np.int32]:
    """Divide a graph into parts of about equal size, int32 ``[nodes]``.

    It is done in memory, with every edge in both directions. The same graph gives the
    same parts, at least 2; some may stay empty if they are small.
    """
    if arrays.num_edges > _MOST_EDGES:
        raise InvalidInput(
            f"a graph with {arrays.num_edges} edges given to the cluster sampler; "
            f"expected at most {_MOST_EDGES}, or the neighbor sampler."
        )
    try:
        import pymetis
    except ImportError as error:
        raise InvalidInput(
            "the cluster sampler needs pymetis, which is not installed; expected: "
            "pip install 'gsebo[large]'."
        ) from error
    ones, shape = np.ones(arrays.num_edges, np.int8), (arrays.num_nodes,) * 2
    one_way = csr_array((ones, arrays.source, arrays.indptr), shape=shape)
    both = one_way + one_way.T.tocsr()
    number = pymetis.zero_copy_dtype()
    starts, neighbors = both.indptr.astype(number), both.indices.astype(number)
    found = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(starts, neighbors),
        recursive=num_parts <= _FEW_PARTS
        or arrays.num_nodes < _NODES_PER_PART * num_parts,
        options=pymetis.Options(seed=_SEED),
    )
    return np.asarray(found.vertex_part, np.int32)


@final
@dataclass(frozen=True)
class ClusterSampler(Sampler):
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
    ) -> "BoundClusters":
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
        return BoundClusters(arrays, num_parts, self.clusters_per_batch, seed)


@final
class BoundClusters(BoundSampler):
    """Draws clusters of one graph, which is divided when the first batch is drawn.

    The clusters do not depend on the seed.
    """

    def __init__(
        self, arrays: GraphArrays, num_parts: int, clusters_per_batch: int, seed: int
    ) -> None:
        self._arrays, self._rows = arrays, CSRRows.of(arrays.indptr, arrays.source)
        self._num_parts, self._seed = num_parts, seed
        self._clusters_per_batch = clusters_per_batch
        self._is_whole = num_parts <= clusters_per_batch

    @cached_property
    def partition(self) -> NDArray[np.int32]:
        """Cluster of each node, int32 ``[nodes]``."""
        if self._is_whole:
            return np.zeros(self._arrays.num_nodes, np.int32)
        return partition_graph(self._arrays, self._num_parts)

    def batch(self, nodes: Integers, number: int) -> Batch:
        nodes = ascending(nodes, self._arrays.num_nodes)
        clusters = self._holding(nodes)
        piece = piece_of_epoch(
            len(clusters), self._clusters_per_batch, number, self._seed
        )
        return self._union(clusters[piece], nodes)

    def batches_in_pass(self, nodes: Integers) -> int:
        return pieces_of_epoch(len(self._holding(nodes)), self._clusters_per_batch)

    def cover(self, nodes: Integers) -> Iterator[Batch]:
        nodes = ascending(nodes, self._arrays.num_nodes)
        clusters = self._holding(nodes)
        for begin in range(0, len(clusters), self._clusters_per_batch):
            chosen = clusters[begin : begin + self._clusters_per_batch]
            yield self._union(chosen, nodes)

    @cached_property
    def _members(self) -> tuple[Integers, Integers]:
        """The nodes, cluster after cluster, and where each cluster begins."""
        sizes = np.bincount(self.partition, minlength=self._num_parts)
        begin = np.concatenate([[0], np.cumsum(sizes)])
        return np.argsort(self.partition, kind="stable"), begin

    def _holding(self, nodes: Integers) -> Integers:
        """Clusters with any of the nodes."""
        held = np.bincount(self.partition[nodes], minlength=self._num_parts)
        return np.flatnonzero(held)

    def _union(self, clusters: Integers, asked: Integers) -> Batch:
        if self._is_whole:
            return Batch.full(self._arrays, asked)
        order, begin = self._members
        parts = [order[begin[one] : begin[one + 1]] for one in clusters]
        nodes = np.sort(np.concatenate(parts))
        found = induced_rows(self._rows, nodes)
        return Batch.of(
            nodes,
            found.positions,
            found.columns,
            found.counts,
            self._rows.counts(nodes),
            asked[np.isin(self.partition[asked], clusters)],
        )
