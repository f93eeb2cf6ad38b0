"""Graphs with several types of nodes and relations on the command line."""

import csv
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pandas as pd
import pytest

from cli.conftest import SHORT, Command, json_of, refused
from gsebo import load_data, load_model
from gsebo.data import load_npz, save_npz

TYPED = (*SHORT, "--set", "hidden_channels=4", "--backbone", "relational-gcn")


def write(path: Path, rows: Iterable[Iterable[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def write_tables(folder: Path, authors: int = 24, labels: bool = True) -> Path:
    """Authors of two classes, papers they write, which cite each other."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    papers = [f"p{number}" for number in range(15)]
    names = [f"author {number}" for number in range(authors)]
    ages = rng.normal(size=(authors, 2)).round(3)
    heads = ["id", "age", "size", *(["team", "split"] if labels else [])]
    rows = [
        [
            name,
            ages[n, 0],
            ages[n, 1] + n % 2,
            *([["red", "blue"][n % 2], ["train", "val", "test"][n % 3]] * labels),
        ]
        for n, name in enumerate(names)
    ]
    write(folder / "nodes.author.csv", [heads, *rows])
    pages = [[paper, number % 4] for number, paper in enumerate(papers)]
    write(folder / "nodes.paper.csv", [["id", "pages"], *pages])
    # The first edges are there whatever the number of authors.
    drawn = rng.integers(15, size=60)
    pairs = {(names[n % 24], papers[drawn[n]]) for n in range(60)}
    pairs |= {(name, papers[0]) for name in names[24:]}
    ends = ["source", "target"]
    write(folder / "edges.author.writes.paper.csv", [ends, *sorted(pairs)])
    cited = [[papers[n], papers[(n + 1) % 15]] for n in range(15)]
    write(folder / "edges.paper.cites.paper.csv", [ends, *cited])
    return folder


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    return write_tables(tmp_path / "tables")


@pytest.fixture(params=["tables", "npz"])
def given(request: pytest.FixtureRequest, tables: Path, tmp_path: Path) -> Path:
    """The same graph in each form that files have for it."""
    if request.param == "tables":
        return tables
    save_npz(load_data(tables, label="team"), tmp_path / "typed.npz")
    return tmp_path / "typed.npz"


def columns(graph: Path) -> tuple[str, ...]:
    return ("--label", "team") if graph.is_dir() else ()


def labels(graph: Path) -> dict[str, Any]:
    return {"label": "team"} if graph.is_dir() else {}


def test_fit_predict_inspect(command: Command, given: Path) -> None:
    fit = command("fit", given, *columns(given), *TYPED, "--out", "m")
    assert fit.exit_code == 0, fit.stderr
    assert "39 nodes of 2 types" in fit.stdout and "of 3 relations" in fit.stdout
    # Predictions are those of the type that has classes, by their ids.
    told = json_of(command("predict", "m", "--out", "p.csv", "--json"))
    assert told["num_nodes"] == 24 == sum(told["counts"])
    assert set(told["predicted"]) <= {"blue", "red"}
    assert told["node"] == [f"author:author {n}" for n in range(24)]
    again = json_of(command("predict", "m", given, *columns(given), "--json"))
    assert again["probability"] == told["probability"]
    assert (again["new_nodes"], again["new_edges"]) == (0, 0)
    assert len(pd.read_csv("p.csv")) == 24
    found = json_of(command("inspect", "m", "--json", "--top", 1000))
    relations = {edge["relation"] for edge in found["edges"]}
    # One row for both ways, whatever the other way is called.
    assert relations == {"author-writes-paper", "paper-cites-paper"}
    assert len(found["edges"]) == 2 * found["num_edges"] / 4
    assert {edge["target_class"] for edge in found["edges"]} == {None}
    shown = command("inspect", "m").stdout
    assert "relation" in shown and "author-writes-paper" in shown


def test_exports_name_the_relation(command: Command, given: Path) -> None:
    fit = ("fit", given, *columns(given), *TYPED, "--out", "m")
    assert command(*fit, "--method", "amortised").exit_code == 0
    for name in ("e.csv", "e.parquet", "e.graphml"):
        assert command("inspect", "m", "--export", name).exit_code == 0
    frame = load_model(Path("m")).edges_frame()
    by_comma, by_column = pd.read_csv("e.csv"), pd.read_parquet("e.parquet")
    for table in (by_comma, by_column):
        assert table["relation"].tolist() == frame["relation"].tolist()
        assert table["source"].tolist() == frame["source"].tolist()
    graph = networkx.read_graphml("e.graphml")
    assert graph.number_of_edges() == len(frame)
    told = {(a, b, said["relation"]) for a, b, said in graph.edges(data=True)}
    rows = frame[["source", "target", "relation"]].itertuples(index=False, name=None)
    assert told == set(rows)
    assert "class" not in graph.nodes["paper:p1"]
    assert graph.nodes["author:author 1"]["class"] == "blue"


def test_two_relations_of_the_same_nodes_are_two_edges(
    command: Command, tables: Path
) -> None:
    rows = (tables / "edges.paper.cites.paper.csv").read_text()
    (tables / "edges.paper.like.paper.csv").write_text(rows)
    command("fit", tables, *columns(tables), *TYPED, "--out", "m")
    assert command("inspect", "m", "--export", "e.graphml").exit_code == 0
    graph = networkx.read_graphml("e.graphml", force_multigraph=True)
    both = graph.get_edge_data("paper:p0", "paper:p1").values()
    assert {edge["relation"] for edge in both} == {
        "paper-cites-paper",
        "paper-like-paper",
    }
    assert graph.number_of_edges() == len(pd.DataFrame(load_model("m").edges_frame()))


def test_nodes_that_come_later_are_predicted_without_labels(
    command: Command, tables: Path, tmp_path: Path
) -> None:
    fit = ("fit", tables, *columns(tables), *TYPED, "--out", "m")
    assert command(*fit, "--method", "amortised").exit_code == 0
    more = write_tables(tmp_path / "more", authors=30, labels=False)
    told = json_of(command("predict", "m", more, "--json"))
    assert told["node"] == [f"author:author {n}" for n in range(30)]
    assert told["new_nodes"] == 6 and told["accuracy"] is None


def test_what_became_of_tables_is_said(command: Command, tables: Path) -> None:
    said = command("fit", tables, *columns(tables), *TYPED, "--leave-out", "age").stderr
    assert "Relations were added for the other way: rev_writes" in said
    assert "Each edge of" in said and "goes both ways" in said
    assert "These columns were left out: age of nodes.author.csv" in said
    one_way = command("fit", tables, *columns(tables), *TYPED, "--directed")
    assert "for the other way" not in one_way.stderr
    assert "of 2 relations" in one_way.stdout


@pytest.mark.parametrize(
    "noise", ["false_typed:30", "removed:30", "features:40", "labels:50"]
)
def test_noise_that_knows_types(command: Command, tables: Path, noise: str) -> None:
    fit = ("fit", tables, *columns(tables), *TYPED, "--noise", noise)
    told = json_of(command(*fit, "--out", "m", "--json"))
    assert told["noise"] == noise and len(told["edge_types"]) == 3
    kept, whole = load_npz(Path("m/graph.npz")), load_data(tables, label="team")
    assert kept.types is not None and whole.types is not None
    assert kept.types.names == whole.types.names
    counts = [np.bincount(graph.edge_type) for graph in (whole, kept)]
    share = (counts[1] - counts[0]) / counts[0]
    expected = {"false_typed:30": 0.3, "removed:30": -0.3}.get(noise, 0)
    # Of what is removed the share is of all relations together.
    assert float(np.average(share, weights=counts[0])) == pytest.approx(
        expected, abs=0.02
    )


def test_splits_draw_nodes_that_have_classes(command: Command, tables: Path) -> None:
    fit = ("fit", tables, *columns(tables), *TYPED, "--json")
    for split in ("random:30/30/40", "unseen:50:file", "planetoid:3/6/6"):
        assert json_of(command(*fit, "--split", split))["split"] == split
    command(*fit, "--split", "random:30/30/40", "--out", "m")
    graph = load_npz(Path("m/graph.npz"))
    masks = graph.train_mask | graph.val_mask | graph.test_mask
    assert masks.nonzero()[:, 0].tolist() == list(range(24))


def test_several_fits_and_methods(command: Command, tables: Path) -> None:
    fit = ("fit", tables, *columns(tables), *TYPED)
    assert len(json_of(command(*fit, "--seeds", 2, "--json"))["runs"]) == 2
    told = json_of(
        command(
            *("compare", tables, *columns(tables), "--methods", "vanilla,mlp"),
            *("--set", "max_epochs=2", "--device", "cpu", "--json"),
        )
    )
    assert [one["method"] for one in told["results"]] == ["vanilla", "mlp"]


def test_wrong_edges_are_looked_for(command: Command, given: Path) -> None:
    asked = ("suspects", given, *columns(given), "--rounds", 1, "--clean", "c.npz")
    told = json_of(command(*asked, "--export", "e.csv", "--json"))
    assert told["num_nodes"] == 39
    pairs = pd.read_csv("e.csv")
    # One row for both ways of an edge.
    assert told["num_edges"] == len(pairs)
    clean, whole = load_npz(Path("c.npz")), load_data(given, **labels(given))
    assert clean.types is not None and whole.types is not None
    assert clean.types.names == whole.types.names


FIT = ("fit", "GRAPH", *TYPED)
SHORTLY = ("--set", "max_epochs=1", "--device", "cpu")
REFUSED: dict[str, tuple[tuple[object, ...], str]] = {
    "attack": (
        ("attack", "GRAPH", "--budget", 5, "--out", "a.npz"),
        "and attacks know one of each: expected a graph without them, or gsebo fit "
        "--noise false_typed:30",
    ),
    "missing": (("suspects", "GRAPH", "--missing"), "2 types of nodes and 3 relations"),
    "folders on disk": (
        ("data", "convert", "GRAPH", "--out", "folder"),
        "and a graph folder holds one of each: expected a graph without them",
    ),
    "batches": ((*FIT, "--batch-size", 8), "GSEBO with a batch_size given a graph"),
    "a method": (
        ("fit", "GRAPH", "--method", "lds", "--device", "cpu"),
        "LDS given a graph with 2 types of nodes and 3 relations; expected one of each",
    ),
    "one of several methods": (
        ("compare", "GRAPH", "--methods", "vanilla,lds", *SHORTLY[2:]),
        "LDS given a graph with 2 types of nodes and 3 relations; expected one of each",
    ),
    "edges between classes": ((*FIT, "--noise", 5), "or the noise false_typed:PERCENT"),
    "random edges": ((*FIT, "--noise", "random:5"), "added edges would be of none"),
    "prbcd": ((*FIT, "--noise", "prbcd:5"), "prbcd knows one of each"),
    "too many false edges": (
        (*FIT, "--noise", "false_typed:101"),
        "expected 0 to 100 percent",
    ),
    "a column of no table": ((*FIT, "--id", "nope"), "nope"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_take_types_says_so(
    command: Command, given: Path, what: str
) -> None:
    words, says = REFUSED[what]
    filled = [given if word == "GRAPH" else word for word in words]
    told = refused(command(*filled, *columns(given)))
    if what == "a column of no table" and given.is_file():
        says = "given with --id, for tables"
    assert says in told
    assert os.listdir() == []


def test_options_that_fit_no_folder(command: Command, tables: Path) -> None:
    fit = ("fit", tables, *TYPED)
    told = refused(command(*fit, "--nodes", "nodes.csv"))
    assert "given with --nodes: expected none, for the folder has the tables" in told
    assert "no table of" in refused(command(*fit, "--weight", "age"))
    # Without a word on labels there are none to learn from.
    (tables / "nodes.author.csv").write_text("id,age\nauthor 1,3\nauthor 2,1\n")
    assert "names node author" in refused(command(*fit))


def test_a_folder_with_wrong_tables(command: Command, tables: Path) -> None:
    fit = ("fit", tables, *columns(tables), *TYPED)
    (tables / "edges.author.writes.csv").write_text("source,target\nx,y\n")
    assert "names 2 parts: expected nodes.TYPE.csv" in refused(command(*fit))
    (tables / "edges.author.writes.csv").unlink()
    (tables / "nodes.paper.csv").write_text("id,pages\np1,3\np1,4\n")
    assert "holds id p1, as line 2 does" in refused(command(*fit))
    for command_name in ("compare", "suspects"):
        assert "holds id p1" in refused(command(command_name, tables))


def test_names_that_a_terminal_obeys_are_shown_as_they_are(
    command: Command, tables: Path
) -> None:
    (tables / "nodes.\x1b[2J.csv").write_text("id,w\nx,1\ny,2\n")
    (tables / "edges.\x1b[2J.\x9b1m.paper.csv").write_text("source,target\nx,p1\n")
    fit = command("fit", tables, *columns(tables), *TYPED, "--out", "m")
    assert fit.exit_code == 0, fit.stderr
    for result in (fit, command("inspect", "m"), command("predict", "m")):
        assert result.exit_code == 0
        assert not {"\x1b", "\x9b"} & set(result.stdout + result.stderr)


def test_models_keep_to_graphs_of_their_types(
    command: Command, tables: Path, graph_file: Path
) -> None:
    command("fit", tables, *columns(tables), *TYPED, "--out", "m")
    command("fit", graph_file, *SHORT, "--out", "plain")
    save_npz(load_data(tables, label="team").without_types(), Path("without.npz"))
    told = refused(command("predict", "m", "without.npz"))
    assert "one type of nodes and one relation given; expected types author" in told
    assert "features per node" in refused(command("predict", "plain", tables))
    (tables / "edges.paper.cites.paper.csv").unlink()
    told = refused(command("predict", "m", tables, *columns(tables)))
    assert "expected types author, paper and relations" in told


def test_a_published_graph_by_its_name(
    command: Command, shared: Path, tmp_path: Path
) -> None:
    if not (shared / "hetero/yelp-hgsl.npz").is_file():
        pytest.skip("no yelp-hgsl.npz in the folder of datasets")
    told = json_of(command("data", "verify", "yelp", "--data-dir", shared, "--json"))
    assert told["datasets"][0]["ok"] is True
    fit = ("fit", "yelp", "--data-dir", shared, "--method", "vanilla", *SHORTLY)
    found = json_of(command(*fit, "--json"))
    assert found["num_nodes"] == 3913 and len(found["edge_types"]) == 6
    listed = command("list", "datasets").stdout
    assert "dblp" in listed and "yelp" in listed
