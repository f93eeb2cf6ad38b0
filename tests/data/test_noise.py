from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from gsebo.data import add_inter_class_edges, generate_graph
from gsebo.errors import InvalidInput


def _free_pairs(data: Data) -> set[tuple[int, int]]:
    joined = {frozenset(pair) for pair in data.edge_index.T.tolist()}
    return {
        (i, j)
        for i in range(data.num_nodes)
        for j in range(i + 1, data.num_nodes)
        if data.y[i] != data.y[j] and frozenset((i, j)) not in joined
    }


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.data())
def test_adds_distinct_free_pairs_both_ways(
    labels: list[int], draw: st.DataObject
) -> None:
    node = st.integers(0, len(labels) - 1)
    pairs = draw.draw(st.lists(st.tuples(node, node), max_size=20))
    ends = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    data = Data(y=torch.tensor(labels), edge_index=ends, num_nodes=len(labels))
    free = _free_pairs(data)
    count = draw.draw(st.integers(0, len(free)))
    noisy = add_inter_class_edges(data, count, seed=draw.draw(st.integers(0, 9)))
    old, there, back = noisy.edge_index.split([ends.shape[1], count, count], dim=1)
    added = {tuple(pair) for pair in there.T.tolist()}
    assert torch.equal(old, ends)
    assert torch.equal(back, there.flip(0))
    assert len(added) == count
    assert added <= free
    assert data.edge_index is ends
    with pytest.raises(InvalidInput, match=f"at most {len(free)},"):
        add_inter_class_edges(data, len(free) + 1)


@pytest.mark.parametrize("num_edges", [0, 6])
def test_every_free_pair_is_as_likely(num_edges: int) -> None:
    labels = torch.tensor([0, 1, 1, 2, 0, 2, 2, 0])
    ends = torch.tensor([[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6]])[:, :num_edges]
    data = Data(y=labels, edge_index=ends, num_nodes=8)
    free = _free_pairs(data)
    found: Counter[tuple[int, ...]] = Counter()
    for seed in range(1500):
        there = add_inter_class_edges(data, 2, seed).edge_index[:, num_edges:-2]
        found.update(tuple(pair) for pair in there.T.tolist())
    expected = 3000 / len(free)
    assert set(found) == free
    assert sum((n - expected) ** 2 / expected for n in found.values()) < 2 * len(free)


def test_seed_decides_and_large_graphs_are_fast() -> None:
    data = generate_graph(20_000)
    first, again, other = (add_inter_class_edges(data, 5000, s) for s in (1, 1, 2))
    assert torch.equal(first.edge_index, again.edge_index)
    assert not torch.equal(first.edge_index, other.edge_index)


def test_a_lone_node_among_many_gets_every_edge() -> None:
    labels = torch.zeros(50_000, dtype=torch.int64)
    labels[7] = 1
    data = Data(y=labels, edge_index=torch.empty(2, 0, dtype=torch.int64))
    there = add_inter_class_edges(data, 100).edge_index[:, :100]
    assert bool((there == 7).any(dim=0).all())


def test_what_cannot_be_added(graph: Data) -> None:
    with pytest.raises(InvalidInput, match="expected 0 or more"):
        add_inter_class_edges(graph, -1)
    with pytest.raises(InvalidInput, match="seed=-1"):
        add_inter_class_edges(graph, 1, seed=-1)
    graph.edge_attr = torch.ones(graph.num_edges + 1)
    with pytest.raises(InvalidInput, match="edge_attr does not belong to the edges"):
        add_inter_class_edges(graph, 1)
    with pytest.raises(InvalidInput, match="no y"):
        add_inter_class_edges(Data(edge_index=graph.edge_index), 1)
