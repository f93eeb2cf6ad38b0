"""What identifies a trial, and lines that are no results."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gsebo.errors import InvalidInput
from gsebo.experiments import Result, Trial

values = st.one_of(
    st.booleans(),
    st.integers(-5, 50),
    st.floats(0, 1, width=32),
    st.text(max_size=5),
    st.none(),
    st.dictionaries(st.text(max_size=3), st.integers(0, 3), max_size=2),
)
trials = st.builds(
    Trial,
    method=st.sampled_from(["gsebo", "vanilla"]),
    backbone=st.sampled_from(["gcn", "gat"]),
    dataset=st.sampled_from(["cora", "citeseer"]),
    split=st.sampled_from(["file", "halves:file"]),
    seed=st.integers(0, 20),
    noise=st.one_of(st.integers(0, 3), st.sampled_from(["removed:1", "labels:1"])),
    parameters=st.dictionaries(st.text(max_size=4), values, max_size=3),
    curves=st.booleans(),
)
results = st.builds(
    Result,
    trial=trials,
    test_accuracy=st.floats(0, 1),
    val_accuracy=st.one_of(st.none(), st.floats(0, 1)),
    best_step=st.one_of(st.none(), st.integers(1, 9)),
    device=st.text(max_size=5),
)


@given(trials, trials)
def test_keys_are_equal_where_trials_are(first: Trial, second: Trial) -> None:
    same = json.dumps(first.to_json(), sort_keys=True) == json.dumps(
        second.to_json(), sort_keys=True
    )
    assert (first.key == second.key) == same


@given(trials)
def test_the_order_of_parameters_does_not_matter(trial: Trial) -> None:
    backwards = dict(reversed(trial.parameters.items()))
    assert replace(trial, parameters=backwards).key == trial.key


@given(trials, st.integers(0, 99))
def test_only_the_seed_is_left_out(trial: Trial, seed: int) -> None:
    assert replace(trial, seed=seed).without_seed == trial.without_seed
    assert replace(trial, noise=99).without_seed != trial.without_seed


@given(results)
@settings(max_examples=50)
def test_a_line_says_everything(result: Result) -> None:
    line = result.line()
    assert "\n" not in line
    assert Result.from_line(line) == result
    assert Result.from_line(line).key == result.trial.key


def example(**changes: object) -> str:
    trial = Trial("gsebo", "gcn", "cora", "file", 3)
    content = json.loads(Result(trial=trial, test_accuracy=0.5).line())
    return json.dumps({k: v for k, v in (content | changes).items() if v is not None})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not JSON"),
        ("[]", "schema"),
        ("3", "schema"),
        (example(schema=99), "schema 99"),
        (example(id="0" * 16), "id"),
        (example(trial={"method": "gsebo"}), "missing required field `backbone`"),
        (example(trial={**json.loads(example())["trial"], "seed": "3"}), "seed"),
        (example(trial={**json.loads(example())["trial"], "seed": True}), "seed"),
        (
            example(trial={**json.loads(example())["trial"], "noise": 0.5}),
            "Expected `int . str`",
        ),
        (example(trial={**json.loads(example())["trial"], "noise": True}), "noise"),
        (example(status="failed"), "status"),
        (example(error="broke"), "status"),
        (example(test_accuracy=None), "test_accuracy"),
        (example(test_accuracy="0.5"), "test_accuracy"),
        (example(colour="blue"), "colour"),
    ],
)
def test_what_is_no_result(line: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Result.from_line(line)


def test_a_failure_has_no_figures() -> None:
    failed = Result(trial=Trial("gsebo", "gcn", "cora", "file", 3), error="it broke")
    read = Result.from_line(failed.line())
    assert not read.ok and read.test_accuracy is None and read.error == "it broke"
