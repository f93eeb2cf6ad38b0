"""A bad file is one sentence."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from gsebo import InputWarning, InvalidInput, load_model
from gsebo.methods import METHODS

from .examples import NAMES, fitted, quick, small_graph
from .saved import assert_refused


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved GSEBO; copy it before harming it."""
    folder = tmp_path_factory.mktemp("model")
    fitted("gsebo").save(folder)
    return folder


@pytest.fixture
def folder(stored: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored, tmp_path / "model"))


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fitted("frozen")
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
