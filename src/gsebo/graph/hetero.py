"""Graphs with several types of nodes and relations, from PyG and back.

All nodes are numbered one type after the other, and edges follow each other relation by
relation. Features of types that have different ones stand side by side, each in columns
of its own, so that one linear map of them is a map for each type.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.graph.features import (
    csr_tensor,
    require_features,
    require_numbers,
    take_rows,
)
from gsebo.graph.graph import TYPE_NAMES, Graph
from gsebo.graph.node_match import node_ids
from gsebo.memory import require_memory
from gsebo.sparse import EntryTypes, Relation

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

METAPATH = "metapath:"
"""How the name of what is known of each node by a path of relations begins."""
_MASKS = ("train_mask", "val_mask", "test_mask", "unseen_mask")
# Several splits, a row for each.
_TABLES = ("train_masks", "val_masks", "test_masks")
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
# What is given of every edge, if it is given of those of any relation.
_WEIGHT, _ATTR = "edge_weight", "edge_attr"
# Of a node: its type, its label, masks and the ends of a row of features.
_BYTES_PER_NODE = 32


def from_hetero(data: HeteroData) -> Graph:
    """The nodes and edges of all types as one graph.

    The one type that has ``y``, or else masks, is the one whose nodes are classified;
    all others have no label. Nodes of a type without features are known by their type.
    Where any type has ``node_id``, nodes are called by that: as it is where all types
    have one and no two are equal, or else ``"TYPE:id"``.

    Raises:
        InvalidInput: Several types have labels, a relation names a type that has no
            nodes, or what is given of nodes and edges does not fit them.
    """
    names, relations = tuple(data.node_types), list(data.edge_types)
    if not names or not relations:
        raise InvalidInput(
            f"a HeteroData with {len(names)} types of nodes and {len(relations)} "
            "relations given; expected at least one of each."
        )
    for name in (*names, *(part for each in relations for part in each)):
        if not isinstance(name, str) or not name:
            raise InvalidInput(
                f"a HeteroData with a type or relation called {name!r:.40} given; "
                "expected texts."
            )
    sizes = [_num_nodes(data, name) for name in names]
    require_memory(
        _BYTES_PER_NODE * sum(sizes),
        what=f"a HeteroData of {sum(sizes)} nodes",
        instead="a smaller one",
    )
    starts = dict(zip(names, _starts(sizes), strict=True))
    edges = [_moved(data, each, starts, sizes, names) for each in relations]
    target = _classified(data, names)
    graph = Graph(
        edge_index=torch.cat(edges, 1),
        node_type=torch.arange(len(names)).repeat_interleave(torch.tensor(sizes)),
        edge_type=torch.arange(len(relations)).repeat_interleave(
            torch.tensor([each.shape[1] for each in edges])
        ),
        num_nodes=sum(sizes),
    )
    blocks, graph.x = _features(data, names, sizes)
    given = getattr(data, "meta", None)
    kept = given if isinstance(given, dict) else {}
    graph.meta = {
        **{key: value for key, value in kept.items() if key not in TYPE_NAMES},
        "node_types": list(names),
        "edge_types": [list(each) for each in relations],
        "columns": blocks,
        "without_features": [name for name in names if data[name].get("x") is None],
    }
    _join_weights(graph, data, relations)
    _join_attributes(graph, data, relations)
    _join_ids(graph, data, names, sizes)
    _join_metapaths(graph, data, names, sizes)
    if target is not None:
        graph.meta["target"] = target
        size = sizes[names.index(target)]
        _set_labels(graph, data[target], target, starts[target], size)
    return graph


def to_hetero(graph: Graph) -> HeteroData:
    """A graph as a PyG ``HeteroData``, with all that it has of nodes and edges.

    One without types has a single type and relation. ``meta`` goes with it.
    """
    from torch_geometric.data import HeteroData

    types, data = graph.one_or_more_types(), HeteroData()
    meta = graph.meta if isinstance(graph.meta, dict) else {}
    if meta:
        data.meta = meta
    ids, place = node_ids(graph), types.place_in_type
    bare = meta.get("without_features") or ()
    for number, name in enumerate(types.node_types):
        chosen = types.node_type == number
        store = data[name]
        store.num_nodes = int(chosen.sum())
        if "x" in graph and name not in bare:
            store.x = features_of_type(graph.x, types, number)
        if ids is not None:
            numbers = isinstance(ids, Tensor)
            store.node_id = ids[chosen if numbers else chosen.numpy()]
        for key in (key for key, _ in graph if key.startswith(METAPATH)):
            store[key] = _chosen(graph[key], chosen)
        if types.classified in (None, number):
            for key in ("y", *_MASKS):
                if key in graph:
                    store[key] = _chosen(graph[key], chosen)
            for key in (key for key in _TABLES if key in graph):
                store[key] = graph[key][:, chosen.to(graph[key].device)]
    ways = meta.get("edge_columns") or [None] * types.num_relations
    for number, (relation, columns) in enumerate(
        zip(types.edge_types, ways, strict=True)
    ):
        chosen = types.edge_type == number
        store = data[relation]
        store.edge_index = place[graph.edge_index.cpu()[:, chosen]]
        for key in (_WEIGHT, _ATTR, "edge_strength"):
            if key in graph:
                store[key] = _chosen(graph[key], chosen)
        if columns is not None and _ATTR in graph:
            first, end = columns
            store[_ATTR] = store[_ATTR][:, first:end]
            if first == end:
                del store[_ATTR]
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


def _chosen(values: Tensor, rows: Tensor) -> Tensor:
    return values[rows.to(values.device)]


def _num_nodes(data: HeteroData, name: str) -> int:
    with warnings.catch_warnings():
        # PyG warns that it cannot tell; we say what is expected.
        warnings.simplefilter("ignore", UserWarning)
        count = data[name].num_nodes
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise InvalidInput(
            f"node type {name!r} of the HeteroData has {count!r:.40} nodes; expected "
            "x, or num_nodes, of at least one node."
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
    what = f"relation {relation} of the HeteroData"
    _require_dense(edges, f"edge_index of the {what}")
    if edges.dtype not in _INTEGERS or edges.dim() != 2 or edges.shape[0] != 2:
        raise InvalidInput(
            f"edge_index of the {what} is {_said(edges)}; expected whole numbers, "
            "[2, edges]."
        )
    edges = edges.detach().cpu().to(torch.int64)
    for side, end in ((relation[0], edges[0]), (relation[2], edges[1])):
        if side not in starts:
            raise InvalidInput(
                f"{what} names the type {side!r}, which has no nodes; expected one of "
                + ", ".join(map(repr, names))
                + "."
            )
        size = sizes[names.index(side)]
        low, high = (int(one) for one in end.aminmax()) if end.numel() else (0, 0)
        if low < 0 or high >= size:
            raise InvalidInput(
                f"{what} names node {low if low < 0 else high} of the type {side!r}; "
                f"expected 0 to {size - 1}."
            )
    return torch.stack([edges[0] + starts[relation[0]], edges[1] + starts[relation[2]]])


def _require_dense(given: Any, what: str) -> None:
    """Raise for what is no dense tensor with numbers."""
    dense = isinstance(given, Tensor) and given.layout == torch.strided
    if not dense or given.is_nested:
        kind = "missing" if given is None else f"a {type(given).__name__}"
        kind = str(given.layout) if isinstance(given, Tensor) else kind
        raise InvalidInput(f"{what} is {kind}; expected a dense tensor.")
    require_numbers(given, what)


def _said(given: Tensor) -> str:
    return f"of shape {list(given.shape)} and {given.dtype}"


def _classified(data: HeteroData, names: tuple[str, ...]) -> str | None:
    """The type with labels, or else with masks, if there is one."""
    labelled = [name for name in names if data[name].get("y") is not None]
    split = [name for name in names if data[name].get("train_mask") is not None]
    found = labelled or split
    if len(found) > 1:
        found = [name for name in labelled if name in split]
        if len(found) != 1:
            told = "y" if labelled else "train_mask"
            raise InvalidInput(
                f"types {', '.join(map(repr, labelled or split))} of the HeteroData "
                f"have {told}; expected one type with y and train_mask, whose nodes "
                "are classified."
            )
    return found[0] if found else None


def _features(
    data: HeteroData, names: tuple[str, ...], sizes: list[int]
) -> tuple[list[list[int]], Tensor]:
    """Which columns belong to each type, and the features of all nodes side by side."""
    parts, blocks, begin = [], [], 0
    for name, size in zip(names, sizes, strict=True):
        x = data[name].get("x")
        x = torch.ones(size, 1) if x is None else _checked_features(x, name, size)
        parts.append(x)
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


def _checked_features(x: Any, name: str, size: int) -> Tensor:
    """Features of a type, where there is a row for each of its nodes."""
    if isinstance(x, Tensor) and x.layout == torch.sparse_coo and x.dim() == 2:
        x = _rows_of(x.detach().coalesce().cpu())
    try:
        found = require_features(x, floating=False)
    except InvalidInput as error:
        raise InvalidInput(f"node type {name!r} of the HeteroData: {error}") from error
    if found.shape[0] != size or not found.shape[1]:
        raise InvalidInput(
            f"x of the type {name!r} has shape {list(found.shape)}; expected a row for "
            f"each of {size} nodes, and at least one column."
        )
    return found.detach().cpu()


def _rows_of(x: Tensor) -> Tensor:
    """A coalesced matrix of coordinates as ``sparse_csr``."""
    rows, columns = x.indices()
    counts = torch.bincount(rows, minlength=x.shape[0])
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return csr_tensor(starts, columns, x.values(), (x.shape[0], x.shape[1]))


def _as_rows(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A matrix as ``sparse_csr``."""
    if x.layout == torch.sparse_csr:
        return csr_tensor(
            x.crow_indices().to(torch.int64),
            x.col_indices().to(torch.int64),
            x.values().to(dtype),
            (x.shape[0], x.shape[1]),
        )
    places = x.nonzero()
    counts = torch.bincount(places[:, 0], minlength=len(x))
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    values = x[places[:, 0], places[:, 1]].to(dtype)
    return csr_tensor(starts, places[:, 1], values, (x.shape[0], x.shape[1]))


