"""Edge lists and node tables on the command line: names go in, names come out."""

import csv
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import SHORT, Command, json_of, refused
from gsebo import generate_graph, load_data
from gsebo.data.formats.folder import GraphFolder

KINDS = ["cat", 'dog, "big"', "eel"]
COLUMNS = ("--source", "a", "--target", "b", "--id", "name", "--label", "kind")
TABLES = ("edges.csv", "--nodes", "nodes.csv", *COLUMNS)


def write(path: str, rows: Iterable[Iterable[Any]]) -> None:
    with Path(path).open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def write_tables(count: int = 40, prefix: str = "", features: bool = True) -> None:
    """Two tables, of which a larger one begins with other nodes, in another order."""
    graph = generate_graph(
        40, num_classes=3, average_degree=4.0, num_features=3, seed=3
    )
    names = [f"node {place}" for place in range(40)]
    nodes = [
        [
            name,
            "" if place % 7 == 0 else KINDS[graph.y[place]],
            *graph.x[place].tolist(),
        ]
        for place, name in enumerate(names)
    ]
    pairs = [(names[a], names[b]) for a, b in graph.edge_index.t().tolist() if a < b]
    for place in range(40, count):
        nodes.append([f"node {place}", "eel", 0.0, 1.0, 2.0])
        pairs.append((f"node {place}", names[0]))
    if count > 40:
        random.Random(0).shuffle(nodes)
    width = 5 if features else 2
    write(
        f"{prefix}nodes.csv",
        [["name", "kind", "f1", "f2", "f3"][:width], *(row[:width] for row in nodes)],
    )
    write(f"{prefix}edges.csv", [["a", "b"], *pairs])


