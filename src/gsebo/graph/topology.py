"""The graph as structures and backbones see it: entries, some of them loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gsebo.graph.arrays import CanonicalGraph, canonicalise
from gsebo.graph.graph import Graph
from gsebo.sparse import CompletePattern, Pattern


@dataclass(frozen=True, eq=False)
class Topology:
    """Entries of A or A + I, rows = targets, columns = sources.

    Entry order: the canonical edges first, then (where there are any) the self-loops in
    node order. PyG layers that add self-loops send their messages in the same order.
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
        graph = canonicalise(Graph(edge_index=edge_index, num_nodes=num_nodes))
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


class Propagation(NamedTuple):
    """Entries with their strengths, ``[entries]`` or ``[layers, entries]``."""

    pattern: Pattern
    strengths: Tensor

    def at(self, graph: CanonicalGraph) -> tuple[Tensor, Tensor]:
        """Strengths on the edges of ``graph`` and on the self-loops, 0 where absent."""
        size = graph.num_nodes
        nodes = torch.arange(size, device=self.pattern.device)
        source, target = graph.edge_index.to(self.pattern.device)
        wanted = torch.cat([target * size + source, nodes * size + nodes])
        if isinstance(self.pattern, CompletePattern):
            found = self.strengths.index_select(-1, wanted)
        else:
            found = self._looked_up(wanted)
        return found[..., : graph.num_edges], found[..., graph.num_edges :]

    def _looked_up(self, wanted: Tensor) -> Tensor:
        pattern = self.pattern
        positions = pattern.rows.long() * pattern.num_columns + pattern.columns.long()
        if positions.numel() == 0:
            return self.strengths.new_zeros(*self.strengths.shape[:-1], wanted.numel())
        place = torch.searchsorted(positions, wanted).clamp(max=positions.numel() - 1)
        entry = pattern.entries.long()[place]
        found = self.strengths.index_select(-1, entry)
        return torch.where(positions[place] == wanted, found, 0)

    def stored(self, smallest: float, *, self_loops: bool) -> Propagation:
        """The same in the order of a `Topology`: edges first and then the loops.

        Of a complete pattern only the entries that count, in some layer, are kept.
        Those of any other stay, whatever they count: attention is over all that are
        there.
        """
        pattern, size = self.pattern, self.pattern.num_rows
        if isinstance(pattern, CompletePattern):
            counts = self.strengths.abs() >= smallest
            counts = counts if counts.dim() == 1 else counts.any(0)
            chosen = counts.nonzero().squeeze(-1)
            target, source = chosen // size, chosen % size
        else:
            target, source = pattern.row_of_entry, pattern.column_of_entry
        topology = Topology.from_edges(
            torch.stack([source, target]),
            size,
            self_loops=self_loops,
            device=pattern.device,
        )
        on_edges, on_loops = self.at(topology.graph)
        parts = [on_edges, on_loops] if self_loops else [on_edges]
        return Propagation(topology.pattern, torch.cat(parts, dim=-1))
