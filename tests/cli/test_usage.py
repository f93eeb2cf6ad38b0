import os
from pathlib import Path

import pytest

from cli.conftest import SHORT, Command, refused
from gsebo import GSEBO


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fti"], "'fit'"),
        (["fit"], "DATASET"),
        (["fit", "cora", "--sede", "1"], "--seed"),
        (["fit", "cora", "--seed", "one"], "--seed"),
        (["fit", "cora", "--seed", "-1"], "--seed"),
        (["fit", "cora", "--seeds", "0"], "--seeds"),
        (["fit", "cora", "--noise", "-5"], "--noise"),
        (["fit", "cora", "citeseer"], "citeseer"),
        (["fit", "cora", "--set"], "--set"),
        (["fit", "coar"], "'cora'"),
        (["fit", "cora", "--method", "gseb"], "'gsebo'"),
        (["fit", "cora", "--preset", "papre"], "'paper'"),
        (["fit", "cora", "--split", "randm"], "'random'"),
        (["fit", "cora", "--split", "random:90/90/90"], "270"),
        (["fit", "cora", "--data-dir", "nowhere"], "nowhere"),
        (["data", "gett"], "'get'"),
        (["data", "get", "coraa"], "'cora'"),
        (["data", "verify", "coraa"], "'cora'"),
        (["list", "method"], "'methods'"),
        (["inspect"], "MODEL"),
        (["inspect", "nowhere"], "nowhere"),
        (["predict", "nowhere"], "nowhere"),
    ],
)
def test_wrong_usage(command: Command, arguments: list[str], words: str) -> None:
    assert words in refused(command(*arguments))
    assert list(Path.cwd().iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--backbone", "gcm"], "'gcn'"),
        (["--device", "gpu9"], "gpu9"),
        (["--set", "inner_steps=0"], "inner_steps=0"),
        (["--set", "inner_lr=-0.1"], "inner_lr=-0.1"),
        (["--set", "outer_lr=nan"], "outer_lr=nan"),
        (["--set", "dropout=1.5"], "dropout"),
        (["--set", "num_layers=0"], "num_layers"),
        (["--set", "select_by=luck"], "'loss'"),
        (["--set", "hypergradient=revers"], "'reverse'"),
        (["--set", "structure=egde"], "'edge'"),
        (["--set", "inner_optimizer=adm"], "'adam'"),
        (["--set", "backbone_options.head=2", "--backbone", "gat"], "heads"),
        (["--set", "inner_step=2"], "'inner_steps'"),
        (["--split", "file:0"], "train_masks"),
        (["--noise", "100000"], "at most"),
    ],
)
def test_wrong_values(
    command: Command, graph_file: Path, options: list[str], words: str
) -> None:
    result = command("fit", graph_file, *options, "--out", "m", "--json")
    assert words in refused(result)
    assert list(Path.cwd().iterdir()) == []


def test_unwritable_folder(
    command: Command, graph_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = command("fit", graph_file, *SHORT, "--out", graph_file / "below")
    assert "cannot write" in refused(result)
    assert "cannot write" in refused(command("fit", graph_file, "--out", graph_file))


def test_control_c(
    command: Command, graph_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object, **keywords: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(GSEBO, "fit", interrupted)
    for options in ((), ("--out", "m")):
        result = command("fit", graph_file, *options)
        assert (result.exit_code, result.output) == (130, "")


def test_help_shows_an_example_for_each_command(command: Command) -> None:
    assert "compare" in command().stdout
    assert "verify" in command("data").stdout
    for name in ("fit", "compare", "predict", "inspect", "list", "data"):
        result = command(name, "--help")
        assert result.exit_code == 0
        assert f"Example: gsebo {name}" in result.stdout


def test_version(command: Command) -> None:
    result = command("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("gsebo ")
    assert os.linesep in result.stdout
