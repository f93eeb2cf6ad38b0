"""Graphs with several types of nodes and relations, from PyG and back.

All nodes are numbered one type after the other, and edges follow each other relation by
relation. Features of types that have different ones stand side by side, each in columns
of its own, so that one linear map of them is a map for each type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.graph.features import csr_tensor, take_rows
from gsebo.graph.graph import Graph
from gsebo.sparse import EntryTypes, Relation

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

_MASKS = ("train_mask", "val_mask", "test_mask")
# What is given of every edge, if it is given of those of any relation.
_OF_EDGES = ("edge_weight", "edge_attr")


def from_hetero(data: HeteroData) -> Graph:
    """The nodes and edges of all types as one graph.

    The one type that has ``y`` and masks is the one whose nodes are classified; all
    others have no label. Nodes of a type without features are known by their type.

    Raises:
        InvalidInput: No type has labels, several have, or a relation names a type
            that has no nodes.
    """
    names = tuple(data.node_types)
    sizes = [_num_nodes(data, name) for name in names]
    starts = dict(zip(names, _starts(sizes), strict=True))
    relations: list[Relation] = list(data.edge_types)
    if not names or not relations:
        raise InvalidInput(
            f"a HeteroData with {len(names)} types of nodes and {len(relations)} "
            "relations given; expected at least one of each."
        )
    target = _labelled_type(data, names)
    graph = Graph(
        edge_index=torch.cat(
            [_moved(data, relation, starts, sizes, names) for relation in relations], 1
        ),
        node_type=torch.arange(len(names)).repeat_interleave(torch.tensor(sizes)),
        edge_type=torch.arange(len(relations)).repeat_interleave(
            torch.tensor([data[each].edge_index.shape[1] for each in relations])
        ),
        num_nodes=sum(sizes),
    )
    blocks, graph.x = _features(data, names, sizes)
    graph.meta = {
        "node_types": list(names),
        "edge_types": [list(each) for each in relations],
        "columns": blocks,
        "target": target,
    }
    for name in _OF_EDGES:
        _join_edge_values(graph, data, relations, name)
    if target is not None:
        _set_labels(graph, data[target], starts[target], sizes[names.index(target)])
    return graph


def to_hetero(graph: Graph) -> HeteroData:
    """A graph with types as a PyG ``HeteroData``, with all that it has of each."""
    from torch_geometric.data import HeteroData

    types = graph.types
    if types is None:
        raise InvalidInput(
            "a graph with one type of nodes and one relation given; expected several "
            "of either."
        )
    data, target = HeteroData(), (graph.meta or {}).get("target")
    place = types.place_in_type
    for number, name in enumerate(types.node_types):
        chosen = types.node_type == number
        store = data[name]
        store.num_nodes = int(chosen.sum())
        if "x" in graph:
            store.x = features_of_type(graph.x, types, number)
        labelled = "y" in graph and bool((graph.y[chosen] >= 0).any())
        if name == target or (target is None and labelled):
            for key in ("y", *_MASKS):
                if key in graph:
                    store[key] = graph[key][chosen]
    for number, relation in enumerate(types.edge_types):
        chosen = types.edge_type == number
        store = data[relation]
        store.edge_index = place[graph.edge_index[:, chosen]]
        for key in (*_OF_EDGES, "edge_strength"):
            if key in graph:
                store[key] = graph[key][chosen]
    return data


def give_strengths(data: HeteroData, strength: Tensor) -> None:
    """Write ``edge_strength`` of all edges, ``[edges, ...]``, relation by relation."""
    begin = 0
    for relation in data.edge_types:
        end = begin + data[relation].edge_index.shape[1]
        data[relation].edge_strength = strength[begin:end]
        begin = end


def features_of_type(x: Tensor, types: EntryTypes, number: int) -> Tensor:
    """Dense features of the nodes of one type, in its own columns if it has some."""
    rows = (types.node_type == number).nonzero().squeeze(-1)
    found = take_rows(x, rows.to(x.device))
    if found.layout != torch.strided:
        found = found.to_dense()
    if types.columns is None:
        return found
    begin, end = types.columns[number]
    return found[:, begin:end]


def _num_nodes(data: HeteroData, name: str) -> int:
    count = data[name].num_nodes
    if not isinstance(count, int) or count < 1:
        raise InvalidInput(
            f"node type {name!r} of the HeteroData has {count} nodes; expected x, or "
            "num_nodes, of at least one node."
        )
    return count


def _starts(sizes: list[int]) -> list[int]:
    return [sum(sizes[:number]) for number in range(len(sizes))]


def _moved(
    data: HeteroData,
    relation: Relation,
    starts: dict[str, int],
    sizes: list[int],
    names: tuple[str, ...],
) -> Tensor:
    """Edges of a relation by the numbers of all nodes, once they are known to exist."""
    edges = data[relation].get("edge_index")
    if not isinstance(edges, Tensor) or edges.dim() != 2 or edges.shape[0] != 2:
        raise InvalidInput(
            f"relation {relation} of the HeteroData has no edge_index [2, edges]; "
            "expected one."
        )
    edges = edges.to(torch.int64)
    for side, end in ((relation[0], edges[0]), (relation[2], edges[1])):
        if side not in starts:
            raise InvalidInput(
                f"relation {relation} of the HeteroData names the type {side!r}, which "
                "has no nodes; expected one of " + ", ".join(map(repr, names)) + "."
            )
        size = sizes[names.index(side)]
        if end.numel() and not 0 <= int(end.min()) <= int(end.max()) < size:
            raise InvalidInput(
                f"relation {relation} of the HeteroData names node {int(end.max())} of "
                f"type {side!r}; expected 0 to {size - 1}."
            )
    return torch.stack([edges[0] + starts[relation[0]], edges[1] + starts[relation[2]]])


def _labelled_type(data: HeteroData, names: tuple[str, ...]) -> str | None:
    labelled = [name for name in names if data[name].get("y") is not None]
    if len(labelled) > 1:
        split = [name for name in labelled if data[name].get("train_mask") is not None]
        if len(split) != 1:
            raise InvalidInput(
                f"types {', '.join(map(repr, labelled))} of the HeteroData have y; "
                "expected one type with y and train_mask, whose nodes are classified."
            )
        return split[0]
    return labelled[0] if labelled else None


def _features(
    data: HeteroData, names: tuple[str, ...], sizes: list[int]
) -> tuple[list[list[int]], Tensor]:
    """Which columns belong to each type, and the features of all nodes side by side."""
    parts, blocks, begin = [], [], 0
    for name, size in zip(names, sizes, strict=True):
        x = data[name].get("x")
        if x is None:
            x = torch.ones(size, 1)
        if not isinstance(x, Tensor) or x.dim() != 2 or x.shape[0] != size:
            raise InvalidInput(
                f"x of the type {name!r} is no matrix with {size} rows; expected one "
                "row for each node."
            )
        x = x if x.is_floating_point() else x.float()
        parts.append(x.detach().cpu())
        blocks.append([begin, begin + x.shape[1]])
        begin += x.shape[1]
    double = any(x.dtype == torch.float64 for x in parts)
    dtype = torch.float64 if double else torch.float32
    rows = [
        (_as_rows(x, dtype), first) for x, (first, _) in zip(parts, blocks, strict=True)
    ]
    counts = torch.cat([each.crow_indices().diff() for each, _ in rows])
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    columns = torch.cat([each.col_indices() + first for each, first in rows])
    values = torch.cat([each.values() for each, _ in rows])
    return blocks, csr_tensor(starts, columns, values, (sum(sizes), begin))


def _as_rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A matrix as ``sparse_csr``."""
    if x.layout == torch.sparse_csr:
        return x.to(dtype)
    if x.layout != torch.strided:
        x = x.to_dense()
    places = x.nonzero()
    counts = torch.bincount(places[:, 0], minlength=len(x))
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    values = x[places[:, 0], places[:, 1]].to(dtype)
    return csr_tensor(starts, places[:, 1], values, (x.shape[0], x.shape[1]))


