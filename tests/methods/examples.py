"""Small graphs, quick estimators, and ways to change a graph."""

import copy
import warnings
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout
from torch_geometric.data import Data
from torch_geometric.nn import GINConv, TransformerConv

import gsebo
from gsebo.methods import METHODS, GraphClassifier
from gsebo.methods.prepare import PreparedGraph
from gsebo.training import NodeClassification

NAMES = list(METHODS)

# Those that a method's constructor takes, whatever the method.
_QUICK: dict[str, Any] = {
    "hidden_channels": 8,
    "inner_steps": 3,
    "max_outer_steps": 4,
    "max_epochs": 12,
    "evaluate_every": 3,
    "outer_lr": 0.2,
    "random_state": 0,
}


def quick(name: str, **changes: Any) -> GraphClassifier:
    """An estimator that fits in some ten milliseconds."""
    estimator = METHODS[name].estimator
    taken = signature(estimator).parameters
    return estimator(**{k: v for k, v in _QUICK.items() if k in taken} | changes)


def small_graph(num_nodes: int = 60, **changes: Any) -> Data:
    options = {"split": "random:20/30/50", "average_degree": 5.0, "num_features": 8}
    return gsebo.generate_graph(num_nodes, **options | changes)


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
