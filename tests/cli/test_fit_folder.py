"""``gsebo fit`` and ``gsebo predict`` on graph folders."""

from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from cli.conftest import Command, json_of, refused
from gsebo import generate_graph, load_data, load_model
from gsebo.data import save_npz
from gsebo.data.formats.folder import GraphFolder, write_folder

AMORTISED = (
    *("--method", "amortised", "--batch-size", 128, "--device", "cpu"),
    *("--set", "max_outer_steps=5", "--set", "refit_epochs=10"),
    *("--set", "inner_steps=3", "--set", "num_folds=2"),
)
GSEBO = (
    *("--method", "gsebo", "--batch-size", 32, "--device", "cpu"),
    *("--set", "max_outer_steps=3", "--set", "inner_steps=3"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    graph = generate_graph(300, average_degree=5.0, num_features=6)
    write_folder(graph, tmp_path / "graph")
    return tmp_path / "graph"


def test_from_a_file_to_predictions(command: Command, tmp_path: Path) -> None:
    graph = generate_graph(300, average_degree=5.0, num_features=6)
    save_npz(graph, tmp_path / "graph.npz")
    converted = command("data", "convert", tmp_path / "graph.npz", "--out", "g")
    assert converted.exit_code == 0
    outputs = ("--out", "m", "--predictions", "p.parquet", "--strengths", "s.npy")
    done = command("fit", "g", *AMORTISED, *outputs, "--seed", 2, "--json")
    fit = json_of(done)
    assert {
        *("dataset", "method", "backbone", "seed", "test_accuracy", "val_accuracy"),
        *("outer_iterations", "seconds", "inference_seconds", "peak_memory_bytes"),
        *("device", "predictions", "strengths", "num_nodes", "num_edges"),
    } <= set(fit)
    manifest = GraphFolder.open("g").manifest
    sizes = manifest.num_nodes, manifest.num_edges
    assert (fit["num_nodes"], fit["num_edges"]) == sizes
    told = (fit["dataset"], fit["method"], fit["backbone"], fit["seed"], fit["device"])
    assert told == ("g", "amortised", "gcn", 2, "cpu")
    assert (fit["predictions"], fit["strengths"]) == ("p.parquet", "s.npy")
    assert fit["outer_iterations"] == len(load_model("m").history_)
    assert sorted(path.name for path in Path().iterdir()) == [
        *("g", "m", "p.parquet", "s.npy")
    ]
    assert not list(Path("m").glob("checkpoint*"))

    table = parquet.read_table("p.parquet")
    assert table.column_names == ["node", "predicted", "probability"]
    nodes, predicted, probability = (column.to_numpy() for column in table.columns)
    assert np.array_equal(nodes, np.arange(sizes[0]))
    assert (probability >= 1 / 2).all() and (probability <= 1).all()
    strengths = np.load("s.npy", allow_pickle=False)
    assert strengths.shape == (sizes[1],)
    assert (strengths >= 0).all() and (strengths <= 1).all()
    for mask in ("val", "test"):
        chosen = graph[f"{mask}_mask"].numpy()
        right = (predicted == graph.y.numpy())[chosen].mean()
        assert fit[f"{mask}_accuracy"] == pytest.approx(right)

    options = ("--out", "p.npy", "--strengths", "t.npy", "--memory", "30K", "--json")
    again = json_of(command("predict", "m", "g", *options))
    assert np.array_equal(np.load("p.npy", allow_pickle=False), predicted)
    np.testing.assert_allclose(np.load("t.npy"), strengths, rtol=1e-5)
    assert again["test_accuracy"] == fit["test_accuracy"]
    assert again["counts"] == np.bincount(predicted, minlength=2).tolist()
    # The model remembers its graph.
    assert json_of(command("predict", "m", "--json"))["counts"] == again["counts"]
    assert "Predicted classes" in command("predict", "m").stdout


def test_gsebo_writes_its_strengths(command: Command, folder: Path) -> None:
    done = command("fit", folder, *GSEBO, "--strengths", "s.parquet")
    assert done.exit_code == 0, done.stderr
    assert "test accuracy" in done.stdout and "peak memory" in done.stdout
    (column,) = parquet.read_table("s.parquet").columns
    assert len(column) == GraphFolder.open(folder).manifest.num_edges


BAD = {
    "another kind of file": (("--predictions", "p.csv"), "p.csv given; expected"),
    "another kind for strengths": (("--strengths", "s"), "s given; expected"),
    "no size": (("--memory", "abc"), "--memory abc given; expected a size"),
    "no memory": (("--memory", "0"), "--memory 0 given"),
    "noise": (("--noise", "5"), "--noise"),
    "a split": (("--split", "random:10/20/70"), "--split random:10/20/70"),
    "several seeds": (("--seeds", 3), "--seeds 3"),
    "other features": (("--normalize",), "--normalize"),
    "a wrong sampler": (("--sampler", "nonsense"), "nonsense"),
    "a wrong parameter": (("--set", "refit=false"), "refit=False given with"),
    "another network": (("--backbone", "magna"), "MAGNANet given"),
    "nothing to resume from": (("--resume",), "--resume given without --out"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_refused(command: Command, folder: Path, case: str) -> None:
    options, said = BAD[case]
    out = () if "--resume" in options or "--seeds" in options else ("--out", "m")
    given = command("fit", folder, *AMORTISED, *options, *out)
    assert said in refused(given)
    assert not list(Path().iterdir())


SHORT = {
    "vanilla": ("--set", "max_epochs=3"),
    "auto": ("--set", "max_epochs=3", "--set", "methods=vanilla,mlp"),
}


@pytest.mark.parametrize("method", SHORT)
def test_without_batches_it_is_read_whole(
    command: Command, folder: Path, method: str
) -> None:
    save_npz(load_data(folder), "graph.npz")
    fits = [
        json_of(
            command(
                *("fit", given, "--method", method, *SHORT[method]),
                *("--device", "cpu", "--out", out, "--json"),
            )
        )
        for given, out in ((folder, "a"), ("graph.npz", "b"))
    ]
    assert fits[0]["test_accuracy"] == fits[1]["test_accuracy"]
    models = [load_model(out) for out in ("a", "b")]
    assert np.array_equal(*(model.probability_.numpy() for model in models))
    # The model remembers its graph.
    assert json_of(command("predict", "a", "--json"))["test_accuracy"] is not None


@pytest.mark.parametrize("option", ["--predictions", "--strengths"])
def test_outputs_of_a_graph_that_is_no_folder_are_refused(
    command: Command, graph_file: Path, option: str
) -> None:
    said = refused(command("fit", graph_file, option, "p.npy", "--out", "m"))
    assert "p.npy given for a fit in memory" in said
    assert not list(Path().iterdir())


def test_strengths_are_refused_of_a_model_in_memory(
    command: Command, model_folder: Path, graph_file: Path
) -> None:
    said = refused(command("predict", model_folder, graph_file, "--strengths", "s.npy"))
    assert "--strengths s.npy given" in said
    assert not list(Path().iterdir())


def test_predictions_of_another_graph(
    command: Command, folder: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    write_folder(generate_graph(80, num_features=6, seed=1), other)
    assert command("fit", folder, *GSEBO, "--out", "m", "--quiet").exit_code == 0
    before = sorted(Path().rglob("*"))
    said = refused(command("predict", "m", other, "--out", "p.npy"))
    assert "one strength per edge" in said
    assert "ends in .parquet or .npy" in refused(
        command("predict", "m", folder, "--out", "p.csv")
    )
    assert "there is no folder nowhere" in refused(command("predict", "m", "nowhere"))
    assert sorted(Path().rglob("*")) == before
