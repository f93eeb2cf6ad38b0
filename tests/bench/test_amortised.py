"""What is timed of amortised strengths, and what the page says of it."""

from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.__main__ import main
from benchmarks.amortised import compare, whole_fit
from benchmarks.estimator_loop import amortised, on_nodes_of, per_edge
from benchmarks.graphs import load_graph
from benchmarks.records import Records, read_lines
from benchmarks.report import render
from benchmarks.setting import Setting

import gsebo
from gsebo import GSEBO

from .examples import BASE, tiny_case

SMALL = ["--hidden", "4", "--rounds", "1"]


def test_per_edge_steps_are_those_of_the_estimator() -> None:
    case = tiny_case()
    progress = per_edge(case.data, case.setting, 3).outer_steps()
    fitted = GSEBO(
        hidden_channels=BASE.hidden,
        inner_steps=3,
        dropout=0.0,
        outer_step="paper",
        max_outer_steps=3,
        patience=3,
        device="cpu",
        random_state=0,
    ).fit(case.data)
    assert [record.val_loss for record in progress.history] == [
        record.val_loss for record in fitted.history_
    ]


def test_a_round_is_the_first_of_the_estimator(monkeypatch: pytest.MonkeyPatch) -> None:
    case = tiny_case()
    model = gsebo.Amortised(
        hidden_channels=BASE.hidden,
        inner_steps=3,
        dropout=0.0,
        max_outer_steps=1,
        refit=False,
        refit_epochs=7,
        device="cpu",
        random_state=0,
    ).fit(case.data)
    # Only how long the guesses are trained differs from a fit.
    monkeypatch.setattr("benchmarks.estimator_loop._GUESS_EPOCHS", 7)
    loop = amortised(case.data, case.setting, "folds")
    progress = loop.outer_steps()
    assert loop.count == model.num_folds
    (record,) = progress.history
    assert record.inner_steps == loop.count * case.setting.tau
    assert record.val_loss == model.history_[0].val_loss


@pytest.mark.parametrize("label_use", ["folds", "cross"])
def test_steps_are_compared_with_as_many(label_use: Any) -> None:
    line = compare(tiny_case().data, Setting(hidden=4, tau=1), label_use, rounds=1)
    assert line["outer_steps"] == 5
    for name in ("per_edge", "per_edge_on_same_nodes", "amortised"):
        assert len(line[f"{name}_milliseconds_of_rounds"]) == 1
    times = line["times_per_edge"]
    assert 0 < times["min"] <= times["median"] <= times["max"]


def test_per_edge_strengths_get_the_same_nodes() -> None:
    case = tiny_case()
    ours = amortised(case.data, case.setting, "folds").problem
    same = per_edge(on_nodes_of(case.data, ours), case.setting, 1).problem
    assert torch.equal(same.inner_nodes, ours.inner_nodes)
    assert torch.equal(same.outer_nodes, ours.outer_nodes.sort().values)
    assert not torch.equal(same.inner_nodes, case.data.train_mask.nonzero().flatten())


def test_a_fit_has_the_defaults_but_where_told() -> None:
    line = whole_fit(tiny_case().data, "cpu", max_outer_steps=5, refit_epochs=2)
    assert (line["tau"], line["hidden"]) == (20, 16)
    assert (line["outer_steps"], line["refit_epochs"]) == (5, 2)
    assert line["seconds"] > 0


def test_only_what_is_asked_for_is_measured_and_reported(tmp_path: Path) -> None:
    place = ["amortised", "--results", str(tmp_path)]
    sizes = ["4e3", "--edges-rounds", "1", "--edges-tau", "1", "--features", "4"]
    main([*place, *SMALL, "--edges", *sizes])
    lines = read_lines(tmp_path / "amortised.jsonl")
    assert [line["requested_edges"] for line in lines] == [4000]
    assert {line["part"] for line in lines} == {"curve"}
    main([*place, *SMALL, "--datasets", "cora", "--tau", "1"])
    *_, step = read_lines(tmp_path / "amortised.jsonl")
    assert (step["part"], step["edges"]) == ("step", load_graph("cora").num_edges)
    page = render(tmp_path)
    assert "## Amortised strengths" in page
    assert "| cpu | cora | gcn | 4 | 1 | folds |" in page


def test_page(tmp_path: Path) -> None:
    case = {"backbone": "gcn", "hidden": 16, "tau": 20}
    ratio = {"median": 1.75, "min": 1.5, "max": 2.0}
    step = {"part": "step", "dataset": "cora", "label_use": "folds", **case}
    step |= {"per_edge_milliseconds": 20.0, "amortised_milliseconds": 35.0}
    step |= {"per_edge_on_same_nodes_milliseconds": 30.0, "times_per_edge": ratio}
    curve = {"part": "curve", "features": 32, "degree": 20, **case}
    curves = [
        {**curve, "requested_edges": edges, "edges": edges, "nodes": edges // 20}
        # The smallest is all overhead, and outside the range of the fit.
        | {"milliseconds": max(edges / 1e4, 5.0), "evidence_seconds": edges / 1e5}
        for edges in (10**4, 10**5, 10**6)
    ]
    full = {**curve, "requested_edges": 10**7, "outcome": "out of memory"}
    fit = {"part": "fit", "dataset": "pubmed", "nodes": 19717, "edges": 88648, **case}
    fit |= {"outer_steps": 100, "refit_epochs": 400}
    fit |= {"seconds": 91.0, "processor_seconds": 80.0}
    records = Records("amortised", tmp_path, ["amortised"])
    for line in (step, *curves, full, fit):
        records.add(line)
    page = render(tmp_path)
    row = "| cpu | cora | gcn | 16 | 20 | folds | 20 | 30 | 35 |"
    assert f"{row} 1.75 (1.5 to 2) | - | - |" in page
    assert "| cpu | gcn | 16 | 32 | 20 | 20 | 50000 | 1000000 | 100 | 10 | - |" in page
    assert "| cpu | gcn | 16 | 32 | 20 | 20 | - | - | out of memory | - | - |" in page
    assert "time ~ edges^1.00 from 100000 to 1000000 edges" in page
    assert "| cpu | pubmed | 19717 | 88648 | gcn | 16 | 20 | 100 | 400 |" in page
    assert "| 91 | 80 |" in page
