"""Small graphs with several types of nodes and relations, and ways to change them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from gsebo import Graph

TYPES = ("author", "paper", "venue")
RELATIONS = (
    ("author", "writes", "paper"),
    ("paper", "written", "author"),
    ("paper", "in", "venue"),
    ("venue", "of", "paper"),
    ("author", "knows", "author"),
    # Joins some of the nodes that the one before joins.
    ("author", "cites", "author"),
)
CLASSES = 3


def typed_graph(
    authors: int = 30, *, false: float = 0.0, seed: int = 0, dtype: Any = torch.float32
) -> HeteroData:
    """Authors of three classes, their papers and venues; a venue has no features.

    Edges join one class but for a share that is ``false``; those come last in each
    relation and are marked in ``is_false``.
    """
    rng = torch.Generator().manual_seed(seed)
    sizes = {"author": authors, "paper": 2 * authors, "venue": CLASSES}
    of = {name: torch.arange(size) % CLASSES for name, size in sizes.items()}
    data = HeteroData()
    for name, width in (("author", 6), ("paper", 4)):
        centre = torch.randn(CLASSES, width, generator=rng, dtype=torch.float64)
        drawn = torch.randn(sizes[name], width, generator=rng, dtype=torch.float64)
        data[name].x = (centre[of[name]] + 1.5 * drawn).to(dtype)
    data["venue"].num_nodes = sizes["venue"]

    def joined(one: str, other: str, count: int) -> tuple[Tensor, Tensor]:
        pairs = torch.cartesian_prod(
            torch.arange(sizes[one]), torch.arange(sizes[other])
        ).T
        if one == other:
            pairs = pairs[:, pairs[0] != pairs[1]]
        pairs = pairs[:, torch.randperm(pairs.shape[1], generator=rng)]
        alike = of[one][pairs[0]] == of[other][pairs[1]]
        wrong = round(false * count)
        right = pairs[:, alike][:, : count - wrong]
        edges = torch.cat([right, pairs[:, ~alike][:, :wrong]], dim=1)
        return edges, torch.arange(edges.shape[1]) >= right.shape[1]

    wrote, wrong = joined("author", "paper", 4 * authors)
    held, misplaced = joined("paper", "venue", 2 * authors)
    knows, strangers = joined("author", "author", 2 * authors)
    found = (
        (wrote, wrong),
        (wrote.flip(0), wrong),
        (held, misplaced),
        (held.flip(0), misplaced),
        (knows, strangers),
        (knows[:, ::3], strangers[::3]),
    )
    for relation, (edges, is_false) in zip(RELATIONS, found, strict=True):
        data[relation].edge_index, data[relation].is_false = edges, is_false
    data["author"].y = of["author"]
    # Each class has nodes in every mask.
    place = torch.arange(authors) // CLASSES
    for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data["author"][name] = place % 3 == number
    return data


def permuted_nodes(
    data: HeteroData, seed: int = 1
) -> tuple[HeteroData, dict[str, Tensor]]:
    """The same graph with its nodes in another order within their type.

    Also which node of the given graph each node of a type is.
    """
    rng = torch.Generator().manual_seed(seed)
    orders = {
        name: torch.randperm(int(data[name].num_nodes), generator=rng)
        for name in data.node_types
    }
    places = {name: order.argsort() for name, order in orders.items()}
    other = data.clone()
    for name, order in orders.items():
        for key, value in data[name].items():
            if isinstance(value, Tensor):
                other[name][key] = value[order]
    for one, name, two in data.edge_types:
        ends = data[one, name, two].edge_index
        moved = torch.stack([places[one][ends[0]], places[two][ends[1]]])
        other[one, name, two].edge_index = moved
    return other, orders


def one_type(graph: Graph) -> Graph:
    """A graph without types, told that all it has is of one."""
    typed = graph.clone()
    typed.node_type = torch.zeros(graph.num_nodes, dtype=torch.int64)
    typed.edge_type = torch.zeros(graph.num_edges, dtype=torch.int64)
    return typed
