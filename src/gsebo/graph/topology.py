"""The graph as structures and backbones see it: entries, some of them loops."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gsebo.graph.graph import Graph, as_graph
from gsebo.sparse import CompletePattern, EntryTypes, Pattern


@dataclass(frozen=True, eq=False)
class CanonicalGraph:
    """A directed graph with its edges sorted, merged and freed of self-loops.

    Attributes:
        num_nodes: Number of nodes, ``N``.
        edge_index: Edges as int64 ``[2, E]``, row 0 the source and row 1 the target,
            without self-loops or duplicates, sorted by (target, source).
        entry_of_edge: For each edge of the user, int64 ``[user edges]``: the column
            of ``edge_index`` it became, or ``E + node`` for a self-loop.
        weight: What each edge weighs, float64 ``[E]``: the entries of A. ``None``:
            all weigh one.
        attr: What else is given of each edge, floating point ``[E, columns]``.
        types: Of nodes and edges, where there is more than one type of either. Edges
            of two relations that join the same nodes stay two, the one with the lower
            number first.
    """

    num_nodes: int
    edge_index: Tensor
    entry_of_edge: Tensor
    weight: Tensor | None = None
    attr: Tensor | None = None
    types: EntryTypes | None = None

    @property
    def num_edges(self) -> int:
        """Number of canonical edges, ``E``."""
        return self.edge_index.shape[1]

    @cached_property
    def reverse_edge(self) -> Tensor:
        """Id of the edge ``(j, i)`` for each ``(i, j)``, -1 where there is none.

        Of several that are of different relations it is the first.
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

        Values are ``[..., E]`` and ``[..., N]``; leading axes broadcast.
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
        if self.weight is not None:
            digest.update(self.weight.cpu().numpy().astype("<f8", copy=False).tobytes())
        if self.types is not None:
            for numbers in (self.types.node_type, self.types.edge_type):
                digest.update(numbers.cpu().numpy().astype("<i8").tobytes())
        return digest.hexdigest()


def canonicalise(data: Graph) -> CanonicalGraph:
    """Sort the edges of a validated graph, merge duplicates, set self-loops apart.

    A directed graph stays directed. Edges of different relations are no duplicates.
    The weights of duplicates are added up, and their attributes averaged; those of
    self-loops are left out. Weights that are all one are the same as none. The input
    is not changed.

    Args:
        data: A graph whose arrays have been checked.

    >>> loop_and_double = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 2]])
    >>> graph = canonicalise(Graph(edge_index=loop_and_double, num_nodes=3))
    >>> graph.edge_index.tolist(), graph.entry_of_edge.tolist()
    ([[1, 1], [0, 2]], [0, 2, 0, 1])
    """
    num_nodes = int(data.num_nodes)
    source, target = data.edge_index.to(torch.int64)
    is_loop = source == target
    keys = _sort_key(source[~is_loop], target[~is_loop], num_nodes)
    types = as_graph(data).types
    relations = 1 if types is None else types.num_relations
    if types is not None:
        keys = keys * relations + types.edge_type.to(keys.device)[~is_loop]
    unique_keys, inverse = torch.unique(keys, return_inverse=True)
    entry_of_edge = unique_keys.numel() + source
    entry_of_edge[~is_loop] = inverse
    places = unique_keys // relations
    edge_index = torch.stack([places % num_nodes, places // num_nodes])
    weight = _merged_weight(data, ~is_loop, inverse, unique_keys.numel())
    attr = _merged_attr(data, ~is_loop, inverse, unique_keys.numel())
    if types is not None:
        types = types.of_edges(unique_keys % relations)
    return CanonicalGraph(num_nodes, edge_index, entry_of_edge, weight, attr, types)


def _merged_weight(
    data: Graph, chosen: Tensor, place: Tensor, count: int
) -> Tensor | None:
    """Sum of the weights of the chosen edges at each place, if they are not all one."""
    if "edge_weight" not in data:
        return None
    given = data.edge_weight.detach().to(chosen.device, torch.float64)[chosen]
    if bool((given == 1).all()):
        return None
    return given.new_zeros(count).index_add_(0, place, given)


def _merged_attr(
    data: Graph, chosen: Tensor, place: Tensor, count: int
) -> Tensor | None:
    """Mean of the attributes of the chosen edges at each place."""
    if "edge_attr" not in data:
        return None
    given = data.edge_attr.detach().to(chosen.device)[chosen]
    if given.dtype != torch.float64:
        given = given.float()
    given = given.reshape(len(place), -1)
    times = torch.bincount(place, minlength=count).to(given).unsqueeze(-1)
    return given.new_zeros(count, given.shape[1]).index_add_(0, place, given) / times


def _sort_key(source: Tensor, target: Tensor, num_nodes: int) -> Tensor:
    """Number edges so that the order of the numbers is (target, source)."""
    return target * num_nodes + source


@dataclass(frozen=True, eq=False)
class Topology:
    """Entries of A or A + I, rows = targets, columns = sources.

    Entry order: the canonical edges first, then (where there are any) the self-loops in
    node order. PyG layers that add self-loops send their messages in the same order.

    Attributes:
        pattern: Where the entries are.
        graph: The edges that they are of.
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
        if graph.types is not None:
            loops = graph.num_nodes if self_loops else 0
            pattern.types = graph.types.to(source.device).with_loops(loops)
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

    @cached_property
    def weights(self) -> Tensor | None:
        """Entries of A + I, ``[entries]``; a self-loop weighs one. ``None``: all do."""
        given = self.graph.weight
        if given is None:
            return None
        weights = torch.cat([given, given.new_ones(self.num_loops)])
        return weights.to(self.pattern.device)


class Propagation(NamedTuple):
    """Entries with their strengths, ``[entries]`` or ``[layers, entries]``.

    Attributes:
        pattern: Where the entries are; a row receives, a column sends.
        strengths: Of each entry.
    """

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
