"""A batch as a network sees it: its own small graph with features and labels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from torch import Tensor

from gsebo.backbone.base import Backbone, Features
from gsebo.data.arrays import GraphArrays
from gsebo.data.canonical import CanonicalGraph
from gsebo.sparse import Pattern, row_sum
from gsebo.sparse.sorted_pattern import sorted_pattern
from gsebo.structure import Topology
from gsebo.structure.some_nodes import features_of
from gsebo.training.batches.batch import Batch


@final
@dataclass(frozen=True, eq=False)
class Part:
    """A batch, laid out on a device for a network.

    Attributes:
        nodes: Numbers of its nodes in the whole graph, on the CPU.
        graph: Its entries.
        entries: Their numbers in the whole graph: edges, then loops behind all edges.
        features: Of its nodes.
        labels: Of its nodes; -1 where a label may not be known.
        seeds: The nodes that it was drawn around.
        scale: How many entries of the whole graph each entry stands for.
        degree: Edges into each node in the whole graph.
        backbone: The network.
        place: Of the batch in its step.
    """

    nodes: Tensor
    graph: Topology
    entries: Tensor
    features: Features
    labels: Tensor
    seeds: Tensor
    scale: Tensor
    degree: Tensor
    backbone: Backbone
    place: int = 0

    @classmethod
    def of(
        cls,
        batch: Batch,
        arrays: GraphArrays,
        backbone: Backbone,
        device: torch.device,
        place: int = 0,
    ) -> Part:
        """Read what a batch needs of the whole graph."""
        count = batch.nodes.numel()
        every = torch.arange(batch.edges.numel())
        graph = CanonicalGraph(count, batch.edge_index, every)
        loops = backbone.self_loops
        source, target = batch.edge_index
        pattern = sorted_pattern(target, source, count, loops=loops, device=device)
        entries, scale = batch.edges, batch.scale.to(arrays.dtype)
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
        )

    @cached_property
    def start(self) -> Tensor:
        """Strengths of the vanilla propagation of the whole graph, ``[entries]``."""
        entries = self.degree + int(self.backbone.self_loops)
        return self.backbone.initial_strength(self.graph.pattern, entries).detach()

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
        unseen = self._unseen
        if unseen is not None:
            edges = slice(0, self.graph.num_edges)
            mean = scaled[..., edges].sum(-1) / self.scale[edges].sum().clamp(min=1)
            sums = sums + unseen * mean.unsqueeze(-1)
        strengths = self.backbone.normalise(pattern, weights, sums)
        return strengths * self.message_scale

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
