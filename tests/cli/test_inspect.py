import csv
from pathlib import Path

import pytest
from sklearn.base import clone

from cli.conftest import SHORT, Command, json_of, small_graph
from gsebo import GSEBO, load_model
from gsebo.data.formats.folder import write_folder

FAST = (
    *("--set", "outer_step=paper", "--set", "outer_lr=1"),
    *("--set", "select_by=accuracy"),
)


def test_json_and_tables(command: Command, graph_file: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "m")
    assert command("fit", graph_file, *SHORT, *FAST, *out).exit_code == 0
    result = json_of(command("inspect", tmp_path / "m", "--top", 3, "--json"))
    (layer,) = result["layers"]
    counts = [layer[key]["count"] for key in ("weakened", "unchanged", "strengthened")]
    assert sum(counts) == result["num_edges"]
    assert sum(bar["count"] for bar in layer["histogram"]) == result["num_edges"]
    assert result["learned"] is True
    text = command("inspect", tmp_path / "m")
    assert text.exit_code == 0
    changed = counts[0] + counts[2]
    assert len(layer["most_changed"]) == min(3, changed)
    assert ("between classes" in text.stdout) == (changed > 0)


def test_export(command: Command, model_folder: Path) -> None:
    result = command("inspect", model_folder, "--export", "edges.csv")
    assert result.exit_code == 0
    with Path("edges.csv").open() as file:
        rows = list(csv.DictReader(file))
    model = load_model(model_folder)
    first = ["source", "target", "start", "strength", "ratio"]
    assert list(rows[0]) == [*first, "agreement", "weight"]
    pairs = [(int(row["source"]), int(row["target"])) for row in rows]
    assert pairs == [tuple(pair) for pair in model.graph_.edge_index.t().tolist()]
    for row, strength in zip(rows, model.strength_.tolist(), strict=True):
        assert abs(float(row["strength"]) - strength) < 1e-8


def test_layers(command: Command, graph_file: Path, tmp_path: Path) -> None:
    options = (*SHORT, *FAST, "--set", "per_layer=true", "--out", tmp_path / "m")
    assert command("fit", graph_file, *options).exit_code == 0
    options = (tmp_path / "m", "--json", "--export", "edges.csv")
    result = json_of(command("inspect", *options))
    assert [layer["layer"] for layer in result["layers"]] == [0, 1]
    header, *lines = Path("edges.csv").read_text().splitlines()
    assert header == "source,target,layer,start,strength,ratio,agreement,weight"
    assert len(lines) == 2 * result["num_edges"]
    assert command("inspect", tmp_path / "m").exit_code == 0


def test_vanilla_learned_nothing(
    command: Command, graph_file: Path, tmp_path: Path
) -> None:
    options = ("--method", "vanilla", "--set", "max_epochs=2", "--out", tmp_path / "m")
    assert command("fit", graph_file, *options).exit_code == 0
    result = command("inspect", tmp_path / "m")
    assert "Nothing was learned" in result.stdout
    facts = json_of(command("inspect", tmp_path / "m", "--json"))
    assert facts["learned"] is False


def test_a_model_of_a_folder_shows_its_edges(command: Command, tmp_path: Path) -> None:
    graph = small_graph()
    folder = write_folder(graph, tmp_path / "graph")
    options = {"max_outer_steps": 3, "device": "cpu", "random_state": 0}
    for per_layer in (False, True):
        method = GSEBO(per_layer=per_layer, batch_size=16, **options)
        whole, parts = (
            clone(method).fit(where) for where in (folder.to_data(), folder)
        )
        whole.save(tmp_path / "whole", overwrite=True)
        parts.save(tmp_path / "parts", dataset=str(folder.path), overwrite=True)
        found = [
            json_of(command("inspect", tmp_path / name, "--json", "--top", 5))
            for name in ("whole", "parts")
        ]
        for key in ("num_nodes", "num_edges", "learned"):
            assert found[0][key] == found[1][key]
        for one, other in zip(*(each["layers"] for each in found), strict=True):
            assert one["weakened"]["count"] == other["weakened"]["count"] > 0
            assert one["histogram"] == other["histogram"]
            ratios = [each["within_class"]["mean_ratio"] for each in (one, other)]
            assert ratios[0] == pytest.approx(ratios[1], rel=1e-5)
            changed = [
                [(edge["source"], edge["target"]) for edge in each["most_changed"]]
                for each in (one, other)
            ]
            assert changed[0] == changed[1]
        tables = []
        for name in ("whole", "parts"):
            command("inspect", tmp_path / name, "--export", f"{name}.csv", "--force")
            tables.append(Path(f"{name}.csv").read_text().splitlines())
        assert tables[0][0] == tables[1][0]
        assert len(tables[0]) == len(tables[1]) > 1


def test_without_predictions_at_hand_the_weakest_come_first(
    command: Command, tmp_path: Path
) -> None:
    folder = write_folder(small_graph(), tmp_path / "graph")
    options = {"max_outer_steps": 3, "device": "cpu", "random_state": 0}
    model = GSEBO(batch_size=9, **options).fit(folder)
    model.save(tmp_path / "m", dataset=str(folder.path))
    found = json_of(command("inspect", tmp_path / "m", "--json", "--top", 7))
    assert found["sort"] == "ratio" and len(found["edges"]) == 7
    ratios = [edge["ratio"] for edge in found["edges"]]
    assert ratios == sorted(ratios) and ratios[0] < 1
    assert {edge["agreement"] for edge in found["edges"]} == {None}
    text = command("inspect", tmp_path / "m").stdout
    assert "They are sorted by ratio" in text
    strongest = command("inspect", tmp_path / "m", "--json", "--sort", "strengthened")
    assert json_of(strongest)["edges"][0]["ratio"] > 1


def test_a_folder_that_went_elsewhere(command: Command, tmp_path: Path) -> None:
    folder = write_folder(small_graph(), tmp_path / "graph")
    options = {"max_outer_steps": 1, "device": "cpu", "random_state": 0}
    GSEBO(batch_size=9, **options).fit(folder).save(tmp_path / "m")
    for given in ((), ("--graph", tmp_path / "nowhere")):
        result = command("inspect", tmp_path / "m", *given)
        assert result.exit_code == 2
        assert "was fitted on a graph folder" in result.stderr
    assert command("inspect", tmp_path / "m", "--graph", folder.path).exit_code == 0
    other = write_folder(small_graph(31), tmp_path / "other")
    result = command("inspect", tmp_path / "m", "--graph", other.path)
    assert result.exit_code == 2 and "expected that graph" in result.stderr


def test_a_model_of_a_graph_in_memory_takes_a_folder(
    command: Command, model_folder: Path, tmp_path: Path
) -> None:
    write_folder(small_graph(), tmp_path / "graph")
    results = [
        json_of(command("predict", model_folder, *graph, "--json"))
        for graph in ((), (tmp_path / "graph",))
    ]
    assert results[0]["predicted"] == results[1]["predicted"]
