"""The benchmark of large graphs writes what the report shows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import large
from benchmarks.__main__ import main
from benchmarks.large_child import measure
from benchmarks.private_memory import memory_of
from benchmarks.records import read_lines
from benchmarks.report import render

from gsebo.data.formats.folder import GraphFolder
from gsebo.data.synthetic.power_law import write_power_law

SIZES = ["--edges", "2e4", "--nodes-per-edge", "0.4", "--batch-size", "32"]


def test_private_memory_is_seen_and_files_are_not(tmp_path: Path) -> None:
    size = 2**26
    np.zeros(size, np.uint8).tofile(tmp_path / "zeros")

    def read() -> int:
        return int(np.memmap(tmp_path / "zeros", np.uint8, "r").sum())

    def fill() -> int:
        return int(np.ones(size, np.uint8).sum())

    (_, of_file), (_, own) = (memory_of(call, "cpu") for call in (read, fill))
    above = {
        key: [found[f"peak_{key}"] - found[f"idle_{key}"] for found in (of_file, own)]
        for key in ("bytes", "private_bytes")
    }
    assert min(above["bytes"]) > size * 0.9
    assert above["private_bytes"][0] < size / 2 < above["private_bytes"][1]


def test_a_small_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    main(["large", "--results", str(tmp_path / "r"), *SIZES, "--full-batch"])
    (line,) = read_lines(tmp_path / "r" / "large.jsonl")
    assert (line["requested_edges"], line["nodes"]) == (20000, 8000)
    assert 0.98 * 20000 <= line["edges"] <= 20000
    assert 0.3 < line["test_accuracy"] <= 1
    assert line["step_seconds"] > 0
    for stage in (line["fit"], line["inference"]):
        assert stage["idle_private_bytes"] < stage["peak_private_bytes"]
        assert stage["peak_private_bytes"] < stage["peak_bytes"] < 2 * 2**30
    assert 0.3 < line["whole"]["test_accuracy"] <= 1
    page = render(tmp_path / "r")
    assert "## Large graphs" in page
    assert f"| {line['edges']} | 8000 | 32 | cpu |" in page
    assert len(rows_of(page)) == 3
    assert str(tmp_path) not in page
    # The graph that was drawn is gone.
    assert [path.name for path in tmp_path.iterdir()] == ["r"]


def test_without_predictions_the_rest_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def in_this_process(graph: GraphFolder, *choices: Any) -> dict[str, Any]:
        return measure(str(graph.path), *choices)

    # A fresh one takes longer to start than to measure.
    monkeypatch.setattr(large, "in_fresh_process", in_this_process)
    main(["large", "--results", str(tmp_path), *SIZES, "--only-fit"])
    (line,) = read_lines(tmp_path / "large.jsonl")
    assert "inference" not in line and "test_accuracy" not in line
    (row, _) = rows_of(render(tmp_path))
    assert row.count(" - |") == 3


def rows_of(page: str) -> list[str]:
    return [row for row in page.splitlines() if "| 8000 | 32 |" in row]


def test_another_graph_in_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_power_law(tmp_path / "power-law-100-200", 100, 300)
    with pytest.raises(SystemExit) as stopped:
        sizes = ["--edges", "200", "--nodes-per-edge", "0.5"]
        main(["large", "--folder", str(tmp_path), *sizes])
    assert stopped.value.code == 2
    assert "holds another graph; expected one of 100 nodes" in capsys.readouterr().err
