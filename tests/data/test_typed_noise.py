"""False edges of each relation, and what other noise does to graphs with types."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import HeteroData

from gsebo import Graph, InvalidInput, apply_noise, generate_graph
from gsebo.data import add_inter_class_edges, noise_in_words, noise_spec, validate
from gsebo.data.noise.kinds import add_random_edges, share_of
from gsebo.data.noise.typed import add_false_typed_edges
from gsebo.data.relations import opposite_relations
from gsebo.graph import as_graph
from gsebo.graph.features import features_to_csr
from gsebo.sparse.types import EntryTypes


def graph_of(
    seed: int = 0, sizes: tuple[int, int] = (9, 7), share: float = 0.3
) -> Graph:
    """Two types; a relation, its opposite, one of friends and one that goes one way."""
    rng = torch.Generator().manual_seed(seed)
    first, second = sizes
    data = HeteroData()
    data["a"].x = torch.randn(first, 3, generator=rng)
    data["a"].y = torch.arange(first) % 2
    for number, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data["a"][name] = torch.arange(first) % 3 == number
    data["b"].x = torch.randn(second, 2, generator=rng)

    def drawn(rows: int, columns: int, share: float) -> Tensor:
        return (torch.rand(rows, columns, generator=rng) < share).nonzero().T

    data["a", "to", "b"].edge_index = drawn(first, second, share)
    data["b", "back", "a"].edge_index = data["a", "to", "b"].edge_index.flip(0)
    friends = drawn(first, first, share / 2)
    friends = friends[:, friends[0] != friends[1]]
    friends = torch.cat([friends, friends.flip(0)], 1).unique(dim=1)
    data["a", "knows", "a"].edge_index = friends
    # A copy of an edge, and a self-loop, count for nothing.
    more = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    cited = torch.cat([drawn(second, second, share), more], 1)
    data["b", "cites", "b"].edge_index = cited
    return as_graph(data)


def types_of(graph: Graph) -> EntryTypes:
    types = graph.types
    assert types is not None
    return types


def pairs_of(graph: Graph, number: int, edges: slice = slice(None)) -> list[list[int]]:
    chosen = types_of(graph).edge_type[edges] == number
    return graph.edge_index[:, edges][:, chosen].T.tolist()


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 100), st.integers(0, 3))
def test_each_relation_gets_its_share_of_its_own_types(
    seed: int, percent: int, graph_seed: int
) -> None:
    graph = graph_of(graph_seed)
    before = graph.edge_index.clone()
    noisy = add_false_typed_edges(graph, percent, seed)
    validate(noisy)
    assert torch.equal(graph.edge_index, before)
    count, types = graph.num_edges, types_of(graph)
    assert torch.equal(noisy.edge_index[:, :count], before)
    assert torch.equal(noisy.edge_type[:count], graph.edge_type)
    for number, (one, _, other) in enumerate(types.edge_types):
        given = {tuple(p) for p in pairs_of(graph, number) if p[0] != p[1]}
        added = pairs_of(noisy, number, slice(count, None))
        symmetric = one == "a" == other
        undirected = {tuple(sorted(pair)) for pair in given}
        share = share_of(percent, len(undirected if symmetric else given))
        assert len(added) == share * (2 if symmetric else 1)
        new = {tuple(pair) for pair in added}
        # Each once, none that was there, none with itself, all of the right types.
        assert len(new) == len(added) and not new & given
        assert all(source != target for source, target in added)
        ends = [[types.node_types[types.node_type[n]] for n in pair] for pair in added]
        assert all(pair == [one, other] for pair in ends)
        if symmetric:
            assert new == {(target, source) for source, target in new}
    forward = pairs_of(noisy, 0, slice(count, None))
    assert pairs_of(noisy, 1, slice(count, None)) == [pair[::-1] for pair in forward]


def test_thirty_percent_is_thirty_percent() -> None:
    graph = graph_of(sizes=(40, 25))
    sizes = torch.bincount(graph.edge_type).tolist()
    noisy = apply_noise(graph, "false_typed:30", 1)
    added = torch.bincount(noisy.edge_type)
    shares = [share_of(30, size) for size in sizes[:2]]
    # An edge between friends is there both ways and counts once.
    shares.append(2 * share_of(30, sizes[2] // 2))
    ones = {tuple(pair) for pair in pairs_of(graph, 3) if pair[0] != pair[1]}
    assert len(ones) < sizes[3]
    shares.append(share_of(30, len(ones)))
    assert (added - torch.tensor(sizes)).tolist() == shares


def test_a_seed_draws_the_same_and_another_something_else() -> None:
    graph = graph_of()
    first, again, other = (
        apply_noise(graph, "false_typed:50", seed).edge_index for seed in (3, 3, 4)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_nothing_of_anything_is_the_same_graph() -> None:
    graph = graph_of()
    for noisy in (apply_noise(graph, "false_typed:0"), add_false_typed_edges(graph, 0)):
        assert noisy is not graph and torch.equal(noisy.edge_index, graph.edge_index)
    assert noise_spec("False-Typed:0") == 0
    assert noise_in_words("false_typed:30") == "30 % of false edges of each relation"


def test_weights_and_attributes_are_the_median_of_the_relation() -> None:
    graph = graph_of()
    graph.edge_weight = graph.edge_type.float() + 1
    graph.edge_attr = torch.stack([graph.edge_weight, -graph.edge_weight], 1)
    count = graph.num_edges
    noisy = add_false_typed_edges(graph, 100)
    expected = noisy.edge_type.float() + 1
    assert torch.equal(noisy.edge_weight, expected)
    assert torch.equal(noisy.edge_attr[count:, 1], -expected[count:])


@pytest.mark.parametrize("share", [0.8, 1.0])
def test_pairs_that_are_not_free_are_refused(share: float) -> None:
    says = r"false edges of the relation 'a' 'to' 'b' to add: .* pairs that are free\.$"
    with pytest.raises(InvalidInput, match=says):
        apply_noise(graph_of(share=share), "false_typed:100")


def test_the_last_free_pair_is_found() -> None:
    data = HeteroData()
    data["a"].x, data["b"].x = torch.ones(2, 1), torch.ones(2, 1)
    edges = torch.tensor([[0, 0], [0, 1]])
    data["a", "to", "b"].edge_index = edges
    noisy = apply_noise(data, "false_typed:100")
    assert isinstance(noisy, HeteroData)
    found = noisy["a", "to", "b"].edge_index.T.tolist()
    assert sorted(found) == [[0, 0], [0, 1], [1, 0], [1, 1]]
    data["a", "to", "b"].edge_index = torch.tensor([[0, 0, 1], [0, 1, 1]])
    with pytest.raises(InvalidInput, match=r"3 false edges .* at most 1, the pairs"):
        apply_noise(data, "false_typed:100")


def test_a_relation_without_edges_gets_none() -> None:
    data = HeteroData()
    data["a"].x, data["b"].x = torch.ones(3, 1), torch.ones(2, 1)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1], [0, 1]])
    data["b", "not", "b"].edge_index = torch.empty(2, 0, dtype=torch.int64)
    noisy = apply_noise(data, "false_typed:50")
    assert noisy["a", "to", "b"].edge_index.shape[1] == 3
    assert noisy["b", "not", "b"].edge_index.shape[1] == 0


def test_relations_may_be_those_that_types_of_nodes_make() -> None:
    graph = graph_of()
    untold = Graph(graph.x, graph.edge_index, node_type=graph.node_type)
    noisy = add_false_typed_edges(untold, 40)
    assert "edge_type" not in noisy and noisy.num_edges > graph.num_edges
    types = types_of(noisy)
    assert types.num_relations == 4
    # What they are does not change by more of them.
    assert types.edge_types == types_of(untold).edge_types


def test_a_graph_without_types_is_of_one() -> None:
    graph = generate_graph(50, average_degree=4.0, seed=1)
    noisy = apply_noise(graph, "false_typed:50", 2)
    added = noisy.num_edges - graph.num_edges
    assert added == 2 * share_of(50, graph.num_edges // 2)
    new = noisy.edge_index[:, graph.num_edges :].T.tolist()
    assert {tuple(p) for p in new} == {(b, a) for a, b in new}


@pytest.mark.parametrize("noise", ["inter_class:3", "random:3", "prbcd:10"])
def test_noise_that_knows_no_types_refuses_them(noise: str) -> None:
    with pytest.raises(InvalidInput, match="the graph has 2 types of nodes and 4 rel"):
        apply_noise(graph_of(), noise)


def test_functions_of_noise_refuse_types_too() -> None:
    for add in (add_inter_class_edges, add_random_edges):
        with pytest.raises(InvalidInput, match=r"expected graph\.without_types"):
            add(graph_of(), 2)


@pytest.mark.parametrize("noise", ["removed:40", "features:60", "labels:50"])
def test_other_noise_keeps_what_each_type_has(noise: str) -> None:
    graph = graph_of(sizes=(30, 20))
    noisy = apply_noise(graph, noise, 1)
    validate(noisy)
    assert types_of(noisy).names == types_of(graph).names
    assert torch.equal(noisy.node_type, graph.node_type)
    old, new = features_to_csr(graph.x).toarray(), features_to_csr(noisy.x).toarray()
    for kind in (0, 1):
        rows = (graph.node_type == kind).numpy()
        # Entries of a column change places within a type.
        assert np.array_equal(np.sort(old[rows], 0), np.sort(new[rows], 0))
    assert np.array_equal(old, new) is (noise != "features:60")
    other = graph.node_type == 1
    assert bool((noisy.y[other] == -1).all())
    if noise == "removed:40":
        kept, there = (
            {tuple(e) for e in torch.vstack([g.edge_index, g.edge_type]).T.tolist()}
            for g in (noisy, graph)
        )
        assert kept < there
    found = opposite_relations(noisy.edge_index, types_of(noisy))
    assert found == [1, 0, 2, None]
