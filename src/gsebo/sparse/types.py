"""Which type every row and every entry of a pattern is of: a graph with relations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import torch
from torch import Tensor

Relation = tuple[str, str, str]
"""Type of the source, name, type of the target, as PyG calls a relation."""


@final
@dataclass(frozen=True, eq=False)
class EntryTypes:
    """Types of nodes and relations of edges, by number, and what those are called.

    Attributes:
        node_type: Type of each node, int64 ``[nodes]``.
        edge_type: Relation of each edge, int64 ``[edges]``; in a pattern, of each
            entry, where self-loops are of one more, the last.
        node_types: Names of the types.
        edge_types: Names of the relations.
        columns: Which columns of the features belong to each type, where each has its
            own: first and end. ``None``: all types share all columns.
        classified: The type whose nodes have classes, if it is known.
    """

    node_type: Tensor
    edge_type: Tensor
    node_types: tuple[str, ...]
    edge_types: tuple[Relation, ...]
    columns: tuple[tuple[int, int], ...] | None = None
    classified: int | None = None

    @property
    def num_relations(self) -> int:
        """How many relations there are, self-loops not counted."""
        return len(self.edge_types)

    def with_loops(self, count: int) -> EntryTypes:
        """The same with a self-loop on so many nodes, as entries after the edges."""
        loops = self.edge_type.new_full((count,), self.num_relations)
        return replace(self, edge_type=torch.cat([self.edge_type, loops]))

    def of_edges(self, edge_type: Tensor) -> EntryTypes:
        """The same types of nodes, and other edges of the same relations."""
        return replace(self, edge_type=edge_type)

    def to(self, device: torch.device | str) -> EntryTypes:
        """The same on a device."""
        moved = self.node_type.to(device), self.edge_type.to(device)
        return replace(self, node_type=moved[0], edge_type=moved[1])

    @cached_property
    def place_in_type(self) -> Tensor:
        """Number of each node among those of its type, int64 ``[nodes]``."""
        place = torch.empty_like(self.node_type)
        for number in range(len(self.node_types)):
            chosen = self.node_type == number
            place[chosen] = torch.arange(int(chosen.sum()), device=place.device)
        return place

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[Relation, ...]]:
        """What has to be the same in two graphs for one model to read both."""
        return self.node_types, self.edge_types
