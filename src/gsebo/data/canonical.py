"""A graph's edges in one fixed order, and the way back to the user's order."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data


@dataclass(frozen=True, eq=False)
class CanonicalGraph:
    """A directed graph with its edges sorted, merged and freed of self-loops.

    Attributes:
        num_nodes: Number of nodes, ``N``.
        edge_index: Edges as int64 ``[2, E]``, row 0 the source and row 1 the target,
            without self-loops or duplicates, sorted by (target, source).
        entry_of_edge: For each edge of the user, int64 ``[user edges]``: the column
            of ``edge_index`` it became, or ``E + node`` for a self-loop.
    """

    num_nodes: int
    edge_index: Tensor
    entry_of_edge: Tensor

    @property
    def num_edges(self) -> int:
        """Number of canonical edges, ``E``."""
        return self.edge_index.shape[1]

    @cached_property
    def reverse_edge(self) -> Tensor:
        """Id of the edge ``(j, i)`` for each edge ``(i, j)``, -1 where there is none.

        Returns:
            int64 ``[E]``.
        """
        source, target = self.edge_index
        if self.num_edges == 0:
            return torch.empty_like(source)
        keys = _sort_key(source, target, self.num_nodes)
        wanted = _sort_key(target, source, self.num_nodes)
        found = torch.searchsorted(keys, wanted).clamp(max=self.num_edges - 1)
        return torch.where(keys[found] == wanted, found, -1)

    def to_user_order(self, edge_values: Tensor, loop_values: Tensor) -> Tensor:
        """Give every edge of the user the value of its canonical edge or self-loop.

        Args:
            edge_values: One value per canonical edge, ``[..., E]``.
            loop_values: One value per node's self-loop, ``[..., N]``; leading axes
                broadcast against those of ``edge_values``.

        Returns:
            ``[..., user edges]``.
        """
        leading = np.broadcast_shapes(edge_values.shape[:-1], loop_values.shape[:-1])
        entries = torch.cat(
            [
                edge_values.expand(*leading, self.num_edges),
                loop_values.expand(*leading, self.num_nodes),
            ],
            dim=-1,
        )
        return entries.index_select(-1, self.entry_of_edge)

    def user_edge_index(self) -> Tensor:
        """The user's edges in their own order, ``[2, user edges]``."""
        nodes = torch.arange(self.num_nodes, device=self.edge_index.device)
        entries = torch.cat([self.edge_index, nodes.expand(2, -1)], dim=1)
        return entries.index_select(1, self.entry_of_edge)

    def fingerprint(self) -> str:
        """Sha256 of the graph: equal for two graphs exactly when they are the same."""
        edges = self.edge_index.cpu().contiguous().numpy().astype("<i8", copy=False)
        digest = hashlib.sha256(self.num_nodes.to_bytes(8, "little"))
        digest.update(edges.tobytes())
        return digest.hexdigest()


def canonicalise(data: Data) -> CanonicalGraph:
    """Sort the edges of a validated graph, merge duplicates, set self-loops apart.

    A directed graph stays directed. The input is not changed.

    >>> loop_and_double = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 2]])
    >>> graph = canonicalise(Data(edge_index=loop_and_double, num_nodes=3))
    >>> graph.edge_index.tolist(), graph.entry_of_edge.tolist()
    ([[1, 1], [0, 2]], [0, 2, 0, 1])
    """
    num_nodes = int(data.num_nodes)
    source, target = data.edge_index.to(torch.int64)
    is_loop = source == target
    keys = _sort_key(source[~is_loop], target[~is_loop], num_nodes)
    unique_keys, inverse = torch.unique(keys, return_inverse=True)
    entry_of_edge = unique_keys.numel() + source
    entry_of_edge[~is_loop] = inverse
    edge_index = torch.stack([unique_keys % num_nodes, unique_keys // num_nodes])
    return CanonicalGraph(num_nodes, edge_index, entry_of_edge)


def _sort_key(source: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    """Number edges so that the order of the numbers is (target, source)."""
    return target * num_nodes + source
