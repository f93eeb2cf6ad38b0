from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.metrics import roc_auc_score

import gsebo
from cli.conftest import Command, json_of, refused
from gsebo import Graph
from gsebo.data import save_npz


def planted() -> tuple[Graph, set[tuple[int, int]]]:
    """A graph with edges that join nodes of different classes, and which those are."""
    clean = gsebo.generate_graph(
        120, average_degree=6.0, num_features=8, homophily=0.95, seed=0
    )
    noisy = gsebo.add_inter_class_edges(clean, 40, seed=0)
    there = set(map(tuple, clean.edge_index.t().tolist()))
    return noisy, set(map(tuple, noisy.edge_index.t().tolist())) - there


@pytest.fixture
def model_of_planted(tmp_path: Path) -> Path:
    graph, _ = planted()
    method = gsebo.GSEBO(random_state=0, device="cpu", max_outer_steps=40)
    method.fit(graph).save(tmp_path / "m")
    return tmp_path / "m"


def edges_by(command: Command, model: Path, *options: object) -> list[dict[str, Any]]:
    options = ("--json", "--top", 10**6, *options)
    rows = json_of(command("inspect", model, *options))["edges"]
    assert isinstance(rows, list)
    return rows


def area(rows: list[dict[str, Any]]) -> float:
    """Of the curve of planted edges found against others, from the first row on."""
    _, false = planted()
    is_false = [(row["source"], row["target"]) in false for row in rows]
    return float(roc_auc_score(is_false, [-number for number in range(len(rows))]))


def test_planted_edges_come_first(command: Command, model_of_planted: Path) -> None:
    rows = edges_by(command, model_of_planted)
    assert area(rows) > 0.8
    assert rows == edges_by(command, model_of_planted, "--sort", "suspicious")
    # The order that was the only one says nothing of them.
    by_change = area(edges_by(command, model_of_planted, "--sort", "changed"))
    assert abs(by_change - 0.5) < 0.15


def test_each_undirected_edge_is_one_row(
    command: Command, model_of_planted: Path
) -> None:
    graph, _ = planted()
    rows = edges_by(command, model_of_planted)
    pairs = [frozenset((row["source"], row["target"])) for row in rows]
    assert len(set(pairs)) == len(pairs) == graph.num_edges // 2
    model = gsebo.load_model(model_of_planted)
    strengths = dict(
        zip(
            map(tuple, graph.edge_index.t().tolist()),
            model.strength_.tolist(),
            strict=True,
        )
    )
    for row in rows[:20]:
        ends = row["source"], row["target"]
        mean = (strengths[ends] + strengths[ends[::-1]]) / 2
        assert row["strength"] == pytest.approx(mean)
        p = model.probability_[list(ends)].double()
        assert row["agreement"] == pytest.approx(float((p[0] * p[1]).sum()))


@pytest.mark.parametrize(
    ("sort", "column"),
    [
        ("agreement", "agreement"),
        ("strength", "strength"),
        ("ratio", "ratio"),
        ("weight", "ratio"),  # Nothing but a learned function gives weights.
    ],
)
def test_each_order_is_that_of_its_column(
    command: Command, model_of_planted: Path, sort: str, column: str
) -> None:
    values = [
        row[column] for row in edges_by(command, model_of_planted, "--sort", sort)
    ]
    assert values == sorted(values)


def test_changes_from_the_largest(command: Command, model_of_planted: Path) -> None:
    for sort, sign in (("changed", abs), ("strengthened", float)):
        rows = edges_by(command, model_of_planted, "--sort", sort)
        changes = [sign(row["strength"] - row["start"]) for row in rows]
        assert changes == sorted(changes, reverse=True)


def test_a_learned_function_has_weights(command: Command, tmp_path: Path) -> None:
    graph, _ = planted()
    method = gsebo.Amortised(
        random_state=0, device="cpu", num_folds=2, max_outer_steps=20, refit_epochs=40
    )
    method.fit(graph).save(tmp_path / "m")
    rows = edges_by(command, tmp_path / "m", "--sort", "weight")
    weights = [row["weight"] for row in rows]
    assert weights == sorted(weights) and weights[0] < weights[-1]
    assert area(edges_by(command, tmp_path / "m")) > 0.7
    assert "weight" in command("inspect", tmp_path / "m").stdout


def test_one_way_edges_and_loops(command: Command, tmp_path: Path) -> None:
    graph = gsebo.generate_graph(40, average_degree=4.0, num_features=5)
    one_way = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    graph.edge_index = torch.cat([one_way, torch.tensor([[3], [3]])], dim=1)
    gsebo.Vanilla(max_epochs=2, device="cpu").fit(graph).save(tmp_path / "m")
    rows = edges_by(command, tmp_path / "m")
    assert len(rows) == one_way.shape[1]
    assert all(row["source"] < row["target"] for row in rows)


def test_what_is_printed(command: Command, tmp_path: Path) -> None:
    graph, _ = planted()
    path = tmp_path / "planted.npz"
    save_npz(graph, path)
    options = ("--method", "vanilla", "--set", "max_epochs=20", "--device", "cpu")
    assert command("fit", path, *options, "--out", tmp_path / "m").exit_code == 0
    text = command("inspect", tmp_path / "m", "--top", 3).stdout
    assert "Most suspicious edges" in text and "agreement" in text
    assert f"gsebo suspects {path}" in text
    said = refused(command("inspect", tmp_path / "m", "--sort", "colour"))
    assert "colour" in said and "suspicious" in said
    said = refused(command("inspect", tmp_path / "m", "--export", "edges.xlsx"))
    assert ".graphml" in said
