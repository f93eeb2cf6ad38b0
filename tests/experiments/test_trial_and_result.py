"""What identifies a trial, and lines that are no results."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from gsebo.errors import InvalidInput
from gsebo.experiments import Result, Trial
from gsebo.experiments.fit import circumstances

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
    same = json.dumps(asdict(first), sort_keys=True) == json.dumps(
        asdict(second), sort_keys=True
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


EDGES = {"count": 3, "mean": 1.0, "zero": 0, "histogram": [3, *[0] * 20]}
LOSSES = ("train_loss", "val_loss")
ACCURACIES = ("train_accuracy", "val_accuracy", "test_accuracy")
CURVES = {name: [0.5, 0.6] for name in (*LOSSES, *ACCURACIES)}


def test_figures_of_all_kinds_are_read_again() -> None:
    result = Result(
        trial=Trial("gsebo", "gcn", "cora", "file", 3, parameters={"a": {"b": [1]}}),
        test_accuracy=1.0,
        edges=[{"within": EDGES}],
        curves={"inner_steps": [1, 2], **CURVES},
        **circumstances(),
    )
    assert Result.from_line(result.line()) == result
    assert result.processor and result.instructions
    commit = r"[0-9a-f]{40}(-dirty)?"
    assert result.commit is None or re.fullmatch(commit, result.commit)


def example(**changes: object) -> str:
    trial = Trial("gsebo", "gcn", "cora", "file", 3)
    # Tests are named by their lines, in each process alike: no time of the day in them.
    time = "2026-01-01T00:00:00+00:00"
    result = Result(trial=trial, test_accuracy=0.5, finished=time)
    content = json.loads(result.line())
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
        (example(schema=1), "`gsebo results migrate` brings it up to date"),
        (example(schema=True), "schema True"),
        (example(schema=[[]]), "schema"),
        ("[" * 100_000, "schema None"),
        (example(all_parameters=[]), "Expected `object"),
        (example(all_parameters={"x": [[[[[1]]]]]}), "got `array`"),
        (example(all_parameters={"x": 10**30}), "9223372036854775807"),
        (example().replace("0.5", "NaN"), "not JSON"),
        (example().replace("0.5", "1e999"), "out of range"),
        (example(test_accuracy=1.5), "<= 1.0"),
        (example(best_step=0), ">= 1"),
        (example(best_step=10**30), "best_step"),
        (example(seconds=-1), "seconds"),
        (example(val_loss=1e300), "val_loss"),
        (example(versions={"gsebo": 3}), "versions"),
        (example(device="x" * 9000), "device"),
        (example(edges=[{"within": {}}]), "missing required field"),
        (example(edges=[{"beside": EDGES}]), "edges"),
        (example(edges=[{"within": {**EDGES, "histogram": [3]}}]), "length >= 21"),
        (example(edges=[{"within": {**EDGES, "mean": None}}]), "contradict"),
        (example(edges=[{"within": {**EDGES, "zero": 4}}]), "contradict"),
        (example(curves={"inner_steps": [1, 2]}), "missing required field"),
        (example(curves={"inner_steps": [1], **CURVES}), "different lengths"),
        (example(curves={"inner_steps": [-1, 2], **CURVES}), "inner_steps"),
    ],
)
def test_what_is_no_result(line: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Result.from_line(line)


def test_noise_of_a_result_is_some() -> None:
    trial = Trial("gsebo", "gcn", "cora", "file", 3, noise="nonsense:3")
    with pytest.raises(InvalidInput, match="nonsense"):
        Result.from_line(Result(trial=trial, test_accuracy=0.5).line())


def test_a_failure_has_no_figures() -> None:
    failed = Result(trial=Trial("gsebo", "gcn", "cora", "file", 3), error="it broke")
    read = Result.from_line(failed.line())
    assert not read.ok and read.test_accuracy is None and read.error == "it broke"
