"""What a fit knows of a graph that is not its own: some of the nodes and entries."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from gsebo.graph import CanonicalGraph, Propagation, Topology
from gsebo.graph.node_match import NodeKeys, find_edges, find_entries
from gsebo.model.state import edges_of
from gsebo.training import Member


class KnownEntries(NamedTuple):
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

    def weights(
        self, fitted: CanonicalGraph, topology: Topology
    ) -> tuple[Tensor, Tensor] | None:
        """Weights of the graph's entries in the fit and now; new ones have the latter.

        ``None`` where all weigh one, then and now.
        """
        now, device = topology.weights, self.entry.device
        if fitted.weight is None and now is None:
            return None
        loops = fitted.num_nodes if topology.num_loops else 0
        then = torch.ones(fitted.num_edges + loops, dtype=torch.float64, device=device)
        if fitted.weight is not None:
            then[: fitted.num_edges] = fitted.weight
        now = then.new_ones(topology.num_entries) if now is None else now
        return self.kept(then, now), now


def nodes_of_fit(
    keys: NodeKeys, fitted: CanonicalGraph, others: NodeKeys, graph: CanonicalGraph
) -> Tensor:
    """Find the nodes of a graph among those of a fit, -1 where there is none.

    As :meth:`NodeKeys.find` does, but positions are those among the nodes of a type,
    where both graphs have the same several: another node of the first type moves all
    nodes of the others.
    """
    then, now = fitted.types, graph.types
    named = keys.node_id is not None and others.node_id is not None
    if named or then is None or now is None:
        return keys.find(others)
    kind, place = now.node_type.cpu(), now.place_in_type.cpu()
    own = then.node_type.cpu()
    sizes = own.bincount(minlength=len(then.node_types))
    starts = sizes.cumsum(0) - sizes
    there = place < sizes[kind]
    position = torch.where(there, starts[kind] + place, 0)
    node = own.argsort(stable=True)[position]
    if keys.row_hash is not None and others.row_hash is not None:
        there &= keys.row_hash[node] == others.row_hash
    return torch.where(there, node, -1)


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
    fit knew and the member left out stays out. Entries of a member are edges in
    canonical order and then self-loops; strengths are those of the other graph.
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
