"""A saved model is the model; a bad file is one sentence."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from gsebo import GSEBO, InputWarning, InvalidInput, load_model
from gsebo.bilevel import Reverse
from gsebo.methods import METHODS, GraphClassifier
from gsebo.structure import EdgeStrength

from .examples import (
    NAMES,
    HandWritten,
    quick,
    small_graph,
    supported,
    with_fields,
)


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


@pytest.fixture(scope="module")
def stored(data: Data, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved GSEBO; copy it before harming it."""
    folder = tmp_path_factory.mktemp("model")
    quick("gsebo").fit(data).save(folder)
    return folder


@pytest.fixture
def folder(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored, tmp_path / "model"))


def assert_refused(folder: Path, **arguments: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        load_model(folder, **arguments)
    message = str(caught.value)
    assert "\n" not in message.replace(str(folder), "")
    return message


def assert_same_model(left: GraphClassifier, right: GraphClassifier, data: Data):
    assert type(left) is type(right)
    for key in ("probability_", "transduction_", "strength_", "initial_strength_"):
        assert torch.equal(getattr(left, key), getattr(right, key))
        assert getattr(left, key).dtype == getattr(right, key).dtype
    assert left.history_ == right.history_
    assert (left.best_step_, left.seed_) == (right.best_step_, right.seed_)
    assert torch.equal(left.predict_proba(data), right.predict_proba(data))
    loops = left.loop_strength_, right.loop_strength_
    assert loops == (None, None) or torch.equal(*loops)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage", "jk", "mlp"])
def test_what_is_loaded_is_what_was_saved(
    name: str, backbone: str, data: Data, tmp_path: Path
) -> None:
    if not supported(name, backbone):
        pytest.skip(f"{name} has other networks")
    model = quick(name, backbone=backbone).fit(data)
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


def test_saving_over_an_older_model(folder: Path, data: Data) -> None:
    model = quick("vanilla").fit(data)
    model.save(folder)
    assert_same_model(load_model(folder), model, data)


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
    model = quick(name).fit(data)
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidInput, match="cannot write"):
            model.save(place)
    assert (tmp_path / "file").read_text() == "not a folder"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    for place in ("absent", "file", "empty"):
        assert place in assert_refused(tmp_path / place)


# --- damage --------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["model.json", "model.safetensors"])
def test_a_missing_file(folder: Path, file: str) -> None:
    (folder / file).unlink()
    assert file in assert_refused(folder)
    (folder / file).mkdir()
    assert file in assert_refused(folder)


@pytest.mark.parametrize("file", ["model.json", "model.safetensors"])
@pytest.mark.parametrize("share", [0, 0.001, 0.3, 0.999])
def test_a_truncated_file(folder: Path, file: str, share: float) -> None:
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: int(share * len(content))])
    assert file in assert_refused(folder)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_flipped_byte_among_the_numbers(
    stored: Path, tmp_path: Path, place: float, flip: int
) -> None:
    folder = shutil.copytree(stored, tmp_path / "model", dirs_exist_ok=True)
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= flip
    path.write_bytes(content)
    assert_refused(folder)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "null", '"model"', "{}", '{"format": 1}', "\xff"]
)
def test_json_that_is_no_model(folder: Path, text: str) -> None:
    (folder / "model.json").write_bytes(text.encode("latin-1"))
    assert "model.json" in assert_refused(folder)


@pytest.mark.parametrize("number", [0, 2, 99, "1", None, [1]])
def test_another_format(folder: Path, number: Any) -> None:
    change_facts(folder, format=number)
    assert "format 1" in assert_refused(folder)


@pytest.mark.parametrize("name", NAMES)
def test_the_json_of_another_model(
    folder: Path, data: Data, tmp_path: Path, name: str
) -> None:
    quick(name, random_state=9).fit(data).save(tmp_path / "other")
    shutil.copy(tmp_path / "other" / "model.json", folder)
    assert "does not belong" in assert_refused(folder)


def test_tensors_that_are_no_model(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"PK\x03\x04 a pickle in disguise")
    assert_refused(folder)


def change_facts(folder: Path, **changes: Any) -> None:
    facts = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(facts | changes))


def test_a_method_that_does_not_exist(folder: Path) -> None:
    change_facts(folder, method="gsebi")
    assert "did you mean 'gsebo'" in assert_refused(folder)


def test_parameters_of_another_version(folder: Path) -> None:
    facts = json.loads((folder / "model.json").read_text())
    change_facts(folder, parameters=facts["parameters"] | {"inner_stepz": 3})
    assert "inner_stepz" in assert_refused(folder)


def test_a_method_that_is_not_registered_cannot_be_saved(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = quick("frozen").fit(data)
    monkeypatch.delitem(METHODS, "frozen")
    with pytest.raises(InvalidInput, match="not registered"):
        model.save(tmp_path)


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**6),
    st.floats(allow_nan=True),
    st.text(max_size=3),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from(["code", "step"]), st.integers(), max_size=1),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(choice=st.data(), junk=JUNK)
def test_facts_that_were_tampered_with(
    stored: Path, data: Data, tmp_path: Path, choice: st.DataObject, junk: Any
) -> None:
    folder = shutil.copytree(stored, tmp_path / "model", dirs_exist_ok=True)
    facts = json.loads((folder / "model.json").read_text())
    part = choice.draw(st.sampled_from(["facts", "parameters", "history"]))
    inside = {"facts": facts, "history": facts["history"][0]}.get(
        part, facts["parameters"]
    )
    inside[choice.draw(st.sampled_from(sorted(inside)))] = junk
    (folder / "model.json").write_text(json.dumps(facts))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", InputWarning)
            model = load_model(folder)
    except InvalidInput as error:
        assert "\n" not in str(error).replace(str(folder), "")
        return
    assert model.predict_proba(data).shape == (60, 2)


def test_every_method_can_be_named() -> None:
    kinds = [info.estimator for info in METHODS.values()]
    assert len(set(kinds)) == len(kinds)
