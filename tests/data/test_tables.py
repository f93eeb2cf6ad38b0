"""Tables as people and programs write them: read as meant, or one clean sentence."""

import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from data.folder.tables import names_in
from gsebo.data.formats.convert import TableOptions, convert_tables
from gsebo.data.splits import apply_split, is_drawn
from gsebo.errors import InvalidInput

LONG = b"a" * 200_000
EDGES = b"source,target\n0,1\n1,2\n"


def refusal(
    folder: Path, edges: bytes, nodes: bytes | None = None, **options: Any
) -> str:
    (folder / "e.csv").write_bytes(edges)
    table = None
    if nodes is not None:
        table = folder / "n.csv"
        table.write_bytes(nodes)
    before = names_in(folder)
    with pytest.raises(InvalidInput) as caught:
        convert_tables(
            folder / "e.csv", folder / "g", nodes=table, options=TableOptions(**options)
        )
    assert names_in(folder) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        (b'source,target,note\n0,1,"ab\n1,2,x\n', "line 2 .* opens a quote"),
        (b'source,target,note\n0,1,ab\n1,2,"x', "line 3 .* opens a quote"),
        (b'source,target,note\n0,1,"a\nb"\n1,2,c\n', "line 2 .* opens a quote"),
        (b'source,"target\n0,1\n', "line 1 .* opens a quote"),
        (b'source,target,note\n0,z,"ab\n', "line 2 .* opens a quote"),
        (b'source,target,note\n0,z,ab\n1,2,"x', "line 2 .* 'z' as target"),
        (b"source,target,note\n0,1,x\n1,z," + LONG, "line 3 .* 'z' as target"),
        (b'source,target,note\n0,1,"' + LONG + b"\n", "line 2 .* opens a quote"),
        (b"source,target\n0,1\n1,0x2\n", "line 3 .* '0x2' as target: .* whole"),
        (b"source,target\n-0X10,1\n", "line 2 .* '-0X10' as source"),
        (b"source,target\n1_000,1\n", "line 2 .* '1_000' as source"),
        (b"source,target\n\xef\xbb\xbf0,1\n", r"line 2 .* '\\ufeff0' as source"),
        (b"source,target\n1\x00,2\n", r"line 2 .* '1\\x00' as source"),
        ("source,target\n0,1\n".encode("utf-16"), "null character"),
        (b"source,target\r0,1\r", "carriage return"),
        (b"source,target\n0,1\r2,3\n", "line 2"),
    ],
)
def test_a_line_that_cannot_be_meant(
    tmp_path: Path, edges: bytes, message: str
) -> None:
    assert re.search(message, refusal(tmp_path, edges))


def test_long_fields_mixed_ends_and_hexadecimal_text_are_read(tmp_path: Path) -> None:
    rows = (b"source,target,note\r\n0,1," + LONG, b"1,2,0x10", b'2,3,"0x1"\r\n')
    (tmp_path / "e.csv").write_bytes(b"\n".join(rows))
    graph = convert_tables(tmp_path / "e.csv", tmp_path / "g")
    assert graph.to_data().edge_index.tolist() == [[0, 1, 2], [1, 2, 3]]


@pytest.mark.parametrize("label", ["0x10", "1_000", "nan", "inf", "1e400", "\u0661"])
def test_a_label_that_is_no_number(tmp_path: Path, label: str) -> None:
    nodes = f"id,label\n0,0\n1,{label}\n2,1\n".encode()
    assert "as label: expected a whole number" in refusal(tmp_path, EDGES, nodes)


@pytest.mark.parametrize("number", ["0x10", "1_000", "nan", "-inf", "1e39", "", "1d5"])
def test_a_feature_that_is_no_number(tmp_path: Path, number: str) -> None:
    nodes = f"id,a\n0,0\n1,{number}\n2,1\n".encode()
    assert "line 3" in refusal(tmp_path, EDGES, nodes)


@pytest.mark.parametrize(
    "options",
    [
        {"num_nodes": 10**9},
        {"num_nodes": 2.5},
        {"num_nodes": "a"},
        {"run_edges": 0},
        {"run_edges": 10**15},
        {"block_bytes": 0},
        {"block_bytes": 10**15},
        {"delimiter": "\0"},
        {"delimiter": 3},
        {"split": "halves:" * 3000 + "file"},
        {"split": 3},
    ],
)
def test_an_option_without_sense(tmp_path: Path, options: dict[str, Any]) -> None:
    assert "expected" in refusal(tmp_path, EDGES, **options)


@pytest.mark.parametrize(
    "name", ["halves:" * 5000, "seen:5:" * 400 + "file", "file:" + "1" * 5000]
)
def test_splits_within_splits_have_an_end(name: str) -> None:
    for use in (is_drawn, lambda name: apply_split(None, name)):
        with pytest.raises(InvalidInput, match="parts: expected up to"):
            use(name)


def test_columns_of_parquet_with_one_name(tmp_path: Path) -> None:
    column = pa.array([0, 1, 2])
    table = pa.Table.from_arrays([column] * 3, names=["source", "target", "target"])
    parquet.write_table(table, tmp_path / "e.parquet")
    with pytest.raises(InvalidInput, match="two columns 'target': expected each"):
        convert_tables(tmp_path / "e.parquet", tmp_path / "g")


def test_any_flipped_byte_of_parquet(tmp_path: Path) -> None:
    ends = {"source": [0, 1, 2], "target": [1, 2, 0]}
    path = tmp_path / "e.parquet"
    parquet.write_table(pa.table(ends), path)
    whole = path.read_bytes()
    for place in range(0, len(whole), 11):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        try:
            convert_tables(path, tmp_path / f"g{place}")
        except InvalidInput as error:
            assert "\n" not in str(error)


def test_files_with_odd_names(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"e\xff\x1b[2J.csv")
    odd.write_bytes(EDGES)
    graph = convert_tables(odd, tmp_path / "g")
    assert graph.to_data().num_nodes == 3
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("pipe.csv", "a" * 300 + ".csv", "a\0.csv", "."):
        with pytest.raises(InvalidInput, match="expected") as caught:
            convert_tables(tmp_path / name, tmp_path / "other")
        assert str(caught.value).isprintable()
