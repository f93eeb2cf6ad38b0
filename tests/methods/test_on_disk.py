"""Estimators on graph folders: as in memory, without the graph in memory."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo import InvalidInput, load_model
from gsebo.data.formats.folder import GraphFolder, write_folder
from gsebo.graph.arrays import CSRArrays, GraphArrays
from gsebo.methods import EpochClassifier, GraphClassifier
from methods.batch_examples import (
    amortised_on_batches,
    gsebo_on_batches,
    losses,
)
from methods.examples import fitted, quick, small_graph, with_fields
from methods.saved import assert_refused

MAKERS = {"gsebo": gsebo_on_batches, "amortised": amortised_on_batches}
every_method = pytest.mark.parametrize("name", list(MAKERS))


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(60)


@pytest.fixture(scope="module")
def folder(data: Data, tmp_path_factory: pytest.TempPathFactory) -> GraphFolder:
    return write_folder(data, tmp_path_factory.mktemp("graph") / "g")


@pytest.fixture(scope="module")
def on_disk(folder: GraphFolder) -> dict[str, GraphClassifier]:
    return {name: make().fit(folder) for name, make in MAKERS.items()}


@pytest.fixture(scope="module")
def in_memory(data: Data) -> dict[str, GraphClassifier]:
    return {name: make().fit(data) for name, make in MAKERS.items()}


def strengths(model: GraphClassifier, folder: GraphFolder) -> Tensor:
    chunked = model.model_.in_chunks(folder, memory=20_000)
    pieces = model.model_.edge_strengths(*chunked)
    return torch.cat([piece.strength for piece in pieces], dim=-1)


def in_canonical_order(model: GraphClassifier) -> Tensor:
    fit = model.model_
    return fit.strengths[..., : fit.graph.num_edges]


@pytest.mark.exact
@every_method
def test_a_fit_is_that_of_the_same_graph_in_memory(
    name: str,
    folder: GraphFolder,
    on_disk: dict[str, GraphClassifier],
    in_memory: dict[str, GraphClassifier],
) -> None:
    disk, memory = on_disk[name], in_memory[name]
    assert losses(disk) == losses(memory)
    assert (disk.best_step_, disk.seed_) == (memory.best_step_, memory.seed_)
    found, expected = strengths(disk, folder), in_canonical_order(memory)
    if name == "gsebo":
        assert torch.equal(found, expected)
    else:
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    probability = disk.predict_proba(folder)
    torch.testing.assert_close(probability, memory.probability_, rtol=0, atol=1e-6)
    assert torch.equal(disk.predict(folder), memory.transduction_)


@pytest.mark.parametrize(
    "options", [{"per_layer": True, "backbone": "sage"}, {"learn_self_loops": False}]
)
def test_other_strengths_of_gsebo(
    options: dict[str, Any], data: Data, folder: GraphFolder
) -> None:
    disk = gsebo_on_batches(**options).fit(folder)
    memory = gsebo_on_batches(**options).fit(data)
    assert losses(disk) == losses(memory)
    assert torch.equal(strengths(disk, folder), in_canonical_order(memory))
    torch.testing.assert_close(
        disk.predict_proba(folder), memory.probability_, rtol=0, atol=1e-6
    )


@every_method
def test_scores_are_those_of_the_predictions(
    name: str, data: Data, folder: GraphFolder, on_disk: dict[str, GraphClassifier]
) -> None:
    model = on_disk[name]
    right = model.predict(folder) == data.y
    for mask in ("train", "val", "test"):
        expected = float(right[data[f"{mask}_mask"]].double().mean())
        assert model.score(folder, mask) == expected


@pytest.mark.exact
@every_method
def test_labels_of_test_nodes_are_not_looked_at(
    name: str,
    data: Data,
    folder: GraphFolder,
    on_disk: dict[str, GraphClassifier],
    tmp_path: Path,
) -> None:
    other = data.clone()
    hidden = ~(data.train_mask | data.val_mask)
    # Not even that there is such a class.
    other.y[hidden] = 7
    again = write_folder(other, tmp_path / "g")
    model = MAKERS[name]().fit(again)
    assert losses(model) == losses(on_disk[name])
    assert torch.equal(model.predict_proba(again), on_disk[name].predict_proba(folder))


@pytest.mark.exact
@every_method
def test_saved_and_loaded_it_predicts_the_same(
    name: str, folder: GraphFolder, on_disk: dict[str, GraphClassifier], tmp_path: Path
) -> None:
    model = on_disk[name]
    model.save(tmp_path, dataset="g")
    loaded = load_model(tmp_path)
    assert type(loaded) is type(model)
    assert torch.equal(loaded.predict_proba(folder), model.predict_proba(folder))
    assert torch.equal(strengths(loaded, folder), strengths(model, folder))
    assert loaded.history_ == model.history_
    assert (loaded.best_step_, loaded.seed_) == (model.best_step_, model.seed_)
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again" / "own.npy").read_bytes() == (
        tmp_path / "own.npy"
    ).read_bytes()


@pytest.mark.parametrize("file", ["own.npy", "model.safetensors"])
@pytest.mark.parametrize("harm", ["missing", "truncated"])
def test_a_damaged_model_is_refused(
    file: str, harm: str, on_disk: dict[str, GraphClassifier], tmp_path: Path
) -> None:
    on_disk["gsebo"].save(tmp_path)
    path = tmp_path / file
    content = path.read_bytes()
    path.unlink()
    if harm == "truncated":
        path.write_bytes(content[:-100])
    said = assert_refused(tmp_path)
    assert str(path) in said and said.count("expected") == 1


@every_method
def test_the_graph_of_the_fit_in_memory(
    name: str, data: Data, folder: GraphFolder, on_disk: dict[str, GraphClassifier]
) -> None:
    expected = on_disk[name].predict_proba(folder)
    order = torch.randperm(data.num_edges)
    turned = with_fields(data, edge_index=data.edge_index[:, order])
    for graph in (data, turned, folder.to_data()):
        assert torch.equal(on_disk[name].predict_proba(graph), expected)


def test_the_graph_of_the_fit_with_zeros_stored(data: Data, tmp_path: Path) -> None:
    """As tables are: in memory the same features would be taken for sparse ones."""
    few = with_fields(data, x=data.x * (data.x > 1))
    arrays = GraphArrays.of(few)
    assert isinstance(arrays.x, CSRArrays)
    arrays = replace(arrays, x=few.x.numpy())
    folder = write_folder(arrays, tmp_path / "g")
    model = gsebo_on_batches(max_outer_steps=1).fit(folder)
    found = model.predict_proba(folder.to_data())
    assert torch.equal(found, model.predict_proba(folder))


def test_another_graph(
    data: Data, on_disk: dict[str, GraphClassifier], tmp_path: Path
) -> None:
    size = data.num_nodes
    edges = torch.tensor([[0, size], [size, 0]])
    larger = Data(
        x=torch.cat([data.x, data.x[:2] + 0.5]),
        edge_index=torch.cat([data.edge_index, edges], dim=1),
    )
    folder = write_folder(larger, tmp_path / "larger")
    found = on_disk["amortised"].predict_proba(folder)
    assert found.shape == (size + 2, 2) and torch.isfinite(found).all()
    torch.testing.assert_close(on_disk["amortised"].predict_proba(larger), found)
    for graph in (folder, larger):
        with pytest.raises(InvalidInput, match=r"one strength per edge.* expected"):
            on_disk["gsebo"].predict_proba(graph)


def test_a_graph_with_other_features(
    data: Data, on_disk: dict[str, GraphClassifier]
) -> None:
    narrow = Data(x=data.x[:, :3], edge_index=data.edge_index)
    with pytest.raises(InvalidInput, match="3 features; expected 8"):
        on_disk["amortised"].predict_proba(narrow)


@every_method
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"y": None}, "has no y"),
        ({"train": None}, "has no train_mask"),
        ({"val": None}, "has no val_mask"),
        ({"val": "empty"}, "has no val_mask"),
        ({"y": "hidden"}, "is in a mask and has no label"),
    ],
    ids=str,
)
def test_what_cannot_be_learned_from_is_refused(
    name: str, changes: dict[str, Any], said: str, data: Data, tmp_path: Path
) -> None:
    arrays = GraphArrays.of(data)
    if changes.get("y") == "hidden":
        assert arrays.y is not None and arrays.val is not None
        y = arrays.y.copy()
        y[np.flatnonzero(arrays.val)[-1]] = -1
        changes = {"y": y}
    if changes.get("val") == "empty":
        changes = {"val": np.zeros(60, bool)}
    folder = write_folder(replace(arrays, **changes), tmp_path / "g")
    with pytest.raises(InvalidInput, match=f"{said}.*; expected") as caught:
        MAKERS[name]().fit(folder)
    assert str(folder.path) in str(caught.value)


@pytest.mark.parametrize(
    ("backbone", "network"), [("magna", "MAGNANet"), ("GIN", "GIN")]
)
@every_method
def test_a_network_that_cannot_predict_layer_by_layer_is_refused_before_training(
    name: str, backbone: str, network: str, folder: GraphFolder
) -> None:
    seen: list[object] = []
    with pytest.raises(InvalidInput, match=f"{network} given .* expected a network"):
        MAKERS[name](backbone=backbone).fit(folder, watcher=lambda *a: seen.append(a))
    assert not seen


def test_replicas_are_refused(folder: GraphFolder) -> None:
    with pytest.raises(InvalidInput, match=r"replicas=2 given .* expected one"):
        gsebo_on_batches().fit(folder, replicas=2)


@pytest.mark.parametrize("name", ["vanilla", "gsebo"])
def test_without_batches_a_folder_is_read_into_memory(
    name: str, data: Data, folder: GraphFolder
) -> None:
    model = quick(name, device="cpu").fit(folder)
    assert model.model_.is_held
    assert torch.equal(model.probability_, fitted(name).probability_)
    assert torch.equal(model.predict_proba(folder), model.probability_)
    assert model.score(folder) == model.score(data)


def test_only_the_last_fit_counts(data: Data, folder: GraphFolder) -> None:
    """Whether it was on a graph in memory or on disk."""
    model = gsebo_on_batches().fit(folder)
    model.fit(data)
    assert torch.equal(model.predict_proba(data), model.probability_)
    model.set_params(random_state=9).fit(folder)
    assert not hasattr(model, "strength_") and not model.model_.is_held
    alone = gsebo_on_batches(random_state=9).fit(folder)
    assert torch.equal(model.predict_proba(folder), alone.predict_proba(folder))


def test_batches_that_know_no_folders_are_refused(folder: GraphFolder) -> None:
    @dataclass(kw_only=True, eq=False, repr=False)
    class Own(EpochClassifier):
        batch_size: int | None = 5

        def _train(self, data: Any, runs: Any) -> list[Any]:
            raise AssertionError("not asked")

    with pytest.raises(InvalidInput, match="Own with a batch_size cannot train on the"):
        Own().fit(folder)
