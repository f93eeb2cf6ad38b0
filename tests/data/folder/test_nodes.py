"""What a node table says arrives in the folder."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.folder.tables import write_parquet
from gsebo.data.formats.convert import TableOptions, convert_tables
from gsebo.data.formats.folder import GraphFolder
from gsebo.data.formats.node_table import NodeColumns
from gsebo.data.formats.table_ids import NodeNumbers
from gsebo.data.seeding import first_repeated

NODES = """\
id;label;width;split;colour;height
30;cat;1.5;train;red;-2
10;dog;2;val;blue;1e3
20;;0;;red;0.25
11;cat;7;test;;1
"""


def converted(folder: Path, edges: str, text: str, **options: object) -> GraphFolder:
    (folder / "e.csv").write_text(edges)
    (folder / "n.csv").write_text(text)
    graph = convert_tables(
        folder / "e.csv",
        folder / "g",
        nodes=folder / "n.csv",
        options=TableOptions(**options),
    )
    graph.verify()
    return graph


def test_everything_at_once(tmp_path: Path) -> None:
    graph = converted(tmp_path, "30,10\n20,30\n11,20\n", NODES, block_bytes=16)
    data = graph.to_data()
    assert data.node_id.tolist() == [30, 10, 20, 11]
    assert data.edge_index.tolist() == [[2, 0, 3], [0, 1, 2]]
    assert data.y.tolist() == [0, 1, -1, 0]
    assert data.meta["classes"] == ["cat", "dog"]
    assert data.x.tolist() == [[1.5, -2], [2, 1000], [0, 0.25], [7, 1]]
    assert data.train_mask.tolist() == [True, False, False, False]
    assert data.val_mask.tolist() == [False, True, False, False]
    assert data.test_mask.tolist() == [False, False, False, True]
    facts = graph.manifest.facts
    assert facts["feature_columns"] == ["width", "height"]
    assert facts["columns_left_out"] == ["colour"]
    assert facts["made_from"] == ["e.csv", "n.csv"]
    assert graph.manifest.num_classes == 2


def test_the_same_from_parquet(tmp_path: Path) -> None:
    text = converted(tmp_path, "30,10\n20,30\n11,20\n", NODES).to_data()
    write_parquet(tmp_path / "e.parquet", source=[30, 20, 11], target=[10, 30, 20])
    write_parquet(
        tmp_path / "n.parquet",
        id=pa.array([30, 10, 20, 11], pa.int32()),
        label=pa.array(["cat", "dog", None, "cat"]).dictionary_encode(),
        width=pa.array([1.5, 2, 0, 7], pa.float64()),
        split=["train", "val", None, "test"],
        colour=["red", "blue", "red", ""],
        height=pa.array([-2, 1000, 0.25, 1], pa.float16()),
    )
    binary = convert_tables(
        tmp_path / "e.parquet", tmp_path / "b", nodes=tmp_path / "n.parquet"
    ).to_data()
    for key in ("x", "y", "edge_index", "node_id", "train_mask", "test_mask"):
        assert text[key].tolist() == binary[key].tolist()


def test_labels_that_are_numbers(tmp_path: Path) -> None:
    nodes = "y,train_mask,val_mask\n2,1,0\n-1,0,0\n0.0,0,1\n1,False,TRUE\n,false,0\n"
    graph = converted(tmp_path, "0,1\n", nodes)
    data = graph.to_data()
    assert data.y.tolist() == [2, -1, 0, 1, -1]
    assert data.train_mask.tolist() == [True, False, False, False, False]
    assert data.val_mask.tolist() == [False, False, True, True, False]
    assert "test_mask" not in data
    # There is no other column: the feature is made.
    assert "features_made" in graph.manifest.facts
    assert graph.manifest.num_classes == 3 and graph.manifest.classes is None


def test_chosen_columns(tmp_path: Path) -> None:
    nodes = "paper,topic,year,id\n7,b,1999,1\n8,a,2000,1\n"
    columns = NodeColumns(id="paper", label="topic", left_out=("year",))
    graph = converted(tmp_path, "7\t8\n", nodes, nodes=columns)
    data = graph.to_data()
    assert (data.node_id.tolist(), data.y.tolist()) == ([7, 8], [1, 0])
    assert data.x.tolist() == [[1], [1]]
    assert graph.manifest.facts["columns_left_out"] == ["year"]


def test_a_split_that_is_drawn(tmp_path: Path) -> None:
    nodes = "label\n" + "0\n1\n" * 50
    graph = converted(tmp_path, "0,1\n", nodes, split="random:10/20/70", seed=3)
    data = graph.to_data()
    masks = (data.train_mask, data.val_mask, data.test_mask)
    assert [int(mask.sum()) for mask in masks] == [10, 20, 70]
    assert graph.manifest.facts["split"] == {"name": "random:10/20/70", "seed": 3}


@settings(max_examples=20)
@given(
    labels=st.lists(
        st.text(st.characters(codec="utf-8", categories=["L", "P"]), min_size=1).map(
            lambda text: "x" + text
        ),
        min_size=2,
        max_size=20,
    ),
    block_bytes=st.integers(1, 99),
)
def test_any_text_is_a_class(labels, block_bytes, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("any")
    quoted = ['"' + label.replace('"', '""') + '"' for label in labels]
    (folder / "e.csv").write_text("0,1\n")
    (folder / "n.csv").write_text("label,f\n" + "".join(f"{q},1\n" for q in quoted))
    graph = convert_tables(
        folder / "e.csv",
        folder / "g",
        nodes=folder / "n.csv",
        options=TableOptions(block_bytes=block_bytes),
    )
    classes = graph.manifest.classes
    assert classes == tuple(sorted(set(labels)))
    assert [classes[c] for c in graph.to_data().y.tolist()] == labels


@given(
    ids=st.lists(st.integers(-(2**62), 2**62) | st.integers(-9, 9), min_size=1),
    wanted=st.lists(st.integers(-(2**62), 2**62) | st.integers(-9, 9)),
)
def test_ids_are_found(ids, wanted) -> None:
    places = {}
    for place, id_ in enumerate(ids):
        if places.setdefault(id_, place) != place:
            assert first_repeated(np.array(ids)) == (place, places[id_])
            ids = list(dict.fromkeys(ids))
            break
    else:
        assert first_repeated(np.array(ids)) is None
    numbers = NodeNumbers(np.array(ids))
    asked = np.array([*ids, *wanted], np.int64)
    expected = [ids.index(id_) if id_ in ids else -1 for id_ in asked.tolist()]
    assert numbers.find(asked).tolist() == expected


@pytest.mark.parametrize("step", [1, 1000])
def test_ids_near_and_far(step: int) -> None:
    ids = np.random.default_rng(0).permutation(100) * step
    numbers = NodeNumbers(ids)
    np.testing.assert_array_equal(numbers.find(ids), np.arange(100))
    assert numbers.find(np.array([-1, 100 * step, 2**40])).tolist() == [-1, -1, -1]
