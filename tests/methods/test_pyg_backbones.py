"""A user's own PyG model runs through the estimators unchanged."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import GIN, GATv2Conv, GCNConv, Sequential, TransformerConv

from gsebo import GSEBO, Frozen, InvalidInput, Vanilla

from .examples import HandWritten, small_graph


def transformer() -> nn.Module:
    layers = [
        (TransformerConv(8, 4, heads=2), "x, edge_index -> x"),
        nn.ELU(),
        (TransformerConv(8, 2), "x, edge_index -> x"),
    ]
    return Sequential("x, edge_index", layers)


USERS = {
    "class of a layer": lambda: GATv2Conv,
    "instance of a model": lambda: GIN(8, 4, 2, out_channels=2, dropout=0.5),
    "lazy instance": lambda: GIN(-1, 4, 2, out_channels=2),
    "sequential": transformer,
    "hand-written": lambda: HandWritten(8, 6, 2),
    "name": lambda: "GATv2",
}
every_user = pytest.mark.parametrize("user", USERS)


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(40)


def fit(backbone: Any, data: Data, **changes: Any) -> GSEBO:
    options = {"inner_steps": 2, "max_outer_steps": 3, "outer_step": "paper"}
    return GSEBO(backbone, random_state=0, **options | changes).fit(data)


@every_user
def test_a_users_model_learns_strengths(data: Data, user: str) -> None:
    model = fit(USERS[user](), data)
    assert model.probability_.shape == (40, 2)
    assert bool(model.probability_.isfinite().all())
    assert torch.equal(model.initial_strength_, torch.ones(data.num_edges))
    if model.best_step_ > 1:
        assert not torch.equal(model.strength_, model.initial_strength_)
    assert 0 <= float(model.strength_.min()) <= float(model.strength_.max()) <= 1


@pytest.mark.exact
@every_user
def test_the_same_seed_is_the_same_fit(data: Data, user: str) -> None:
    left, right = fit(USERS[user](), data), fit(USERS[user](), data)
    assert torch.equal(left.probability_, right.probability_)
    assert torch.equal(left.strength_, right.strength_)


@pytest.mark.parametrize("user", ["instance of a model", "sequential", "hand-written"])
def test_a_users_instance_is_not_modified(data: Data, user: str) -> None:
    module = USERS[user]()
    module.eval()
    kept = copy.deepcopy(module.state_dict())
    model = fit(module, data)
    assert model.backbone is module
    assert not module.training
    assert module.state_dict().keys() == kept.keys()
    for name, weight in module.state_dict().items():
        assert torch.equal(weight, kept[name])
    assert all(p.grad is None and p.requires_grad for p in module.parameters())
    module(data.x, data.edge_index)  # No hook of the gate is left behind.


@pytest.mark.exact
@every_user
def test_controls_equal_a_structure_that_does_not_move(data: Data, user: str) -> None:
    backbone = USERS[user]()
    schedule = {"inner_steps": 2, "max_outer_steps": 3, "random_state": 0}
    frozen = Frozen(backbone, **schedule).fit(data)
    vanilla = Vanilla(backbone, max_epochs=6, evaluate_every=2, random_state=0)
    assert torch.equal(vanilla.fit(data).probability_, frozen.probability_)
    still = fit(backbone, data, outer_step="trust", trust_radius=0)
    assert torch.equal(still.probability_, frozen.probability_)


def test_another_graph_needs_no_learned_strengths(data: Data) -> None:
    other = small_graph(30, seed=2)
    model = Vanilla(HandWritten(8, 6, 2), max_epochs=2, random_state=0).fit(data)
    module = model.model_.backbone.module.eval()
    with torch.no_grad():
        expected = module(other.x, other.edge_index).softmax(-1)
    torch.testing.assert_close(model.predict_proba(other), expected)


class ManyClasses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(8, 5)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv(x, edge_index)


@pytest.mark.parametrize(
    "backbone",
    [ManyClasses(), nn.Linear(8, 2), GCNConv(8, 2, cached=True), GIN(3, 4, 2)],
    ids=["classes", "no edges", "cached", "features"],
)
def test_a_model_that_cannot_be_used_is_refused(data: Data, backbone: Any) -> None:
    with pytest.raises(InvalidInput):
        fit(backbone, data)
