"""Which nodes and edges of one graph are those of another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.data.canonical import CanonicalGraph
from gsebo.data.row_hash import row_hashes
from gsebo.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class NodeKeys:
    """What the nodes of a graph are known by.

    Attributes:
        num_nodes: Number of nodes.
        row_hash: Hash of each row of features, int64 ``[nodes]``, or ``None`` where
            nobody kept it.
        node_id: The user's own name of each node, int64 ``[nodes]``, if there are any.
    """

    num_nodes: int
    row_hash: Tensor | None = None
    node_id: Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("row_hash", "node_id"):
            keys = getattr(self, name)
            if keys is not None and keys.shape != (self.num_nodes,):
                raise InvalidInput(
                    f"{name} has shape {list(keys.shape)}; expected one number for "
                    f"each of {self.num_nodes} nodes."
                )

    @classmethod
    def of(cls, data: Data) -> NodeKeys:
        """Take the keys of a validated graph."""
        # A graph without features is one that knows its number of nodes.
        hashes = row_hashes(data.x) if data.x is not None else None
        return cls(int(data.num_nodes), hashes, node_ids(data))

    def find(self, others: NodeKeys) -> Tensor:
        """Find the nodes of another graph among these.

        By ``node_id`` where both graphs have it. Otherwise by position, where a node
        whose features are not those of the node here is another one; without hashes
        the position alone decides.

        Returns:
            For each of the others the node here or -1, int64 ``[others]``.
        """
        if self.node_id is not None and others.node_id is not None:
            order = torch.argsort(self.node_id)
            place = _find_sorted(self.node_id[order], others.node_id)
            return torch.where(place >= 0, order[place], -1)
        node = torch.full((others.num_nodes,), -1)
        shared = min(self.num_nodes, others.num_nodes)
        node[:shared] = torch.arange(shared)
        if self.row_hash is not None and others.row_hash is not None:
            differs = self.row_hash[:shared] != others.row_hash[:shared]
            node[:shared][differs] = -1
        return node

    def may_be(self, data: Data) -> bool:
        """Whether no ``node_id`` says that a graph's nodes or their order are others.

        The features are not looked at.
        """
        given = node_ids(data)
        if self.node_id is None or given is None:
            return True
        return torch.equal(self.node_id, given)


def node_ids(data: Data) -> Tensor | None:
    """The user's own names of a graph's nodes, int64 ``[nodes]``, if there are any."""
    given = data.node_id if "node_id" in data else None
    return None if given is None else given.detach().cpu().to(torch.int64)


def find_edges(edge_index: Tensor, num_nodes: int, wanted: Tensor) -> Tensor:
    """Find pairs of nodes among the edges of a graph.

    Args:
        edge_index: Its edges in canonical order, ``[2, edges]``.
        num_nodes: Number of its nodes.
        wanted: Pairs of its nodes, each -1 where it has none, ``[2, pairs]``.

    Returns:
        The number of each pair's edge or -1, int64 ``[pairs]``.
    """
    keys = edge_index[1] * num_nodes + edge_index[0]
    pairs = wanted[1] * num_nodes + wanted[0]
    # Of a pair with one node that is not there the number would be that of another.
    return _find_sorted(keys, torch.where((wanted >= 0).all(0), pairs, -1))


def find_entries(
    edge_index: Tensor,
    num_nodes: int,
    graph: CanonicalGraph,
    node: Tensor,
    *,
    self_loops: bool,
) -> Tensor:
    """Find the edges and self-loops of a graph among those of another.

    Args:
        edge_index: Edges of the other one in canonical order, ``[2, edges]``.
        num_nodes: Number of nodes of the other one.
        graph: Where to find an entry for.
        node: Which node of the other one each of its nodes is, or -1, ``[nodes]``.
        self_loops: Whether both have a self-loop for every node after their edges.

    Returns:
        For each edge, and then for each self-loop if there are any, the number of the
        other's entry or -1, int64 ``[entries]``.
    """
    entry = find_edges(edge_index, num_nodes, node[graph.edge_index.cpu()])
    if not self_loops:
        return entry
    loops = torch.where(node >= 0, edge_index.shape[1] + node, -1)
    return torch.cat([entry, loops])


def _find_sorted(keys: Tensor, wanted: Tensor) -> Tensor:
    """Place of each of ``wanted`` among the sorted keys, or -1."""
    if keys.numel() == 0:
        return torch.full_like(wanted, -1)
    place = torch.searchsorted(keys, wanted).clamp(max=keys.numel() - 1)
    return torch.where(keys[place] == wanted, place, -1)
