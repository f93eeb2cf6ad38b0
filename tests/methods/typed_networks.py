"""Networks of graphs with types: ours, and such as a user brings."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import (
    GATConv,
    HeteroConv,
    HGTConv,
    Linear,
    SAGEConv,
    to_hetero,
)

from .typed_graphs import RELATIONS, TYPES

METADATA = (list(TYPES), list(RELATIONS))


class HGT(nn.Module):
    """Two layers, of which the last says what authors are."""

    def __init__(self, layers: int = 2, width: int = 4) -> None:
        super().__init__()
        self.read = nn.ModuleDict({name: Linear(-1, width) for name in TYPES})
        self.layers = nn.ModuleList(
            HGTConv(width, width, METADATA, heads=2) for _ in range(layers)
        )
        self.out = Linear(width, 3)

    def forward(self, x_dict: dict, edge_index_dict: dict) -> Tensor:
        h = {name: self.read[name](x).tanh() for name, x in x_dict.items()}
        for layer in self.layers:
            h = layer(h, edge_index_dict)
        return self.out(h["author"])


class Convolutions(nn.Module):
    """A convolution of its own for each relation, with attention in one of them."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        own: dict[str, Callable[[int], nn.Module]] = {
            "in": lambda width: GATConv((-1, -1), width, add_self_loops=False),
            "knows": lambda width: GATConv(-1, width),
        }
        self.layers = nn.ModuleList(
            HeteroConv(
                {
                    each: own.get(each[1], lambda width: SAGEConv((-1, -1), width))(
                        3 if layer == layers - 1 else 5
                    )
                    for each in RELATIONS
                }
            )
            for layer in range(layers)
        )

    def forward(self, x_dict: dict, edge_index_dict: dict) -> dict:
        h = x_dict
        for layer in self.layers:
            h = {name: each.tanh() for name, each in layer(h, edge_index_dict).items()}
        return h


class Plain(nn.Module):
    """What a user writes for one type, and gives to ``to_hetero``."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        widths = [5] * (layers - 1) + [3]
        self.layers = nn.ModuleList(SAGEConv((-1, -1), width) for width in widths)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, edge_index).tanh()
        return x


def module(name: str, layers: int = 2) -> nn.Module:
    torch.manual_seed(0)
    if name == "to_hetero":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyG says which types hear nothing.
            return to_hetero(Plain(layers), METADATA)
    return {"HGT": HGT, "HeteroConv": Convolutions}[name](layers)


MODULES = ("HGT", "HeteroConv", "to_hetero")
NETWORKS: dict[str, tuple[Any, dict[str, Any] | None]] = {
    "relational gcn": ("relational-gcn", None),
    "of bases": ("relational-gcn", {"num_bases": 2}),
    "han": ("han", {"heads": 2, "relation_channels": 3}),
}


def network(name: str) -> dict[str, Any]:
    """Parameters of an estimator that name a network."""
    if name in MODULES:
        return {"backbone": module(name)}
    backbone, options = NETWORKS.get(name, (name, None))
    return {"backbone": backbone, "backbone_options": options}
