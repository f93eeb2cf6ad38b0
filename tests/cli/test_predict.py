import csv
import json
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from cli.conftest import SHORT, Command, json_of, refused, small_graph
from gsebo import GSEBO, InputWarning, load_model
from gsebo.data import load_npz, save_npz


def test_predictions_are_those_of_the_fit(
    command: Command, model_folder: Path, graph_file: Path
) -> None:
    result = json_of(command("predict", model_folder, graph_file, "--json"))
    model = load_model(model_folder)
    assert result["predicted"] == model.transduction_.tolist()
    assert sum(result["counts"]) == result["num_nodes"] == 40
    assert 0 <= result["test_accuracy"] <= 1
    assert json_of(command("predict", model_folder, "--json")) == result


def test_csv(command: Command, model_folder: Path) -> None:
    result = command("predict", model_folder, "--out", "new/predictions.csv")
    assert result.exit_code == 0
    assert "Accuracy of the test nodes" in result.stdout
    with Path("new/predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["node"] for row in rows] == [str(node) for node in range(40)]
    assert set(rows[0]) == {"node", "predicted", "probability"}
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)


def test_a_disturbed_graph_is_remembered(
    command: Command, graph_file: Path, tmp_path: Path
) -> None:
    options = (*SHORT, "--noise", 5, "--split", "random", "--normalize", "--json")
    fitted = json_of(command("fit", graph_file, *options, "--out", tmp_path / "m"))
    result = json_of(command("predict", tmp_path / "m", "--json"))
    assert result["test_accuracy"] == fitted["test_accuracy"]
    # The graph in the file has fewer edges, and other features unless normalised too.
    given = command("predict", tmp_path / "m", graph_file, "--normalize", "--json")
    assert (json_of(given)["new_nodes"], json_of(given)["new_edges"]) == (0, 0)
    assert given.stderr == ""
    raw = command("predict", tmp_path / "m", graph_file, "--json")
    assert json_of(raw)["new_nodes"] == 40
    assert json_of(raw)["new_edges"] == small_graph().num_edges


def test_another_graph(command: Command, model_folder: Path, tmp_path: Path) -> None:
    save_npz(small_graph(seed=1), tmp_path / "other.npz")
    result = command("predict", model_folder, tmp_path / "other.npz", "--out", "p.csv")
    assert result.exit_code == 0
    edges = small_graph(seed=1).num_edges
    assert f"{edges} of {edges} edges are not in the graph of the fit" in result.stderr
    assert f"New since the fit: 40 nodes and {edges} edges." in result.stdout
    assert len(Path("p.csv").read_text().splitlines()) == 41
    assert "features" in refused(command("predict", model_folder, "cora"))


def test_a_larger_graph(command: Command, tmp_path: Path) -> None:
    """Nodes in another order and one more: names say which are which."""
    data = small_graph()
    data.node_id = torch.arange(40) + 5
    save_npz(data, tmp_path / "named.npz")
    folder = tmp_path / "m"
    assert (
        command("fit", tmp_path / "named.npz", *SHORT, "--out", folder).exit_code == 0
    )
    larger = Data(
        x=torch.cat([data.x[:1] + 1, data.x]),
        edge_index=torch.cat([data.edge_index + 1, torch.tensor([[0, 1], [1, 0]])], 1),
        node_id=torch.cat([torch.tensor([0]), data.node_id]),
    )
    save_npz(larger, tmp_path / "larger.npz")
    result = command("predict", folder, tmp_path / "larger.npz", "--json")
    assert f"2 of {larger.num_edges} edges" in result.stderr
    found = json_of(result)
    assert (found["new_nodes"], found["new_edges"], found["num_nodes"]) == (1, 2, 41)
    with pytest.warns(InputWarning):
        expected = load_model(folder).predict(larger).tolist()
    assert found["predicted"] == expected
    same = json_of(command("predict", folder, tmp_path / "named.npz", "--json"))
    assert (same["new_nodes"], same["new_edges"]) == (0, 0)


def test_nodes_that_the_fit_did_not_see(
    command: Command, graph_file: Path, tmp_path: Path
) -> None:
    folder, split = tmp_path / "m", ("--split", "unseen:50:file")
    result = command("fit", graph_file, *SHORT, *split, "--out", folder, "--json")
    fitted = json_of(result)
    assert "vanilla weight" not in result.stderr
    assert fitted["num_nodes"] == 40
    model, whole = load_model(folder), load_npz(folder / "graph.npz")
    hidden = int(whole.test_mask.sum())
    assert hidden == int(small_graph().test_mask.sum()) // 2 > 0
    assert model.transduction_.numel() == 40 - hidden
    found = json_of(command("predict", folder, "--json"))
    assert found["new_nodes"] == hidden
    assert found["test_accuracy"] == fitted["test_accuracy"]
    bad = command("fit", graph_file, *SHORT, "--split", "unseen:0:file")
    assert "from 1 to 100" in refused(bad)


def test_a_vanilla_model_takes_another_graph(
    command: Command, graph_file: Path, tmp_path: Path
) -> None:
    options = ("--method", "vanilla", "--set", "max_epochs=3", "--out", tmp_path / "v")
    assert command("fit", graph_file, *options).exit_code == 0
    other = small_graph(seed=1)
    del other.y, other.train_mask, other.val_mask, other.test_mask
    save_npz(other, tmp_path / "other.npz")
    result = json_of(
        command("predict", tmp_path / "v", tmp_path / "other.npz", "--json")
    )
    assert (result["accuracy"], result["test_accuracy"]) == (None, None)


def test_a_model_without_a_remembered_graph(command: Command, tmp_path: Path) -> None:
    GSEBO(max_outer_steps=1, inner_steps=1, random_state=0).fit(small_graph()).save(
        tmp_path / "m"
    )
    assert "does not remember" in refused(command("predict", tmp_path / "m"))


def test_damaged_models(command: Command, model_folder: Path, graph_file: Path) -> None:
    refused(command("predict", "nowhere", graph_file))
    tensors, facts = model_folder / "model.safetensors", model_folder / "model.json"
    whole, text = tensors.read_bytes(), facts.read_text()

    for damaged in (b"", whole[:100], whole[:-8], b"\0" * len(whole)):
        tensors.write_bytes(damaged)
        refused(command("predict", model_folder, graph_file, "--out", "p.csv"))
        refused(command("inspect", model_folder, "--export", "e.csv"))
    tensors.unlink()
    refused(command("predict", model_folder, graph_file))
    tensors.write_bytes(whole)

    changed = json.loads(text)
    del changed["parameters"]
    for damaged_text in ("", "{", "[]", "{}", json.dumps(changed), text[:300]):
        facts.write_text(damaged_text)
        refused(command("predict", model_folder, graph_file, "--out", "p.csv"))
    facts.unlink()
    refused(command("inspect", model_folder))
    assert list(Path.cwd().iterdir()) == []


def test_unwritable_csv(command: Command, model_folder: Path, graph_file: Path) -> None:
    below_a_file = graph_file / "p.csv"
    refused(command("predict", model_folder, "--out", below_a_file))
    refused(command("inspect", model_folder, "--export", below_a_file))
