from typing import Any

import pytest

from gsebo import GSEBO, InvalidInput, Vanilla
from gsebo.cli.fit import parameters_from, read_settings


def parsed(*items: str, estimator: type = GSEBO) -> dict[str, Any]:
    return parameters_from(read_settings(items, [estimator]), estimator)


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("inner_steps=20", 20),
        ("inner-steps = 20", 20),
        ("inner_lr=1e-3", 0.001),
        ("inner_lr=1", 1.0),
        ("tied=true", True),
        ("tied=False", False),
        ("hypergradient=implicit", "implicit"),
        ("select_by=accuracy", "accuracy"),
        ("backbone_options=none", None),
        ("backbone_options.heads=4", {"heads": 4}),
        ("backbone_options.slope=0.2", {"slope": 0.2}),
        ("backbone_options.bias=false", {"bias": False}),
        ("backbone_options.name=a=b", {"name": "a=b"}),
    ],
)
def test_values_have_the_type_of_the_parameter(item: str, value: object) -> None:
    (found,) = parsed(item).values()
    assert found == value
    assert type(found) is type(value)


def test_nested_options_add_up() -> None:
    found = parsed("backbone_options.a=1", "backbone_options.b=none")
    assert found == {"backbone_options": {"a": 1, "b": None}}


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("inner_step=3", "did you mean 'inner_steps'?"),
        ("inner_steps=3.5", "expected an integer"),
        ("inner_steps=none", "expected an integer"),
        ("inner_lr=fast", "expected a number"),
        ("tied=1", "expected true or false"),
        ("backbone_options=4", "expected backbone_options.NAME=VALUE"),
        ("inner_steps.x=4", "expected inner_steps=VALUE"),
        ("inner_steps", "expected --set NAME=VALUE"),
        ("inner_steps=", "expected --set NAME=VALUE"),
        ("=3", "expected --set NAME=VALUE"),
        ("backbone_options.=3", "expected --set NAME=VALUE"),
        ("backbone=gat", "--backbone"),
        ("random_state=1", "--seed"),
    ],
)
def test_bad_settings_say_what_was_expected(item: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words.replace("?", r"\?")):
        parsed(item)


def test_what_only_one_of_two_methods_takes() -> None:
    settings = read_settings(["outer_lr=1", "inner_lr=2"], [Vanilla, GSEBO])
    assert parameters_from(settings, Vanilla) == {"inner_lr": 2.0}
    assert parameters_from(settings, GSEBO) == {"inner_lr": 2.0, "outer_lr": 1.0}
