"""``--metric``: what is printed, and what is chosen by it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score

from gsebo import generate_graph, load_model
from gsebo.data import save_npz
from gsebo.data.formats.npz import load_npz
from gsebo.metrics import METRICS

from .conftest import SHORT, Command, refused

EPOCHS = ("--set", "max_epochs=20", "--device", "cpu")


@pytest.fixture
def several_classes(tmp_path: Path) -> Path:
    path = tmp_path / "several.npz"
    save_npz(generate_graph(60, num_classes=3, num_features=4), path)
    return path


@pytest.fixture
def one_class(tmp_path: Path) -> Path:
    """Two classes, but test nodes of one."""
    path, graph = tmp_path / "one.npz", generate_graph(60, num_features=4)
    graph.test_mask &= graph.y == 0
    save_npz(graph, path)
    return path


def test_every_metric_is_in_the_json(command: Command, graph_file: Path) -> None:
    words = ("fit", graph_file, "--method", "vanilla", *EPOCHS, "--json")
    found = json.loads(command(*words).stdout)
    assert found["metric"] == "accuracy"
    assert list(found["test"]) == list(found["val"]) == list(METRICS)
    assert found["test"]["accuracy"] == found["test_accuracy"]
    assert found["val"]["accuracy"] == found["val_accuracy"]
    several = json.loads(command(*words, "--seeds", 3).stdout)
    assert several["test_accuracy"] == several["test"]["accuracy"]
    assert several["test_accuracy_std"] == several["test_std"]["accuracy"]
    values = [run["test"]["roc_auc"] for run in several["runs"]]
    assert several["test"]["roc_auc"] == pytest.approx(np.mean(values))
    assert several["test_std"]["roc_auc"] == pytest.approx(np.std(values, ddof=1))
    # What is asked for changes nothing of a fit.
    other = json.loads(command(*words, "--metric", "neg_log_loss").stdout)
    assert {**other["test"]} == found["test"]
    assert other["parameters"] == found["parameters"]


@pytest.mark.parametrize("metric", METRICS)
def test_what_is_printed(command: Command, graph_file: Path, metric: str) -> None:
    words = ("fit", graph_file, "--method", "vanilla", *EPOCHS, "--metric", metric)
    found = json.loads(command(*words, "--json").stdout)
    value, how = found["test"][metric], METRICS[metric]
    said = command(*words)
    assert said.exit_code == 0
    assert f"test {how.title}" in said.stdout
    assert how.written(value) in said.stdout
    assert ("%" in how.written(value)) is (metric != "neg_log_loss")
    runs = command(*words, "--seeds", 2).stdout
    assert "±" in runs and f"validation {how.title}" in runs


def test_methods_are_compared_by_it(command: Command, graph_file: Path) -> None:
    words = ("compare", graph_file, "--methods", "vanilla,mlp", *EPOCHS)
    found = json.loads(command(*words, "--metric", "roc_auc", "--json").stdout)
    first, second = (one["test"]["roc_auc"] for one in found["results"])
    assert found["metric"] == "roc_auc"
    assert found["results"][1]["difference"] == second - first
    shown = command(*words, "--metric", "roc_auc").stdout
    assert ", ROC-AUC" in shown.splitlines()[0]
    assert f"{100 * (second - first):+.1f}" in shown
    plain = json.loads(command(*words, "--json").stdout)
    accuracies = [one["test_accuracy"] for one in plain["results"]]
    assert plain["results"][1]["difference"] == accuracies[1] - accuracies[0]


def test_an_automatic_fit_chooses_by_it(command: Command, graph_file: Path) -> None:
    words = ("fit", graph_file, "--method", "auto", "--set", "methods=vanilla,mlp")
    found = command(*words, *EPOCHS, "--metric", "f1-macro", "--json")
    content = json.loads(found.stdout)
    assert content["parameters"]["select_by"] == "f1_macro"
    tried = content["choice"]["tried"]
    assert None not in [one["score"] for one in tried]
    chosen = next(one for one in tried if one["chosen"])
    assert "macro F1" in chosen["reason"]
    shown = command(*words, *EPOCHS, "--metric", "f1-macro").stdout.splitlines()
    assert shown[1].split()[-3:] == ["macro", "F1", "seconds"]
    # Whoever says both means both.
    own = command(
        *words, *EPOCHS, "--metric", "f1_macro", "--set", "select_by=loss", "--json"
    )
    assert json.loads(own.stdout)["parameters"]["select_by"] == "loss"
    plain = json.loads(command(*words, *EPOCHS, "--json").stdout)
    assert plain["parameters"]["select_by"] == "accuracy"


@pytest.mark.parametrize("words", ["fit", "compare", "predict"])
def test_what_does_not_fit_is_one_sentence(
    command: Command,
    several_classes: Path,
    one_class: Path,
    tmp_path: Path,
    words: str,
) -> None:
    for graph, says in (
        (several_classes, "roc_auc given for a graph of 3 classes; expected two"),
        (one_class, "roc_auc given for nodes that are all of one class; expected"),
    ):
        arguments = [words, graph, "--metric", "roc_auc"]
        if words == "predict":
            model = tmp_path / f"{graph.stem}-model"
            fitted = ("fit", graph, "--method", "vanilla", *EPOCHS, "--out", model)
            assert command(*fitted).exit_code == 0
            out = tmp_path / f"{graph.stem}.csv"
            arguments = [words, model, "--metric", "roc_auc", "--out", out]
        found = command(*arguments)
        assert says in refused(found)
        if words == "predict":
            assert not out.exists()


@pytest.mark.parametrize("words", ["fit cora", "show table1", "run table1"])
def test_a_name_that_there_is_not(command: Command, words: str) -> None:
    found = command(*words.split(), "--metric", "roc_acu")
    assert found.exit_code == 2
    assert "did you mean 'roc_auc'?" in found.stderr


@pytest.mark.parametrize("words", ["show table1", "run table1"])
def test_a_recipe_of_graphs_of_several_classes(command: Command, words: str) -> None:
    found = command(*words.split(), "--metric", "roc_auc")
    assert found.exit_code == 2
    assert "metric roc_auc given for cora, a graph of 7 classes" in found.stderr


def test_predictions_are_scored_by_it(
    command: Command, model_folder: Path, graph_file: Path
) -> None:
    graph, model = load_npz(graph_file), load_model(model_folder)
    found = json.loads(command("predict", model_folder, "--json").stdout)
    probability = model.predict_proba(graph)
    predicted = probability.argmax(-1)
    assert found["all"]["roc_auc"] == pytest.approx(
        roc_auc_score(graph.y, probability[:, 1])
    )
    mask = graph.test_mask
    assert found["test"]["f1_macro"] == pytest.approx(
        f1_score(graph.y[mask], predicted[mask], average="macro")
    )
    said = command("predict", model_folder, "--metric", "roc_auc").stdout
    assert f"ROC-AUC of the test nodes: {100 * found['test']['roc_auc']:.1f} %" in said
    assert "Accuracy of the test nodes:" in command("predict", model_folder).stdout


def test_a_graph_on_disk_is_scored_as_one_in_memory(
    command: Command, graph_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    converted = command("data", "convert", graph_file, "--out", folder)
    assert converted.exit_code == 0, converted.stderr
    words = ("fit", folder, "--batch-size", 8, *SHORT, "--metric", "roc_auc")
    out = tmp_path / "predicted.npy"
    found = command(*words, "--predictions", out, "--json", "--out", tmp_path / "m")
    assert found.exit_code == 0, found.stderr
    content = json.loads(found.stdout)
    assert list(content["test"]) == list(METRICS)
    assert content["test"]["accuracy"] == content["test_accuracy"]
    graph = generate_graph(40, average_degree=4.0, num_features=5, seed=0)
    predicted, mask = torch.from_numpy(np.load(out)), graph.test_mask
    expected = f1_score(graph.y[mask], predicted[mask], average="macro")
    assert content["test"]["f1_macro"] == pytest.approx(expected)
    assert "test ROC-AUC" in command(*words).stdout
