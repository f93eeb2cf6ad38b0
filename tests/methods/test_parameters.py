"""A parameter that cannot be used is one sentence, and nothing is fitted."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch_geometric.data import Data

from gsebo import GSEBO, InvalidInput
from gsebo.methods import METHODS, GraphClassifier

from .examples import NAMES, quick, small_graph
from .parameter_kinds import BAD, KINDS


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(20)


def test_every_parameter_is_tried() -> None:
    taken = {key for name in NAMES for key in METHODS[name].estimator().get_params()}
    assert taken == set(KINDS)


def complaint(model: GraphClassifier, data: Data) -> str:
    """What is wrong with how a model refuses to be fitted; nothing, it should be."""
    try:
        model.fit(data)
    except InvalidInput as error:
        message = str(error)
    else:
        return "was fitted"
    if "\n" in message or not 20 < len(message) < 300:
        return f"is no sentence: {message}"
    if not any(word in message for word in ("xpected", "did you mean", "options")):
        return f"does not say what was expected: {message}"
    try:
        model.predict(data)
    except NotFittedError:
        return ""
    return "predicts"


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_parameter_is_one_sentence(data: Data, name: str) -> None:
    taken = sorted(KINDS.keys() & METHODS[name].estimator().get_params())
    bad = [(each, value) for each in taken for value in BAD[KINDS[each]]]
    found = {
        f"{parameter}={value!r}": complaint(quick(name, **{parameter: value}), data)
        for parameter, value in bad
    }
    assert len(bad) > 20
    assert not {case: what for case, what in found.items() if what}


@pytest.mark.parametrize(
    ("parameter", "value", "nearest"),
    [
        ("backbone", "jk-saga", "jk-sage"),
        ("structure", "edgy", "edge"),
        ("inner_optimizer", "adma", "adam"),
        ("outer_optimizer", "sdg", "sgd"),
        ("hypergradient", "revers", "reverse"),
    ],
)
def test_an_unknown_name_is_told_the_nearest(
    data: Data, parameter: str, value: str, nearest: str
) -> None:
    with pytest.raises(InvalidInput, match=f"did you mean '{nearest}'"):
        quick("gsebo", **{parameter: value}).fit(data)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("device", ["cuda", "cuda:3", "meta", "cpu:x", torch.device])
def test_a_device_that_is_not_there(data: Data, name: str, device: Any) -> None:
    with pytest.raises(InvalidInput, match="device"):
        quick(name, device=device).fit(data)


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_numpy_are_numbers(data: Data, name: str) -> None:
    plain = quick(name, hidden_channels=4, inner_lr=0.125, random_state=3).fit(data)
    numpy = quick(
        name,
        hidden_channels=np.int64(4),
        inner_lr=np.float32(0.125),
        random_state=np.int32(3),
    ).fit(data)
    assert torch.equal(plain.probability_, numpy.probability_)


@pytest.mark.parametrize("name", NAMES)
def test_a_failed_fit_on_another_graph_keeps_the_old_one(data: Data, name: str) -> None:
    model = quick(name).fit(data)
    kept = model.probability_
    with pytest.raises(InvalidInput):
        model.fit(Data(x=data.x))
    assert model.probability_ is kept


def test_holdout_needs_two_validation_nodes(data: Data) -> None:
    single = data.clone()
    single.val_mask = torch.zeros_like(data.val_mask)
    single.val_mask[data.val_mask.nonzero()[0]] = True
    with pytest.raises(InvalidInput, match="holdout"):
        GSEBO(stop_on="holdout").fit(single)
