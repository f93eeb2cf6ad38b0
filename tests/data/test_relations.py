"""Types of nodes and relations of edges: what fits, what is opposite, who is drawn."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data, HeteroData

import gsebo
from gsebo import Graph, InvalidInput, apply_split
from gsebo.attacks import ATTACKS
from gsebo.data import validate, visible_part
from gsebo.data.formats.folder import write_folder
from gsebo.data.preparation import PREPARATIONS, Standard, fit_preparation
from gsebo.data.relations import (
    classified_nodes,
    opposite_relations,
    refuse_types,
    relation_in_words,
    require_types,
)
from gsebo.graph import as_graph
from gsebo.sparse.types import EntryTypes

SPLITS = ("planetoid:2/3/3", "ratio:40/30/30", "random:40/30/30", "halves:file")


def typed(authors: int = 12, papers: int = 8) -> HeteroData:
    rng = torch.Generator().manual_seed(0)
    data = HeteroData()
    data["paper"].x = torch.randn(papers, 2, generator=rng) * 5 + 3
    data["author"].x = torch.randn(authors, 3, generator=rng)
    place = torch.arange(authors)
    data["author"].y = place % 2
    for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data["author"][name] = place % 3 == number
    wrote = torch.stack([torch.arange(40) % authors, torch.arange(40) % papers])
    data["author", "writes", "paper"].edge_index = wrote.unique(dim=1)
    data["paper", "by", "author"].edge_index = wrote.flip(0).unique(dim=1)
    return data


def opposites(*relations: tuple[str, str, list[tuple[int, int]]]) -> list[int | None]:
    """Of relations of four nodes, of which two are of a type ``a`` and two of ``b``."""
    node_type = torch.tensor([0, 0, 1, 1])
    edges = [pair for *_, pairs in relations for pair in pairs]
    counts = torch.tensor([len(pairs) for *_, pairs in relations])
    types = EntryTypes(
        node_type,
        torch.arange(len(relations)).repeat_interleave(counts),
        ("a", "b"),
        tuple((one, str(n), other) for n, (one, other, _) in enumerate(relations)),
    )
    return opposite_relations(torch.tensor(edges).reshape(-1, 2).T, types)


AB, BA = [(0, 2), (1, 3), (0, 3)], [(3, 1), (2, 0), (3, 0)]


@pytest.mark.parametrize(
    ("relations", "expected"),
    [
        ([("a", "b", AB), ("b", "a", BA)], [1, 0]),
        ([("a", "b", AB), ("b", "a", [*BA, BA[0]])], [1, 0]),
        ([("a", "b", AB), ("b", "a", BA[:2])], [None, None]),
        ([("a", "b", AB), ("a", "b", AB)], [None, None]),
        # Of several that hold the same edges each has one of its own.
        ([("a", "b", AB), ("a", "b", AB), ("b", "a", BA)], [2, None, 0]),
        ([("b", "a", BA), ("a", "b", AB)] * 2, [1, 0, 3, 2]),
        ([("a", "a", [(0, 1), (1, 0)])], [0]),
        ([("a", "a", [(0, 1)]), ("a", "a", [(1, 0)])], [1, 0]),
        ([("a", "a", [(0, 1), (1, 0)]), ("a", "a", [(1, 0), (0, 1)])], [0, 1]),
        ([("a", "b", AB), ("b", "a", [])], [None, None]),
        ([("a", "b", []), ("b", "a", [])], [None, None]),
    ],
)
def test_opposites_hold_the_same_edges_the_other_way(
    relations: Any, expected: list[int | None]
) -> None:
    assert opposites(*relations) == expected


ENDS = st.lists(st.tuples(st.integers(0, 1), st.integers(2, 3)), max_size=4)


@given(st.lists(st.tuples(st.booleans(), ENDS), min_size=1, max_size=6))
def test_an_opposite_has_that_as_its_own(drawn: list[tuple[bool, list[Any]]]) -> None:
    relations = [
        ("a", "b", pairs) if forward else ("b", "a", [(b, a) for a, b in pairs])
        for forward, pairs in drawn
    ]
    found = opposites(*relations)
    for number, other in enumerate(found):
        if other is not None:
            assert found[other] == number
            assert relations[number][:2] == relations[other][1::-1]
            pairs = {(b, a) for a, b in relations[number][2]}
            assert pairs == set(relations[other][2]) != set()


def test_a_relation_is_shown_on_one_line() -> None:
    shown = relation_in_words(("a\n", "x" * 50, "\x1b[2J"))
    assert "\n" not in shown and "\x1b" not in shown and len(shown) < 80


MIXED = torch.tensor([[0, 1], [1, 2]])
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"node_type": torch.zeros(3)}, "dtype torch.float32: expected one whole number"),
    ({"node_type": torch.zeros(2).long()}, r"has shape \[2\] .* for each of 3 nodes"),
    ({"node_type": [0, 0, 1]}, "node_type of the graph as a dense tensor, got list"),
    ({"node_type": torch.zeros(3).long().to("meta")}, "on the device 'meta'"),
    ({"node_type": torch.eye(3).long().to_sparse()}, "as a dense tensor, got Tensor"),
    ({"node_type": torch.tensor([0, 0, 3])}, "holds 3: expected 0 to 2"),
    ({"edge_type": torch.tensor([0, 2])}, "edge_type of the graph holds 2: expected 0"),
    ({"edge_type": torch.zeros(2, 1).long()}, r"edge_type .* has shape \[2, 1\]"),
    (
        {"node_type": torch.tensor([0, 0, 1]), "edge_type": torch.zeros(2).long()},
        "of the relation 0 and goes from a node of the type '0' to one of '1', and oth",
    ),
]


@pytest.mark.parametrize(("types", "says"), WRONG)
def test_types_that_do_not_fit_are_refused(types: dict[str, Any], says: str) -> None:
    graph = Graph(torch.ones(3, 1), MIXED, **types)
    for check in (lambda: require_types(graph, 3), lambda: validate(graph)):
        with pytest.raises(InvalidInput, match=says) as caught:
            check()
        assert "\n" not in str(caught.value)


def test_any_whole_numbers_are_types() -> None:
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
        kinds = torch.tensor([0, 1, 1], dtype=dtype)
        graph = Graph(torch.ones(3, 1), MIXED, node_type=kinds)
        require_types(graph, 3)
        assert graph.types is not None and graph.types.node_type.dtype == torch.int64


def test_many_relations_take_no_time() -> None:
    count = 200_000
    ends = torch.arange(count + 1)
    graph = Graph(edge_index=torch.stack([ends[:-1], ends[1:]]), num_nodes=count + 1)
    graph.edge_type = torch.arange(count)
    require_types(graph, count + 1)
    assert graph.types is not None and graph.types.num_relations == count


def test_nodes_that_have_classes_are_those_of_the_target() -> None:
    graph = as_graph(typed())
    assert classified_nodes(graph).tolist() == list(range(8, 20))
    # Without a word in meta they are known by their labels.
    untold = copy.copy(graph)
    untold.meta = {k: v for k, v in graph.meta.items() if k != "target"}
    assert torch.equal(classified_nodes(untold), classified_nodes(graph))
    del untold["y"]
    assert classified_nodes(untold).tolist() == list(range(20))
    bare = Graph(num_nodes=20, node_type=graph.node_type)
    for plain in (graph.without_types(), bare):
        assert classified_nodes(plain).tolist() == list(range(20))


@pytest.mark.parametrize("name", SPLITS)
def test_a_split_draws_nodes_of_the_target_alone(name: str) -> None:
    graph = as_graph(typed())
    # Somebody has labels of papers, too.
    graph.y[:8] = 1
    split = apply_split(graph, name, 3)
    masks = [split.train_mask, split.val_mask, split.test_mask]
    drawn = torch.stack(masks).sum(0)
    assert not drawn[:8].any() and int(drawn.max()) == 1
    assert all(mask.any() for mask in masks)
    assert split.types is not None and graph.types is not None
    assert split.types.names == graph.types.names


def test_a_target_without_labels_cannot_be_split() -> None:
    graph = as_graph(typed())
    graph.y[:8], graph.y[8:] = 1, -1
    with pytest.raises(InvalidInput, match=r"no node of the type .* has a label"):
        apply_split(graph, "random:30/30/40")
    both = as_graph(typed())
    both.node_type = both.node_type.float()
    with pytest.raises(InvalidInput, match="node_type of the graph has shape"):
        apply_split(both, "random:30/30/40")


def test_masks_hold_nodes_of_the_target_alone() -> None:
    graph = as_graph(typed())
    graph.y[0], graph.train_mask[0] = 0, True
    says = "train_mask holds a node of the type 'paper': .* 'author', alone"
    with pytest.raises(InvalidInput, match=says):
        validate(graph)
    with pytest.raises(InvalidInput, match=says):
        gsebo.Vanilla().fit(graph)


def test_hidden_nodes_go_with_their_types_and_relations() -> None:
    graph = as_graph(typed())
    graph["metapath:apa"] = torch.arange(20.0)[:, None]
    split = apply_split(graph, "unseen:100:file", 1)
    part = visible_part(split)
    validate(part)
    kept = ~graph.test_mask
    assert torch.equal(part.node_type, graph.node_type[kept])
    assert torch.equal(part["metapath:apa"], graph["metapath:apa"][kept])
    assert part.types is not None and graph.types is not None
    assert part.types.names == graph.types.names
    seen = kept[graph.edge_index].all(0)
    assert torch.equal(part.edge_type, graph.edge_type[seen])


def own(graph: Graph, name: str) -> Tensor:
    types = graph.types
    assert types is not None and types.columns is not None
    number = types.node_types.index(name)
    first, end = types.columns[number]
    return graph.x.to_dense()[types.node_type == number, first:end]


@pytest.mark.parametrize("layout", ["sparse", "dense"])
def test_features_are_standardised_within_their_type(layout: str) -> None:
    graph = as_graph(typed())
    if layout == "dense":
        graph.x = graph.x.to_dense()
    prepared = Standard.fit(graph).apply(graph)
    require_types(prepared, 20)
    for name in ("author", "paper"):
        given = own(graph, name)
        expected = (given - given.mean(0)) / given.std(0, correction=0)
        assert torch.allclose(own(prepared, name), expected, atol=1e-5)
    # As if each type had come alone.
    alone = Graph(own(graph, "paper"), MIXED)
    assert torch.allclose(Standard.fit(alone).features(alone), own(prepared, "paper"))


@pytest.mark.parametrize("name", PREPARATIONS)
def test_prepared_features_still_belong_to_their_types(name: str) -> None:
    graph = as_graph(typed())
    prepared = fit_preparation(name, graph).apply(graph)
    require_types(prepared, 20)
    assert prepared.types is not None
    own = PREPARATIONS[name].keeps_columns
    assert (prepared.types.columns is not None) is own
    assert graph.types is not None and graph.types.columns is not None


def test_where_there_is_room_for_one_type_others_are_refused(tmp_path: Any) -> None:
    data, graph = typed(), as_graph(typed())
    says = "2 types of nodes and 2 relations.*expected"
    refused = [
        lambda: refuse_types(graph, "it", "there is room for one", "another"),
        lambda: write_folder(data, tmp_path / "folder"),
        lambda: gsebo.missing_edges(data),
        lambda: gsebo.LDS().fit(data),
        lambda: gsebo.GSEBO(batch_size=4).fit(data),
        *(lambda k=k: ATTACKS[k]().attack(data, budget=1) for k in ATTACKS),
    ]
    for call in refused:
        with pytest.raises(InvalidInput, match=says) as caught:
            call()
        assert str(caught.value).endswith(".") and "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_models_of_types_and_of_none_do_not_take_each_others_graphs() -> None:
    data, plain = typed(), as_graph(typed()).without_types()
    backbone = {"hidden_channels": 2, "max_epochs": 1}
    with_types = gsebo.Vanilla("relational-gcn", **backbone).fit(data)
    without = gsebo.Vanilla(**backbone).fit(plain)
    with pytest.raises(InvalidInput, match="one type of nodes and one relation given"):
        with_types.predict(plain)
    with pytest.raises(InvalidInput, match="expected one type of nodes and one relat"):
        without.predict(data)
    renamed = typed()
    by = renamed["paper", "by", "author"].edge_index
    renamed["paper", "of", "author"].edge_index = by
    del renamed["paper", "by", "author"]
    with pytest.raises(InvalidInput, match=r"relations .*paper-of-author given"):
        with_types.predict(renamed)
    assert isinstance(plain.to_pyg(), Data)
