"""The first row that cannot be used is named, and nothing stays behind."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.folder.tables import names_in, write_parquet
from gsebo.data.formats.convert import TableOptions, convert_tables
from gsebo.data.formats.node_table import NodeColumns
from gsebo.errors import InvalidInput


def refusal(folder: Path, edges: bytes, nodes: bytes | None = None, **options) -> str:
    """What is said of these files; neither a graph nor a part of it may be there."""
    (folder / "e.csv").write_bytes(edges)
    given_files = ["e.csv"]
    if nodes is not None:
        (folder / "n.csv").write_bytes(nodes)
        given_files.append("n.csv")
    with pytest.raises(InvalidInput) as refused:
        convert_tables(
            folder / "e.csv",
            folder / "g",
            nodes=folder / "n.csv" if nodes is not None else None,
            options=TableOptions(**options),
        )
    assert names_in(folder) == given_files
    said = str(refused.value)
    assert "expected" in said and "\n" not in said
    return said.replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        (b"", "e.csv is empty"),
        (b"\xef\xbb\xbf", "e.csv is empty"),
        (b"\n\r\n", "e.csv is empty"),
        (b"source,target\n", "only a header"),
        (b"0,1\n1\n2,3\n", "line 2 of e.csv has 1 field: expected 2"),
        (b"0,1\r\n1,2,3\r\n", "line 2 of e.csv has 3 fields: expected 2"),
        (b"0,1\n1,2\n2", "line 3 of e.csv has 1 field, and the file ends in the midd"),
        (b"0,1\n1,", "line 2 of e.csv holds ''"),
        (b"0,1\n1,x\n", "line 2 of e.csv holds 'x' as column 2: expected a whole"),
        (b"source,target\n1,1.5\n", "line 2 of e.csv holds '1.5' as target"),
        (b"0,1\n1,NA\n", "line 2 of e.csv holds 'NA'"),
        (b"0,1\n2,-7\n", "line 2 of e.csv names node -7 as its target: expected 0 to"),
        (b"0,1\n99999999999,7\n", "line 2 of e.csv names node 99999999999"),
        (b"0,1\n99999999999999999999,7\n", "line 2 of e.csv holds '99999999999999999"),
        (b"0,1\n1,1500000000\n", "names node 1500000000 in 2 rows"),
        (b"0,1\n\n1,2\n", "line 2 of e.csv is empty"),
        (b"\n0,1\n", "line 1 of e.csv is empty"),
        (b"x,1\n1,2\n", "line 1 of e.csv names the columns x, 1: expected source and"),
        (b"0,1,5\n", "line 1 of e.csv has 3 columns without names: expected 2"),
        (b"source,source\n0,1\n", "names two columns 'source'"),
        (b'0,1\n"2,3\n4,5\n', "line 2 of e.csv opens a quote"),
        (b"0,1\r1,2\r", "line 1 of e.csv holds a carriage return"),
        (b"0,1\n1,2\r3,4\n", "line 2 of e.csv"),
        (b"0,1\n\xff,4\n", "line 2 of e.csv"),
        (b"3,3\n", "only self-loops"),
        (b"0 1\n1  2\n", "line 2 of e.csv has 3 fields"),
    ],
)
def test_edges(edges: bytes, said: str, tmp_path: Path) -> None:
    assert said in refusal(tmp_path, edges)


@pytest.mark.parametrize("block_bytes", [1, 7, 2**20])
def test_the_first_of_several_is_named(block_bytes: int, tmp_path: Path) -> None:
    good = b"0,1\n" * 50
    faults = (b"1,x\n", b"-1,2\n", b"1\n", b"1,9\n", b"\n", b"9,1\n")
    for first in faults:
        others = b"".join(each + good for each in faults if each != first)
        text = good + first + good + others
        said = refusal(tmp_path, text, num_nodes=5, block_bytes=block_bytes)
        assert said.startswith("line 51 of e.csv")


@given(line=st.integers(1, 40), block_bytes=st.integers(1, 60), end=st.booleans())
def test_every_line_number(line, block_bytes, end, tmp_path_factory) -> None:
    rows = [b"10,11"] * 40
    rows[line - 1] = b"10,50"
    text = (b"\r\n" if end else b"\n").join(rows)
    said = refusal(
        tmp_path_factory.mktemp("any"), text, num_nodes=20, block_bytes=block_bytes
    )
    assert f"line {line} of e.csv names node 50 as its target: expected 0 to 19" in said


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (b"id,label\n0,1\n1\n", "line 3 of n.csv has 1 field: expected 2 (id, label)"),
        (b"id,f\n4,1\n5,1\n4,2\n", "line 4 of n.csv holds id 4, as line 2 does"),
        (b"id,f\n ,1\n", "line 2 of n.csv has no id: expected what a node is called"),
        (b"id,f\nx,1\n", "line 1 of e.csv names node 0 as its source: expected an id"),
        (b"id,label\n0,0\n1,9\n", "line 3 of n.csv holds '9' as label: expected a cl"),
        (b"id,label\n0,-2\n1,1\n", "line 2 of n.csv holds '-2' as label"),
        (b"id,label\n0,0\n1,a\n", "line 3 of n.csv holds 'a' as label: expected a who"),
        (b"id,y\n0,a\n1,\n2,7\n", "line 4 of n.csv holds '7' as y: expected text, as"),
        (b"id,y\n0,0.5\n1,1\n", "line 2 of n.csv holds '0.5' as y: expected a whole"),
        (b"id,y\n0,nan\n1,1\n", "line 2 of n.csv holds 'nan' as y: expected a whole"),
        (b"id,f\n0,1\n1,nan\n", "line 3 of n.csv holds nan as f: expected a finite"),
        (b"id,f\n0,-inf\n1,nan\n", "line 2 of n.csv holds -inf as f"),
        (b"id,f\n0,1\n1,1e39\n", "line 3 of n.csv holds inf as f"),
        (b"id,f\n0,1\n1,\n", "line 3 of n.csv holds '' as f: expected a number"),
        (b"id,f\n0,1\n1,abc\n", "line 3 of n.csv holds 'abc' as f: expected a number"),
        (b"id,split\n0,train\n1,tset\n", "line 3 of n.csv holds 'tset' as split"),
        (b"id,train,val\n0,1,0\n1,1,1\n", "line 3 of n.csv is in two of train, val"),
        (b"id,train\n0,maybe\n", "line 2 of n.csv holds 'maybe' as train: expected tr"),
        (b"0,1\n1,2\n", "line 1 of n.csv holds only numbers: expected the names"),
        (b"name\nfoo\n", "n.csv has no column of use"),
        (b"id,f\n", "only a header"),
        (
            b"id,f\n0,1\n3,1\n",
            "line 1 of e.csv names node 1 as its target: expected an",
        ),
        (b"f\n0\n", "line 1 of e.csv names node 1 as its target: expected 0 to 0"),
    ],
)
def test_nodes(nodes: bytes, said: str, tmp_path: Path) -> None:
    assert said in refusal(tmp_path, b"0,1\n", nodes)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"duplicates": "drop"}, "duplicates='drop'"),
        ({"num_nodes": 0}, "num_nodes=0"),
        ({"delimiter": "::"}, "delimiter '::'"),
        ({"ends": ("a", None)}, "expected a line with their names"),
        ({"split": "random"}, "no labels"),
    ],
)
def test_options(options: dict[str, object], said: str, tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("0,1\n")
    with pytest.raises(InvalidInput, match=said):
        convert_tables(
            tmp_path / "e.csv", tmp_path / "g", options=TableOptions(**options)
        )
    assert names_in(tmp_path) == ["e.csv"]


def test_columns_that_are_not_there(tmp_path: Path) -> None:
    for columns in (NodeColumns(id="no"), NodeColumns(left_out=("no",))):
        (tmp_path / "e.csv").write_text("0,1\n")
        (tmp_path / "n.csv").write_text("id,f\n0,1\n")
        with pytest.raises(InvalidInput, match="'no': expected one of id, f"):
            convert_tables(
                tmp_path / "e.csv",
                tmp_path / "g",
                nodes=tmp_path / "n.csv",
                options=TableOptions(nodes=columns),
            )


def test_parquet(tmp_path: Path) -> None:
    def said(**columns: object) -> str:
        write_parquet(tmp_path / "e.parquet", **columns)
        with pytest.raises(InvalidInput) as refused:
            convert_tables(
                tmp_path / "e.parquet",
                tmp_path / "g",
                options=TableOptions(num_nodes=30),
            )
        assert names_in(tmp_path) == ["e.parquet"]
        return str(refused.value)

    ids = np.arange(20)
    assert "row 12 of" in said(source=np.where(ids == 11, -1, ids), target=ids + 1)
    late = [None if each == 15 else each for each in range(20)]
    assert "row 16 of" in said(source=late, target=ids + 1)
    early = np.where(ids == 3, 99, ids)
    assert "row 4 of" in said(source=late, target=early)
    assert "of type double" in said(source=ids + 0.5, target=ids)
    assert "names the columns a, b" in said(a=ids, b=ids)
    assert "is empty" in said(source=ids[:0], target=ids[:0])
    (tmp_path / "e.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InvalidInput, match="no Parquet file"):
        convert_tables(tmp_path / "e.parquet", tmp_path / "g")
    assert names_in(tmp_path) == ["e.parquet"]


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for name in ("e.csv", "e.parquet"):
        with pytest.raises(InvalidInput, match="there is no such file"):
            convert_tables(tmp_path / name, tmp_path / "g")
    assert names_in(tmp_path) == []