def _of_edges(
    data: HeteroData, relations: list[Relation], key: str, sides: int
) -> list[tuple[int, Tensor | None]]:
    """For each relation how many edges it has, and what it says of each, as a table."""
    found: list[tuple[int, Tensor | None]] = []
    for relation in relations:
        count, given = data[relation].edge_index.shape[1], data[relation].get(key)
        if given is None:
            found.append((count, None))
            continue
        what = f"{key} of the relation {relation}"
        _require_dense(given, what)
        if given.is_complex() or given.dim() not in (1, 2) or given.shape[0] != count:
            raise InvalidInput(
                f"{what} is {_said(given)}; expected real numbers with a row for each "
                f"of {count} edges."
            )
        table = given.detach().cpu().reshape(count, -1) if count else given.cpu()
        table = table if table.dim() == 2 else table.unsqueeze(-1)
        if sides == 1 and table.shape[1] != 1:
            raise InvalidInput(
                f"{what} has shape {list(given.shape)}; expected [{count}], one for "
                "each edge."
            )
        whole = not table.is_floating_point()
        found.append((count, table.float() if whole else table))
    return found


def _join_weights(graph: Graph, data: HeteroData, relations: list[Relation]) -> None:
    """Weights of edges, of one where a relation has none."""
    given = _of_edges(data, relations, _WEIGHT, 1)
    if any(each is not None for _, each in given):
        kept = [torch.ones(n) if each is None else each[:, 0] for n, each in given]
        graph.edge_weight = torch.cat(kept)


