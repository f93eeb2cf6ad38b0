"""``gsebo fit GRAPH --method auto``: what it says, and graphs without features."""

from pathlib import Path

import numpy as np
import pytest

from cli.conftest import Command, json_of, refused
from gsebo import generate_graph

TINY = (
    *("--method", "auto", "--device", "cpu"),
    *("--set", "max_epochs=20", "--set", "num_folds=2", "--set", "hidden_channels=8"),
)
QUICK = (*TINY, "--set", "methods=vanilla,mlp", "--set", "features=given")


@pytest.fixture
def bare_file(tmp_path: Path) -> Path:
    """A graph of which nothing is known but edges and labels."""
    data = generate_graph(60, average_degree=5.0, homophily=0.9)
    path = tmp_path / "bare.npz"
    np.savez(path, edge_index=data.edge_index.numpy(), y=data.y.numpy())
    return path


def test_it_says_what_it_chose_and_why(command: Command) -> None:
    result = command("fit", "planted", *QUICK)
    assert result.exit_code == 0, result.stderr
    for words in ("held out", "vanilla", "mlp", "Chose ", " because it is right on "):
        assert words in result.stdout
    assert "Structure: as given, no edge was changed." in result.stdout


def test_it_says_what_the_structure_changed(command: Command) -> None:
    options = (*TINY, "--set", "methods=gsebo", "--set", "features=given")
    result = command("fit", "planted", *options)
    assert result.exit_code == 0, result.stderr
    assert "of the edges are weaker" in result.stdout
    structure = json_of(command("fit", "planted", *options, "--json"))["choice"][
        "structure"
    ]
    assert structure["new_edges"] == 0
    assert 0 < structure["weakened_share"] + structure["strengthened_share"] <= 1


def test_the_choice_is_in_the_json(command: Command) -> None:
    result = json_of(command("fit", "planted", *QUICK, "--json"))
    choice = result["choice"]
    assert [record["candidate"] for record in choice["tried"]] == ["vanilla", "mlp"]
    (chosen,) = (record for record in choice["tried"] if record["chosen"])
    assert chosen["candidate"] == choice["chosen"]
    assert choice["parameters"]["max_epochs"] == choice["epochs"] == chosen["epochs"]
    assert result["method"] == "auto"
    assert "choice" not in json_of(
        command("fit", "planted", "--set", "max_outer_steps=1", "--json")
    )


def test_several_seeds_choose_for_themselves(command: Command) -> None:
    result = json_of(command("fit", "planted", *QUICK, "--seeds", 2, "--json"))
    first, second = (run["choice"] for run in result["runs"])
    assert first["parameters"]["random_state"] != second["parameters"]["random_state"]
    said = command("fit", "planted", *QUICK, "--seeds", 2).stdout
    assert "Chosen in 2 runs: " in said


def test_a_graph_without_features(
    command: Command, bare_file: Path, tmp_path: Path
) -> None:
    others = command("fit", bare_file, "--method", "mlp", "--set", "max_epochs=2")
    assert others.exit_code == 0
    assert "There were no features; each node got one, log(1 + " in others.stderr
    options = (*TINY, "--set", "methods=vanilla,mlp", "--out", tmp_path / "model")
    fitted = json_of(command("fit", bare_file, *options, "--json"))
    assert fitted["choice"]["preparation"] in ("degree", "identity", "degree+identity")
    told = json_of(command("predict", tmp_path / "model", "--json"))
    assert told["test_accuracy"] == fitted["test_accuracy"]
    assert command("inspect", tmp_path / "model").exit_code == 0


def test_there_is_nothing_to_normalise(command: Command, bare_file: Path) -> None:
    said = refused(command("fit", bare_file, *QUICK, "--normalize"))
    assert "no features" in said
