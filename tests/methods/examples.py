"""Small graphs, quick estimators, and ways to change a graph."""

import copy
import warnings
from functools import cache
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, TransformerConv

import gsebo
from gsebo.methods import METHODS, GraphClassifier
from gsebo.methods.fitting import PreparedGraph
from gsebo.training import NodeClassification

NAMES = list(METHODS)

# Those that a method's constructor takes, whatever the method.
_QUICK: dict[str, Any] = {
    "hidden_channels": 8,
    "inner_steps": 3,
    "max_outer_steps": 4,
    "max_epochs": 12,
    "evaluate_every": 3,
    "outer_step": "paper",
    "outer_lr": 0.2,
    "random_state": 0,
}

# What a method needs beside those to fit as fast.
QUICK_OF: dict[str, dict[str, Any]] = {
    "retrain": {"method_options": {"max_outer_steps": 4}},
    "amortised": {"num_folds": 2, "refit_epochs": 12},
    "inoculated": {"num_folds": 2, "refit_epochs": 12},
    # With other features, or an MLP, it would be another method on another graph.
    "auto": {"methods": "vanilla,gsebo", "features": "given", "num_folds": 2},
    # Hot, because a cold sample is as sensitive to rounding as a coin on its edge.
    "vgcn": {
        "samples": 2,
        "test_samples": 2,
        "inner_lr": 0.01,
        "prior_temperature": 0.5,
        "posterior_temperature": 0.5,
    },
    "idgl": {"max_iterations": 2},
    "grcn": {"num_neighbors": 5},
    "slaps": {"num_neighbors": 4, "restoring_epochs": 3, "restoring_hidden": 6},
    "sublime": {
        "num_neighbors": 4,
        "contrast_epochs": 3,
        "train_every": 2,
        "contrast_hidden": 6,
        "contrast_channels": 5,
    },
    "ptdnet": {"passes": 2, "power_iterations": 2, "structure_lr": 0.1},
    "bgcn": {
        "warmup_epochs": 5,
        "refit_every": 3,
        "average_after": 9,
        "random_iterations": 3,
        "refit_iterations": 2,
    },
    "gaug_m": {"predictor_epochs": 3, "predictor_hidden": 4, "predictor_dim": 3},
    "gaug_o": {
        "pretrain_edge_epochs": 2,
        "pretrain_weight_epochs": 2,
        "predictor_hidden": 4,
        "predictor_dim": 3,
    },
    "magna": {"backbone_options": {"heads": 2, "hops": 2}},
    "lds": {"max_inner_steps": 6, "max_episodes": 2, "test_samples": 2},
    "gen": {"max_rounds": 3, "num_neighbors": 3},
    "denne": {"rounds": 5, "num_negative_samples": 3},
    "stable": {
        "pretrain_epochs": 3,
        "num_neighbors": 3,
        "backbone_options": {"embedding_channels": 6},
    },
}

# Options with which a method draws nothing at random but the initial weights, so that
# permuted nodes give permuted output; None where there are none.
_CALM: dict[str, dict[str, Any] | None] = {
    "retrain": {"method_options": {"dropout": 0.0, "max_outer_steps": 4}},
    # Folds are dealt by the number of each node.
    "amortised": {"label_use": "fixed"},
    "inoculated": None,  # False edges are drawn by the numbers of nodes.
    "auto": None,  # It holds out labels by the number of each node.
    "vgcn": None,  # Every pair of nodes has noise of its own.
    "idgl": {"graph_dropout": 0.0, "embedding_dropout": 0.0},
    "slaps": None,  # What is masked is drawn by the number of each node.
    "sublime": {
        "contrast_dropout": 0.0,
        "contrast_edge_dropout": 0.0,
        "edge_dropout": 0.0,
    },
    "bgcn": None,  # It trains on graphs that are drawn.
    "dropedge": {"drop_rate": 0.0},
    "gaug_m": {"predictor": "gae"},
    # Every graph that is drawn is the given one.
    "gaug_o": {"alpha": 0.0},
    # Every step draws Gumbel noise; without it there would be no method.
    "neuralsparse": None,
    # So hot that the noise of the gates is lost in rounding.
    "ptdnet": {"init_temperature": 1e12},
    "magna": {
        "backbone_options": {
            "heads": 2,
            "attention_dropout": 0.0,
            "edge_dropout": 0.0,
            "feed_forward_dropout": 0.0,
        }
    },
    "rgcn": None,  # It draws what its last layer gives for every node.
    # Without outer steps every edge stays certain; and halves are drawn by number.
    "lds": {"outer_lr": 0.0, "stop_on": "val"},
    "denne": None,  # Pairs and the start are drawn by the numbers of nodes.
    # Which features a node is told from is drawn by the numbers of nodes.
    "stable": {"pretrain_epochs": 0},
}

