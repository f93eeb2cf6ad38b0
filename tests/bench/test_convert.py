"""The benchmark of conversions writes what the report shows."""

from pathlib import Path

import pytest
from benchmarks.__main__ import main
from benchmarks.records import read_lines
from benchmarks.report import render


def test_a_small_conversion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    main(["convert", "--results", str(tmp_path / "r"), "--edges", "2e3"])
    (line,) = read_lines(tmp_path / "r" / "convert.jsonl")
    assert (line["rows"], line["nodes"], line["format"]) == (2000, 200, "csv")
    assert line["idle_bytes"] < line["peak_bytes"] < 2 * 2**30
    assert line["edges"] < 2000
    assert f"| csv | 2000 | 200 | {line['edges']} |" in render(tmp_path / "r")
    # The files that were converted are gone.
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