def rows_of(path: str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def test_fit_predict_inspect(command: Command) -> None:
    write_tables()
    fitted = command("fit", *TABLES, *SHORT, "--out", "m")
    assert fitted.exit_code == 0, fitted.stderr
    assert fitted.stderr.splitlines()[:2] == [
        "Each edge of edges.csv goes both ways; --directed if not.",
        "The graph came without masks; using the split random:10/20/70, by the seed.",
    ]
    done = command("predict", "m", *TABLES, "--out", "p.csv")
    assert done.exit_code == 0, done.stderr
    assert "cat" in done.stdout
    rows = rows_of("p.csv")
    assert list(rows[0]) == ["node", "predicted", "probability"]
    assert [row["node"] for row in rows] == [f"node {place}" for place in range(40)]
    assert {row["predicted"] for row in rows} <= {*KINDS}
    # What the fit saw is beside the model, however its columns were called.
    said = json_of(command("predict", "m", "--json"))
    assert said["node"] == [row["node"] for row in rows]
    assert said["predicted"] == [row["predicted"] for row in rows]
    assert said["classes"] == KINDS
    shown = json_of(command("inspect", "m", "--top", 2, "--export", "e.csv", "--json"))
    (layer,) = shown["layers"]
    for edge in layer["most_changed"]:
        assert edge["source"].startswith("node ")
        assert edge["target_class"] in (None, *KINDS)
    given = {(row["a"], row["b"]) for row in rows_of("edges.csv")}
    found = {(row["source"], row["target"]) for row in rows_of("e.csv")}
    assert {frozenset(pair) for pair in found} == {frozenset(pair) for pair in given}
    assert "node " in command("inspect", "m").stdout


def test_a_larger_table_in_another_order(command: Command) -> None:
    write_tables()
    write_tables(43, "more_")
    assert command("fit", *TABLES, *SHORT, "--out", "m").exit_code == 0
    before = json_of(command("predict", "m", *TABLES, "--json"))
    larger = ("more_edges.csv", "--nodes", "more_nodes.csv", *COLUMNS)
    done = command("predict", "m", *larger, "--json")
    found = json_of(done)
    assert (found["new_nodes"], found["new_edges"]) == (3, 6)
    place = {node: number for number, node in enumerate(found["node"])}
    assert found["node"] != sorted(found["node"])
    # Far from what is new, nothing changed.
    same = [
        found["probability"][place[node]] == pytest.approx(probability, abs=1e-5)
        for node, probability in zip(before["node"], before["probability"], strict=True)
    ]
    assert sum(same) > 20


def test_without_features(command: Command) -> None:
    write_tables(features=False)
    done = command("fit", *TABLES, *SHORT, "--out", "m")
    assert done.exit_code == 0
    made = "There were no features; each node got one, log(1 + edges into the node)."
    assert made in done.stderr
    found = json_of(command("predict", "m", *TABLES, "--json"))
    assert found["predicted"] == json_of(command("predict", "m", "--json"))["predicted"]
    quick = ("--set", "methods=vanilla", "--set", "max_epochs=5", "--device", "cpu")
    auto = command("fit", *TABLES, "--method", "auto", *quick, "--quiet")
    assert auto.exit_code == 0, auto.stderr
    assert made not in command("fit", *TABLES, "--method", "auto", *quick).stderr
    compared = command("compare", *TABLES, "--methods", "vanilla,mlp,auto", *quick)
    assert compared.stderr.count(made) == 1


def test_compare(command: Command) -> None:
    write_tables()
    options = ("--methods", "vanilla,mlp", "--set", "max_epochs=5", "--json")
    results = json_of(command("compare", *TABLES, *options))["results"]
    assert [result["num_nodes"] for result in results] == [40, 40]


def test_what_became_of_rows(command: Command) -> None:
    Path("e.tsv").write_text(
        "source\ttarget\tweight\tday\nb\ta\t1\t2\nb\ta\t2\t3\na\ta\t1\t1\n"
    )
    done = command("data", "convert", "e.tsv", "--out", "g")
    assert done.exit_code == 0, done.stderr
    said = done.stderr.splitlines()
    assert "Self-loops were left out: 1." in said
    assert "Rows that repeat an edge were merged: 1; their weights add up." in said
    assert "These columns were left out: day." in said
    assert GraphFolder.open("g").ids().tolist() == ["b", "a"]
    kept = load_data("g")
    assert kept.edge_index.tolist() == [[1, 0], [0, 1]]
    assert kept.edge_weight.tolist() == [3, 3]


def test_texts_in_bounded_memory(command: Command) -> None:
    write_tables()
    done = command(
        *("data", "convert", "--edges", "edges.csv", "--nodes", "nodes.csv"),
        *(*COLUMNS, "--undirected", "--out", "g", "--json"),
    )
    json_of(done)
    folder, graph = (
        GraphFolder.open("g"),
        load_data(
            "edges.csv",
            nodes="nodes.csv",
            source="a",
            target="b",
            id="name",
            label="kind",
        ),
    )
    whole = folder.to_data()
    assert whole.ids.tolist() == graph.ids.tolist()
    assert whole.y.tolist() == graph.y.tolist()
    assert whole.x.tolist() == graph.x.tolist()
    pairs = [
        set(zip(*each.edge_index.tolist(), strict=True)) for each in (whole, graph)
    ]
    assert pairs[0] == pairs[1]
    assert json_of(command("data", "verify", "g", "--json"))["datasets"][0]["ok"]


def test_folders_on_batches_speak_of_ids(command: Command) -> None:
    write_tables()
    convert = ("data", "convert", *TABLES, "--split", "random:30/30/40", "--out", "g")
    assert command(*convert).exit_code == 0
    batches = ("--batch-size", 10, *SHORT, "--quiet")
    fitted = command("fit", "g", *batches, "--out", "m", "--predictions", "p.parquet")
    assert fitted.exit_code == 0, fitted.stderr
    from pyarrow import parquet

    table = parquet.read_table("p.parquet").to_pydict()
    assert table["node"] == [f"node {place}" for place in range(40)]
    assert {*table["predicted"]} <= {*KINDS}
    shown = json_of(command("inspect", "m", "--json"))
    edges = [edge for layer in shown["layers"] for edge in layer["most_changed"]]
    assert all(edge["source"].startswith("node ") for edge in edges + shown["edges"])
    known = [edge for edge in shown["edges"] if edge["source_known"]]
    assert known and {edge["source_class"] for edge in known} <= {*KINDS}
    unknown = [edge for edge in shown["edges"] if not edge["source_known"]]
    assert all(edge["source_class"] is None for edge in unknown)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("fit", "cora", "--id", "x"), "cora given with --id, for tables"),
        (("fit", "g.npz", "--directed"), "g.npz given with --directed, for tables"),
        (("fit", "edges.csv", "--undirected"), "--source and --target name others"),
        (("compare", "cora", "--weight", "w"), "cora given with --weight"),
        (("fit", *TABLES, "--weight", "a"), "expected one of them that is neither"),
        (("fit", *TABLES[:-1], "nothing"), "no column 'nothing'"),
        (("fit", "missing.csv"), "missing.csv cannot be read"),
        (("fit", "edges.csv", *COLUMNS[:4], *SHORT), "no y"),
        (
            ("data", "convert", "--edges", "edges.csv", *COLUMNS[:4], "--out", "g"),
            "a node table with these ids, or gsebo data convert edges.csv, which",
        ),
    ],
)
def test_what_is_refused(command: Command, words: tuple[str, ...], said: str) -> None:
    write_tables()
    assert said in refused(command(*words))


def test_a_model_is_given_tables_only_where_there_are_some(command: Command) -> None:
    write_tables()
    assert command("fit", *TABLES, *SHORT, "--out", "m").exit_code == 0
    said = refused(command("predict", "m", "--nodes", "nodes.csv"))
    assert "graph.npz given with --nodes, for tables" in said