# Those for which both directions of an edge are one thing, or nothing.
UNDIRECTED = {"lds", "mlp", "prognn", "slaps", "stable", "vgcn"}

CALM_NAMES = [name for name in NAMES if _CALM.get(name, {}) is not None]


def calm(name: str, **changes: Any) -> GraphClassifier:
    """A quick estimator without dropout or anything else that is drawn at each step."""
    return quick(name, dropout=0.0, **(_CALM.get(name) or {}) | changes)


def supported(name: str, backbone: str) -> bool:
    """Whether a method works with a network."""
    names = METHODS[name].backbones
    return not names or backbone in names


def quick(name: str, **changes: Any) -> GraphClassifier:
    """An estimator that fits in some ten milliseconds."""
    estimator = METHODS[name].estimator
    taken = signature(estimator).parameters
    common = {k: v for k, v in _QUICK.items() if k in taken}
    return estimator(**common | QUICK_OF.get(name, {}) | changes)


def small_graph(num_nodes: int = 60, **changes: Any) -> Data:
    options = {"split": "random:20/30/50", "average_degree": 5.0, "num_features": 8}
    return gsebo.generate_graph(num_nodes, **options | changes)


def fitted(name: str, backbone: str | None = None) -> GraphClassifier:
    """A quick fit on the small graph, made once for all tests that only read it."""
    return _fitted(name, backbone or quick(name).backbone)


@cache
def _fitted(name: str, backbone: str) -> GraphClassifier:
    return quick(name, backbone=backbone).fit(small_graph())


@cache
def calm_fitted(name: str) -> GraphClassifier:
    """The same without anything that is drawn at each step."""
    return calm(name).fit(small_graph())


def with_fields(data: Data, **fields: Any) -> Data:
    """A shallow copy with some fields replaced."""
    changed = copy.copy(data)
    for key, value in fields.items():
        changed[key] = value
    return changed


def permuted(data: Data, order: Tensor) -> Data:
    """Node ``i`` of the result is node ``order[i]``; the edges keep their order."""
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    keys = ("x", "y", "train_mask", "val_mask", "test_mask")
    fields = {key: data[key][order] for key in keys}
    return with_fields(data, edge_index=place[data.edge_index], **fields)


def to_csr(x: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Torch calls the layout a beta.
        return x.to_sparse_csr()


def problem_of(model: gsebo.GSEBO, data: Data) -> NodeClassification:
    """The bilevel problem that ``model.fit(data)`` would solve."""
    prepared = PreparedGraph(data, torch.device("cpu"))
    return model.make_problem(prepared, model.random_state or 0)


class HandWritten(nn.Module):
    """What a user may write: two layers of their own choice, dropout in between."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int):
        super().__init__()
        network = nn.Sequential(nn.Linear(in_channels, hidden_channels), nn.ReLU())
        self.first = GINConv(network, train_eps=True)
        self.second = TransformerConv(hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = dropout(x, 0.3, self.training)
        h = torch.relu(self.first(h, edge_index))
        return self.second(dropout(h, 0.5, self.training), edge_index)


def assert_same_fit(left: GraphClassifier, right: GraphClassifier) -> None:
    """Two fits that agree bit for bit."""
    assert torch.equal(left.probability_, right.probability_)
    assert torch.equal(left.strength_, right.strength_)
    assert left.best_step_ == right.best_step_
