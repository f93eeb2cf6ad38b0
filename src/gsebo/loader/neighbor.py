"""Batches of nodes with a sample of their neighbors (Hamilton et al., 2017)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from gsebo.errors import InvalidInput
from gsebo.graph.arrays import GraphArrays
from gsebo.loader.batch import Batch, Integers
from gsebo.loader.kernels import CSRRows, sample_rows
from gsebo.loader.sampler import (
    COVER_SITE,
    TRAINING_SITE,
    BoundSampler,
    Sampler,
    ascending,
    check_sizes,
    piece_of_epoch,
    pieces_of_epoch,
)
from gsebo.sparse import Noise

_ALL = -1


@final
@dataclass(frozen=True)
class NeighborSampler(Sampler):
    """Each node receives from a few of its neighbors, chosen at random.

    ``batch_size`` is the number of nodes that a batch is drawn around.

    Attributes:
        num_neighbors: How many edges into a node are drawn, uniformly and without
            replacement; one number, or one for each hop, the seeds' own first. -1 takes
            all.
    """

    num_neighbors: int | tuple[int, ...] = 10

    def __post_init__(self) -> None:
        given = self.num_neighbors
        each = (given,) if isinstance(given, int) else given
        if len(each) == 0 or any(number < 1 and number != _ALL for number in each):
            raise InvalidInput(
                f"num_neighbors={given!r} given; expected numbers of at least 1, or -1 "
                "for all edges."
            )

    def bind(
        self, arrays: GraphArrays, *, num_layers: int, batch_size: int, seed: int
    ) -> "BoundNeighbors":
        check_sizes(num_layers, batch_size)
        each = self.num_neighbors
        if isinstance(each, int):
            each = (each,) * num_layers
        if len(each) != num_layers:
            raise InvalidInput(
                f"num_neighbors={each} has {len(each)} numbers; expected {num_layers}, "
                "one for each layer."
            )
        return BoundNeighbors(arrays, each, batch_size, seed)


@final
class BoundNeighbors(BoundSampler):
    """Draws neighborhoods from one graph: so many edges into a node in each hop.

    A node's edges are drawn once in a batch: when it is first reached. Those that are
    reached in the last hop receive nothing. Without a hop nodes are drawn and no edges.
    """

    def __init__(
        self,
        arrays: GraphArrays,
        num_neighbors: tuple[int, ...],
        batch_size: int,
        seed: int,
    ) -> None:
        self._rows = CSRRows.of(arrays.indptr, arrays.source)
        self._num_nodes = arrays.num_nodes
        self._fanout, self._batch_size, self._seed = num_neighbors, batch_size, seed

    def batch(self, nodes: Integers, number: int) -> Batch:
        piece = piece_of_epoch(len(nodes), self._batch_size, number, self._seed)
        seeds = ascending(nodes[piece], self._num_nodes)
        return self._around(seeds, Noise(self._seed, number), TRAINING_SITE)

    def batches_in_pass(self, nodes: Integers) -> int:
        return pieces_of_epoch(len(nodes), self._batch_size)

    def cover(self, nodes: Integers) -> Iterator[Batch]:
        nodes = ascending(nodes, self._num_nodes)
        for number, begin in enumerate(range(0, len(nodes), self._batch_size)):
            seeds = nodes[begin : begin + self._batch_size]
            yield self._around(seeds, Noise(self._seed, number), COVER_SITE)

    def _around(self, seeds: Integers, noise: Noise, site: int) -> Batch:
        nodes, reached = seeds, seeds
        # Targets, edges into each of them, and these edges and their sources.
        drawn: list[tuple[Integers, ...]] = [(np.empty(0, np.int64),) * 4]
        for num_neighbors in self._fanout:
            counts = self._rows.counts(reached)
            if num_neighbors != _ALL:
                counts = np.minimum(counts, num_neighbors)
            edges, source = sample_rows(self._rows, reached, counts, noise, site)
            drawn.append((reached, counts, edges, source))
            found = np.unique(source)
            place = np.minimum(np.searchsorted(nodes, found), len(nodes) - 1)
            reached = found[nodes[place] != found]
            nodes = np.sort(np.concatenate([nodes, reached]))
        target, into, edges, source = map(np.concatenate, zip(*drawn, strict=True))
        order = np.argsort(edges)
        counts = np.zeros(len(nodes), np.int64)
        counts[np.searchsorted(nodes, target)] = into
        return Batch.of(
            nodes,
            edges[order],
            np.searchsorted(nodes, source[order]),
            counts,
            self._rows.counts(nodes),
            seeds,
        )
