"""A parameter that cannot be used is one sentence, and nothing is fitted."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch_geometric.data import Data

from gsebo import GSEBO, InvalidInput, memory
from gsebo.methods import METHODS, GraphClassifier
from gsebo.methods.parameters import most_of

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
        f"{parameter}: {place}": complaint(quick(name, **{parameter: value}), data)
        for place, (parameter, value) in enumerate(bad)
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
@pytest.mark.parametrize(
    "device", ["cuda", "cuda:3", "meta", "cpu:x", torch.device, 10**30]
)
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


@pytest.mark.parametrize(
    "sizes",
    [
        {"num_layers": 10**6},
        {"inner_steps": 10**12},
        {"hidden_channels": 10**9},
        {"max_outer_steps": 10**18},
        {"num_layers": most_of("num_layers") + 1},
        {"backbone_options": {"heads": 10**9}, "backbone": "gat"},
        {"backbone_options": {"heads": 10**18}, "backbone": "gat"},
        {"backbone_options": {"hops": 10**9}, "backbone": "magna"},
    ],
)
def test_a_size_that_nobody_means(data: Data, sizes: dict[str, Any]) -> None:
    assert not complaint(GSEBO(**sizes), data)


def test_replicas_that_nobody_means(data: Data) -> None:
    for replicas in (10**6, 10**5000, -1, 1.5, True, "a", math.nan):
        with pytest.raises(InvalidInput, match="expected an integer"):
            GSEBO().fit(data, replicas=replicas)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sizes", "replicas"),
    [
        ({"hidden_channels": 2**16, "num_layers": 3}, 1),
        ({"inner_steps": 10**6}, 1),
        ({"num_layers": 128, "hidden_channels": 2**10}, 1),
        ({}, 10**4),
    ],
)
def test_a_fit_that_does_not_fit_is_refused_before_it_begins(
    data: Data, monkeypatch: pytest.MonkeyPatch, sizes: dict[str, Any], replicas: int
) -> None:
    def built(*_: Any, **__: Any) -> None:
        raise AssertionError("a network was made")

    monkeypatch.setattr(memory, "free_memory", lambda device: 2 * 10**7)
    monkeypatch.setattr("gsebo.methods.gsebo.PreparedGraph", built)
    with pytest.raises(InvalidInput, match=r"takes about .* GB more on cpu, where"):
        GSEBO(device="cpu", **sizes).fit(data, replicas=replicas)


def test_what_is_not_walked_back_is_not_remembered(data: Data) -> None:
    kept = {
        name: GSEBO(hypergradient=name, inner_steps=50).remembered_steps()
        for name in ("reverse", "unrolled", "truncated", "implicit", "first_order")
    }
    assert list(kept.values()) == [50, 50, 5, 0, 0]


def test_more_steps_between_two_looks_than_there_are(data: Data) -> None:
    """Weights take as many steps as there are, not as many as a look is away."""
    options = {"max_epochs": 3, "hypergradient": "reverse"}
    often = quick("single_level", evaluate_every=3, **options).fit(data)
    late = quick("single_level", evaluate_every=10**6, **options).fit(data)
    assert [record.inner_steps for record in late.history_] == [3]
    assert torch.equal(often.probability_, late.probability_)
    assert late.remembered_steps() == 3
