"""The graph as structures and backbones see it: entries, some of them loops."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.data.canonical import CanonicalGraph, canonicalise
from gsebo.sparse import Pattern


@dataclass(frozen=True, eq=False)
class Topology:
    """Entries of A or A + I, rows = targets, columns = sources.

    Entry order: the canonical edges first, then (where there are any) the self-loops in
    node order. PyG layers that add self-loops send their messages in the same order.

    Attributes:
        pattern: Positions of the entries.
        graph: The canonical graph that was laid out.
    """

    pattern: Pattern
    graph: CanonicalGraph

    @classmethod
    def of(
        cls, graph: CanonicalGraph, *, self_loops: bool, device: torch.device | str
    ) -> Topology:
        """Lay out the entries of ``graph``, with a loop on every node if asked."""
        source, target = graph.edge_index
        if self_loops:
            nodes = torch.arange(graph.num_nodes, device=source.device)
            source, target = torch.cat([source, nodes]), torch.cat([target, nodes])
        pattern = Pattern.from_positions(target, source, graph.num_nodes)
        return cls(pattern.to(device), graph)

    @classmethod
    def from_edges(
        cls,
        edge_index: Tensor,
        num_nodes: int,
        *,
        self_loops: bool,
        device: torch.device | str,
    ) -> Topology:
        """Lay out directed edges ``[2, E]``: sorted, merged, without their loops."""
        graph = canonicalise(Data(edge_index=edge_index, num_nodes=num_nodes))
        return cls.of(graph, self_loops=self_loops, device=device)

    @property
    def num_edges(self) -> int:
        """Number of canonical edges; the entries from there on are self-loops."""
        return self.graph.num_edges

    @property
    def reverse_edge(self) -> Tensor:
        """Id of the opposite edge, or -1, ``[num_edges]``."""
        return self.graph.reverse_edge.to(self.pattern.device)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.pattern.num_rows

    @property
    def num_entries(self) -> int:
        """Number of edges and self-loops."""
        return self.pattern.num_entries

    @property
    def num_loops(self) -> int:
        """Number of self-loop entries: all nodes or none."""
        return self.num_entries - self.num_edges