def _join_attributes(graph: Graph, data: HeteroData, relations: list[Relation]) -> None:
    """Attributes of edges side by side, each relation's in columns of its own."""
    given = _of_edges(data, relations, _ATTR, 2)
    parts = [each for _, each in given if each is not None]
    if not parts:
        return
    widths = [0 if each is None else each.shape[1] for _, each in given]
    total = sum(count for count, _ in given)
    require_memory(
        parts[0].element_size() * total * sum(widths),
        what=f"edge_attr of {total} edges, of {len(parts)} relations side by side,",
        instead="fewer columns",
    )
    dtype = torch.float64 if any(e.dtype == torch.float64 for e in parts) else None
    whole = torch.zeros(total, sum(widths), dtype=dtype)
    columns, row, column = [], 0, 0
    for (count, each), width in zip(given, widths, strict=True):
        if each is not None:
            whole[row : row + count, column : column + width] = each
        columns.append([column, column + width])
        row, column = row + count, column + width
    graph.edge_attr = whole
    graph.meta["edge_columns"] = columns


def _join_ids(
    graph: Graph, data: HeteroData, names: tuple[str, ...], sizes: list[int]
) -> None:
    """What nodes are called, if any type says that."""
    given = [data[name].get("node_id") for name in names]
    for name, each in zip(names, given, strict=True):
        if isinstance(each, Tensor):
            _require_dense(each, f"node_id of the type {name!r}")
    stated = [node_ids(Graph(node_id=each)) for each in given]
    if all(each is None for each in stated):
        return
    ids: list[NDArray[Any]] = []
    for name, size, each in zip(names, sizes, stated, strict=True):
        found = np.arange(size) if each is None else np.asarray(each)
        if found.shape != (size,):
            raise InvalidInput(
                f"node_id of the type {name!r} has shape {list(found.shape)}; expected "
                f"one for each of {size} nodes."
            )
        ids.append(found)
    joined = np.concatenate(ids)
    alike = len({each.dtype.kind for each in ids}) == 1
    if not alike or any(e is None for e in stated) or len(set(joined)) < len(joined):
        joined = np.concatenate(
            [
                np.char.add(f"{name}:", each.astype(np.str_))
                for name, each in zip(names, ids, strict=True)
            ]
        )
    texts = joined.dtype.kind == "U"
    graph.node_id = joined if texts else torch.from_numpy(joined)


