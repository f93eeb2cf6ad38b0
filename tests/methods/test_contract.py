"""What every estimator keeps to; a new entry of METHODS is tested by itself."""

import copy

import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch_geometric.data import Data

from gsebo import InvalidInput
from gsebo.methods import METHODS

from .examples import (
    NAMES,
    assert_same_fit,
    fitted,
    quick,
    small_graph,
    with_fields,
)

pytestmark = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


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
    with pytest.raises(InvalidInput, match="unknown parameter of"):
        twin.set_params(no_such_parameter=1)


def test_a_clone_of_a_fitted_model_is_not_fitted(name: str, data: Data) -> None:
    with pytest.raises(NotFittedError):
        clone(fitted(name)).predict(data)


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
        "new_edge_index_",
        "new_edge_strength_",
        "history_",
        "best_step_",
        "graph_",
        "seed_",
        "model_",
    }
    assert all(key.endswith("_") and not key.startswith("_") for key in learned)


def test_what_is_learned_has_the_documented_form(name: str, data: Data) -> None:
    model = fitted(name)
    num_nodes, num_edges = data.num_nodes, data.num_edges
    assert model.probability_.shape == (num_nodes, 2)
    assert torch.allclose(model.probability_.sum(-1), torch.ones(num_nodes))
    assert torch.equal(model.transduction_, model.probability_.argmax(-1))
    assert model.strength_.shape[-1] == num_edges
    assert model.initial_strength_.shape == (num_edges,)
    strengths = [model.strength_]
    if model.model_.backbone.self_loops:
        assert model.loop_strength_.shape[-1] == num_nodes
        strengths.append(model.loop_strength_)
    for strength in strengths:
        assert 0 <= float(strength.min()) <= float(strength.max()) <= 1
    assert torch.equal(model.graph_.edge_strength, model.strength_.movedim(-1, 0))
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


@pytest.mark.exact
def test_the_same_seed_is_the_same_fit(name: str, data: Data) -> None:
    left = fitted(name)
    # Another number each time, so that it is never the state of the fit before.
    torch.manual_seed(123 + NAMES.index(name))
    right = quick(name, random_state=left.seed_).fit(data)
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


@pytest.mark.exact
def test_refitting_forgets_the_past(name: str, data: Data) -> None:
    model = quick(name).fit(small_graph(40, num_classes=3, num_features=5, seed=8))
    model.fit(data)
    fresh = fitted(name)
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


@pytest.mark.exact
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
    assert_same_fit(blind, fitted(name))


def test_a_test_mask_is_not_needed(name: str, data: Data) -> None:
    bare = copy.copy(data)
    del bare.test_mask
    model = quick(name).fit(bare)
    assert_same_fit(model, fitted(name))
    assert_same_fit(quick(name).fit(with_fields(data, test_mask=None)), model)
    with pytest.raises(InvalidInput, match="test_mask"):
        model.score(bare)
