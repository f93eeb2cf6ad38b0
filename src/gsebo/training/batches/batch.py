"""A part of a graph that knows which nodes and edges of the whole it holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.data.arrays import GraphArrays

Integers = NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class Batch:
    """Some nodes of a graph and some of the edges between them.

    Attributes:
        nodes: Their numbers in the whole graph, ascending, int64 ``[n]``.
        edges: Ids of the edges in the whole graph, ascending, int64 ``[e]``.
        edge_index: Source and target of each edge as positions in ``nodes``, sorted by
            (target, source), int64 ``[2, e]``.
        scale: How many edges into its target each edge stands for, float32 ``[e]``:
            those of the whole graph over those present.
        degree: Edges into each node in the whole graph, int64 ``[n]``.
        seeds: Positions in ``nodes`` of those that the batch was drawn around,
            ascending, int64 ``[s]``.
    """

    nodes: Tensor
    edges: Tensor
    edge_index: Tensor
    scale: Tensor
    degree: Tensor
    seeds: Tensor

    @classmethod
    def full(cls, arrays: GraphArrays, seeds: Integers) -> Batch:
        """The whole graph, around some of its nodes."""
        nodes = np.arange(arrays.num_nodes)
        degree = np.diff(arrays.indptr)
        edges, source = np.arange(arrays.num_edges), arrays.source.astype(np.int64)
        return cls.of(nodes, edges, source, degree, degree, np.sort(seeds))

    @classmethod
    def of(
        cls,
        nodes: Integers,
        edges: Integers,
        source: Integers,
        counts: Integers,
        degree: Integers,
        seeds: Integers,
    ) -> Batch:
        """Put a batch together.

        Args:
            nodes: Numbers of the nodes in the whole graph, ascending.
            edges: Ids of the edges, ascending.
            source: Source of each edge, as position in ``nodes``.
            counts: Number of these edges into each node.
            degree: Number of all edges into each node.
            seeds: Numbers in the whole graph of the nodes drawn around, ascending.
        """
        target = np.repeat(np.arange(len(nodes)), counts)
        scale = (degree / np.maximum(counts, 1)).astype(np.float32)
        return cls(
            nodes=torch.from_numpy(nodes),
            edges=torch.from_numpy(edges),
            edge_index=torch.from_numpy(np.stack([source, target])),
            scale=torch.from_numpy(np.repeat(scale, counts)),
            degree=torch.from_numpy(degree),
            seeds=torch.from_numpy(np.searchsorted(nodes, seeds)),
        )
