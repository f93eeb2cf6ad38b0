"""A bad file is one sentence."""

import os
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data

from gsebo import InputWarning, InvalidInput, load_model
from gsebo.data.formats.folder import write_folder
from gsebo.methods import METHODS, GraphClassifier

from .auto_examples import auto, bare
from .batch_examples import amortised_on_batches, gsebo_on_batches
from .examples import NAMES, fitted, quick, small_graph
from .saved import (
    assert_flips_do_no_harm,
    assert_refused,
    change_facts,
    facts_of,
    put_facts,
)


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


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "null", '"model"', "{}", '{"format": 1}', "\xff"]
)
def test_json_that_is_no_model(folder: Path, text: str) -> None:
    (folder / "model.json").write_bytes(text.encode("latin-1"))
    assert "model.json" in assert_refused(folder)


@pytest.mark.parametrize("number", [0, 1, 3, 5, "large-1", "4", 4.0, True, None, [4]])
def test_another_format(folder: Path, number: Any) -> None:
    change_facts(folder, format=number)
    assert "expected format 4, which gsebo" in assert_refused(folder)


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


def test_a_method_that_does_not_exist(folder: Path) -> None:
    change_facts(folder, method="gsebi")
    assert "did you mean 'gsebo'" in assert_refused(folder)


def test_parameters_of_another_version(folder: Path) -> None:
    parameters = facts_of(folder)["parameters"] | {"inner_stepz": 3}
    change_facts(folder, parameters=parameters)
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
    facts = facts_of(folder)
    part = choice.draw(st.sampled_from(["facts", "parameters", "history"]))
    inside = {"facts": facts, "history": facts["history"][0]}.get(
        part, facts["parameters"]
    )
    inside[choice.draw(st.sampled_from(sorted(inside)))] = junk
    try:
        put_facts(folder, facts)
    except ValueError:
        return  # What JSON cannot hold is never written.
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


# --- any byte of any file ------------------------------------------------------------

KINDS: dict[str, Callable[[Path], GraphClassifier]] = {
    "edges": lambda _: fitted("gsebo"),
    "layers": lambda _: quick("gsebo", per_layer=True).fit(small_graph()),
    "function": lambda _: fitted("amortised"),
    "choice": lambda _: auto(features="standard").fit(small_graph()),
    "bare": lambda _: auto(features="auto", methods="vanilla").fit(bare(small_graph())),
    "members": lambda _: fitted("bgcn"),
    "replica": lambda _: quick("gsebo").fit(small_graph(), replicas=2).replicas_[1],
    "of pyg": lambda _: fitted("vanilla", "GIN"),
    "batches": lambda _: gsebo_on_batches(max_outer_steps=1).fit(small_graph()),
    "folder": lambda path: gsebo_on_batches(max_outer_steps=2).fit(
        write_folder(small_graph(), path / "graph")
    ),
    "function of a folder": lambda path: amortised_on_batches(max_outer_steps=1).fit(
        write_folder(small_graph(), path / "graph")
    ),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_any_flipped_byte_is_refused_or_means_nothing(
    kind: str, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    KINDS[kind](tmp_path).save(folder, dataset="g")
    draw = random.Random(kind)

    def places(size: int) -> set[int]:
        # Headers, ends and some of what lies between.
        known = {0, 3, 7, 8, 9, 60, 100, 127, size - 1, size // 2}
        return known | {draw.randrange(size) for _ in range(12)}

    assert_flips_do_no_harm(folder, draw, places)


def test_a_pipe_in_place_of_a_file(folder: Path) -> None:
    for name in ("model.safetensors", "model.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
        assert f"{name} is a pipe; expected a file" in assert_refused(folder)
        (folder / name).unlink()
        (folder / name).symlink_to("/dev/zero")
        assert f"{name} is a device; expected a file" in assert_refused(folder)


def test_a_model_with_the_files_of_another_kind(tmp_path: Path) -> None:
    """A later model leaves nothing of an earlier one behind."""
    data = small_graph()
    graph = write_folder(data, tmp_path / "graph")
    place = tmp_path / "model"
    for model in (gsebo_on_batches(max_outer_steps=1).fit(graph), fitted("vanilla")):
        model.save(place, overwrite=True)
        found = load_model(place).predict_proba(data)
        assert torch.equal(found, model.predict_proba(data))
    assert not (place / "own.npy").exists()
