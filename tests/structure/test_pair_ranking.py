"""Pairs of nodes: numbering, rewiring, and ranking against the dense matrix."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gsebo.graph.topology import CanonicalGraph
from gsebo.methods.baselines.pairs import (
    highest_unlinked_pairs,
    linked_pairs,
    lowest_linked_pairs,
    nodes_of,
    rewired,
)

from .graphs import examples, graphs


def embedding_of(seed: int, num_nodes: int) -> Tensor:
    """Small whole numbers, so that products are exact and many of them are equal."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, (num_nodes, 3), generator=generator).float()


def all_pairs(num_nodes: int) -> list[int]:
    return [
        i * num_nodes + j for i in range(num_nodes) for j in range(i + 1, num_nodes)
    ]


def edges_of(edge_index: Tensor) -> set[tuple[int, int]]:
    edges = [(int(source), int(target)) for source, target in edge_index.T]
    assert len(edges) == len(set(edges))
    return set(edges)


@examples
@given(
    graph=graphs(), seed=st.integers(0, 99), count=st.integers(0, 25), data=st.data()
)
def test_the_best_pairs_are_those_of_the_dense_ranking(
    graph: CanonicalGraph, seed: int, count: int, data: st.DataObject
) -> None:
    n = graph.num_nodes
    embedding = embedding_of(seed, n)
    dense = (embedding @ embedding.T).flatten().tolist()
    linked = linked_pairs(graph.edge_index, n)
    taken = set(linked.tolist())
    free = [pair for pair in all_pairs(n) if pair not in taken]
    expected = sorted(free, key=lambda pair: (-dense[pair], pair))[:count]
    block = data.draw(st.integers(1, 60))
    found = highest_unlinked_pairs(embedding, linked, count, block=block)
    assert found.tolist() == expected
    lowest = sorted(taken, key=lambda pair: (dense[pair], pair))[:count]
    assert lowest_linked_pairs(embedding, linked, count).tolist() == lowest


@examples
@given(graph=graphs(), data=st.data())
def test_rewiring_changes_these_pairs_and_nothing_else(
    graph: CanonicalGraph, data: st.DataObject
) -> None:
    n = graph.num_nodes
    before = edges_of(graph.edge_index)
    linked = linked_pairs(graph.edge_index, n).tolist()
    assert linked == sorted({min(edge) * n + max(edge) for edge in before})
    free = [pair for pair in all_pairs(n) if pair not in linked]
    added = torch.tensor([pair for pair in free if data.draw(st.booleans())]).long()
    removed = torch.tensor([pair for pair in linked if data.draw(st.booleans())]).long()
    after = rewired(graph.edge_index, n, added=added, removed=removed)
    new = edges_of(nodes_of(added, n)) | edges_of(nodes_of(added, n).flip(0))
    old = edges_of(nodes_of(removed, n)) | edges_of(nodes_of(removed, n).flip(0))
    assert edges_of(after) == (before - old) | new


def test_a_loop_is_no_pair_and_stays() -> None:
    edges = torch.tensor([[0, 1, 1], [0, 1, 0]], dtype=torch.int32)
    assert linked_pairs(edges, 2).tolist() == [1]
    none = torch.empty(0, dtype=torch.int64)
    after = rewired(edges, 2, added=none, removed=torch.tensor([1]))
    assert after.tolist() == [[0, 1], [0, 1]]
