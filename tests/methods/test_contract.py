"""What every estimator keeps to; a new entry of METHODS is tested by itself."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch_geometric.data import Data

from gsebo import InvalidInput
from gsebo.data import canonicalise
from gsebo.methods import METHODS
from gsebo.sparse import make_features
from gsebo.structure import Topology

from .examples import NAMES, permuted, quick, small_graph, to_csr, with_fields

pytestmark = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


def assert_same_fit(left, right) -> None:
    assert torch.equal(left.probability_, right.probability_)
    assert torch.equal(left.strength_, right.strength_)
    assert left.best_step_ == right.best_step_


# --- constructor ---------------------------------------------------------------------


def test_the_constructor_stores_its_arguments(name: str) -> None:
    marks = {key: object() for key in METHODS[name].estimator().get_params()}
    model = METHODS[name].estimator(**marks)
    assert vars(model) == marks


def test_the_defaults_are_usable(name: str, data: Data) -> None:
    model = METHODS[name].estimator()
    model.check_parameters()
    assert {"random_state", "device", "backbone"} <= set(model.get_params())


def test_clone_and_set_params(name: str) -> None:
    model = quick(name, dropout=0.25)
    twin = clone(model)
    assert twin is not model
    assert twin.get_params() == model.get_params()
    assert twin.set_params(dropout=0.75).dropout == 0.75
    assert model.dropout == 0.25
    with pytest.raises(ValueError, match="Invalid parameter"):
        twin.set_params(no_such_parameter=1)


def test_a_clone_of_a_fitted_model_is_not_fitted(name: str, data: Data) -> None:
    with pytest.raises(NotFittedError):
        clone(quick(name).fit(data)).predict(data)


# --- fit -----------------------------------------------------------------------------


def test_fit_returns_self_and_learns_names_with_an_underscore(
    name: str, data: Data
) -> None:
    model = quick(name)
    before = dict(vars(model))
    assert model.fit(data) is model
    after = vars(model)
    assert {key: after[key] for key in before} == before
    learned = set(after) - set(before)
    assert learned >= {
        "transduction_",
        "probability_",
        "strength_",
        "initial_strength_",
        "loop_strength_",
        "history_",
        "best_step_",
        "graph_",
        "seed_",
        "model_",
    }
    assert all(key.endswith("_") and not key.startswith("_") for key in learned)


def test_what_is_learned_has_the_documented_form(name: str, data: Data) -> None:
    model = quick(name).fit(data)
    num_nodes, num_edges = data.num_nodes, data.num_edges
    assert model.probability_.shape == (num_nodes, 2)
    assert torch.allclose(model.probability_.sum(-1), torch.ones(num_nodes))
    assert torch.equal(model.transduction_, model.probability_.argmax(-1))
    assert model.strength_.shape[-1] == num_edges
    assert model.initial_strength_.shape == (num_edges,)
    assert model.loop_strength_.shape[-1] == num_nodes
    for strength in (model.strength_, model.loop_strength_):
        assert 0 <= float(strength.min()) <= float(strength.max()) <= 1
    assert torch.equal(model.graph_.edge_strength, model.strength_)
    assert torch.equal(model.graph_.edge_index, data.edge_index)
    assert model.seed_ == 0


@pytest.mark.parametrize("method", ["predict", "predict_proba", "score"])
def test_before_fit_there_is_nothing_to_predict(
    name: str, data: Data, method: str
) -> None:
    with pytest.raises(NotFittedError):
        getattr(quick(name), method)(data)


def test_not_fitted_comes_before_any_other_complaint(name: str, data: Data) -> None:
    with pytest.raises(NotFittedError):
        quick(name).score(with_fields(data, test_mask=None))


def test_before_fit_there_is_nothing_to_save(name: str, tmp_path) -> None:
    with pytest.raises(NotFittedError):
        quick(name).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_the_same_seed_is_the_same_fit(name: str, data: Data) -> None:
    left = quick(name, random_state=5).fit(data)
    torch.manual_seed(123)
    right = quick(name, random_state=5).fit(data)
    assert_same_fit(left, right)
    other = quick(name, random_state=6).fit(data)
    assert not torch.equal(left.probability_, other.probability_)


def test_a_fit_leaves_the_global_generator_alone(name: str, data: Data) -> None:
    before = torch.get_rng_state()
    quick(name).fit(data)
    assert torch.equal(torch.get_rng_state(), before)


def test_without_a_seed_one_is_drawn_and_told(name: str, data: Data) -> None:
    first = quick(name, random_state=None).fit(data)
    second = quick(name, random_state=None).fit(data)
    assert first.seed_ != second.seed_
    assert first.random_state is None
    assert_same_fit(first, quick(name, random_state=first.seed_).fit(data))


def test_refitting_forgets_the_past(name: str, data: Data) -> None:
    model = quick(name).fit(small_graph(40, num_classes=3, num_features=5, seed=8))
    model.fit(data)
    fresh = quick(name).fit(data)
    assert_same_fit(model, fresh)
    assert len(model.history_) == len(fresh.history_)
    assert set(vars(model)) == set(vars(fresh))


def test_fit_and_predict_leave_the_graph_as_it_was(name: str) -> None:
    data = small_graph()
    keys, kept = list(data.keys()), copy.deepcopy(data)
    objects = {key: id(data[key]) for key in keys}
    model = quick(name).fit(data)
    model.predict(data)
    model.score(data)
    assert list(data.keys()) == keys
    for key in keys:
        assert id(data[key]) == objects[key]
        assert data[key].dtype == kept[key].dtype
        assert torch.equal(data[key], kept[key])
        assert not data[key].requires_grad


# --- labels --------------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [None, -7, 10**6])
def test_test_labels_do_not_matter(name: str, data: Data, garbage: int | None) -> None:
    y = data.y.clone()
    hidden = ~(data.train_mask | data.val_mask)
    if garbage is None:
        order = torch.randperm(int(hidden.sum()), generator=torch.Generator())
        y[hidden] = y[hidden][order]
    else:
        y[hidden] = garbage
    assert not torch.equal(y, data.y)
    blind = quick(name).fit(with_fields(data, y=y))
    assert_same_fit(blind, quick(name).fit(data))


def test_a_test_mask_is_not_needed(name: str, data: Data) -> None:
    bare = copy.copy(data)
    del bare.test_mask
    model = quick(name).fit(bare)
    assert_same_fit(model, quick(name).fit(data))
    assert_same_fit(quick(name).fit(with_fields(data, test_mask=None)), model)
    with pytest.raises(InvalidInput, match="test_mask"):
        model.score(bare)


# --- order and form of the input -----------------------------------------------------


@settings(max_examples=5)
@given(seed=st.integers(0, 2**20))
def test_permuting_the_nodes_permutes_the_output(name: str, seed: int) -> None:
    data = small_graph(40, seed=seed % 7)
    data.x = data.x.double()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(seed))
    before = quick(name, dropout=0.0).fit(data)
    after = quick(name, dropout=0.0).fit(permuted(data, order))
    torch.testing.assert_close(
        after.probability_, before.probability_[order], rtol=0, atol=1e-8
    )
    torch.testing.assert_close(after.strength_, before.strength_, rtol=0, atol=1e-8)
    torch.testing.assert_close(
        after.loop_strength_, before.loop_strength_[order], rtol=0, atol=1e-8
    )


def test_permuting_the_nodes_in_single_precision(name: str, data: Data) -> None:
    order = torch.randperm(data.num_nodes, generator=torch.Generator().manual_seed(1))
    before = quick(name, dropout=0.0).fit(data)
    after = quick(name, dropout=0.0).fit(permuted(data, order))
    torch.testing.assert_close(
        after.probability_, before.probability_[order], rtol=0, atol=1e-4
    )


def test_shuffling_the_edges_shuffles_the_strengths(name: str, data: Data) -> None:
    order = torch.randperm(data.num_edges, generator=torch.Generator().manual_seed(2))
    shuffled = with_fields(data, edge_index=data.edge_index[:, order])
    before, after = quick(name).fit(data), quick(name).fit(shuffled)
    assert torch.equal(after.strength_, before.strength_[order])
    assert torch.equal(after.probability_, before.probability_)
    assert torch.equal(after.predict_proba(data), before.probability_)


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_duplicates_and_loops_keep_their_place(
    name: str, data: Data, backbone: str
) -> None:
    nodes = torch.tensor([[3, 7, 3], [3, 7, 3]])
    edges = torch.cat([data.edge_index[:, :5], nodes, data.edge_index], dim=1)
    model = quick(name, backbone=backbone).fit(with_fields(data, edge_index=edges))
    plain = quick(name, backbone=backbone).fit(data)
    assert model.strength_.shape == (edges.shape[1],)
    assert torch.equal(model.strength_[:5], model.strength_[8:13])
    assert torch.equal(model.strength_[8:], plain.strength_)
    assert torch.equal(model.probability_, plain.probability_)
    loops = model.strength_[5:8]
    if model.loop_strength_ is None:
        assert not loops.any()
    else:
        assert torch.equal(loops, model.loop_strength_[[3, 7, 3]])


def test_a_directed_graph_stays_directed(name: str, data: Data) -> None:
    one_way = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    model = quick(name).fit(with_fields(data, edge_index=one_way))
    assert model.strength_.shape == (one_way.shape[1],)
    back = quick(name).fit(with_fields(data, edge_index=one_way.flip(0)))
    assert not torch.equal(model.probability_, back.probability_)


def test_isolated_nodes_are_classified_too(name: str, data: Data) -> None:
    touching = (data.edge_index == 0).any(0)
    alone = with_fields(data, edge_index=data.edge_index[:, ~touching])
    assert bool(quick(name).fit(alone).probability_.isfinite().all())


@pytest.mark.parametrize("least", [-9.0, 1.3], ids=["dense", "sparse"])
def test_sparse_features_give_the_same_as_dense_ones(
    name: str, data: Data, least: float
) -> None:
    x = data.x * (data.x > least)
    dense = quick(name).fit(with_fields(data, x=x))
    sparse = quick(name).fit(with_fields(data, x=to_csr(x)))
    assert_same_fit(dense, sparse)
    assert torch.equal(sparse.predict_proba(with_fields(data, x=x)), dense.probability_)


def test_double_precision_goes_in_and_comes_out(name: str, data: Data) -> None:
    double = quick(name, dropout=0.0).fit(with_fields(data, x=data.x.double()))
    assert double.probability_.dtype == double.strength_.dtype == torch.float64
    single = quick(name, dropout=0.0).fit(data)
    assert single.probability_.dtype == single.strength_.dtype == torch.float32
    torch.testing.assert_close(
        single.probability_.double(), double.probability_, rtol=0, atol=1e-4
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(name: str, data: Data, dtype) -> None:
    half = with_fields(data, x=data.x.to(dtype))
    single = with_fields(data, x=half.x.float())
    assert_same_fit(quick(name).fit(half), quick(name).fit(single))


def test_small_integers_are_integers(name: str, data: Data) -> None:
    y, edge_index = data.y.to(torch.uint8), data.edge_index.int()
    narrow = with_fields(data, y=y, edge_index=edge_index)
    assert_same_fit(quick(name).fit(narrow), quick(name).fit(data))


# --- predicting ----------------------------------------------------------------------


def test_predicting_the_graph_of_the_fit(name: str, data: Data) -> None:
    model = quick(name).fit(data)
    assert torch.equal(model.predict_proba(data), model.probability_)
    assert torch.equal(model.predict(data), model.transduction_)
    unlabelled = Data(x=data.x, edge_index=data.edge_index)
    assert torch.equal(model.predict(unlabelled), model.transduction_)


@pytest.mark.parametrize("mask", ["train", "val", "test"])
def test_score_is_the_accuracy_over_a_mask(name: str, data: Data, mask: str) -> None:
    model = quick(name).fit(data)
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
        quick(name).fit(data).score(data, mask)


@pytest.mark.parametrize("y", [None, torch.zeros(3)], ids=["none", "short"])
def test_score_needs_labels(name: str, data: Data, y) -> None:
    with pytest.raises(InvalidInput, match="y"):
        quick(name).fit(data).score(with_fields(data, y=y))


def test_other_features_are_refused(name: str, data: Data) -> None:
    model = quick(name).fit(data)
    with pytest.raises(InvalidInput, match="7 features"):
        model.predict(with_fields(data, x=data.x[:, :7]))


def test_another_graph(name: str, data: Data) -> None:
    other = small_graph(50, seed=3)
    model = quick(name).fit(data)
    if model.model_.learned:
        with pytest.raises(InvalidInput, match="not the one of the fit"):
            model.predict(other)
        return
    backbone = model.model_.backbone
    topology = Topology.of(
        canonicalise(other), self_loops=backbone.self_loops, device="cpu"
    )
    features = make_features(other.x, torch.float32, "cpu")
    with torch.no_grad():
        logits = backbone(features, topology.pattern)
    assert torch.equal(model.predict_proba(other), logits.softmax(-1))


def test_new_features_on_the_same_graph(name: str, data: Data) -> None:
    model = quick(name).fit(data)
    moved = model.predict_proba(with_fields(data, x=-data.x))
    assert moved.shape == model.probability_.shape
    assert not torch.equal(moved, model.probability_)


def test_beats_the_majority_class(name: str) -> None:
    data = small_graph(
        150, num_classes=3, homophily=0.9, feature_signal=1.0, average_degree=8.0
    )
    model = quick(name, inner_lr=0.05)
    steps = {"max_outer_steps": 15, "max_epochs": 45}
    taken = model.get_params()
    model.set_params(**{k: v for k, v in steps.items() if k in taken}).fit(data)
    majority = float(data.y[data.test_mask].bincount().max() / data.test_mask.sum())
    assert model.score(data) > majority + 0.3
