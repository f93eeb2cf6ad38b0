"""A small graph, and networks that were fitted on it."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from gsebo import Graph, Vanilla, generate_graph
from gsebo.attacks.base import Scene
from gsebo.attacks.victim import Victim, victim_of
from gsebo.methods import GraphClassifier

NODES, CLASSES = 120, 3


@cache
def small_graph() -> Graph:
    return generate_graph(
        NODES,
        num_classes=CLASSES,
        num_features=8,
        average_degree=5.0,
        homophily=0.9,
        feature_signal=0.8,
        split="random:20/20/60",
        seed=1,
    )


@cache
def fitted(backbone: str = "gcn") -> GraphClassifier:
    # Kernels of attention over eight channels are compiled for other tests too.
    own = {"hidden_channels": 8} if backbone == "gat" else {}
    options = {"max_epochs": 40, "random_state": 0, "device": "cpu"}
    return Vanilla(backbone, **own, **options).fit(small_graph())


def scene(model: Any = None, *, knows_labels: bool = False, seed: int = 0) -> Scene:
    return Scene(small_graph(), model or victim(), knows_labels, seed)


@cache
def victim(backbone: str = "gcn") -> Victim:
    return victim_of(fitted(backbone), small_graph())


def pair_set(pairs: Tensor) -> set[tuple[int, ...]]:
    found = {tuple(pair) for pair in pairs.tolist()}
    assert len(found) == len(pairs)
    assert all(first < second for first, second in found)
    return found


def edge_set(graph: Graph) -> set[tuple[int, ...]]:
    return {tuple(pair) for pair in graph.edge_index.T.tolist()}


def test_nodes() -> Tensor:
    found: Tensor = small_graph().test_mask.nonzero().squeeze(1)
    return found


test_nodes.__test__ = False  # type: ignore[attr-defined]


def as_double(graph: Graph) -> Graph:
    graph = graph.clone()
    graph.x = graph.x.to(torch.float64)
    return graph
