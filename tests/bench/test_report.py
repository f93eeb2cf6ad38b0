"""The page says what the stored lines say."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.exponent import fit_exponent
from benchmarks.failure import BenchmarkError
from benchmarks.records import RESULTS, Records, read_lines
from benchmarks.report import PAGE, render

CASE = {"dataset": "cora", "backbone": "gcn", "hidden": 16, "tau": 10}
RATIO = {"median": 8.5, "min": 7.25}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def store(folder: Path, name: str, *lines: dict[str, Any]) -> None:
    records = Records(name, folder, [name, "--rounds", "3"])
    for line in lines:
        records.add(line)


def test_exponent() -> None:
    edges = [1e5, 1e6, 1e7]
    assert fit_exponent(edges, [3e-6 * e**1.1 for e in edges]) == pytest.approx(1.1)
    with pytest.raises(ValueError, match="at least 2"):
        fit_exponent([1.0], [1.0])


def test_timing(folder: Path) -> None:
    old = {**CASE, "who": "ours", "outcome": "measured"}
    old["milliseconds_per_inner_step"] = 99.0
    new = {**old, "milliseconds_per_inner_step": 2.5, "peak_bytes": 3_000_000}
    new["times_faster_than_faster_peer"] = RATIO
    new["processor_milliseconds_per_inner_step"] = 2.0
    failed = {**CASE, "who": "higher", "outcome": "out of memory"}
    failed["free_bytes"] = 5_000_000_000
    plain = {**CASE, "who": "torch", "outcome": "measured"}
    plain["milliseconds_per_inner_step"] = 5.0
    plain["times_slower_than_ours"] = {"median": 2.0, "min": 1.5}
    store(folder, "timing", old, new, plain, failed)
    page = render(folder)
    row = "| cora | gcn | 16 | 10 | cpu | 2.5 | 5 | - | out of memory (5000 MB) |"
    # The fair ratio first.
    assert "| plain torch / ours | faster library / ours |" in page
    assert f"{row} 2 (1.5) | 8.5 (7.25) | - | 3 |" in page
    assert "python -m benchmarks timing --rounds 3" in page
    assert "99" not in page
    assert "Other work took part of a core during 1 of 3 measurements." in page


def test_equality(folder: Path) -> None:
    line = {**CASE, "optimizer": "adam", "weight_decay": 0.0, "who": "torchopt"}
    errors = dict.fromkeys(
        ("error", "error_of_own_training", "difference_to_ours"), float("nan")
    )
    store(folder, "equality", {**line, "finite": False, **errors})
    assert "| adam | 0.0 | torchopt | **NaN** |" in render(folder)


def test_memory(folder: Path) -> None:
    case = {key: CASE[key] for key in ("dataset", "backbone", "hidden")}
    lines = [
        {**case, "who": who, "start": "warm", "tau": tau}
        | {"idle_bytes": 10_000_000, "peak_bytes": 10_000_000 + size}
        for who, tau, size in (
            ("ours", 5, 10_000_000),
            ("ours", 50, 12_000_000),
            ("torchopt", 5, 80_000_000),
        )
    ]
    store(folder, "memory", *lines)
    page = render(folder)
    assert "| cora | gcn | 16 | warm | ours | 10 | 12 |" in page
    assert "| cora | gcn | 16 | warm | torchopt | 80 | - |" in page
    assert "ours grows by a factor of 1.2 from tau 5 to 50" in page
    assert "torchopt / ours at tau 5: 8" in page


def test_methods(folder: Path) -> None:
    line = {"dataset": "cora", "nodes": 2708, "edges": 10556, "who": "amortised"}
    line |= {"seeds": 1, "seconds": 2.5, "processor_seconds": 2.0}
    times = {"median": 2.5, "min": 2.25, "max": 3.0}
    line |= {"times_gsebo": times, "times_gsebo_by_processor": times}
    store(folder, "methods", line)
    page = render(folder)
    assert "| cpu | cora | 2708 | 10556 | amortised | 1 |" in page
    assert "| 2.5 | 2 | 2.5 (2.25 to 3) | 2.5 (2.25 to 3) |" in page


def test_fit_and_replicas(folder: Path) -> None:
    fit = {**CASE, "outer_steps": 100, "who": "ours", "outcome": "measured"}
    slow = {**fit, "who": "higher", "seconds": 60.0, "times_slower_than_ours": RATIO}
    plain = {**fit, "who": "torch", "seconds": 14.0}
    store(folder, "fit", {**fit, "seconds": 7.0}, slow, plain)
    many = {**CASE, "outer_steps": 100, "replicas": 10, "times_one": RATIO}
    store(folder, "replicas", {**many, "seconds_of_one": 1.0, "seconds_of_all": 8.5})
    page = render(folder)
    assert "outer steps | ours | plain torch | higher |" in page
    row = "| cora | gcn | 16 | 10 | 100 | 7 | 14 | 60 (8.5 (7.25) times ours) |"
    assert row in page
    assert "| cora | gcn | 16 | 10 | 100 | 10 | 1 | 8.5 | 8.5 (7.25) |" in page


def test_scale(folder: Path) -> None:
    case = {"backbone": "gcn", "hidden": 16, "features": 32, "tau": 5, "degree": 20}
    sizes = (10**4, 10**5, 10**6, 10**7)
    lines = [
        {**case, "requested_edges": edges, "edges": edges, "nodes": edges // 20}
        # The smallest is all overhead, and outside the range of the fit.
        | {"milliseconds": max(edges / 1e4, 5.0), "outcome": "measured"}
        for edges in sizes
    ]
    peer = {**lines[-1], "who": "torch", "milliseconds": 2500.0}
    # Lines of the time before there was a peer do not say whose they are.
    store(folder, "scale", *lines, peer)
    page = render(folder)
    row = "| cpu | gcn | 16 | 32 | 5 | 20 | 500000 | 10000000 |"
    assert f"{row} 1000 | 2500 | 2.5 | - | - |" in page
    assert "time ~ edges^1.00 from 100000 to 10000000 edges" in page


def test_the_page_is_what_the_stored_lines_say() -> None:
    assert PAGE.read_text("utf-8") == render(RESULTS)


def test_lines_say_what_they_were_measured_on(folder: Path) -> None:
    store(folder, "scale", {"milliseconds": float("inf"), "rounds": [1.0]})
    (line,) = read_lines(folder / "scale.jsonl")
    assert line["benchmark"] == "scale"
    assert line["milliseconds"] is None
    assert line["device"] == "cpu"
    assert line["cores"] >= 1
    assert {"python", "torch", "gsebo"} <= set(line["versions"])
    assert "NaN" not in json.dumps(line)


def test_no_results_no_page(folder: Path) -> None:
    with pytest.raises(BenchmarkError, match="no results"):
        render(folder)
