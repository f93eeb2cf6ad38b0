"""The published files of HGSL: graphs with several types of nodes and relations.

They hold one array of edges for each relation, called ``edge_index.R`` with ``R`` such
as ``a-p``, perhaps ``edge_weight.R``, and ``metapath.M`` for each path of relations
that nodes were embedded by. Nothing in them is pickled.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gsebo.data.formats.edge_values import checked_edge_values
from gsebo.data.formats.npz import checked_metapath, read_features
from gsebo.data.formats.npz_archive import Arrays, expect, integers, read_arrays
from gsebo.data.relations import require_types
from gsebo.data.validate import MASKS, most_nodes
from gsebo.errors import InvalidInput, escaped
from gsebo.graph.graph import Graph
from gsebo.graph.hetero import METAPATH

Ints = NDArray[np.int64]

_EDGES, _WEIGHTS, _METAPATHS = "edge_index.", "edge_weight.", "metapath."
_SETS = tuple(mask.removesuffix("_mask") for mask in MASKS)
_KEYS = (
    "num_nodes",
    "node_type",
    "node_type_names",
    *("x", "x_data", "x_indices", "x_indptr", "x_shape"),
    *(f"{name}_nodes" for name in _SETS),
    *(f"{name}_labels" for name in _SETS),
)


def load_hgsl(path: str | PathLike[str]) -> Graph:
    """Read a published file as a graph with types.

    Edges follow each other relation by relation, in the order of the relations' names.
    Embeddings by a metapath ``M`` are ``graph["metapath:M"]``, ``[nodes, 64]``.

    Raises:
        InvalidInput: The file is missing, damaged or not of this kind.
    """
    where = escaped(str(path))
    arrays = read_arrays(Path(path), _KEYS, (_EDGES, _WEIGHTS, _METAPATHS))
    for key in _KEYS[:3]:
        _require(arrays, key, where)
    count = int(integers(arrays, "num_nodes", (), where))
    relations = sorted(
        key.removeprefix(_EDGES) for key in arrays if key.startswith(_EDGES)
    )
    parts = [
        integers(arrays, f"{_EDGES}{each}", (2, None), where) for each in relations
    ]
    num_edges = sum(part.shape[1] for part in parts)
    if not num_edges or not 0 < count <= most_nodes(num_edges):
        raise InvalidInput(
            f"{where} has {count} nodes and {num_edges} edges: expected a graph."
        )
    names = _names(arrays, where)
    graph = Graph(
        x=read_features(arrays, where),
        edge_index=torch.from_numpy(_in_range(np.hstack(parts), count, where)),
        node_type=torch.from_numpy(integers(arrays, "node_type", (count,), where)),
        edge_type=torch.arange(len(parts)).repeat_interleave(
            torch.tensor([part.shape[1] for part in parts])
        ),
    )
    if "x" not in graph or graph.x.shape[0] != count:
        raise InvalidInput(
            f"x of {where} has no row for each of {count} nodes: expected features."
        )
    sizes = [part.shape[1] for part in parts]
    weights = [
        _weights(arrays, each, size, where)
        for each, size in zip(relations, sizes, strict=True)
    ]
    if any((part != 1).any() for part in weights):
        graph.edge_weight = torch.from_numpy(np.concatenate(weights))
    for key in sorted(key for key in arrays if key.startswith(_METAPATHS)):
        kept = f"{METAPATH}{key.removeprefix(_METAPATHS)}"
        graph[kept] = torch.from_numpy(checked_metapath(arrays, key, count, where))
    graph.meta = {
        "node_types": names,
        "edge_types": [_relation(each, where) for each in relations],
    }
    _set_labels(graph, arrays, count, where)
    require_types(graph, count, where)
    labelled = torch.unique(graph.node_type[graph.y >= 0]).tolist()
    if len(labelled) != 1:
        raise InvalidInput(
            f"nodes of {len(labelled)} types of {where} have labels: expected one type."
        )
    graph.meta["target"] = names[labelled[0]]
    return graph


def _require(arrays: Arrays, key: str, where: str) -> None:
    if key not in arrays:
        raise InvalidInput(
            f"{where} lacks {key!r}: expected one of HGSL's files as plain arrays."
        )


def _names(arrays: Arrays, where: str) -> list[str]:
    expect(arrays, "node_type_names", "U", (None,), where)
    try:
        names = [str(each) for each in arrays["node_type_names"].tolist()]
    except (ValueError, SystemError) as error:
        # Four bytes for each character need not be one that there is.
        raise InvalidInput(
            f"node_type_names of {where} is no text: expected names of the types."
        ) from error
    return names


def _in_range(edges: Ints, count: int, where: str) -> Ints:
    low, high = int(edges.min()), int(edges.max())
    if low < 0 or high >= count:
        raise InvalidInput(
            f"an edge of {where} names node {low if low < 0 else high}: expected 0 to "
            f"{count - 1}."
        )
    return edges


def _relation(name: str, where: str) -> list[str]:
    """Type of the source, name, and type of the target, as in ``a-p``."""
    source, dash, target = name.partition("-")
    if not dash or "-" in target:
        raise InvalidInput(
            f"{where} has a relation called {escaped(name, longest=40)!r}: expected "
            "two types and a hyphen between them."
        )
    return [source, name, target]


def _weights(arrays: Arrays, name: str, size: int, where: str) -> NDArray[np.float32]:
    """The weights of a relation's edges, which are one where the file has none."""
    given = arrays.get(f"{_WEIGHTS}{name}")
    if given is None:
        return np.ones(size, np.float32)
    found = checked_edge_values({"edge_weight": given}, size, where)
    return found["edge_weight"].astype(np.float32)


def _set_labels(graph: Graph, arrays: Arrays, count: int, where: str) -> None:
    """Labels and masks of the nodes that are in one of the three sets."""
    y = torch.full((count,), -1)
    masks: dict[str, Any] = {
        mask: torch.zeros(count, dtype=torch.bool) for mask in MASKS
    }
    for name in _SETS:
        for what in ("nodes", "labels"):
            _require(arrays, f"{name}_{what}", where)
        nodes = integers(arrays, f"{name}_nodes", (None,), where)
        labels = integers(arrays, f"{name}_labels", (len(nodes),), where)
        known = nodes.size and nodes.min() >= 0 and nodes.max() < count
        if not known or labels.min() < 0 or labels.max() >= count:
            raise InvalidInput(
                f"{name}_nodes and {name}_labels of {where} hold other numbers than "
                f"those of nodes and classes: expected 0 to {count - 1}."
            )
        chosen = torch.from_numpy(nodes)
        if len(np.unique(nodes)) < len(nodes) or bool((y[chosen] >= 0).any()):
            raise InvalidInput(
                f"{name}_nodes of {where} holds a node that is in a set already: "
                "expected each once."
            )
        y[chosen] = torch.from_numpy(labels)
        masks[f"{name}_mask"][chosen] = True
    graph.y = y
    for mask, held in masks.items():
        graph[mask] = held
