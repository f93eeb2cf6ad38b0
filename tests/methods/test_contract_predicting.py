"""What every fitted estimator says of its graph, and of others."""

import pytest
import torch
from torch.func import functional_call
from torch_geometric.data import Data

from gsebo import InputWarning, InvalidInput
from gsebo.graph import Topology, canonicalise
from gsebo.sparse import make_features

from .examples import NAMES, fitted, quick, small_graph, with_fields

pytestmark = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


def test_predicting_the_graph_of_the_fit(name: str, data: Data) -> None:
    model = fitted(name)
    assert torch.equal(model.predict_proba(data), model.probability_)
    assert torch.equal(model.predict(data), model.transduction_)
    unlabelled = Data(x=data.x, edge_index=data.edge_index)
    assert torch.equal(model.predict(unlabelled), model.transduction_)


@pytest.mark.parametrize("mask", ["train", "val", "test"])
def test_score_is_the_accuracy_over_a_mask(name: str, data: Data, mask: str) -> None:
    model = fitted(name)
    chosen = data[f"{mask}_mask"]
    right = (model.transduction_ == data.y)[chosen].double().mean()
    assert model.score(data, mask) == model.score(data, chosen) == float(right)


@pytest.mark.parametrize(
    "mask",
    ["tset", torch.zeros(60, dtype=torch.bool), torch.ones(59, dtype=torch.bool), 3],
    ids=["unknown", "empty", "short", "number"],
)
def test_score_refuses_a_mask_that_is_none(name: str, data: Data, mask) -> None:
    with pytest.raises(InvalidInput):
        fitted(name).score(data, mask)


@pytest.mark.parametrize("y", [None, torch.zeros(3)], ids=["none", "short"])
def test_score_needs_labels(name: str, data: Data, y) -> None:
    with pytest.raises(InvalidInput, match="y"):
        fitted(name).score(with_fields(data, y=y))


def test_other_features_are_refused(name: str, data: Data) -> None:
    model = fitted(name)
    with pytest.raises(InvalidInput, match="7 features"):
        model.predict(with_fields(data, x=data.x[:, :7]))


def test_another_graph(name: str, data: Data) -> None:
    other = small_graph(50, seed=3)
    model = fitted(name)
    backbone, members = model.model_.backbone, model.model_.members
    topology = Topology.of(
        canonicalise(other), self_loops=backbone.self_loops, device="cpu"
    )
    preparation = model.model_.preparation
    x = other.x if preparation is None else preparation.features(other)
    features = make_features(x, torch.float32, "cpu")
    networks = [member.weights or {} for member in members] or [{}]
    with torch.no_grad():
        logits = [
            functional_call(backbone, weights, (features, topology.pattern))
            for weights in networks
        ]
    expected = torch.stack(logits).softmax(-1).mean(0)
    if not model.model_.learned:
        assert torch.equal(model.predict_proba(other), expected)
        return
    if model.model_.scorer is not None:
        found = model.predict_proba(other)
        assert found.shape == expected.shape
        assert not torch.allclose(found, expected)
        return
    # Nothing of it is known, so that every edge counts as without a structure.
    every = topology.num_edges
    with pytest.warns(InputWarning, match=f"^{every} of {every} edges are not in"):
        found = model.predict_proba(other)
    torch.testing.assert_close(found, expected)


def test_new_features_on_the_same_graph(name: str, data: Data) -> None:
    model = fitted(name)
    moved = model.predict_proba(with_fields(data, x=-data.x))
    assert moved.shape == model.probability_.shape
    assert not torch.equal(moved, model.probability_)


def test_beats_the_majority_class(name: str) -> None:
    data = small_graph(
        150, num_classes=3, homophily=0.9, feature_signal=1.0, average_degree=8.0
    )
    model = quick(name, inner_lr=0.05)
    steps = {"max_outer_steps": 15, "max_epochs": 45, "max_inner_steps": 45}
    taken = model.get_params()
    model.set_params(**{k: v for k, v in steps.items() if k in taken}).fit(data)
    majority = float(data.y[data.test_mask].bincount().max() / data.test_mask.sum())
    # Without the given edges it is harder.
    features_only = name in ("mlp", "sublime", "slaps")
    assert model.score(data) > majority + (0.1 if features_only else 0.3)
