"""A saved model is the model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from gsebo import GSEBO, InputWarning, InvalidInput, load_model
from gsebo.bilevel import Reverse
from gsebo.structure import EdgeStrength

from .examples import (
    NAMES,
    HandWritten,
    fitted,
    quick,
    small_graph,
    supported,
    with_fields,
)
from .saved import assert_refused, assert_same_model


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


@pytest.mark.exact
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage", "jk", "mlp"])
def test_what_is_loaded_is_what_was_saved(
    name: str, backbone: str, data: Data, tmp_path: Path
) -> None:
    if not supported(name, backbone):
        pytest.skip(f"{name} has other networks")
    model = fitted(name, backbone)
    model.save(tmp_path / "a" / "b")
    loaded = load_model(tmp_path / "a" / "b")
    assert_same_model(loaded, model, data)
    assert loaded.get_params() == model.get_params()
    assert loaded.score(data) == model.score(data)
    assert torch.equal(loaded.graph_.edge_index, data.edge_index)
    assert sorted(p.name for p in (tmp_path / "a" / "b").iterdir()) == [
        "model.json",
        "model.safetensors",
    ]


@pytest.mark.exact
@pytest.mark.parametrize("name", NAMES)
def test_a_loaded_model_can_be_saved_and_fitted_again(
    name: str, data: Data, tmp_path: Path
) -> None:
    model = quick(name).fit(with_fields(data, x=data.x.double()))
    model.save(tmp_path / "first")
    loaded = load_model(tmp_path / "first")
    loaded.save(tmp_path / "second")
    double = with_fields(data, x=data.x.double())
    assert_same_model(load_model(tmp_path / "second"), model, double)
    assert torch.equal(loaded.fit(double).probability_, model.probability_)


@pytest.mark.parametrize(
    ("backbone", "options"),
    [
        ("gcn", {"residual": True, "norm": "batch"}),
        ("gat", {"residual": True, "norm": "layer", "input_projection": True}),
        ("jk", {"norm": "layer", "input_projection": True}),
        ("appnp", {"hops": 3, "alpha": 0.2}),
        ("gcnii", {"theta": 1.0}),
        ("grand", {"hops": 3, "node_dropout": 0.2, "feature_gates": True}),
    ],
)
def test_options_of_networks_are_kept(
    data: Data, tmp_path: Path, backbone: str, options: Any
) -> None:
    model = quick("gsebo", backbone=backbone, backbone_options=options).fit(data)
    model.save(tmp_path)
    assert_same_model(load_model(tmp_path), model, data)


@pytest.mark.parametrize("options", [{"per_layer": True}, {"tied": True}])
def test_structures_of_other_shapes(data: Data, tmp_path: Path, options: Any) -> None:
    model = quick("gsebo", **options).fit(data)
    model.save(tmp_path)
    assert_same_model(load_model(tmp_path), model, data)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_of_numpy_are_saved(name: str, data: Data, tmp_path: Path) -> None:
    model = quick(
        name,
        hidden_channels=np.int64(4),
        inner_lr=np.float32(0.1),
        random_state=np.int64(3),
        device=torch.device("cpu"),
    ).fit(data)
    model.save(tmp_path)
    assert_same_model(load_model(tmp_path), model, data)


def test_saving_over_an_older_model(data: Data, tmp_path: Path) -> None:
    fitted("gsebo").save(tmp_path)
    model = fitted("vanilla")
    with pytest.raises(InvalidInput, match="holds a model already"):
        model.save(tmp_path)
    assert_same_model(load_model(tmp_path), fitted("gsebo"), data)
    model.save(tmp_path, overwrite=True)
    assert_same_model(load_model(tmp_path), model, data)


def test_parts_that_only_a_fit_needs_are_forgotten_aloud(
    data: Data, tmp_path: Path
) -> None:
    model = quick("gsebo", structure=EdgeStrength(tied=True), hypergradient=Reverse())
    model.fit(data).save(tmp_path)
    with pytest.warns(InputWarning, match="hypergradient and structure"):
        loaded = load_model(tmp_path)
    assert_same_model(loaded, model, data)
    assert loaded.structure == GSEBO().structure


# --- code ----------------------------------------------------------------------------


def test_code_is_not_in_the_file(data: Data, tmp_path: Path) -> None:
    backbone = HandWritten(8, 4, 2)
    model = quick("gsebo", backbone=backbone).fit(data)
    model.save(tmp_path)
    message = assert_refused(tmp_path)
    assert "HandWritten" in message
    assert "backbone=" in message
    assert_same_model(load_model(tmp_path, backbone=backbone), model, data)
    another = HandWritten(8, 4, 2)
    assert_same_model(load_model(tmp_path, backbone=another), model, data)
    assert "does not fit" in assert_refused(tmp_path, backbone=HandWritten(8, 5, 2))


def test_a_class_is_code_too(data: Data, tmp_path: Path) -> None:
    model = quick("vanilla", backbone=HandWritten).fit(data)
    model.save(tmp_path)
    assert "HandWritten" in assert_refused(tmp_path)
    assert_same_model(load_model(tmp_path, backbone=HandWritten), model, data)


def test_options_may_hold_code(data: Data, tmp_path: Path) -> None:
    options = {"act": torch.nn.Tanh()}
    model = quick("vanilla", backbone="pyg:GCN", backbone_options=options).fit(data)
    model.save(tmp_path)
    assert "backbone=" in assert_refused(tmp_path)
    module = model.model_.backbone.module
    assert_same_model(load_model(tmp_path, backbone=module), model, data)


# --- places --------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_place_that_cannot_be_written(name: str, data: Data, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    model = fitted(name)
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidInput, match="cannot write"):
            model.save(place)
    assert (tmp_path / "file").read_text() == "not a folder"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for place in ("absent", "file", "empty"):
        assert place in assert_refused(tmp_path / place)
