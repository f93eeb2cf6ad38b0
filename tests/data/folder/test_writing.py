"""Folders and result files appear whole or not at all."""

import hashlib
import io
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet
import pytest

from data.folder.tables import names_in
from gsebo.data.formats.folder import new_folder
from gsebo.data.formats.npy_stream import (
    NpyReader,
    NpyWriter,
    header_of,
    map_array,
    open_output,
    write_columns,
)
from gsebo.errors import InvalidInput

STARTS_WITHIN = 120.0


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "g") as writer:
        writer.array("source", np.int32).append(np.arange(3))
        (writer.scratch / "run").write_text("")
        raise KeyboardInterrupt
    assert names_in(tmp_path) == []


def test_a_folder_has_to_be_finished(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="finished"), new_folder(tmp_path / "g"):
        pass
    assert names_in(tmp_path) == []


def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(InvalidInput, match="No space left"),
        new_folder(tmp_path / "g"),
    ):
        raise OSError(28, "No space left on device")
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InvalidInput, match="cannot write"),
        new_folder(tmp_path / "file" / "g"),
    ):
        pass
    assert names_in(tmp_path) == ["file"]


def test_a_conversion_that_is_killed(tmp_path: Path) -> None:
    # A pipe without an end: the conversion waits for more rows.
    os.mkfifo(tmp_path / "edges.csv")
    code = (
        "import sys; from gsebo.data.formats import table_rows; "
        "table_rows.require_regular = lambda *_: None; "
        "from gsebo.data.formats.convert import convert_tables; "
        "convert_tables(*sys.argv[1:])"
    )
    files = [str(tmp_path / "edges.csv"), str(tmp_path / "g")]
    pipe = os.open(files[0], os.O_RDWR)
    process = subprocess.Popen([sys.executable, "-c", code, *files])
    try:
        begun = time.monotonic()
        while len(names_in(tmp_path)) < 2:
            assert process.poll() is None and time.monotonic() - begun < STARTS_WITHIN
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
        os.close(pipe)
    # Nothing can be tidied then, but nothing has the name of a graph.
    half, whole = names_in(tmp_path)
    assert (half[:3], half[-8:], whole) == (".g.", ".partial", "edges.csv")


def test_arrays_that_grow(tmp_path: Path) -> None:
    writer = NpyWriter(tmp_path / "a.npy", ">f8", (2,))
    parts = [np.random.rand(rows, 2) for rows in (3, 0, 5, 1000)]
    for part in parts:
        writer.append(part)
    with pytest.raises(ValueError, match="rows of"):
        writer.append(np.zeros((2, 3)))
    writer.close()
    whole = np.concatenate(parts)
    loaded = np.load(tmp_path / "a.npy", allow_pickle=False)
    assert loaded.dtype.str == "<f8"
    np.testing.assert_array_equal(loaded, whole)
    path, shape = tmp_path / "a.npy", (1008, 2)
    np.testing.assert_array_equal(map_array(path, "<f8", shape), whole)
    for at_once in (1, 7, 5000):
        reader = NpyReader(path, "<f8", shape, "a")
        begins, pieces = zip(*reader.pieces(at_once), strict=True)
        assert begins[:2] == (0, at_once)[: len(begins)]
        np.testing.assert_array_equal(np.concatenate(pieces), whole.reshape(-1))
        assert reader.digest() == hashlib.sha256(path.read_bytes()).hexdigest()
        reader.close()


@pytest.mark.parametrize("dtype", ["<f2", "<f8", "<i4", "|i1", "|b1"])
@pytest.mark.parametrize("shape", [(0,), (41,), (10**9,), (3, 5), (99, 10**12)])
def test_headers_are_those_of_numpy(dtype: str, shape: tuple[int, ...]) -> None:
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    assert header_of(dtype, shape) == file.getvalue()


def test_an_output_that_is_filled_in_any_order(tmp_path: Path) -> None:
    with open_output(tmp_path / "new" / "p.npy", (4, 2), np.float32) as array:
        array[2:] = 1
        assert not (tmp_path / "new" / "p.npy").exists()
        array[:2] = 2
    found = np.load(tmp_path / "new" / "p.npy", allow_pickle=False)
    assert found.tolist() == [[2, 2], [2, 2], [1, 1], [1, 1]]
    with (
        pytest.raises(KeyboardInterrupt),
        open_output(tmp_path / "new" / "p.npy", (1,), np.int8),
    ):
        raise KeyboardInterrupt
    # The old one is still there.
    assert np.load(tmp_path / "new" / "p.npy", allow_pickle=False).shape == (4, 2)
    assert names_in(tmp_path / "new") == ["p.npy"]


def test_columns(tmp_path: Path) -> None:
    pieces = [{"a": np.arange(3), "b": np.ones(3, np.float32)} for _ in range(4)]
    write_columns(tmp_path / "c.parquet", iter(pieces))
    table = parquet.read_table(tmp_path / "c.parquet")
    assert table["a"].to_pylist() == [0, 1, 2] * 4
    assert str(table.schema.field("b").type) == "float"
    write_columns(tmp_path / "c.npy", ({"a": piece["a"]} for piece in pieces))
    found = np.load(tmp_path / "c.npy", allow_pickle=False)
    assert found.tolist() == [0, 1, 2] * 4


def test_columns_that_cannot_be_written(tmp_path: Path) -> None:
    def failing(*columns):
        yield dict.fromkeys(columns, np.arange(3))
        raise KeyboardInterrupt

    for name in ("c.npy", "c.parquet"):
        with pytest.raises(KeyboardInterrupt):
            write_columns(tmp_path / name, failing("a"))
        with pytest.raises(InvalidInput, match="nothing to write"):
            write_columns(tmp_path / name, iter([]))
    two = {"a": np.arange(3), "b": np.arange(3)}
    with pytest.raises(InvalidInput, match="expected one column"):
        write_columns(tmp_path / "c.npy", iter([two]))
    with pytest.raises(InvalidInput, match=r"expected \.parquet or \.npy"):
        write_columns(tmp_path / "c.txt", iter([two]))
    with pytest.raises(KeyboardInterrupt):
        write_columns(tmp_path / "c.parquet", failing("a", "b"))
    assert names_in(tmp_path) == []
