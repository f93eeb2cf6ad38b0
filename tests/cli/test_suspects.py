"""``gsebo suspects``: two tables go in, names of wrong edges come out."""

import csv
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas as pd
import pytest
import torch

import gsebo
from cli.conftest import Command, json_of, refused
from gsebo import load_data
from gsebo.data import save_npz
from gsebo.data.formats.folder import write_folder
from suspects.graphs import CLASSES, NODES, few_labels, noisy_graph, without

KINDS = ["cat", 'dog, "big"', "eel"]
COLUMNS = ("--source", "a", "--target", "b", "--id", "name", "--label", "kind")
TABLES = ("edges.csv", "--nodes", "nodes.csv", *COLUMNS)
QUICK = ("--rounds", 1, "--device", "cpu")


def names() -> list[str]:
    return [f"node {place}" for place in range(NODES)]


def write_tables(folder: Path = Path()) -> None:
    """An edge list and a node table with a label or two of each kind."""
    graph, called = few_labels(noisy_graph()), names()
    header = ["name", "kind", *(f"f{column}" for column in range(16))]
    rows = [
        [name, KINDS[label] if known else "", *features]
        for name, label, known, features in zip(
            called, graph.y, graph.train_mask, graph.x.tolist(), strict=True
        )
    ]
    ends = [(called[a], called[b]) for a, b in graph.edge_index.T.tolist() if a < b]
    for path, content in (
        ("nodes.csv", [header, *rows]),
        ("edges.csv", [("a", "b"), *ends]),
    ):
        with (folder / path).open("w", newline="") as file:
            csv.writer(file).writerows(content)


@pytest.fixture
def bare_file(tmp_path: Path) -> Path:
    """A graph without labels, of which all is found at once."""
    path = tmp_path / "bare.npz"
    save_npz(without(noisy_graph(), "y"), path)
    return path


def pairs(frame: Any) -> set[frozenset[str]]:
    return set(map(frozenset, zip(frame["source"], frame["target"], strict=True)))


def test_two_tables_and_one_command(command: Command) -> None:
    write_tables()
    files = ("--page", "p.html", "--export", "e.csv", "--clean", "c.npz", "--missing")
    done = command("suspects", *TABLES, *files, *QUICK)
    assert done.exit_code == 0, done.stderr
    assert done.stderr.splitlines() == [
        "Each edge of edges.csv goes both ways; --directed if not.",
        "The graph came without masks: all its labels are read.",
        "The edges are in e.csv.",
        "The page is p.html.",
        done.stderr.splitlines()[4],
    ]
    rows = pd.read_csv("e.csv")
    given = pd.read_csv("edges.csv").rename(columns={"a": "source", "b": "target"})
    assert pairs(rows) == pairs(given) and len(rows) == len(given)
    assert rows["probability"].is_monotonic_decreasing
    assert set(rows["source_class"]) <= set(KINDS)
    assert f"{rows['source'][0]} " in done.stdout
    assert "expected to be wrong" in done.stdout
    assert "that should be joined" in done.stdout
    page = Path("p.html").read_text("utf-8")
    assert rows["source"][0] in page and "Suspicious edges of edges.csv" in page
    # What is likely wrong is gone, and nothing else.
    kept, whole = load_data("c.npz"), len(given)
    gone = int((rows["probability"] >= 0.5).sum())
    assert kept.num_edges == 2 * (whole - gone)
    assert done.stderr.splitlines()[4] == (
        f"The graph without {2 * gone} of its edges is in c.npz."
    )
    ends = kept.ids[kept.edge_index.numpy()]
    assert pairs({"source": ends[0], "target": ends[1]}) == pairs(
        rows[rows["probability"] < 0.5]
    )
    assert kept.class_names == sorted(KINDS)


def test_the_other_formats_have_the_same(command: Command) -> None:
    write_tables()
    said = json_of(
        command("suspects", *TABLES, *QUICK, "--export", "e.parquet", "--json")
    )
    assert said["export"] == "e.parquet"
    rows = pd.read_parquet("e.parquet")
    assert rows["source"].tolist()[:20] == [row["source"] for row in said["edges"]]
    done = command("suspects", *TABLES, *QUICK, "--export", "e.graphml", "--quiet")
    assert done.exit_code == 0 and done.stderr == ""
    graph = networkx.read_graphml("e.graphml")
    assert set(graph.nodes) == set(names())
    assert graph.number_of_edges() == len(rows)
    for row in rows.head(20).to_dict("records"):
        edge = graph.edges[row["source"], row["target"]]
        assert edge["score"] == pytest.approx(row["score"])
        assert edge["reason"] == row["reason"]
    known = [node["label"] for _, node in graph.nodes(data=True) if "label" in node]
    assert set(known) == set(KINDS) and len(known) == 2 * CLASSES - 1


def test_json_is_one_object(command: Command, bare_file: Path) -> None:
    said = json_of(command("suspects", bare_file, *QUICK, "--first", 3, "--json"))
    assert said.keys() >= {
        "graph",
        "num_nodes",
        "num_edges",
        "expected_wrong",
        "contamination",
        "expected",
        "sentences",
        "edges",
        "missing",
        "export",
        "page",
        "clean",
    }
    assert said["graph"] == str(bare_file)
    assert (said["num_nodes"], said["num_edges"]) == (NODES, 535)
    assert said["missing"] is said["export"] is said["page"] is said["clean"] is None
    # Without labels so small a graph does not tell how many are wrong, and says so.
    assert said["expected_wrong"] is said["contamination"] is None
    assert not said["expected"] and "cannot be told" in said["sentences"][0]
    assert len(said["edges"]) == 3
    found = gsebo.SuspiciousEdges(rounds=1, device="cpu", random_state=0)
    found.fit(load_data(bare_file))
    for row, expected in zip(
        said["edges"], found.edges_.to_dict("records"), strict=False
    ):
        assert row == expected
    more = json_of(command("suspects", bare_file, *QUICK, "--missing", "--json"))
    assert more["edges"][:3] == said["edges"] and len(more["edges"]) == 20
    assert len(more["missing"]["pairs"]) == 20 and more["missing"]["sentences"]


