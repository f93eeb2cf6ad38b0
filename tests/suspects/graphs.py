"""Small graphs some of whose edges are known to be wrong."""

from typing import Any

import numpy as np
import torch
from sklearn.metrics import roc_auc_score

from gsebo import Graph, SuspiciousEdges, add_inter_class_edges, generate_graph

NODES, CLASSES = 160, 3


def right_graph(seed: int = 0) -> Graph:
    return generate_graph(
        NODES,
        num_classes=CLASSES,
        num_features=16,
        average_degree=6.0,
        homophily=0.95,
        feature_signal=0.7,
        split="random:20/20/60",
        seed=seed,
    )


def noisy_graph(seed: int = 0) -> Graph:
    """The same with wrong edges at its end."""
    return add_inter_class_edges(right_graph(seed), 55, seed)


def without(graph: Graph, *names: str) -> Graph:
    """The same graph, of which less is known."""
    bare = graph.clone()
    for name in names:
        del bare[name]
    return bare


def few_labels(graph: Graph) -> Graph:
    """With one or two known labels of each class."""
    graph = graph.clone()
    train = torch.zeros(graph.num_nodes, dtype=torch.bool)
    for label in range(CLASSES):
        train[(graph.y == label).nonzero()[: 1 + (label > 0), 0]] = True
    graph.train_mask, graph.val_mask = train, torch.zeros_like(train)
    return graph


def fitted(graph: Any, **settings: Any) -> SuspiciousEdges:
    """One quick round."""
    chosen = {"rounds": 1, "device": "cpu", "random_state": 0} | settings
    return SuspiciousEdges(**chosen).fit(graph)


def is_wrong(found: SuspiciousEdges, seed: int = 0) -> Any:
    """Which rows are none of the edges of the right graph."""
    right = {frozenset(pair) for pair in right_graph(seed).edge_index.T.tolist()}
    return np.array([frozenset(pair) not in right for pair in found.ends_.T.tolist()])


def area(found: SuspiciousEdges, seed: int = 0) -> float:
    """How likely a wrong edge is more suspicious than a right one."""
    return float(roc_auc_score(is_wrong(found, seed), found.edges_["score"]))
