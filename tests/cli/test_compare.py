from pathlib import Path

import pytest

from cli.conftest import SHORT, Command, json_of, refused


def test_rows_and_differences(command: Command, graph_file: Path) -> None:
    options = ("--seeds", 2, "--set", "max_epochs=5", *SHORT)
    result = json_of(command("compare", graph_file, *options, "--json"))
    assert (result["backbone"], result["seeds"]) == ("gcn", [0, 1])
    first, second = result["results"]
    assert (first["method"], second["method"]) == ("vanilla", "gsebo")
    assert first["difference"] == 0
    gain = second["test_accuracy"] - first["test_accuracy"]
    assert second["difference"] == pytest.approx(gain)
    assert first["parameters"]["max_epochs"] == 5
    assert second["parameters"]["max_outer_steps"] == 4
    assert len(second["runs"]) == 2


def test_table(command: Command, graph_file: Path) -> None:
    options = ("--methods", "frozen, gsebo", *SHORT)
    result = command("compare", graph_file, *options)
    assert result.exit_code == 0
    assert "difference to frozen" in result.stdout


def test_a_parameter_that_no_method_has(command: Command, graph_file: Path) -> None:
    options = ("--methods", "vanilla,frozen", "--set", "outer_lr=1")
    assert "unknown parameter 'outer_lr'" in refused(
        command("compare", graph_file, *options)
    )


def test_no_methods(command: Command, graph_file: Path) -> None:
    assert "--methods" in refused(command("compare", graph_file, "--methods", ","))
    assert "'vanilla'" in refused(command("compare", graph_file, "--methods", "vanila"))
