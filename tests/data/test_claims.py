"""An .npz file that claims more, or other things, than it holds."""

import io
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data.test_npz import _arrays
from gsebo import memory
from gsebo.data import load_npz, save_npz
from gsebo.errors import InvalidInput

MASK = np.array([False, True, False])


def content_of(path: Path) -> dict[str, Any]:
    data = load_npz(path)
    found = {key: data[key] for key in data.keys()}  # noqa: SIM118
    return {
        k: v.tolist() if isinstance(v, torch.Tensor) else v for k, v in found.items()
    }


def refusal(path: Path) -> str:
    with pytest.raises(InvalidInput) as caught:
        load_npz(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("write", [np.savez, np.savez_compressed])
def test_no_flipped_byte_changes_what_is_read(tmp_path: Path, write: Any) -> None:
    path = tmp_path / "g.npz"
    write(path, **_arrays(val_mask=MASK, unknown=np.arange(3)))
    whole, expected = path.read_bytes(), content_of(path)
    directory = whole.index(b"PK\x01\x02")
    # Every byte of two entries of the directory and of its end, and some of the others.
    sparse = range(0, len(whole), 29)
    for place in [*sparse, *range(directory, directory + 130), *range(-22, 0)]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            assert content_of(path) == expected, place
        except InvalidInput as error:
            assert "\n" not in str(error)


def test_every_byte_belongs_to_an_array(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    np.savez(path, **_arrays())
    whole = path.read_bytes()
    for changed in (whole + b"\0", b"\0" + whole, whole + whole, whole[:-1]):
        path.write_bytes(changed)
        refusal(path)


def test_a_name_that_is_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "g.npz"
    np.savez(path, **_arrays())
    buffer = io.BytesIO()
    np.save(buffer, np.array([0, 0, 1]))
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning):
        archive.writestr("y.npy", buffer.getvalue())
    assert "two arrays are called 'y'" in refusal(path)


def with_member(path: Path, name: str, content: bytes) -> None:
    np.savez(path, **_arrays(**{name: None}))
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.npy", content)


def npy(shape: tuple[int, ...], content: bytes = b"", dtype: str = "<i8") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}\n"
    head = text.rjust(118).encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + content


@pytest.mark.parametrize(
    "shape", [(10**18,), (2**62, 8), (-1,), (0,), (4,), (2**70,), ()]
)
def test_a_header_that_claims_another_length(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    with_member(tmp_path / "g.npz", "y", npy(shape, bytes(24)))
    assert "array 'y'" in refusal(tmp_path / "g.npz")
    with_member(tmp_path / "good.npz", "y", npy((3,), bytes(24)))
    assert load_npz(tmp_path / "good.npz").y.tolist() == [0, 0, 0]


def test_what_does_not_fit_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "g.npz", **_arrays(x=np.zeros((3, 10**5))))
    monkeypatch.setattr(memory, "free_memory", lambda device: 10**6)
    assert "takes about" in refusal(tmp_path / "g.npz")


@pytest.mark.parametrize("columns", [10**7, 2**31, 2**40, 2**62, 2**63 - 1])
def test_columns_that_hold_nothing(tmp_path: Path, columns: int) -> None:
    np.savez(tmp_path / "g.npz", **_arrays(x_shape=np.array([3, columns])))
    assert f"claims {columns:,} columns for 3 stored" in refusal(tmp_path / "g.npz")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_shape": np.array([3, 2**63], np.uint64)}, "numbers below 2^63"),
        ({"y": np.array([0, 1, 2**64 - 1], np.uint64)}, "numbers below 2^63"),
        ({"edge_index": np.array([[0], [3]])}, "names node 3"),
        ({"edge_index": np.array([[0], [-1]])}, "names node -1"),
        ({"train_mask": np.frombuffer(b"\0\2\1", bool)}, "true and false"),
        ({"meta": np.array(['{"a": 1}'])}, "shape []"),
        ({"meta": np.array(b'{"a": 1}')}, "expected text"),
        ({"meta": np.array('{"name": [1]}')}, "no text"),
        ({"meta": np.array("[" * 10**5)}, "JSON object"),
        ({"meta": np.array('{"a": NaN}')}, "JSON object"),
        ({"meta": np.array([0x110000], "<u4").view("<U1")[0:1].reshape(())}, "no text"),
        ({"x": np.zeros((10**9, 0))}, "no columns"),
        ({"x": np.zeros((0, 2))}, "no nodes"),
    ],
)
def test_arrays_that_lie(tmp_path: Path, changes: Any, message: str) -> None:
    np.savez(tmp_path / "g.npz", **_arrays(**changes))
    assert message in refusal(tmp_path / "g.npz")


def test_what_is_no_plain_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    assert "is a pipe" in refusal(tmp_path / "pipe.npz")
    assert "too long" in refusal(tmp_path / f"{'a' * 300}.npz")
    assert "cannot be read" in refusal(tmp_path / "a\0b.npz")
    graph = tmp_path / os.fsdecode(b"\xff\x1b[2J.npz")
    np.savez(graph, **_arrays(y=None, x_shape=None))
    assert refusal(graph).isprintable()


def test_a_stream_that_tells_sizes_afterwards(tmp_path: Path) -> None:
    class Stream(io.RawIOBase):
        content = b""

        def writable(self) -> bool:
            return True

        def write(self, piece: Any) -> int:
            self.content += bytes(piece)
            return len(piece)

    stream = Stream()
    np.savez_compressed(stream, **_arrays())
    (tmp_path / "stream.npz").write_bytes(stream.content)
    np.savez(tmp_path / "file.npz", **_arrays())
    assert content_of(tmp_path / "stream.npz") == content_of(tmp_path / "file.npz")


def test_only_what_can_be_read_is_written(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", **_arrays())
    for key, value in {
        "edge_index": torch.ones(2, 2),
        "y": [0, 1, 1],
        "x": "features",
        "train_mask": torch.ones(3),
    }.items():
        data = load_npz(tmp_path / "g.npz")
        data[key] = value
        with pytest.raises(InvalidInput, match=key):
            save_npz(data, tmp_path / "again.npz")
    assert not (tmp_path / "again.npz").exists()


@pytest.mark.parametrize("text", [b"{", b"(" * 300, b"'", b"{'descr': '<f4',", b"\xff"])
def test_a_header_that_is_no_dictionary(tmp_path: Path, text: bytes) -> None:
    with zipfile.ZipFile(tmp_path / "g.npz", "w") as archive:
        header = np.lib.format.magic(1, 0) + struct.pack("<H", len(text)) + text
        archive.writestr("edge_index.npy", header)
    assert "edge_index" in refusal(tmp_path / "g.npz")
