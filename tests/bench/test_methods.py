"""Whole fits are timed in turns, GSEBO's first."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from benchmarks import methods
from benchmarks.__main__ import main
from benchmarks.records import read_lines

import gsebo

from .examples import tiny_case


def test_each_is_compared_with_gsebo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "load_graph", lambda name: tiny_case().data)
    few: dict[str, Any] = {"max_outer_steps": 2, "hidden_channels": 4}
    monkeypatch.setattr(methods, "GSEBO", partial(gsebo.GSEBO, **few))
    quick = partial(gsebo.Amortised, **few, refit_epochs=2)
    monkeypatch.setattr(methods, "_OTHERS", {"amortised": quick})
    main(["methods", "--results", str(tmp_path), "--rounds", "2", "--seeds", "3",
          "--who", "amortised", "seeds"])  # fmt: skip
    lines = read_lines(tmp_path / "methods.jsonl")
    assert [(line["who"], line["seeds"]) for line in lines] == [
        (methods.BESIDE, 1),
        ("amortised", 1),
        (methods.SEEDS, 3),
    ]
    assert lines[0]["times_gsebo"] == {"median": 1.0, "min": 1.0, "max": 1.0}
    assert all(line["seconds"] > 0 for line in lines)
