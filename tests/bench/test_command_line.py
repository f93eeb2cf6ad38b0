"""A bad argument is one sentence and exit code 2."""

from pathlib import Path

import pytest
from benchmarks.__main__ import main
from benchmarks.records import read_lines


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["speed"], "no benchmark is called 'speed'"),
        (["timing", "--tau", "0"], "'0' given, expected a whole number of at least 1"),
        (["timing", "--who", "me"], "invalid choice: 'me'"),
        (["timing", "--who", "ours", "--datasets", "x"], "dataset 'x' asked for"),
        (["report", "--results", "nowhere"], "no results in nowhere"),
    ],
)
def test_bad_arguments(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert arguments[0] == "speed" or said.count("\n") == 1


def test_a_benchmark_runs_and_is_reported(tmp_path: Path) -> None:
    folder, page = tmp_path / "results", tmp_path / "RESULTS.md"
    sizes = ["--edges", "400", "1e3", "--features", "4", "--rounds", "1", "--tau", "1"]
    main(["scale", "--results", str(folder), *sizes])
    lines = read_lines(folder / "scale.jsonl")
    assert [line["requested_edges"] for line in lines] == [400, 400, 1000, 1000]
    command = "python -m benchmarks scale --edges 400 1e3"
    assert all(line["command"].startswith(command) for line in lines)
    assert str(folder) not in (folder / "scale.jsonl").read_text("utf-8")
    report = ["report", "--results", str(folder), "--page", str(page)]
    main(report)
    main([*report, "--check"])
    page.write_text("stale", "utf-8")
    with pytest.raises(SystemExit) as stopped:
        main([*report, "--check"])
    assert stopped.value.code == 1
