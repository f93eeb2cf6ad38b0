"""What of a graph is known from a fit on another one."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gsebo.graph import CanonicalGraph, Propagation, Topology
from gsebo.graph.node_match import find_edges, find_entries
from gsebo.sparse import Pattern
from gsebo.training import Member


@dataclass(frozen=True, eq=False)
class KnownEntries:
    """Which entries and nodes of a graph are those of the fit, -1 where none is."""

    entry: Tensor  # Of the edges first and then of the self-loops, int64 [entries].
    node: Tensor  # int64 [nodes]
    num_edges: int  # Of the graph.

    @property
    def num_new_edges(self) -> int:
        """Number of edges that the fit did not have; both directions count."""
        return int((self.entry[: self.num_edges] < 0).sum())

    def kept(self, stored: Tensor, fresh: Tensor) -> Tensor:
        """What the fit has stored of its entries, and elsewhere what is fresh.

        Of all entries of the graph, or of its edges alone, ``[..., entries]``.
        """
        if not stored.shape[-1]:
            # There is nothing to select from, not even for entries that are not known.
            return fresh
        entry = self.entry[: fresh.shape[-1]]
        found = stored.index_select(-1, entry.clamp(min=0))
        return torch.where(entry >= 0, found, fresh)


def extended_member(
    member: Member,
    fitted_graph: CanonicalGraph,
    known: KnownEntries,
    topology: Topology,
    strengths: Tensor,
) -> Member:
    """Lay a member's own graph over a graph that is not the one of the fit.

    What joins known nodes keeps the member's strength, unless the user took that very
    edge away. What is new to the fit is added as it is in the user's graph; what the
    fit knew and the member left out stays out.

    Args:
        member: Its entries are the edges in canonical order and then the self-loops,
            for every node or none.
        fitted_graph: The user's graph of the fit.
        known: What the other graph has of it.
        topology: The other graph.
        strengths: Of all its entries, ``[..., entries]``.
    """
    pattern, own = member.propagation
    device, old_size = pattern.device, pattern.num_rows
    node, self_loops = known.node.cpu(), topology.num_loops > 0
    edges = edges_of(pattern).cpu()
    given, is_new = topology.graph.edge_index.cpu(), known.entry.cpu() < 0
    carried = _carried(edges, fitted_graph, topology.graph, node)
    union = Topology.from_edges(
        torch.cat([carried, given[:, is_new[: given.shape[1]]]], dim=1),
        topology.num_nodes,
        self_loops=self_loops,
        device=device,
    )
    entry = find_entries(edges, old_size, union.graph, node, self_loops=self_loops)
    on_edges, on_loops = Propagation(topology.pattern, strengths).at(union.graph)
    fresh = torch.cat([on_edges, on_loops], dim=-1) if self_loops else on_edges
    mine = KnownEntries(entry.to(device), known.node, union.num_edges)
    return Member(Propagation(union.pattern, mine.kept(own, fresh)), member.weights)


def edges_of(pattern: Pattern) -> Tensor:
    """The entries between different nodes, as ``[2, edges]``."""
    edges = torch.stack([pattern.column_of_entry, pattern.row_of_entry])
    return edges[:, edges[0] != edges[1]]


def _carried(
    edges: Tensor, fitted_graph: CanonicalGraph, graph: CanonicalGraph, node: Tensor
) -> Tensor:
    """Those of a member's edges that stay, by the numbers of the new graph's nodes."""
    place = torch.full((fitted_graph.num_nodes,), -1)
    place[node[node >= 0]] = (node >= 0).nonzero().squeeze(-1)
    moved = place[edges]
    then, now = fitted_graph.edge_index.cpu(), graph.edge_index.cpu()
    was_given = find_edges(then, fitted_graph.num_nodes, edges) >= 0
    is_given = find_edges(now, graph.num_nodes, moved) >= 0
    return moved[:, (moved >= 0).all(0) & (is_given | ~was_given)]
