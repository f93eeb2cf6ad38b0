import math
from pathlib import Path

import pytest
import torch

from cli.conftest import SHORT, Command, json_of, refused, small_graph
from gsebo import load_model
from gsebo.data import save_npz

KEYS = {
    "dataset",
    "method",
    "backbone",
    "seed",
    "test_accuracy",
    "val_accuracy",
    "outer_iterations",
    "best_step",
    "seconds",
    "peak_memory_bytes",
    "device",
    "split",
    "noise",
    "preset",
    "parameters",
    "num_nodes",
    "num_edges",
    "versions",
    "metric",
    "test",
    "val",
}


def test_fits_cora(command: Command) -> None:
    result = json_of(
        command("fit", "Cora", "--set", "max_outer_steps=2", "--json", "--seed", 3)
    )
    assert set(result) == KEYS
    assert (result["dataset"], result["num_nodes"]) == ("cora", 2708)
    assert (result["num_edges"], result["outer_iterations"]) == (10556, 2)
    assert result["split"] == "file"
    assert 0.2 < result["test_accuracy"] < 1
    assert result["parameters"]["max_outer_steps"] == 2
    assert result["seed"] == 3
    assert result["peak_memory_bytes"] > 2**20


def test_the_table_says_what_happened(command: Command, graph_file: Path) -> None:
    result = command("fit", graph_file, *SHORT)
    assert result.exit_code == 0
    assert "test accuracy" in result.stdout
    assert "edges weakened" in result.stdout or "no edge changed" in result.stdout
    assert "\x1b" not in result.output
    assert result.stderr == ""


def test_seeds_are_averaged(command: Command, graph_file: Path) -> None:
    result = json_of(
        command("fit", graph_file, *SHORT, "--seed", 5, "--seeds", 3, "--json")
    )
    runs = result["runs"]
    assert [run["seed"] for run in runs] == [5, 6, 7]
    values = torch.tensor([run["test_accuracy"] for run in runs], dtype=torch.float64)
    assert result["test_accuracy"] == pytest.approx(float(values.mean()))
    assert result["test_accuracy_std"] == pytest.approx(float(values.std()))
    assert set(result) == KEYS | {
        "test_accuracy_std",
        "val_accuracy_std",
        "test_std",
        "val_std",
        "runs",
    }
    single = json_of(
        command("fit", graph_file, *SHORT, "--seed", 6, "--seeds", 1, "--json")
    )
    assert single["test_accuracy_std"] == 0.0
    measured = ("seconds", "peak_memory_bytes")
    same = {key: runs[1][key] for key in runs[1] if key not in measured}
    assert same.items() <= single.items()


def test_the_table_of_seeds(command: Command, graph_file: Path) -> None:
    result = command("fit", graph_file, *SHORT, "--seeds", 2)
    assert result.exit_code == 0
    assert "±" in result.stdout


def test_without_masks_the_split_is_random(command: Command, tmp_path: Path) -> None:
    graph = small_graph()
    del graph.train_mask, graph.val_mask, graph.test_mask
    save_npz(graph, tmp_path / "bare.npz")
    result = command("fit", tmp_path / "bare.npz", *SHORT, "--json")
    assert json_of(result)["split"] == "random:10/20/70"
    assert "without masks" in result.stderr
    quiet = command("fit", tmp_path / "bare.npz", *SHORT, "--json", "--quiet")
    assert quiet.stderr == ""


def test_without_test_nodes_there_is_no_test_accuracy(
    command: Command, tmp_path: Path
) -> None:
    graph = small_graph()
    del graph.test_mask
    save_npz(graph, tmp_path / "untested.npz")
    options = (*SHORT, "--json", "--seeds", 2)
    result = json_of(command("fit", tmp_path / "untested.npz", *options))
    assert result["test_accuracy"] is None
    assert result["test_accuracy_std"] is None
    assert command("fit", tmp_path / "untested.npz", *SHORT).exit_code == 0


def test_noise_adds_edges(command: Command, graph_file: Path) -> None:
    options = (*SHORT, "--split", "ratio:30/30/40", "--noise", 7, "--json")
    result = json_of(command("fit", graph_file, *options))
    assert result["num_edges"] == small_graph().num_edges + 14
    assert (result["noise"], result["split"]) == (7, "ratio:30/30/40")


def test_a_class_without_training_nodes_warns(command: Command, tmp_path: Path) -> None:
    graph = small_graph()
    graph.y[int(graph.val_mask.nonzero()[0])] = 2
    save_npz(graph, tmp_path / "unseen.npz")
    result = command("fit", tmp_path / "unseen.npz", *SHORT, "--seeds", 2, "--json")
    json_of(result)
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("Warning: no training node is of class 2")


def test_out_saves_the_model(model_folder: Path) -> None:
    assert sorted(path.name for path in model_folder.iterdir()) == [
        "model.json",
        "model.safetensors",
    ]
    assert load_model(model_folder).seed_ == 0


def test_resume_needs_a_folder_and_may_start_anew(
    command: Command, graph_file: Path, tmp_path: Path
) -> None:
    assert "--out" in refused(command("fit", graph_file, "--resume"))
    fresh = command("fit", graph_file, *SHORT, "--out", tmp_path / "m", "--resume")
    assert fresh.exit_code == 0
    assert "starting anew" in fresh.stderr


def test_out_is_for_one_model(command: Command, graph_file: Path) -> None:
    result = command("fit", graph_file, "--out", "m", "--seeds", 2)
    assert "--seeds 2" in refused(result)
    assert not Path("m").exists()


def test_a_fit_that_diverges_at_once_leaves_no_folder(
    command: Command, graph_file: Path
) -> None:
    rates = ("--set", "inner_lr=1e29", "--set", "inner_optimizer=sgd")
    result = command("fit", graph_file, *SHORT, *rates, "--out", "m/deep")
    assert "diverged" in refused(result)
    assert not Path("m").exists()


@pytest.mark.parametrize("method", ["vanilla", "frozen"])
def test_other_methods(command: Command, graph_file: Path, method: str) -> None:
    result = command("fit", graph_file, "--method", method, "--preset", "paper")
    assert result.exit_code == 0
    assert "not learned" in result.stdout


def test_a_preset_gives_way_to_set(command: Command, graph_file: Path) -> None:
    options = (*SHORT, "--backbone", "jk", "--preset", "paper", "--json")
    result = json_of(command("fit", graph_file, *options))
    assert (result["preset"], result["parameters"]["num_layers"]) == ("paper", 3)
    options += ("--set", "num_layers=2")
    result = json_of(command("fit", graph_file, *options))
    assert result["parameters"]["num_layers"] == 2
    assert math.isfinite(result["seconds"])


def test_a_graph_that_was_kept_is_said_to_be(command: Command) -> None:
    steps = ("--set", "max_outer_steps=30", "--noise", 20_000, "--seed", 0)
    result = command("fit", "cora", *steps)
    assert result.exit_code == 0 and "No strength was changed" in result.stderr
    result = command("fit", "cora", "--set", "max_outer_steps=2", "--seed", 0)
    assert result.exit_code == 0 and "No strength" not in result.stderr