def test_any_form_of_a_graph(command: Command, tmp_path: Path) -> None:
    graph = without(noisy_graph(), "y")
    write_folder(graph, tmp_path / "folder")
    done = command("suspects", tmp_path / "folder", *QUICK, "--json")
    assert json_of(done)["num_edges"] == 535
    ends = pd.DataFrame(graph.edge_index.T.numpy(), columns=["source", "target"])
    ends.to_csv("only.tsv", sep="\t", index=False)
    said = json_of(command("suspects", "only.tsv", *QUICK, "--directed", "--json"))
    assert said["num_edges"] == 535 and "cosine" not in said["edges"][0]


def test_which_labels_are_read(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    graph = few_labels(noisy_graph())
    save_npz(graph, path)
    before = command("suspects", path, *QUICK, "--json")
    assert "all its labels are read" not in before.stderr
    graph.y = torch.where(graph.train_mask, graph.y, (graph.y + 1) % CLASSES)
    save_npz(graph, path, overwrite=True)
    assert command("suspects", path, *QUICK, "--json").stdout == before.stdout


@pytest.mark.parametrize(
    ("option", "name"),
    [("--export", "e.csv"), ("--page", "p.html"), ("--clean", "c.npz")],
)
def test_nothing_is_replaced_unasked(
    command: Command, bare_file: Path, option: str, name: str
) -> None:
    Path(name).write_text("precious")
    said = refused(command("suspects", bare_file, *QUICK, option, name))
    assert name in said and "--force" in said
    # Before any work: not even the graph was looked at.
    said = refused(command("suspects", "cora", *QUICK, option, name))
    assert "--force" in said
    assert Path(name).read_text() == "precious"
    forced = command("suspects", bare_file, *QUICK, option, name, "--force", "--quiet")
    assert forced.exit_code == 0, forced.stderr
    assert Path(name).read_bytes() != b"precious"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--export", "e.txt"), ".csv or .parquet or .graphml"),
        (("--export", "E.CSV"), ".csv or .parquet or .graphml"),
        (("--page", "p.pdf"), ".html"),
        (("--clean", "c.csv"), ".npz"),
        (("--rounds", "0"), "rounds"),
        (("--first", "0"), "first"),
        (("--seed", "-1"), "seed"),
        (("--device", "toaster"), "toaster"),
        (("--source", "a"), "--source"),
        (("--nodes", "nodes.csv"), "--nodes"),
        (("--split", "halves"), "no y"),
    ],
)
def test_slips_are_told(
    command: Command, bare_file: Path, words: tuple[str, ...], said: str
) -> None:
    assert said in refused(command("suspects", bare_file, "--rounds", 1, *words))
    assert not list(Path().iterdir())


def test_unknown_graphs_are_refused(command: Command) -> None:
    assert "cora" in refused(command("suspects", "corra"))
    assert "none.csv" in refused(command("suspects", "none.csv"))


def test_a_graph_that_is_too_small_leaves_nothing(command: Command) -> None:
    Path("few.csv").write_text("source,target\na,b\nb,c\n")
    said = command("suspects", "few.csv", "--export", "e.csv", "--quiet")
    assert "joins 2 pairs of nodes; expected at least 20" in refused(said)
    assert not Path("e.csv").exists()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_strange_names_are_written(
    command: Command, tmp_path: Path, suffix: str
) -> None:
    graph = without(noisy_graph(), "y")
    called = np.array([f'{node} "<b>,\n\x1b[31m' for node in range(NODES)])
    graph.node_id = called
    save_npz(graph, tmp_path / "g.npz")
    done = command("suspects", tmp_path / "g.npz", *QUICK, "--export", f"e.{suffix}")
    assert done.exit_code == 0, done.stderr
    assert "\x1b[31m" not in done.stdout
    read = pd.read_csv if suffix == "csv" else pd.read_parquet
    assert set(read(f"e.{suffix}")["source"]) <= set(called.tolist())


def test_the_same_from_python(command: Command) -> None:
    """Five lines, from a graph of networkx to the rows of the command."""
    write_tables()
    said = json_of(command("suspects", *TABLES, *QUICK, "--json"))
    table = pd.read_csv("nodes.csv", index_col="name", keep_default_na=False)
    drawing = networkx.Graph()
    for name, row in table.iterrows():
        known = {"label": row["kind"]} if row["kind"] else {}
        drawing.add_node(name, x=row.iloc[1:].astype(float).tolist(), **known)
    drawing.add_edges_from(pd.read_csv("edges.csv").to_numpy())
    rows = gsebo.suspicious_edges(drawing, rounds=1, device="cpu")
    assert len(rows) == said["num_edges"]
    first = {frozenset((row["source"], row["target"])) for row in said["edges"]}
    # Edges may have another order, so that others are planted.
    assert len(first & pairs(rows.head(40))) > 10