def _join_metapaths(
    graph: Graph, data: HeteroData, names: tuple[str, ...], sizes: list[int]
) -> None:
    """What all types know of their nodes by paths of relations."""
    for key in (key for key in data[names[0]] if key.startswith(METAPATH)):
        given = [data[name].get(key) for name in names]
        for name, size, each in zip(names, sizes, given, strict=True):
            what = f"{key} of the type {name!r}"
            _require_dense(each, what)
            if each.dim() != 2 or len(each) != size or each.dtype not in _FLOATS:
                raise InvalidInput(
                    f"{what} is {_said(each)}; expected numbers in floating point, a "
                    f"row for each of {size} nodes."
                )
        if len(widths := {each.shape[1] for each in given}) > 1:
            raise InvalidInput(
                f"{key} of the HeteroData has {min(widths)} to {max(widths)} columns; "
                "expected as many of each type."
            )
        graph[key] = torch.cat([each.detach().cpu() for each in given])


def _set_labels(graph: Graph, store: Any, name: str, begin: int, size: int) -> None:
    """Labels and masks of one type; what is wrong with them is found as in a graph."""

    def checked(key: str, axis: int) -> Tensor:
        given, what = store[key], f"{key} of the type {name!r}"
        _require_dense(given, what)
        if given.dim() <= axis or given.shape[axis] != size:
            raise InvalidInput(
                f"{what} is {_said(given)}; expected one number for each of {size} "
                "nodes."
            )
        found: Tensor = given.detach().cpu()
        return found

    count = graph.num_nodes
    if store.get("y") is not None:
        y = checked("y", 0)
        y = y.to(torch.int64) if y.dtype in _INTEGERS else y
        y = y.squeeze(-1) if y.shape == (size, 1) else y
        graph.y = torch.full((count, *y.shape[1:]), -1, dtype=y.dtype)
        graph.y[begin : begin + size] = y
    for key in (key for key in _MASKS if store.get(key) is not None):
        mask = checked(key, 0)
        graph[key] = mask.new_zeros(count, *mask.shape[1:])
        graph[key][begin : begin + size] = mask
    for key in (key for key in _TABLES if store.get(key) is not None):
        table = checked(key, 1)
        graph[key] = table.new_zeros(len(table), count, *table.shape[2:])
        graph[key][:, begin : begin + size] = table
