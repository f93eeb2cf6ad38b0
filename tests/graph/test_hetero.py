"""Graphs with types, from a PyG ``HeteroData`` and back."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data, HeteroData

import gsebo
from gsebo import InvalidInput
from gsebo.data import content_digest, validate, visible_part
from gsebo.data.validate import require_graph
from gsebo.graph import Graph, as_graph
from gsebo.graph.features import csr_tensor
from gsebo.graph.graph import given_back

NAMES = ("author", "paper", "venue", "ü 漢")
MASKS = ("train_mask", "val_mask", "test_mask", "unseen_mask")
AB = ("a", "to", "b")


@st.composite
def heteros(draw: st.DrawFn) -> HeteroData:
    """Several types and relations, of which many have this and few have that."""
    rng = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    data, sizes = HeteroData(), {name: draw(st.integers(1, 6)) for name in names}
    for name, size in sizes.items():
        width = draw(st.integers(0, 3))
        data[name].num_nodes = size
        if width:
            data[name].x = torch.randn(size, width, generator=rng)
    end = st.sampled_from(names)
    relations = st.tuples(end, st.sampled_from(("to", "of")), end)
    chosen = draw(st.lists(relations, min_size=1, max_size=5, unique=True))
    for number, relation in enumerate(chosen):
        count = draw(st.integers(1 if number == 0 else 0, 8))
        ends = [
            torch.randint(sizes[each], (count,), generator=rng)
            for each in (relation[0], relation[2])
        ]
        data[relation].edge_index = torch.stack(ends)
        if draw(st.booleans()):
            data[relation].edge_weight = torch.rand(count, generator=rng)
        if draw(st.booleans()):
            width = draw(st.integers(1, 2))
            data[relation].edge_attr = torch.randn(count, width, generator=rng)
    if draw(st.booleans()):
        store, size = data[names[0]], sizes[names[0]]
        store.y = torch.randint(-1, 3, (size,), generator=rng)
        for name in draw(st.lists(st.sampled_from(MASKS), unique=True)):
            store[name] = torch.rand(size, generator=rng) < 0.5
    if draw(st.booleans()):
        for name, size in sizes.items():
            data[name].node_id = np.array([f"{name} {one}" for one in range(size)])
    return data


def contents(data: HeteroData) -> dict[tuple[Any, str], Any]:
    """All that is known of nodes and edges; a weight that is not given is one."""
    found = {}
    for kind in (*data.node_types, *data.edge_types):
        for key, value in data[kind].items():
            found[kind, key] = value.tolist() if hasattr(value, "tolist") else value
    if any(key == "edge_weight" for _, key in found):
        for kind in data.edge_types:
            ones = [1.0] * data[kind].edge_index.shape[1]
            found.setdefault((kind, "edge_weight"), ones)
    return found


@settings(max_examples=60)
@given(heteros())
def test_there_and_back_it_is_the_same(data: HeteroData) -> None:
    before, graph = contents(data), as_graph(data)
    again = given_back(graph, data)
    assert contents(data) == before == contents(again)
    assert again.node_types == data.node_types and again.edge_types == data.edge_types
    # Where the first weights are made up, the second are those.
    assert contents(given_back(as_graph(again), data)) == contents(again)
    assert content_digest(as_graph(again)) == content_digest(graph)


@settings(max_examples=60)
@given(heteros())
def test_the_graph_says_what_each_relation_says(data: HeteroData) -> None:
    graph = as_graph(data)
    assert require_graph(graph) == data.num_nodes == graph.num_nodes
    assert graph.num_edges == data.num_edges
    types = graph.one_or_more_types()
    several = len(data.node_types) > 1 or len(data.edge_types) > 1
    assert (graph.types is not None) is several
    x = graph.x.to_dense()
    for number, name in enumerate(types.node_types):
        chosen = types.node_type == number
        assert types.columns is not None
        first, end = types.columns[number]
        given = data[name].get("x", torch.ones(int(chosen.sum()), 1))
        assert torch.equal(x[chosen, first:end], given)
        # What a type does not have is zero.
        assert not x[chosen, :first].any() and not x[chosen, end:].any()
    for number, relation in enumerate(types.edge_types):
        ends = graph.edge_index[:, types.edge_type == number]
        assert torch.equal(types.place_in_type[ends], data[relation].edge_index)
        kinds = types.node_type[ends]
        expected = [types.node_types.index(relation[side]) for side in (0, 2)]
        assert kinds.T.tolist() == [expected] * ends.shape[1]
    labelled = [name for name in data.node_types if "y" in data[name]]
    if labelled:
        others = types.node_type != types.node_types.index(labelled[0])
        assert bool((graph.y[others] == -1).all())
        assert not any(graph[name][others].any() for name in MASKS if name in graph)


def example() -> HeteroData:
    """Two types and three relations; ``b`` has no features."""
    data = HeteroData()
    data["a"].x = torch.arange(12.0).reshape(4, 3)
    data["a"].y = torch.tensor([0, 1, 0, 1])
    data["a"].train_mask = torch.tensor([True, True, False, False])
    data["a"].val_mask = torch.tensor([False, False, True, False])
    data["a"].test_mask = torch.tensor([False, False, False, True])
    data["b"].num_nodes = 3
    data[AB].edge_index = torch.tensor([[0, 1, 2, 3], [0, 1, 2, 0]])
    data["b", "rev", "a"].edge_index = data[AB].edge_index.flip(0)
    data["a", "is", "a"].edge_index = torch.tensor([[0, 1], [1, 2]])
    return data


def changed(kind: Any, key: str, value: Any) -> HeteroData:
    data = example()
    if value is None:
        del data[kind][key]
    else:
        data[kind][key] = value
    return data


def of_two(key: str, value: Any, more: HeteroData | None = None) -> HeteroData:
    data = example() if more is None else more
    data["b"][key] = value
    return data


def bare(nodes: int, edges: int) -> HeteroData:
    data = HeteroData()
    for number in range(nodes):
        data[f"n{number}"].x = torch.ones(2, 1)
    for number in range(edges):
        data["x", f"e{number}", "x"].edge_index = torch.ones(2, 1, dtype=torch.int64)
    return data


def nameless() -> HeteroData:
    data = example()
    data[""].x = torch.ones(2, 1)
    return data


ONES = torch.ones
WRONG: list[tuple[Callable[[], HeteroData], str]] = [
    (lambda: bare(0, 0), "0 types of nodes and 0 relations given"),
    (lambda: bare(2, 0), "2 types of nodes and 0 relations given"),
    (lambda: bare(1, 1), "names the type 'x', which has no nodes"),
    (nameless, "called '' given; expected texts"),
    (lambda: changed("b", "num_nodes", None), "'b' of the HeteroData has None nodes"),
    (lambda: changed("b", "num_nodes", 0), "'b' of the HeteroData has 0 nodes"),
    (lambda: changed("b", "num_nodes", 2.5), "'b' of the HeteroData has 2.5 nodes"),
    (lambda: changed("b", "num_nodes", 10**15), "10{14}.* nodes takes about"),
    (lambda: changed("a", "x", ONES(4)), r"'a' .* \[nodes, features\], got shape"),
    (lambda: changed("b", "x", ONES(5, 2)), r"'b' has shape \[5, 2\]; expected a row"),
    (lambda: changed("b", "x", ONES(3, 0)), "'b' has shape .* at least one column"),
    (lambda: changed("b", "x", [1, 2, 3]), "'b' .* expected x as a tensor, got list"),
    (lambda: changed("b", "x", ONES(3, 2) * 1j), "'b' .* in floating point"),
    (lambda: changed("b", "x", ONES(3, 2).to("meta")), "'b' .* on the device 'meta'"),
    (lambda: changed("a", "y", ONES(5)), r"y of the type 'a' is of shape \[5\]"),
    (lambda: changed("a", "y", [0, 1, 0, 1]), "y of the type 'a' is a list; expected"),
    (lambda: changed("a", "y", ONES(4) / 2), "targets of a regression"),
    (lambda: changed("a", "y", torch.eye(4).long()), "several labels or targets"),
    (
        lambda: of_two("y", ONES(3), changed("a", "train_mask", None)),
        "types 'a', 'b' of the HeteroData have y; expected one type",
    ),
    (
        lambda: of_two("train_mask", ONES(3) > 0, changed("a", "y", None)),
        "types 'a', 'b' of the HeteroData have train_mask; expected one type",
    ),
    (lambda: changed("a", "train_mask", ONES(1) > 0), r"train_mask .* shape \[1\]"),
    (lambda: changed("a", "train_mask", ONES(4)), "train_mask as bool, got"),
    (lambda: changed("a", "val_mask", ONES(4, 3) > 0), r"train_mask\[:, 0\]|val_mask"),
    (lambda: changed("a", "val_mask", "all"), "val_mask of the type 'a' is a str"),
    (
        lambda: changed(AB, "edge_index", None),
        "edge_index of .* is missing",
    ),
    (lambda: changed(AB, "edge_index", ONES(2, 3)), "edge_index .* whole numbers"),
    (lambda: changed(AB, "edge_index", torch.eye(2).to_sparse()), "is torch.sparse"),
    (lambda: changed(AB, "edge_index", ONES(3, 2).long()), r"of shape \[3, 2\] and"),
    (lambda: changed(AB, "edge_index", torch.tensor([[0, -1], [0, 0]])), "node -1 of"),
    (lambda: changed(AB, "edge_index", torch.tensor([[0], [7]])), "node 7 of the type"),
    (lambda: changed(AB, "edge_weight", ONES(3)), r"of shape \[3\].* each of 4 edges"),
    (lambda: changed(AB, "edge_weight", ONES(4, 2)), r"\[4, 2\]; expected \[4\]"),
    (lambda: changed(AB, "edge_weight", [1, 2, 3, 4]), r"edge_weight .* is a list"),
    (lambda: changed(AB, "edge_weight", -ONES(4)), "edge_weight holds -1.0"),
    (
        lambda: changed(AB, "edge_weight", ONES(4) * 1j),
        "real numbers with a row",
    ),
    (
        lambda: changed(AB, "edge_attr", ONES(4, 2, 2)),
        "real numbers with a row",
    ),
    (lambda: changed(AB, "edge_attr", ONES(3, 2)), "each of 4 edges"),
    (lambda: changed(AB, "edge_attr", ONES(4, 1) / 0), "edge_attr holds NaN or inf"),
    (lambda: changed("a", "node_id", [1, 2]), r"node_id of the type 'a' has shape"),
    (lambda: changed("a", "node_id", [1, "b", 2, 3]), "node_id is list of something"),
    (
        lambda: changed("a", "metapath:m", ONES(4, 2)),
        "metapath:m .* is missing",
    ),
]


@pytest.mark.parametrize(("make", "says"), WRONG)
def test_what_does_not_fit_is_refused_in_one_sentence(
    make: Callable[[], HeteroData], says: str
) -> None:
    data = make()
    with pytest.raises(InvalidInput, match=says) as caught:
        validate(data)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_of_two_types_with_labels_the_one_with_masks_is_classified() -> None:
    graph = as_graph(of_two("y", torch.zeros(3, dtype=torch.int64)))
    assert graph.meta["target"] == "a" and graph.y.tolist() == [0, 1, 0, 1, -1, -1, -1]


def test_sizes_that_pyg_cannot_tell_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InvalidInput, match="None nodes; expected x, or num_nodes"):
            as_graph(changed("b", "num_nodes", None))


@pytest.mark.parametrize("form", ["coordinates", "rows", "half", "whole", "grad"])
def test_features_of_any_form_are_the_same(form: str) -> None:
    dense = torch.tensor([[0.0, 2.0], [1.0, 0.0], [0.0, 0.0]])
    rows = csr_tensor(
        torch.tensor([0, 1, 2, 2]),
        torch.tensor([1, 0]),
        torch.tensor([2.0, 1.0]),
        (3, 2),
    )
    x = {
        "coordinates": dense.to_sparse(),
        "rows": rows,
        "half": dense.half(),
        "whole": dense.long(),
        "grad": dense.clone().requires_grad_(),
    }[form]
    graph = as_graph(changed("b", "x", x))
    assert graph.x.dtype == torch.float32 and not graph.x.requires_grad
    assert torch.equal(graph.x.to_dense()[4:, 3:], dense)


def test_double_precision_of_one_type_or_relation_is_kept() -> None:
    third = torch.full((4,), 1 / 3, dtype=torch.float64)
    data = changed(AB, "edge_weight", third)
    data["a"].x = data["a"].x.double() / 3
    data[AB].edge_attr = third[:, None]
    back = as_graph(data).to_pyg()
    assert torch.equal(back[AB].edge_weight, third)
    assert torch.equal(back[AB].edge_attr[:, 0], third)
    assert torch.equal(back["a"].x, data["a"].x)


def test_a_column_of_labels_is_one_class_for_each_node() -> None:
    column = changed("a", "y", torch.tensor([[0], [1], [0], [1]], dtype=torch.int32))
    assert torch.equal(as_graph(column).y, as_graph(example()).y)


def test_ids_that_types_share_are_told_apart() -> None:
    data = changed("a", "node_id", torch.tensor([5, 6, 7, 8]))
    assert as_graph(data).ids.tolist()[3:] == ["a:8", "b:0", "b:1", "b:2"]
    data["b"].node_id = [9, 10, 11]
    assert as_graph(data).ids.tolist() == [5, 6, 7, 8, 9, 10, 11]
    data["b"].node_id = [5, 6, 7]
    assert as_graph(data).ids.tolist()[3:5] == ["a:8", "b:5"]
    data["b"].node_id = ["x", "y", "z"]
    assert as_graph(data).ids.tolist()[3:5] == ["a:8", "b:x"]


def test_names_of_classes_and_what_else_meta_says_come_along() -> None:
    data = example()
    data.meta = {"classes": ["x", "y"], "target": "nonsense", "note": 1}
    graph = as_graph(data)
    assert graph.class_names == ["x", "y"] and graph.meta["target"] == "a"
    assert as_graph(graph.to_pyg()).meta == graph.meta


def test_embeddings_by_metapaths_come_along() -> None:
    data = example()
    for name, size in (("a", 4), ("b", 3)):
        data[name]["metapath:aba"] = torch.randn(size, 5)
    graph = as_graph(data)
    assert graph["metapath:aba"].shape == (7, 5)
    assert torch.equal(graph.to_pyg()["b"]["metapath:aba"], data["b"]["metapath:aba"])


def test_splits_noise_and_hidden_nodes_give_back_what_was_given() -> None:
    data = example()
    split = gsebo.apply_split(data, "ratio:50/50/0")
    assert isinstance(split, HeteroData) and "y" not in split["b"]
    hidden: Any = gsebo.apply_split(data, "unseen:100:file")
    assert torch.equal(hidden["a"].unseen_mask, data["a"].test_mask)
    seen = visible_part(hidden)
    assert isinstance(seen, HeteroData) and seen["a"].num_nodes == 3
    assert not (seen[AB].edge_index[0] == 3).any()
    noisy: Any = gsebo.apply_noise(data, "removed:50")
    assert isinstance(noisy, HeteroData)
    assert noisy[AB].edge_index.shape[1] < 4
    assert contents(data) == contents(example())


def test_what_a_relation_knows_of_edges_stays_its_own() -> None:
    data = changed(AB, "edge_attr", torch.randn(4, 2))
    split: Any = gsebo.apply_split(data, "file")
    assert torch.equal(split[AB].edge_attr, data[AB].edge_attr)
    assert "edge_attr" not in split["a", "is", "a"]
    assert as_graph(split).edge_attr.shape == (10, 2)


def test_a_fit_leaves_the_graph_as_it_was_and_says_strengths_by_relation() -> None:
    data = example()
    model = gsebo.Vanilla("relational-gcn", hidden_channels=2, max_epochs=2)
    shown: Any = model.fit(data).graph_
    assert contents(data) == contents(example())
    parts = [shown[each].edge_strength for each in data.edge_types]
    assert torch.equal(torch.cat(parts), model.strength_)
    assert [len(part) for part in parts] == [4, 4, 2]


def test_one_type_and_one_relation_is_a_graph_without_types() -> None:
    data = HeteroData()
    data["n"].x = torch.randn(6, 2)
    data["n"].y = torch.tensor([0, 1, 0, 1, 0, 1])
    data["n", "to", "n"].edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    graph = as_graph(data)
    assert graph.types is None and isinstance(graph.to_pyg(), Data)
    split: Any = gsebo.apply_split(data, "ratio:50/25/25")
    assert isinstance(split, HeteroData) and split.edge_types == data.edge_types
    fitted = gsebo.Vanilla(max_epochs=1).fit(split)
    assert fitted.graph_["n", "to", "n"].edge_strength.shape == (4,)
    assert fitted.predict(data).shape == (6,)


def test_without_names_types_are_called_by_their_numbers() -> None:
    graph = Graph(
        torch.ones(4, 1),
        torch.tensor([[0, 1, 2, 3], [2, 3, 0, 0]]),
        node_type=torch.tensor([0, 0, 1, 1]),
    )
    back = graph.to_pyg()
    assert back.node_types == ["0", "1"]
    assert back.edge_types == [("0", "to", "1"), ("1", "to", "0")]
    numbered = copy.copy(graph)
    numbered.edge_type = torch.tensor([3, 3, 1, 1])
    types = numbered.types
    assert types is not None and types.edge_types[3] == ("0", "3", "1")
    # A number that no edge has is that of a relation all the same.
    assert types.num_relations == 4
    only = Graph(torch.ones(3, 1), graph.edge_index[:, :1].clamp(max=2))
    only.edge_type = torch.tensor([1])
    assert only.types is not None and only.types.node_types == ("0",)


def test_without_types_nothing_is_left_of_them() -> None:
    graph = as_graph(changed(AB, "edge_attr", torch.randn(4, 2)))
    plain = graph.without_types()
    assert plain.types is None and plain.meta == {}
    assert graph.types is not None and graph.meta["target"] == "a"
    kept: list[Tensor] = [plain.x, plain.edge_index, plain.y, plain.edge_attr]
    assert all(isinstance(each, Tensor) for each in kept)
