"""What is timed, not how long it takes."""

from pathlib import Path

import pytest
from benchmarks import memory_child, whole_fit
from benchmarks.__main__ import main
from benchmarks.case import Case
from benchmarks.failure import BenchmarkError
from benchmarks.packages import require_installed
from benchmarks.records import read_lines
from benchmarks.report import render
from benchmarks.timing import measure, ratios_of
from benchmarks.turns import Lane, take_turns

from .examples import needs, peer, tiny_case


def test_lanes_take_turns() -> None:
    calls: list[str] = []
    lanes = {name: Lane(lambda name=name: calls.append(name)) for name in "abc"}
    take_turns(lanes, rounds=2)
    assert calls == ["a", "b", "c", "a", "b", "c"]
    assert all(len(lane.seconds) == 2 for lane in lanes.values())


def test_who_runs_out_of_memory_is_taken_out() -> None:
    def too_much() -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: ...")

    lanes = {"small": Lane(lambda: None), "large": Lane(too_much)}
    take_turns(lanes, rounds=2)
    assert list(lanes) == ["small"]


def test_other_errors_are_not_hidden() -> None:
    def wrong() -> None:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes"):
        take_turns({"wrong": Lane(wrong)}, rounds=1)


def test_ratios_are_those_of_the_rounds() -> None:
    seconds = {"ours": [1.0, 2.0], "torchopt": [4.0, 6.0], "higher": [3.0, 8.0]}
    # Plain torch has a ratio of its own, and is none of the libraries.
    seconds["torch"] = [2.0, 2.0]
    fair = ratios_of("torch", seconds)["times_slower_than_ours"]
    assert fair == {"median": 1.5, "min": 1.0}
    ours = ratios_of("ours", seconds)["times_faster_than_faster_peer"]
    assert ours == {"median": 3.0, "min": 3.0}
    higher = ratios_of("higher", seconds)["times_slower_than_ours"]
    assert higher == {"median": 3.5, "min": 3.0}
    assert ratios_of("ours", {"ours": [1.0]}) == {}


@needs("torchopt")
@needs("higher")
@pytest.mark.parametrize("backbone", ["gcn", "gat"])
def test_every_contender_is_measured(backbone: str) -> None:
    case = tiny_case(backbone=backbone, tau=2, dropout=0.5)
    everybody = ["ours", "torch", "torchopt", "higher"]
    lines = measure(case, everybody, rounds=2)
    assert [line["who"] for line in lines] == everybody
    for line in lines:
        assert line["outcome"] == "measured"
        assert len(line["milliseconds_of_rounds"]) == 2
        assert line["peak_bytes"] >= 0


@pytest.mark.parametrize("who", ["torch", peer("torchopt"), peer("higher")])
def test_a_peer_can_fit(who: str) -> None:
    case = tiny_case(tau=2, dropout=0.5)
    whole_fit.fit_peer(case, who, outer_steps=2)


def test_plain_torch_is_measured_by_size(tmp_path: Path) -> None:
    sizes = ["--edges", "400", "--features", "4", "--rounds", "1", "--tau", "1"]
    main(["scale", "--results", str(tmp_path), *sizes])
    lines = read_lines(tmp_path / "scale.jsonl")
    assert [line["who"] for line in lines] == ["ours", "torch"]
    assert all(line["milliseconds"] > 0 for line in lines)
    page = render(tmp_path)
    assert page.count("| cpu | gcn | 16 | 4 | 1 | 20 | 20 |") == 1


@pytest.mark.parametrize("who", ["ours", "torch"])
@pytest.mark.parametrize("start", ["warm", "cold"])
def test_memory_is_measured_above_idle(who: str, start: str) -> None:
    wanted = {"dataset": "cora", "backbone": "gcn", "hidden": 4, "tau": 1}
    found = memory_child.measure({**wanted, "who": who, "start": start})
    assert found["peak_bytes"] >= found["idle_bytes"] > 0


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.packages.find_spec", lambda name: None)
    require_installed(["ours"])
    with pytest.raises(BenchmarkError, match="higher is not installed"):
        require_installed(["ours", "higher"])


def test_the_task_is_shared() -> None:
    case: Case = tiny_case()
    assert case.task is case.task
