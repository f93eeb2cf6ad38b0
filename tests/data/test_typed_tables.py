"""A folder with a table of the nodes of each type and of the edges of each relation."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data.typed import AUTHORS, block, of_relation, typed_graph, write_tables
from gsebo import InvalidInput
from gsebo.data import content_digest, load, load_npz, save_npz, validate
from gsebo.data.datasets.registry import is_tables_folder
from gsebo.graph import as_graph

WRITES, AT = "edges.author.writes.paper.csv", "edges.paper.at.venue.csv"
CITES = "edges.paper.cites.paper.csv"
AUTHOR, PAPER = "nodes.author.csv", "nodes.paper.csv"
WRITTEN = {
    ("author:ann", "paper:10"),
    ("author:ben", "paper:11"),
    ("author:cyd", "paper:12"),
    ("author:ann", "paper:11"),
}


def turned(pairs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(target, source) for source, target in pairs}


def test_a_folder_is_one_graph_with_types(tmp_path: Path) -> None:
    graph = typed_graph(tmp_path / "g")
    validate(graph)
    types = graph.types
    assert types is not None
    # Those with a table first, in the order of their names, then those without.
    assert types.node_types == ("author", "paper", "venue")
    assert torch.bincount(types.node_type).tolist() == [4, 3, 2]
    papers, venues = [f"paper:{n}" for n in (10, 11, 12)], ["venue:kdd", "venue:www"]
    assert graph.ids.tolist()[3:] == ["author:dan", *papers, *venues]
    assert of_relation(graph, "author", "writes", "paper") == WRITTEN
    assert of_relation(graph, "paper", "rev_writes", "author") == turned(WRITTEN)
    # Between nodes of one type the way back is in the relation itself.
    cited = {("paper:11", "paper:10"), ("paper:12", "paper:11")}
    assert of_relation(graph, "paper", "cites", "paper") == cited | turned(cited)
    assert graph.meta["reverse_relations"] == ["rev_writes", "rev_at"]
    assert graph.meta["target"] == "author" and graph.class_names == ["blue", "red"]
    assert graph.y.tolist() == [1, 0, 1, 0, -1, -1, -1, -1, -1]
    assert graph.train_mask.nonzero()[:, 0].tolist() == [0, 1]
    assert block(graph, "author").tolist() == [[31], [24], [45], [52]]
    assert block(graph, "paper").tolist() == [[1, 2], [0, 3], [5, 1]]
    assert block(graph, "venue").tolist() == [[1], [1]]
    assert graph.meta["without_features"] == ["venue"]
    # A relation without weights weighs one.
    number = types.edge_types.index(("paper", "cites", "paper"))
    weight = graph.edge_weight
    assert weight[types.edge_type == number].tolist() == [2, 1, 2, 1]
    assert set(weight[types.edge_type != number].tolist()) == {1.0}


def test_an_edge_goes_one_way_if_that_is_said(tmp_path: Path) -> None:
    graph = load(write_tables(tmp_path / "g"), directed=True)
    assert graph.num_edges == 4 + 2 + 3
    assert [name for _, name, _ in graph.meta["edge_types"]] == [
        "writes",
        "at",
        "cites",
    ]
    assert of_relation(graph, "author", "writes", "paper") == WRITTEN


@pytest.mark.parametrize("name", ["rev_writes", "of"])
@pytest.mark.parametrize("count", [1, 4])
def test_a_way_back_that_is_there_is_not_added(
    tmp_path: Path, name: str, count: int
) -> None:
    rows = sorted(turned(WRITTEN))[:count]
    table = pd.DataFrame(rows, columns=["source", "target"])
    table = table.map(lambda called: called.partition(":")[2])
    changes = {f"edges.paper.{name}.author.csv": table.to_csv(index=False)}
    graph = load(write_tables(tmp_path / "g", changes))
    names = {each for _, each, _ in graph.meta["edge_types"]}
    # It is known by its name, or by having all the edges the other way.
    added = {"rev_writes", "rev_of"} if name == "of" and count == 1 else set()
    assert names == {"writes", name, "cites", "at", "rev_at"} | added
    assert of_relation(graph, "paper", name, "author") == set(rows)


def test_repeated_rows_are_merged_and_self_loops_left_out(tmp_path: Path) -> None:
    cited = "source,target,weight\n10,11,2\n10,10,9\n10,11,3\n"
    graph = load(write_tables(tmp_path / "g", {CITES: cited}), directed=True)
    types = graph.types
    assert types is not None
    number = types.edge_types.index(("paper", "cites", "paper"))
    assert graph.edge_weight[types.edge_type == number].tolist() == [5]
    facts = {name: graph.meta[name] for name in ("edges_read", "duplicates_merged")}
    assert facts == {"edges_read": 10, "duplicates_merged": 1}
    assert graph.meta["self_loops_dropped"] == 1


def test_columns_are_those_that_are_named_where_tables_have_them(
    tmp_path: Path,
) -> None:
    renamed = AUTHORS.replace("id,age,label", "name,age,team")
    changes = {
        AUTHOR: renamed,
        # Not a class here, as the classes are called otherwise.
        PAPER: "name,class,pages\n10,1,2\n11,0,3\n12,5,1\n",
        WRITES: "who,what,times\nann,10,1\nben,11,2\n",
        CITES: "source,target\n10,11\n",
    }
    columns = {"source": "who", "target": "what", "id": "name", "weight": "times"}
    graph = load(
        write_tables(tmp_path / "g", changes),
        **columns,
        label="team",
        leave_out=["pages"],
    )
    assert graph.class_names == ["blue", "red"] and graph.meta["target"] == "author"
    assert block(graph, "paper").tolist() == [[1], [0], [5]]
    assert graph.meta["columns_left_out"] == [f"pages of {PAPER}"]
    assert sorted(graph.edge_weight.tolist())[-2:] == [2, 2]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"nodes": "x.csv"}, "given with nodes: expected none, for the folder has"),
        ({"label": "nope"}, "no table of .* has a column 'nope': expected one of id,"),
        ({"weight": "age"}, "no table of .* has a column 'age': expected one of sour"),
        ({"leave_out": ["nope"]}, "no table of .* has a column 'nope'"),
        ({"delimiter": "ab"}, "expected one character"),
    ],
)
def test_options_that_fit_no_table(
    tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidInput, match=says):
        load(write_tables(tmp_path / "g"), **options)


SIX = "age,label,split\n31,red,train\n24,blue,train\n45,red,val\n52,blue,test\n"
WRONG: dict[str, tuple[dict[str, str | None], str]] = {
    "an unknown source": (
        {WRITES: "source,target\nann,10\nzed,11\n"},
        f"line 3 of .*{WRITES} names node zed as its source: .* an id of {AUTHOR}",
    ),
    "an unknown target": (
        {WRITES: "source,target\nann,10\nben,99\n"},
        f"line 3 .* node 99 as its target: expected an id of {PAPER}",
    ),
    "an id twice": (
        {PAPER: "id,words\n10,1\n11,2\n10,3\n"},
        f"line 4 of .*{PAPER} holds id 10, as line 2 does",
    ),
    "no id": ({PAPER: "id,words\n10,1\n,2\n"}, "line 3 .* has no id"),
    "two types with labels": (
        {PAPER: "id,label\n10,a\n11,b\n12,a\n"},
        f"{AUTHOR} and {PAPER} have labels or splits: expected both in one",
    ),
    "labels here and a split there": (
        {PAPER: "id,split\n10,train\n11,val\n12,test\n"},
        f"{AUTHOR} and {PAPER} have labels or splits",
    ),
    "a split of its own words": (
        {AUTHOR: AUTHORS.replace("test", "exam")},
        "line 5 .* holds 'exam' as split: expected train, val, test or nothing",
    ),
    "texts for the numbers of rows": (
        {AUTHOR: SIX},
        f"'author' by texts, such as 'ann', and .*{AUTHOR} has no column 'id'",
    ),
    "numbers of rows that there are not": (
        {PAPER: "words\n1\n2\n3\n"},
        "names node 10 as its target: expected 0 to 2",
    ),
    "a number that is none": ({PAPER: "id,w\n10,1\n11,x\n12,2\n"}, "line 3 .* 'x'"),
    "not a number": ({PAPER: "id,w\n10,1\n11,nan\n12,2\n"}, "line 3 .* holds nan as w"),
    "a negative weight": (
        {CITES: "source,target,weight\n10,11,-2\n"},
        "line 2 .* holds -2.0 as weight: expected a finite number, 0 or more",
    ),
    "self-loops alone": ({CITES: "source,target\n10,10\n"}, "holds only self-loops"),
    "no rows": ({CITES: "source,target\n"}, f"{CITES} has only a header: expected"),
    "nothing": ({PAPER: ""}, f"{PAPER} is empty"),
    "only numbers": ({PAPER: "1,2\n3,4\n"}, "line 1 .* names of the columns"),
    "no edges": (
        {WRITES: None, CITES: None, AT: None},
        "has no table of edges: expected nodes.TYPE.csv, or edges.SOURCE.NAME.TARGET",
    ),
    "a relation of two": ({"edges.a.b.csv": "0,1\n"}, "names 2 parts: expected"),
    "a relation of four": ({"edges.a.b.c.d.csv": "0,1\n"}, "names 4 parts: expected"),
    "a type with a full stop": (
        {"nodes.a.b.csv": "id\n1\n"},
        "names 2 parts: expected",
    ),
    "a type without a name": (
        {"nodes..csv": "id\n1\n"},
        "names that have no full stop",
    ),
    "an edge list of no types": ({"edges.csv": "0,1\n"}, "names 0 parts: expected"),
    "two tables of a type": (
        {"nodes.paper.tsv": "id\twords\n10\t1\n"},
        f"{PAPER} and nodes.paper.tsv are called alike",
    ),
    "two tables of a relation": (
        {"edges.paper.at.venue.txt": "source,target\n10,kdd\n"},
        "edges.paper.at.venue.csv and edges.paper.at.venue.txt are called alike",
    ),
    "names that look alike": (
        {"nodes.a.csv": "id\nb:c\n", "nodes.a:b.csv": "id\nc\n"},
        "node_id holds 10 distinct texts for 11 nodes",
    ),
    "a header of one name twice": ({CITES: "source,source\n1,2\n"}, "'source'"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_cannot_be_meant_is_refused_in_one_sentence(
    tmp_path: Path, wrong: str
) -> None:
    changes, says = WRONG[wrong]
    folder = write_tables(tmp_path / "g", changes)
    before = sorted(os.listdir(folder))
    with pytest.raises(InvalidInput, match=says) as caught:
        validate(load(folder), labels_needed=False)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    assert sorted(os.listdir(folder)) == before


def test_what_is_called_as_a_table_and_is_none(tmp_path: Path) -> None:
    for number, make in enumerate((os.mkdir, os.mkfifo)):
        folder = write_tables(tmp_path / str(number), {PAPER: None})
        make(folder / PAPER)
        # Nobody waits for a pipe that nobody fills.
        with pytest.raises(InvalidInput, match="expected a file that is a table"):
            load(folder)


def test_which_folders_are_such(tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "g")
    assert is_tables_folder(folder) and is_tables_folder(str(folder))
    # What else lies there is left alone.
    for name in ("README.md", "notes.csv", "nodes.paper.csv.bak", ".nodes.x.csv.swp"):
        (folder / name).write_text("x")
    assert content_digest(load(folder)) == content_digest(typed_graph(tmp_path / "h"))
    (folder / "graph.json").write_text("{}")
    assert not is_tables_folder(folder)
    (tmp_path / "plain").mkdir()
    for name in ("edges.csv", "nodes.csv", "edges.md"):
        (tmp_path / "plain" / name).write_text("0,1\n")
    for other in (tmp_path / "plain", tmp_path / "absent", "\0", folder / PAPER):
        assert not is_tables_folder(other)


def test_nodes_that_no_edge_names_are_there_too(tmp_path: Path) -> None:
    changes = {"nodes.prize.csv": "id,worth\nx,1\ny,2\n", "nodes.city.csv": "size\n7\n"}
    graph = load(write_tables(tmp_path / "g", changes))
    assert graph.ids.tolist()[4:5] == ["city:0"]
    assert graph.ids.tolist()[-4:-2] == ["prize:x", "prize:y"]


def test_without_any_features_there_are_none(tmp_path: Path) -> None:
    changes = {AUTHOR: "id,label\nann,a\nben,b\ncyd,a\ndan,b\n", PAPER: None}
    graph = load(write_tables(tmp_path / "g", changes))
    assert "x" not in graph and graph.num_nodes == 9
    assert "columns" not in graph.meta
    save_npz(graph, tmp_path / "g.npz")
    again = load_npz(tmp_path / "g.npz")
    assert again.num_nodes == 9 and again.meta == graph.meta


IDS = {
    "counted": lambda number: str(number),
    "numbers": lambda number: str(7 - 3 * number),
    "texts": lambda number: f"n {number}",
    "zeros": lambda number: f"00{number}",
    "mixed": lambda number: str(number) if number else "none",
}
WRITERS = {
    ".csv": lambda table, path: table.to_csv(path, index=False),
    ".tsv": lambda table, path: table.to_csv(path, index=False, sep="\t"),
    ".txt": lambda table, path: table.to_csv(path, index=False, sep=";"),
    ".parquet": lambda table, path: table.to_parquet(path, index=False),
}


@settings(max_examples=30)
@given(st.data())
def test_any_tables_are_read_as_meant(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    names = data.draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True))
    sizes = {name: data.draw(st.integers(2, 5)) for name in names}
    called = {name: IDS[data.draw(st.sampled_from(sorted(IDS)))] for name in names}

    def write(table: pd.DataFrame, name: str) -> None:
        suffix = data.draw(st.sampled_from(sorted(WRITERS)))
        WRITERS[suffix](table, folder / f"{name}{suffix}")

    for name, size in sizes.items():
        ids = [called[name](number) for number in range(size)]
        table = pd.DataFrame({"id": ids, "x": [float(n) for n in range(size)]})
        write(table.sample(frac=1, random_state=0), f"nodes.{name}")
    kinds = st.tuples(st.sampled_from(names), st.sampled_from("rs"))
    relations = st.tuples(kinds, st.sampled_from(names))
    expected = {}
    for (one, way), other in data.draw(st.lists(relations, min_size=1, unique=True)):
        ends = st.tuples(
            st.integers(0, sizes[one] - 1), st.integers(0, sizes[other] - 1)
        ).filter(lambda pair, loops=one == other: not loops or pair[0] != pair[1])
        pairs = data.draw(st.lists(ends, min_size=1, max_size=6, unique=True))
        rows = [(called[one](a), called[other](b)) for a, b in pairs]
        table = pd.DataFrame(rows, columns=["source", "target"])
        write(table, f"edges.{one}.{way}.{other}")
        expected[one, way, other] = {(f"{one}:{a}", f"{other}:{b}") for a, b in rows}
    graph = load(folder, directed=True)
    validate(graph, labels_needed=False)
    types = graph.one_or_more_types()
    assert sorted(types.edge_types) == sorted(expected)
    ids = graph.ids.tolist()
    for number, relation in enumerate(types.edge_types):
        ends = graph.edge_index[:, types.edge_type == number].T.tolist()
        found = [(ids[source], ids[target]) for source, target in ends]
        assert len(found) == len(expected[relation])
        assert set(found) == expected[relation]
    numbers = {f"{n}:{called[n](k)}": float(k) for n in names for k in range(sizes[n])}
    x = graph.x.to_dense().sum(1)
    assert {one: float(x[place]) for place, one in enumerate(ids)} == numbers


def test_a_folder_a_file_and_an_object_of_pyg_are_the_same_graph(
    tmp_path: Path,
) -> None:
    graph = typed_graph(tmp_path / "g")
    save_npz(graph, tmp_path / "g.npz")
    for again in (load_npz(tmp_path / "g.npz"), as_graph(graph.to_pyg())):
        assert content_digest(again) == content_digest(graph)
        assert again.ids.tolist() == graph.ids.tolist()
        assert again.class_names == graph.class_names
        assert again.types is not None and graph.types is not None
        assert again.types.names == graph.types.names
        assert again.types.columns == graph.types.columns
        assert again.types.classified == graph.types.classified
