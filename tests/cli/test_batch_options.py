from pathlib import Path

import pytest

from cli.conftest import SHORT, Command, json_of, refused


def test_options_are_short_for_settings(command: Command, graph_file: Path) -> None:
    short = ("--batch-size", 9, "--sampler", "cluster", "--batches-per-step", 2)
    names = ("batch_size", "sampler", "batches_per_step")
    values = short[1::2]
    pairs = zip(names, values, strict=True)
    long = [word for name, v in pairs for word in ("--set", f"{name}={v}")]
    results = [
        json_of(command("fit", graph_file, *SHORT, *options, "--json"))
        for options in (short, long)
    ]
    parameters = results[0]["parameters"]
    assert [parameters[name] for name in names] == list(values)
    for measured in ("seconds", "peak_memory_bytes"):
        for result in results:
            del result[measured]
    assert results[0] == results[1]
    assert "processes" not in results[0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--batch-size", 0), "--batch-size"),
        (("--batch-size", 8, "--sampler", "nonsense"), "nonsense"),
        (("--batch-size", 8, "--method", "vanilla"), "batch_size"),
        (("--set", "shard_strengths=true"), "shard_strengths=True given without"),
    ],
    ids=str,
)
def test_refused(
    command: Command, graph_file: Path, options: tuple[object, ...], sentence: str
) -> None:
    assert sentence in refused(command("fit", graph_file, *options))
