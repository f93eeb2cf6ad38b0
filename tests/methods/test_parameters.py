"""A parameter that cannot be used is one sentence, and nothing is fitted."""

import math
from typing import Annotated, Any, Literal, get_args

import numpy as np
import pytest
import torch
from msgspec import Meta
from sklearn.exceptions import NotFittedError
from torch_geometric.data import Data

from gsebo import GSEBO, InvalidInput, memory
from gsebo.files import Share
from gsebo.methods import METHODS, GraphClassifier
from gsebo.methods.parameters import (
    Depth,
    OptionalSeed,
    Positive,
    Rate,
    ShareBelowOne,
    Width,
    declared_parameters,
    require_declared,
)

from .examples import NAMES, quick, small_graph
from .parameter_kinds import bad_values


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(20)


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
    declared = declared_parameters(METHODS[name].estimator)
    assert set(declared) == set(METHODS[name].estimator().get_params())
    bad = [
        (each, value)
        for each, kind in declared.items()
        for value in bad_values(each, kind)
    ]
    found = {
        f"{parameter}: {place}": complaint(quick(name, **{parameter: value}), data)
        for place, (parameter, value) in enumerate(bad)
    }
    assert len(bad) > 100
    assert not {case: what for case, what in found.items() if what}


def test_a_parameter_without_limits_cannot_be_tried() -> None:
    for declared in (int, float, int | None, list[int], Annotated[str, Meta()]):
        with pytest.raises((LookupError, AssertionError)):
            bad_values("size", declared)


@pytest.mark.parametrize(
    ("declared", "value", "expected"),
    [
        (Width, 0, "an integer >= 1."),
        (Width, 2**16 + 1, "an integer from 1 to 65536."),
        (Width | None, 2.0, "an integer >= 1."),
        (Rate, -1, "a number from 0 to 1e+30."),
        (ShareBelowOne, 1, "0 <= it < 1."),
        (Share, 1.5, "0 <= it <= 1."),
        (Positive, 0, "0 < it < 1e+30."),
        (Annotated[float, Meta(gt=0)], math.inf, "0 < it < inf."),
        (OptionalSeed, 2**63, "an integer >= 0, or None."),
        (Literal["one", "other"], "none", "'one' or 'other'."),
        (bool, 1, "True or False."),
        (dict[str, Any] | None, {1: 2}, "a dictionary from names to values, or None."),
    ],
)
def test_the_declaration_says_what_was_expected(
    declared: Any, value: Any, expected: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        require_declared("it", value, declared)
    assert str(caught.value) == f"it={value!r} given; expected {expected}"


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        (Width, (1, 2**16, np.int32(7))),
        (Width | None, (None, 1)),
        (OptionalSeed, (None, 0, 2**63 - 1)),
        (Rate, (0, 1e30, np.float32(0.5))),
        (ShareBelowOne, (0, 1 - 1e-9)),
        (Share, (0, 1)),
        (str | type | None, ("any name", int, None)),
    ],
)
def test_what_is_declared_is_taken(declared: Any, values: tuple[Any, ...]) -> None:
    for value in values:
        require_declared("it", value, declared)


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
        {"num_layers": get_args(Depth)[1].le + 1},
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
