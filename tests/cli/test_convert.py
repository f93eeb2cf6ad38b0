"""``gsebo data convert``, ``generate`` and ``verify`` of folders."""

import signal
from pathlib import Path

import pytest
import torch

from cli.conftest import Command, json_of, refused, small_graph
from gsebo.data import load_npz, save_npz
from gsebo.data.formats.folder import GraphFolder


def test_a_graph_file(command: Command, graph_file: Path) -> None:
    printed = json_of(command("data", "convert", graph_file, "--out", "g", "--json"))
    data = load_npz(graph_file)
    assert (printed["nodes"], printed["features"]) == (data.num_nodes, 5)
    assert printed["facts"]["made_from"] == ["small"]
    assert printed["bytes"] == sum(file.stat().st_size for file in Path("g").iterdir())
    verified = json_of(command("data", "verify", "g", "--json"))["datasets"]
    assert [(row["where"], row["ok"]) for row in verified] == [("folder", True)]
    assert "undamaged" in command("data", "verify", "g/").stdout


def test_tables(command: Command) -> None:
    Path("e.csv").write_text("source,target\n5,7\n7,5\n7,7\n5,7\n")
    Path("n.csv").write_text("id,label,name\n5,a,x\n7,b,y\n")
    done = command(
        *("data", "convert", "--edges", "e.csv", "--nodes", "n.csv", "--out", "g")
    )
    assert done.exit_code == 0
    assert "duplicates merged" in done.stdout
    assert done.stderr.splitlines() == [
        "There were no features; each node got one, log(1 + edges into the node).",
        "These columns were left out: name.",
    ]
    data = GraphFolder.open("g").to_data()
    assert data.edge_index.tolist() == [[1, 0], [0, 1]]
    assert data.node_id.tolist() == [5, 7]


def test_options_reach_the_conversion(command: Command) -> None:
    Path("e.txt").write_text("a|b|c\n1|2|0\n")
    done = command(
        *("data", "convert", "--edges", "e.txt", "--out", "g", "--delimiter", "|"),
        *("--source", "b", "--target", "a", "--num-nodes", 9),
        *("--undirected", "--quiet", "--json"),
    )
    printed = json_of(done)
    assert (printed["nodes"], printed["edges"]) == (9, 2)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "expected either a graph or --edges"),
        (["cora", "--edges", "e.csv"], "expected either a graph or --edges"),
        (["e.csv", "--num-nodes", "9"], "expected --edges with that"),
        (["e.csv", "--duplicates", "error"], "expected --edges with that"),
        (["cora", "--undirected"], "cora given with --undirected, for tables"),
        (["cora", "--nodes", "n.csv"], "cora given with --nodes, for tables"),
        (["--edges", "e.csv", "--weight", "w"], "weights are read only of"),
        (["--edges", "e.csv", "--duplicates", "drop"], "expected merge or error"),
        (["--edges", "e.csv", "--duplicates", "error"], "line 2 of e.csv repeats"),
        (["--edges", "e.csv", "--num-nodes", "1"], "line 1 of e.csv names node 1"),
        (
            ["--edges", "missing.csv"],
            "missing.csv cannot be read (there is no such file)",
        ),
        (["cor"], "cora"),
    ],
)
def test_what_is_refused(command: Command, arguments: list[str], said: str) -> None:
    Path("e.csv").write_text("0,1\n0,1\n")
    assert said in refused(command("data", "convert", *arguments, "--out", "g"))
    assert [path.name for path in Path().iterdir()] == ["e.csv"]


def test_several_splits(command: Command) -> None:
    data = small_graph()
    kinds = ("train", "val", "test")
    masks = {f"{kind}_mask": data[f"{kind}_mask"] for kind in kinds}
    for name, mask in masks.items():
        del data[name]
        data[f"{name}s"] = torch.stack([mask.roll(shift) for shift in range(4)])
    save_npz(data, "several.npz")
    said = refused(command("data", "convert", "several.npz", "--out", "g"))
    assert "expected --split file:0" in said
    options = ("--out", "g", "--split", "file:3")
    assert command("data", "convert", "several.npz", *options).exit_code == 0
    found = GraphFolder.open("g").to_data()
    assert all(found[name].equal(mask.roll(3)) for name, mask in masks.items())


def test_a_polite_request_to_end(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def requested(*arguments: object) -> None:
        assert [path.suffix for path in Path().iterdir()].count(".partial") == 1
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("gsebo.data.formats.convert.write_edges", requested)
    before = signal.getsignal(signal.SIGTERM)
    Path("e.csv").write_text("0,1\n")
    done = command("data", "convert", "--edges", "e.csv", "--out", "g")
    assert done.exit_code == 128 + signal.SIGTERM
    assert [path.name for path in Path().iterdir()] == ["e.csv"]
    assert signal.getsignal(signal.SIGTERM) == before


def test_generate_and_damage(command: Command) -> None:
    options = ("--nodes", 200, "--edges", 900, "--classes", 3, "--half", "--seed", 4)
    printed = json_of(command("data", "generate", *options, "--out", "g", "--json"))
    assert (printed["nodes"], printed["classes"]) == (200, 3)
    assert GraphFolder.open("g").manifest.dtype == "float16"
    assert "is there already" in refused(
        command("data", "generate", *options, "--out", "g")
    )
    path = Path("g/source.npy")
    path.write_bytes(path.read_bytes()[:-1] + b"\x7f")
    damaged = command("data", "verify", "g")
    assert damaged.exit_code == 1
    assert "source.npy is damaged" in damaged.stdout
    Path("g/graph.json").unlink()
    assert command("data", "verify", "g").exit_code == 1