def _join_edge_values(
    graph: Graph, data: HeteroData, relations: list[Relation], name: str
) -> None:
    """Weights of edges, of one where a relation has none; attributes likewise of 0."""
    given = [data[each].get(name) for each in relations]
    if all(each is None for each in given):
        return
    counts = [data[each].edge_index.shape[1] for each in relations]
    if name == "edge_weight":
        kept = [
            torch.ones(count) if each is None else each.float().reshape(-1)
            for each, count in zip(given, counts, strict=True)
        ]
        graph[name] = torch.cat(kept)
        return
    rows = [
        None if each is None else each.float().reshape(count, -1)
        for each, count in zip(given, counts, strict=True)
    ]
    widths = [0 if each is None else each.shape[1] for each in rows]
    whole = torch.zeros(sum(counts), sum(widths))
    row, column = 0, 0
    for each, count, width in zip(rows, counts, widths, strict=True):
        if each is not None:
            whole[row : row + count, column : column + width] = each
        row, column = row + count, column + width
    graph[name] = whole


def _set_labels(graph: Graph, store: Any, begin: int, size: int) -> None:
    count = graph.num_nodes
    y = torch.full((count,), -1)
    y[begin : begin + size] = store.y.reshape(-1).to(torch.int64)
    graph.y = y
    for name in _MASKS:
        if store.get(name) is not None:
            mask = torch.zeros(count, dtype=torch.bool)
            mask[begin : begin + size] = store[name]
            graph[name] = mask
