"""How a PyG model of several types is called, and which edges its messages go along."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple, final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch_geometric.nn import HANConv, HeteroConv, HGTConv

from gsebo.errors import InvalidInput
from gsebo.nn.relational import by_relation
from gsebo.sparse import EntryTypes, Pattern, Relation

_OF_TYPES = (HeteroConv, HGTConv, HANConv, GraphModule)


def takes_types(module: nn.Module) -> bool:
    """Whether a model is called with features and edges of each type in dictionaries.

    That is said by names that end in ``_dict``, by layers that are made for types, or
    by ``to_hetero``, which leaves a traced module behind.
    """
    if any(isinstance(each, _OF_TYPES) for each in module.modules()):
        return True
    names = inspect.signature(module.forward).parameters
    return any(name.endswith("_dict") for name in names)


class Way(NamedTuple):
    """Edges that messages may go along, and the entries whose strengths they have."""

    edge_index: Tensor
    entries: Tensor


@final
class TypedEdges:
    """The edges of each relation by the numbers of nodes among their type.

    Attributes:
        edge_index: Of each relation, ``[2, edges]``.
        ways: The same, and with a self-loop on every node where both ends are of one
            type, as the layers of PyG add them.
    """

    def __init__(self, pattern: Pattern, types: EntryTypes) -> None:
        place = types.place_in_type
        self.edge_index: dict[Relation, Tensor] = {}
        self.ways: list[Way] = []
        self._parts: list[Way] = []
        num_edges = pattern.num_entries - pattern.num_rows
        for relation, part in zip(types.edge_types, by_relation(pattern), strict=True):
            entries = part.entries
            source = place[pattern.column_of_entry[entries]]
            target = place[pattern.row_of_entry[entries]]
            edges = torch.stack([source, target])
            self.edge_index[relation] = edges
            self._parts.append(Way(edges, entries))
            if relation[0] == relation[2]:
                number = types.node_types.index(relation[0])
                nodes = (types.node_type == number).nonzero().squeeze(-1)
                loops = torch.arange(len(nodes), device=nodes.device).expand(2, -1)
                both = torch.cat([entries, num_edges + nodes])
                self.ways.append(Way(torch.cat([edges, loops], dim=1), both))
        self.ways = [*self._parts, *self.ways]
        self._all = torch.cat([part.entries for part in self._parts])

    def entries_along(self, edge_index: Tensor) -> Tensor | None:
        """Entries that messages along such edges go along, if they are known.

        An edge list that was handed to the model is known by itself, any other by its
        numbers; all relations may be joined, with numbers of nodes that go on.
        """
        for way in self.ways:
            if edge_index is way.edge_index:
                return way.entries
        equal = [way for way in self.ways if torch.equal(edge_index, way.edge_index)]
        if len(equal) == 1:
            return equal[0].entries
        if edge_index.shape[1] == len(self._all) and self._is_joined(edge_index):
            return self._all
        return None

    def _is_joined(self, edge_index: Tensor) -> bool:
        begin = 0
        for part in self._parts:
            end = begin + part.edge_index.shape[1]
            moved = edge_index[:, begin:end] - part.edge_index
            if moved.numel() and not bool((moved == moved[:, :1]).all()):
                return False
            begin = end
        return True


_edges: WeakKeyDictionary[Pattern, TypedEdges] = WeakKeyDictionary()


def typed_edges(pattern: Pattern, name: str) -> TypedEdges:
    """The edges of a pattern for a model of several types; made once for each.

    Raises:
        InvalidInput: The graph has one type of nodes and one relation.
    """
    if pattern.types is None:
        raise InvalidInput(
            f"{name} is called with dictionaries of types, and the graph has one type "
            "of nodes and one relation; expected a graph with several, such as a "
            "HeteroData."
        )
    if pattern not in _edges:
        _edges[pattern] = TypedEdges(pattern, pattern.types)
    return _edges[pattern]


def features_by_type(features: Tensor, types: EntryTypes) -> dict[str, Tensor]:
    """Dense features of the nodes of each type, in its own columns if it has some."""
    found = {}
    for number, name in enumerate(types.node_types):
        rows = features[types.node_type == number]
        if types.columns is not None:
            first, end = types.columns[number]
            rows = rows[:, first:end]
        found[name] = rows
    return found


def joined_scores(given: Any, types: EntryTypes, num_classes: int | None) -> Any:
    """What a model says of some types as scores of all nodes, zero for the others.

    The model gives a dictionary by type, or one tensor for the nodes of one type.
    """
    sizes = types.node_type.bincount(minlength=len(types.node_types)).tolist()
    if isinstance(given, Tensor):
        fitting = [
            name
            for name, size in zip(types.node_types, sizes, strict=True)
            if given.dim() == 2 and size == given.shape[0]
        ]
        if len(fitting) != 1:
            return given
        given = {fitting[0]: given}
    if not isinstance(given, dict):
        return given
    kept = {
        name: each
        for name, each in given.items()
        if isinstance(each, Tensor)
        and each.dim() == 2
        and name in types.node_types
        and (num_classes is None or each.shape[1] == num_classes)
    }
    widths = {each.shape[1] for each in kept.values()}
    if len(widths) != 1:
        return given
    like = next(iter(kept.values()))
    scores = like.new_zeros(len(types.node_type), widths.pop())
    for name, each in kept.items():
        rows = (types.node_type == types.node_types.index(name)).nonzero().squeeze(-1)
        scores = scores.index_copy(0, rows, each)
    return scores
