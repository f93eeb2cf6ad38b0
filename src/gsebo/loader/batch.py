"""A part of a graph that knows which nodes and edges of the whole it holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.graph import Topology
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.chunks import features_of, weight_sums
from gsebo.graph.topology import CanonicalGraph
from gsebo.nn.base import Backbone, Features
from gsebo.sparse import Pattern, row_sum
from gsebo.sparse.pattern import sorted_pattern

Integers = NDArray[np.int64]

_TINY = torch.finfo(torch.float32).tiny


@final
@dataclass(frozen=True, eq=False)
class Batch:
    """Some nodes of a graph and some of the edges between them; both ascend.

    Attributes:
        nodes: Their numbers in the whole graph, int64 ``[n]``.
        edges: Ids of the edges in the whole graph, int64 ``[e]``.
        edge_index: Positions in nodes, sorted by (target, source), int64 ``[2, e]``.
        scale: Edges into the target in the whole graph over those here, ``[e]``.
        degree: Edges into each node in the whole graph, int64 ``[n]``.
        seeds: Positions in nodes of those drawn around, ascending, int64 ``[s]``.
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

        Seeds are given by their numbers in the whole graph. ``counts`` is the number of
        these edges into each node, ``degree`` that of all.
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


@final
@dataclass(frozen=True, eq=False)
class Subgraph:
    """A batch, laid out on a device for a network."""

    nodes: Tensor  # Numbers in the whole graph, on the CPU.
    graph: Topology
    entries: Tensor  # Numbers in the whole graph: edges, then loops behind all edges.
    features: Features
    labels: Tensor  # -1 where a label may not be known.
    seeds: Tensor  # The nodes that it was drawn around.
    scale: Tensor  # How many entries of the whole graph each entry stands for.
    degree: Tensor  # Edges into each node in the whole graph.
    backbone: Backbone
    place: int = 0  # Of the batch in its step.
    # Weights of the entries of each row in the whole graph, where they are not all one.
    weight_sums: Tensor | None = None

    @classmethod
    def of(
        cls,
        batch: Batch,
        arrays: GraphArrays,
        backbone: Backbone,
        device: torch.device,
        place: int = 0,
    ) -> Subgraph:
        """Read what a batch needs of the whole graph."""
        count = batch.nodes.numel()
        every = torch.arange(batch.edges.numel())
        values = arrays.values_of_edges(batch.edges.numpy())
        graph = CanonicalGraph(count, batch.edge_index, every, *values)
        loops = backbone.self_loops
        source, target = batch.edge_index
        pattern = sorted_pattern(target, source, count, loops=loops, device=device)
        entries, scale = batch.edges, batch.scale.to(arrays.dtype)
        sums = weight_sums(arrays, self_loops=loops)
        if loops:
            entries = torch.cat([entries, arrays.num_edges + batch.nodes])
            scale = torch.cat([scale, scale.new_ones(count)])
        return cls(
            nodes=batch.nodes,
            graph=Topology(pattern, graph),
            entries=entries,
            features=features_of(arrays, batch.nodes, arrays.dtype, device),
            labels=_labels(arrays, batch.nodes).to(device),
            seeds=batch.seeds.to(device),
            scale=scale.to(device),
            degree=batch.degree.to(device),
            backbone=backbone,
            place=place,
            weight_sums=None if sums is None else sums[batch.nodes].to(device),
        )

    @cached_property
    def start(self) -> Tensor:
        """Strengths of the vanilla propagation of the whole graph, ``[entries]``."""
        sums, topology = self.weight_sums, self.graph
        if sums is None:
            sums = self.degree + int(self.backbone.self_loops)
        return self.backbone.initial_strength(
            topology.pattern, sums, topology.weights
        ).detach()

    @cached_property
    def message_scale(self) -> Tensor:
        """The scale where messages are summed as they are, else one."""
        summed = self.backbone.sums_messages
        return self.scale if summed else torch.ones_like(self.scale)

    def normalise(self, pattern: Pattern, weights: Tensor) -> Tensor:
        """From weights ``[..., entries]`` to strengths that stand for the whole graph.

        The sum of a row is that of its entries, scaled up. Of nodes whose edges were
        not looked at, every edge is taken for an average one.
        """
        scaled = weights * self.scale
        sums = row_sum(pattern, scaled)
        unseen, edges = self._unseen, slice(0, self.graph.num_edges)
        if self.weight_sums is not None:
            sums = self._sums_by_share(pattern, scaled, sums, self.weight_sums)
        elif unseen is not None:
            mean = scaled[..., edges].sum(-1) / self.scale[edges].sum().clamp(min=1)
            sums = sums + unseen * mean.unsqueeze(-1)
        strengths = self.backbone.normalise(pattern, weights, sums)
        return strengths * self.message_scale

    def _sums_by_share(
        self, pattern: Pattern, scaled: Tensor, sums: Tensor, given: Tensor
    ) -> Tensor:
        """Sums of rows whose edges have weights, which are known of the whole graph.

        Those at hand tell which share of its weights a row has kept; a row that is at
        hand as a whole needs no estimate.
        """
        topology, loops = self.graph, self.graph.num_loops
        assert topology.weights is not None
        edges = torch.arange(pattern.num_entries, device=given.device)
        edges = edges < topology.num_edges
        before = topology.weights.to(scaled) * self.scale * edges
        seen, kept = row_sum(pattern, before), row_sum(pattern, scaled * edges)
        mean = kept.sum(-1, keepdim=True) / before.sum().clamp(min=_TINY)
        share = torch.where(seen > 0, kept / seen.masked_fill(seen == 0, 1), mean)
        loop = int(loops > 0)
        whole = pattern.row_counts - loop == self.degree
        return torch.where(whole, sums, (given - loop) * share + loop)

    @cached_property
    def _unseen(self) -> Tensor | None:
        """Edges of the nodes that none is at hand of, ``[nodes]``."""
        present = self.graph.pattern.row_counts - int(self.backbone.self_loops)
        missing = torch.where(present == 0, self.degree, 0)
        return missing.to(self.scale) if bool(missing.any()) else None


def _labels(arrays: GraphArrays, nodes: Tensor) -> Tensor:
    """Classes of labelled nodes; no other label is ever read."""
    labels = torch.full((nodes.numel(),), -1)
    assert arrays.y is not None and arrays.train is not None and arrays.val is not None
    index = nodes.numpy()
    known = torch.from_numpy(arrays.train[index] | arrays.val[index])
    labels[known] = torch.from_numpy(arrays.y[index[known.numpy()]]).long()
    return labels
