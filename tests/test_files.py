"""Files are written whole or not at all, and read without trust."""

import errno
import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from gsebo import InvalidInput
from gsebo.files import (
    check_writable,
    read_tensors,
    write_atomically,
    write_tensors,
)


def test_a_file_appears_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.bin"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(InvalidInput, match="No space left"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_write_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", b"new")
    assert list(tmp_path.iterdir()) == []


def test_files_have_ordinary_permissions(tmp_path: Path) -> None:
    write_atomically(tmp_path / "ours", b"")
    (tmp_path / "plain").write_bytes(b"")
    modes = [(tmp_path / name).stat().st_mode for name in ("ours", "plain")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize("below", ["", "below", "below/further"])
def test_a_place_that_cannot_be_written(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").touch()
    place = tmp_path / "file" / below if below else tmp_path / "file"
    with pytest.raises(InvalidInput, match="cannot write"):
        check_writable(place)
    with pytest.raises(InvalidInput, match="cannot write"):
        write_atomically(place / "x", b"")


def test_a_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(InvalidInput, match="cannot write"):
        write_atomically(tmp_path / "taken", b"")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_checking_leaves_no_trace(tmp_path: Path) -> None:
    check_writable(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


TENSORS = {
    "float": torch.randn(3, 4),
    "double": torch.randn(2, dtype=torch.float64),
    "long": torch.arange(5),
    "bool": torch.tensor([True, False]),
    "scalar": torch.tensor(1.5),
    "empty": torch.zeros(0, 3),
    "transposed": torch.randn(3, 4).T,
}


def test_tensors_come_back(tmp_path: Path) -> None:
    facts = {"a": [1, 2.5, None], "b": {"ä": "ü"}}
    write_tensors(tmp_path / "t", TENSORS, facts)
    tensors, found = read_tensors(tmp_path / "t", "tensors")
    assert found == facts
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        assert torch.equal(tensors[name], tensor)


def test_tensors_may_share_memory_and_record_gradients(tmp_path: Path) -> None:
    whole = torch.arange(6.0).requires_grad_()
    write_tensors(tmp_path / "t", {"a": whole, "b": whole, "c": whole[2:]}, {})
    tensors, _ = read_tensors(tmp_path / "t", "tensors")
    assert torch.equal(tensors["b"], whole)
    assert torch.equal(tensors["c"], whole[2:])


def test_a_tensor_without_strides(tmp_path: Path) -> None:
    """One number that was spread over an axis of length one."""
    write_tensors(tmp_path / "t", {"a": torch.ones(()).expand(1)}, {})
    tensors, _ = read_tensors(tmp_path / "t", "tensors")
    assert torch.equal(tensors["a"], torch.ones(1))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_bytes_that_are_no_tensors(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    try:
        read_tensors(path, "a model")
    except InvalidInput as error:
        assert "a model" in str(error)
        assert str(path) in str(error)


@pytest.mark.parametrize("metadata", [None, {}, {"json": "{"}, {"json": "[]"}])
def test_tensors_of_somebody_else(tmp_path: Path, metadata) -> None:
    save_file({"a": torch.zeros(2)}, tmp_path / "file", metadata)
    with pytest.raises(InvalidInput, match="not a model"):
        read_tensors(tmp_path / "file", "a model")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"does not exist|no such file"):
        read_tensors(tmp_path / "absent", "a model")
    with pytest.raises(InvalidInput, match="a model"):
        read_tensors(tmp_path, "a model")


@pytest.mark.parametrize("name", ["a\x00b", "\ud800", "x" * 300])
def test_names_that_no_system_takes(tmp_path: Path, name: str) -> None:
    for use in (
        lambda path: check_writable(path),
        lambda path: write_atomically(path, b""),
        lambda path: read_tensors(path, "a model"),
    ):
        with pytest.raises(InvalidInput, match="expected") as caught:
            use(tmp_path / name)
        assert str(caught.value).isprintable()
    assert not list(tmp_path.iterdir())


def test_a_refusal_is_one_line_whatever_it_quotes() -> None:
    said = str(InvalidInput("a\nb\u2028c\x1b[2J\ud800d"))
    assert said == r"a\nb\u2028c\x1b[2J\ud800d"
    assert len(str(InvalidInput("x" * 10**6))) < 10**4


def test_a_long_sentence_keeps_both_ends() -> None:
    said = str(InvalidInput(f"there is no folder {'x/' * 9000}: expected a graph."))
    assert len(said) < 6000
    assert said.startswith("there is no folder x/x/") and "…" in said
    assert said.endswith("x/: expected a graph.")
    assert str(InvalidInput("short\x1b")) == "short\\x1b"
