"""Edge lists and node tables that go straight into a graph."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gsebo
from data.folder.tables import write_parquet
from gsebo.data.formats.folder import GraphFolder, with_log_degree, write_folder
from gsebo.errors import InvalidInput

NODES = """\
name,kind,f1,split,note,f2
dora,cat,1.5,train,x,0
bob,,2,,y,1
alice,dog,0,val,,2
carl,cat,7,test,z,3
"""
EDGES = """\
from,to,cost,when
alice,bob,0.5,2020
bob,carl,2,2021
carl,carl,9,2021
alice,bob,0.25,2022
dora,alice,1,2020
"""


def read(folder: Path, edges: str, nodes: str | None = None, **options: Any):
    (folder / "e.csv").write_text(edges)
    if nodes is not None:
        (folder / "n.csv").write_text(nodes)
        options["nodes"] = folder / "n.csv"
    return gsebo.load_data(folder / "e.csv", **options)


def named_edges(graph: gsebo.Graph) -> list[tuple[Any, Any]]:
    ids = graph.ids.tolist()
    return [(ids[a], ids[b]) for a, b in graph.edge_index.t().tolist()]


def test_everything_at_once(tmp_path: Path) -> None:
    graph = read(
        tmp_path,
        EDGES,
        NODES,
        **{"source": "from", "target": "to", "id": "name", "label": "kind"},
        weight="cost",
    )
    assert graph.ids.tolist() == ["dora", "bob", "alice", "carl"]
    assert named_edges(graph) == [
        ("alice", "bob"),
        ("bob", "carl"),
        ("dora", "alice"),
        ("bob", "alice"),
        ("carl", "bob"),
        ("alice", "dora"),
    ]
    assert graph.edge_weight.tolist() == [0.75, 2, 1, 0.75, 2, 1]
    assert graph.edge_weight.dtype == torch.float32
    assert graph.y.tolist() == [0, -1, 1, 0]
    assert graph.class_names == ["cat", "dog"]
    assert graph.x.tolist() == [[1.5, 0], [2, 1], [0, 2], [7, 3]]
    assert graph.train_mask.tolist() == [True, False, False, False]
    facts = graph.meta
    assert (facts["self_loops_dropped"], facts["duplicates_merged"]) == (1, 1)
    assert facts["edges_read"] == 5
    assert facts["edge_columns_left_out"] == ["when"]
    assert facts["columns_left_out"] == ["note"]
    assert facts["name"] == "e"


def test_the_same_from_tsv_and_parquet(tmp_path: Path) -> None:
    text = read(
        tmp_path,
        EDGES,
        NODES,
        **{"source": "from", "target": "to", "id": "name", "label": "kind"},
        weight="cost",
    )
    (tmp_path / "e.tsv").write_text(EDGES.replace(",", "\t"))
    write_parquet(
        tmp_path / "n.parquet",
        id=pa.array(["dora", "bob", "alice", "carl"], pa.large_string()),
        label=pa.array(["cat", None, "dog", "cat"]).dictionary_encode(),
        f1=[1.5, 2, 0, 7],
        split=["train", None, "val", "test"],
        f2=[0, 1, 2, 3],
    )
    mixed = gsebo.load_data(
        tmp_path / "e.tsv",
        nodes=tmp_path / "n.parquet",
        source="from",
        target="to",
        weight="cost",
    )
    for key in ("x", "y", "edge_index", "edge_weight", "train_mask", "test_mask"):
        assert text[key].tolist() == mixed[key].tolist(), key
    assert text.ids.tolist() == mixed.ids.tolist()
    assert text.class_names == mixed.class_names


@pytest.mark.parametrize(
    ("edges", "ids"),
    [
        ("source,target\n30,10\n10,7\n", [7, 10, 30]),
        ("30,10\n10,9000000000000\n", [10, 30, 9000000000000]),
        ("-3 10\n10 -3\n", [-3, 10]),
        ("1,2\n2,0\n", [0, 1, 2]),
        # One row decides for all of them, wherever it stands.
        ("source,target\n30,10\n10,a1\n", ["30", "10", "a1"]),
        ("source,target\n1,2\n007,1\n", ["1", "2", "007"]),
        ("source,target\n1,2\n+2,1\n", ["1", "2", "+2"]),
        ("source,target\n1,2\n2,99999999999999999999\n", ["1", "2", "9" * 20]),
        ('source,target\n"a,b", c \nc,é\n', ["a,b", "c", "é"]),
    ],
)
def test_ids_without_a_node_table(tmp_path: Path, edges: str, ids: list[Any]) -> None:
    graph = read(tmp_path, edges)
    assert graph.ids.tolist() == ids
    assert graph.num_nodes == len(ids) and "x" not in graph


def test_ids_of_both_tables_are_decided_together(tmp_path: Path) -> None:
    graph = read(tmp_path, "source,target\n1,2\n", "id,label\n2,a\nx,b\n1,a\n")
    assert graph.ids.tolist() == ["2", "x", "1"]
    assert named_edges(graph) == [("1", "2"), ("2", "1")]
    # Rows are nodes where no column has ids.
    graph = read(tmp_path, "source,target\n1,2\n", "label\na\nb\na\n", directed=True)
    assert named_edges(graph) == [(1, 2)] and "node_id" not in graph


def test_a_listed_reverse_is_not_added_again(tmp_path: Path) -> None:
    edges = "source,target,weight\na,b,1\nb,a,3\nb,c,2\n"
    graph = read(tmp_path, edges)
    assert named_edges(graph) == [("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")]
    assert graph.edge_weight.tolist() == [1, 3, 2, 2]
    directed = read(tmp_path, edges, directed=True)
    assert named_edges(directed) == [("a", "b"), ("b", "a"), ("b", "c")]
    assert directed.edge_weight.tolist() == [1, 3, 2]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), min_size=1)
KEYS = st.integers(-(2**63), 2**63 - 1) | TEXTS.map(str.strip).filter(bool)


@settings(max_examples=50)
@given(
    pairs=st.lists(st.tuples(KEYS, KEYS), min_size=1, max_size=12),
    directed=st.booleans(),
)
def test_any_ids(pairs, directed, tmp_path_factory) -> None:
    folder = tmp_path_factory.mktemp("any")

    def quoted(key: Any) -> str:
        return '"' + str(key).replace('"', '""') + '"'

    lines = [f"{quoted(a)},{quoted(b)}" for a, b in pairs]
    text = [(str(a).strip(), str(b).strip()) for a, b in pairs]
    (folder / "e.csv").write_text("source,target\n" + "\n".join(lines) + "\n")
    expected = list(dict.fromkeys((a, b) for a, b in text if a != b))
    if not expected:
        with pytest.raises(InvalidInput, match="only self-loops"):
            gsebo.load_data(folder / "e.csv", directed=directed)
        return
    graph = gsebo.load_data(folder / "e.csv", directed=directed)
    if not directed:
        expected += [(b, a) for a, b in expected if (b, a) not in expected]
    assert [(str(a), str(b)) for a, b in named_edges(graph)] == expected
    assert {str(one) for one in graph.ids} == {end for pair in text for end in pair}
    # And in every other form of file.
    gsebo.data.save_npz(with_log_degree(graph), folder / "g.npz")
    assert gsebo.load_data(folder / "g.npz").ids.tolist() == graph.ids.tolist()
    write_folder(graph, folder / "g")
    again = GraphFolder.open(folder / "g").to_data()
    assert again.ids.tolist() == graph.ids.tolist()
    assert set(named_edges(again)) == set(named_edges(graph))


@pytest.mark.parametrize(
    ("edges", "nodes", "options", "said"),
    [
        ("source,target\na,\n", None, {}, "line 2 of e.csv has no target"),
        ("source,target\na,b\n,b\n", None, {}, "line 3 of e.csv has no source"),
        ("source,target\na,b,c\n", None, {}, "line 2 of e.csv has 3 fields"),
        ("source,target\na,a\n", None, {}, "holds only self-loops"),
        ("a,b\nx,y\n", None, {}, "--source and --target name others"),
        ("a,b\nx,y\n", None, {"source": "a", "target": "a"}, "expected two columns"),
        (EDGES, None, {"source": "from", "target": "too"}, "expected from and too"),
        ("source,target,w\na,b,1\nb,c,-1\n", None, {"weight": "w"}, "line 3 of e.csv"),
        ("source,target,w\na,b,inf\n", None, {"weight": "w"}, "expected a finite"),
        ("source,target,w\na,b,x\n", None, {"weight": "w"}, "expected a number"),
        ("source,target,w\na,b,1\n", None, {"weight": "v"}, "weights are to be in 'v'"),
        ("source,target,weight\na,b,\n", None, {"weight": "weight"}, "expected a numb"),
        (
            "source,target,weight\na,b,3e38\na,b,3e38\n",
            None,
            {},
            "add up to more than single precision",
        ),
        (
            "source,target\na,b\n",
            "id,label\na,x\nc,y\n",
            {},
            "line 2 of e.csv names node b as its target: expected an id of the node",
        ),
        (
            "source,target\na,b\n",
            "id,label\na,x\nb,y\na,x\n",
            {},
            "line 4 of n.csv holds id a, as line 2 does",
        ),
        ("source,target\na,b\n", "label\n1\n0\n", {}, "has no column 'id'"),
        ("source,target\n0,2\n", "label\n1\n0\n", {}, "node 2 as its target: expect"),
        ("source,target\na,b\n", "id,label\na,1\n", {"id": "no"}, "no column 'no'"),
        ("source,target\na,b\n", "id,f\na,1\nb,nan\n", {}, "line 3 of n.csv holds nan"),
        ("source,target\na," + "b" * 1001 + "\n", None, {}, "1000 at most"),
        ("source,target\na,b\n", None, {"delimiter": "ab"}, "delimiter"),
    ],
)
def test_what_is_refused(
    tmp_path: Path, edges: str, nodes: str | None, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(tmp_path, edges, nodes, **options)
    message = str(caught.value).replace(f"{tmp_path}/", "")
    assert said in message and "\n" not in message


def test_options_for_tables_need_a_table(tmp_path: Path) -> None:
    for name in ("cora", tmp_path / "g.npz"):
        with pytest.raises(InvalidInput, match="nodes, which are for tables"):
            gsebo.load_data(name, nodes="n.csv")


def test_an_empty_first_label_is_still_a_label(tmp_path: Path) -> None:
    # What a column holds is told by the first row in which it holds anything.
    nodes = "id,colour,f\na,,1\nb,red,2\n"
    graph = read(tmp_path, "source,target\na,b\n", nodes)
    assert graph.meta["columns_left_out"] == ["colour"]
    assert graph.x.tolist() == [[1], [2]]
    left_out = read(tmp_path, "source,target\na,b\n", nodes, leave_out=["f"])
    assert "x" not in left_out


def test_masks_are_never_drawn_from_unknown_labels(tmp_path: Path) -> None:
    edges = "source,target\n" + "".join(f"n{i},n{i + 1}\n" for i in range(99))
    labels = ["" if i % 3 == 0 else "ab"[i % 2] for i in range(100)]
    nodes = "id,label\n" + "".join(f"n{i},{one}\n" for i, one in enumerate(labels))
    graph = read(tmp_path, edges, nodes)
    for name in ("random", "ratio", "planetoid:5/10/20", "random:50/30/20"):
        split = gsebo.apply_split(graph, name, seed=1)
        drawn = split.train_mask | split.val_mask | split.test_mask
        assert bool((split.y[drawn] >= 0).all()) and bool(drawn.any())
        assert split.ids.tolist() == graph.ids.tolist()
        assert split.class_names == ["a", "b"]


def test_whoever_has_no_masks_is_told_how_to_draw_them(tmp_path: Path) -> None:
    graph = read(tmp_path, "source,target\na,b\n", "id,label,f\na,x,1\nb,y,2\n")
    with pytest.raises(InvalidInput, match=r"no train_mask.*gsebo\.apply_split"):
        gsebo.Vanilla().fit(graph)


def test_the_visible_part_keeps_names_and_weights(tmp_path: Path) -> None:
    edges = "source,target,weight\na,b,1\nb,c,2\nc,d,3\n"
    nodes = "id,label,split\na,x,train\nb,y,val\nc,x,test\nd,y,test\n"
    graph = gsebo.apply_split(read(tmp_path, edges, nodes), "unseen:50:file", seed=0)
    part = gsebo.data.visible_part(graph)
    hidden = graph.ids[graph.unseen_mask.numpy()].tolist()
    assert part.ids.tolist() == [one for one in "abcd" if one not in hidden]
    weight = dict(zip(named_edges(graph), graph.edge_weight.tolist(), strict=True))
    kept = dict(zip(named_edges(part), part.edge_weight.tolist(), strict=True))
    assert kept == {e: w for e, w in weight.items() if not {*e} & {*hidden}}
    assert part.class_names == ["x", "y"]
