"""A whole graph in chunks: some nodes, and all edges into them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import final
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.graph.arrays import CSRArrays, GraphArrays
from gsebo.graph.mapped import gather_rows
from gsebo.graph.topology import CanonicalGraph, Topology
from gsebo.sparse.operators import SparseFeatures, features_as_stored, row_sum
from gsebo.sparse.pattern import sorted_pattern

Nodes = NDArray[np.int64]

# A stored number of sparse features: its value, its place and copies of both.
_STORED_BYTES = 32


def degrees_of(arrays: GraphArrays, nodes: Nodes) -> Nodes:
    """Number of edges into some nodes, given in ascending order, int64."""
    found = gather_rows(arrays.indptr, nodes + 1) - gather_rows(arrays.indptr, nodes)
    return found.astype(np.int64, copy=False)


def features_of(
    arrays: GraphArrays,
    nodes: Tensor,
    dtype: torch.dtype,
    device: torch.device | str,
) -> Tensor | SparseFeatures:
    """Features of some nodes, given in ascending order, in the form of the graph."""
    return features_as_stored(arrays.features(nodes.numpy()), dtype, device)


def feature_bytes(arrays: GraphArrays, dtype: torch.dtype) -> int:
    """Bytes of the features of one node on average, with copies on their way."""
    if isinstance(arrays.x, CSRArrays):
        stored = len(arrays.x.values) / max(arrays.num_nodes, 1)
        return int(_STORED_BYTES * (stored + 1))
    return 3 * arrays.num_features * dtype.itemsize


# What a chunk holds for an edge, its source and that one's self-loop: their places in
# the whole graph and in the chunk, in the pattern and its transpose, and what sorting
# needs.
_INDEX_BYTES = 320
# A chunk that is larger is no faster.
_MOST_EDGES = 2**18


@final
@dataclass(frozen=True, eq=False)
class Chunk:
    """Consecutive nodes of a graph, the targets, with all edges into them.

    The nodes at hand are the targets and the sources of those edges, in the order of
    the whole graph. Of nodes that are no targets, self-loops are the only entries.

    Attributes:
        begin: First of the targets.
        end: The node after the last of them.
        edges: Numbers of their edges in the whole graph, which are consecutive too.
        nodes: Numbers of the nodes at hand, ascending, int64 ``[nodes]`` on the CPU.
        topology: The entries between nodes at hand.
        own: Which of the nodes at hand are the targets, int64 ``[targets]``.
        degree: Edges into each node at hand in the whole graph, int64 ``[nodes]``.
        weight_sums: Weights of the entries of each row in the whole graph, ``[nodes]``,
            where they are not all one.
    """

    begin: int
    end: int
    edges: slice
    nodes: Tensor
    topology: Topology
    own: Tensor
    degree: Tensor
    weight_sums: Tensor | None = None

    @property
    def num_entries_of_rows(self) -> Tensor:
        """Entries of each row in the whole graph: edges, and a self-loop if any."""
        return self.degree + (1 if self.topology.num_loops else 0)

    @property
    def sums_of_rows(self) -> Tensor:
        """Sum of their weights."""
        sums = self.weight_sums
        return self.num_entries_of_rows if sums is None else sums


StrengthsOf = Callable[[Chunk], Tensor]
"""Strengths of the entries of a chunk, ``[entries]`` or ``[layers, entries]``.

Those of the self-loops of nodes that are no targets are not looked at.
"""


def chunks(
    arrays: GraphArrays,
    *,
    self_loops: bool,
    edges_per_chunk: int,
    device: torch.device | str = "cpu",
) -> Iterator[Chunk]:
    """Go through all nodes of a graph.

    A chunk has so many edges and targets at most; a node with more edges is a chunk of
    its own. What was read from files is let go before the next chunk.
    """
    sums = weight_sums(arrays, self_loops=self_loops)
    for chunk in _plain_chunks(arrays, self_loops, edges_per_chunk, device):
        if sums is not None:
            chunk = replace(chunk, weight_sums=sums[chunk.nodes].to(device))
        yield chunk
        arrays.release()


def _plain_chunks(
    arrays: GraphArrays,
    self_loops: bool,
    edges_per_chunk: int,
    device: torch.device | str,
) -> Iterator[Chunk]:
    """Chunks that do not know how much the rows of the whole graph weigh."""
    begin = 0
    while begin < arrays.num_nodes:
        end = _end_of_chunk(arrays, begin, edges_per_chunk)
        yield _chunk(arrays, begin, end, self_loops, device)
        begin = end


_sums: WeakKeyDictionary[GraphArrays, dict[bool, Tensor]] = WeakKeyDictionary()


def weight_sums(arrays: GraphArrays, *, self_loops: bool) -> Tensor | None:
    """Sum of the weights of each row, ``[nodes]``, in the order of the whole graph.

    A self-loop weighs one. ``None`` where all entries do. It is found once.
    """
    if arrays.edge_weight is None:
        return None
    known = _sums.setdefault(arrays, {})
    if self_loops not in known:
        found = []
        for chunk in _plain_chunks(arrays, self_loops, _MOST_EDGES, "cpu"):
            weights = chunk.topology.weights
            assert weights is not None
            sums = row_sum(chunk.topology.pattern, weights.to(arrays.dtype))
            found.append(sums[chunk.own])
            arrays.release()
        known[self_loops] = torch.cat(found)
    return known[self_loops]


def edges_within(memory: int, edge_bytes: int) -> int:
    """Edges per chunk, at least one, with so many bytes computed for each."""
    # Half of it: the allocator does not give back at once what was freed.
    possible = memory // (2 * (_INDEX_BYTES + edge_bytes))
    return min(max(possible, 1), _MOST_EDGES)


def _end_of_chunk(arrays: GraphArrays, begin: int, edges_per_chunk: int) -> int:
    def before(node: int) -> int:
        return int(arrays.indptr[node]) + node

    possible = range(begin + 1, arrays.num_nodes + 1)
    limit = before(begin) + edges_per_chunk
    return begin + max(bisect_right(possible, limit, key=before), 1)


def _chunk(
    arrays: GraphArrays,
    begin: int,
    end: int,
    self_loops: bool,
    device: torch.device | str,
) -> Chunk:
    indptr = np.asarray(arrays.indptr[begin : end + 1])
    edges = slice(int(indptr[0]), int(indptr[-1]))
    source = np.asarray(arrays.source[edges], np.int64)
    everyone = np.concatenate([source, np.arange(begin, end)])
    # Without the inverse, a slower algorithm would be chosen.
    nodes, local = np.unique(everyone, return_inverse=True)
    local_source, own = np.split(local, [len(source)])
    local_target = np.repeat(own, np.diff(indptr))
    ends = torch.from_numpy(np.stack([local_source, local_target]))
    graph = CanonicalGraph(
        len(nodes), ends, torch.arange(len(source)), *arrays.values_of_edges(edges)
    )
    pattern = sorted_pattern(
        ends[1], ends[0], len(nodes), loops=self_loops, device=device
    )
    return Chunk(
        begin,
        end,
        edges,
        torch.from_numpy(nodes),
        Topology(pattern, graph),
        torch.from_numpy(own).to(device),
        torch.from_numpy(degrees_of(arrays, nodes)).to(device),
    )
