"""Where messages flow and how much each counts, wherever that came from."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gsebo.data.canonical import CanonicalGraph
from gsebo.sparse import CompletePattern, Pattern
from gsebo.structure.topology import Topology


class Propagation(NamedTuple):
    """Entries with their strengths.

    Attributes:
        pattern: Positions, rows = targets and columns = sources.
        strengths: ``[entries]`` or ``[layers, entries]``.
    """

    pattern: Pattern
    strengths: Tensor

    def at(self, graph: CanonicalGraph) -> tuple[Tensor, Tensor]:
        """Strengths on the edges of ``graph`` and on the self-loops, 0 where absent.

        Returns:
            ``[..., edges]`` and ``[..., nodes]``.
        """
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

        Of a complete pattern only the entries that count are kept. Those of any other
        stay, whatever they count: attention is over all that are there.

        Args:
            smallest: What counts less than this, in every layer, is left out.
            self_loops: Whether to hold a loop for every node, whatever it counts.
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
