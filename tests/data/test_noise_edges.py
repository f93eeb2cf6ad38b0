"""Random edges and removed ones: how many, which, and what stays as it was."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from gsebo.data import generate_graph
from gsebo.data.noise.kinds import add_random_edges, remove_edges, share_of
from gsebo.errors import InvalidInput


@st.composite
def graphs(draw: st.DrawFn, min_edges: int = 0) -> Data:
    """Directed graphs with loops and duplicates; the labels are none."""
    num_nodes = draw(st.integers(2, 10))
    node = st.integers(0, num_nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), min_size=min_edges, max_size=25))
    ends = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    return Data(edge_index=ends, num_nodes=num_nodes)


def joined(edge_index: torch.Tensor) -> set[frozenset[int]]:
    pairs = {frozenset(pair) for pair in edge_index.T.tolist()}
    return {pair for pair in pairs if len(pair) == 2}


@given(graphs(), st.integers(0, 9), st.data())
def test_any_free_pairs_are_joined(data: Data, seed: int, draw: st.DataObject) -> None:
    ends, before = data.edge_index, joined(data.edge_index)
    free = data.num_nodes * (data.num_nodes - 1) // 2 - len(before)
    count = draw.draw(st.integers(0, free))
    noisy = add_random_edges(data, count, seed)
    old, there, back = noisy.edge_index.split([ends.shape[1], count, count], dim=1)
    assert torch.equal(old, ends) and data.edge_index is ends
    assert torch.equal(back, there.flip(0))
    assert len(joined(there)) == count
    assert not joined(there) & before
    with pytest.raises(InvalidInput, match=f"at most {free},"):
        add_random_edges(data, free + 1)


def test_every_pair_is_as_likely() -> None:
    ends = torch.tensor([[0, 1, 2], [1, 2, 3]])
    data = Data(edge_index=ends, num_nodes=6, y=torch.zeros(6, dtype=torch.int64))
    found: Counter[frozenset[int]] = Counter()
    for seed in range(600):
        found.update(joined(add_random_edges(data, 2, seed).edge_index[:, 3:]))
    expected = 1200 / 12
    assert len(found) == 12
    assert sum((n - expected) ** 2 / expected for n in found.values()) < 30


@given(graphs(min_edges=1), st.integers(0, 100), st.integers(0, 9))
def test_so_many_pairs_go_with_all_their_edges(
    data: Data, percent: int, seed: int
) -> None:
    before = joined(data.edge_index)
    if not before:
        with pytest.raises(InvalidInput, match="no edges"):
            remove_edges(data, percent, seed)
        return
    data.edge_attr = torch.arange(data.num_edges)
    noisy = remove_edges(data, percent, seed)
    kept = joined(noisy.edge_index)
    assert len(kept) == max(len(before) - share_of(percent, len(before)), 1)
    # What stays keeps its order, its values, its duplicates and its loops.
    stays = [a == b or frozenset((a, b)) in kept for a, b in data.edge_index.T.tolist()]
    assert torch.equal(noisy.edge_index, data.edge_index[:, torch.tensor(stays)])
    assert torch.equal(noisy.edge_attr, data.edge_attr[torch.tensor(stays)])
    assert data.num_edges == len(stays)


def test_every_edge_goes_as_often() -> None:
    data = Data(edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), num_nodes=4)
    gone: Counter[frozenset[int]] = Counter()
    before = joined(data.edge_index)
    for seed in range(400):
        gone.update(before - joined(remove_edges(data, 25, seed).edge_index))
    assert gone.total() == 400
    assert all(70 < number < 130 for number in gone.values()) and len(gone) == 4


@pytest.mark.parametrize("change", [add_random_edges, remove_edges])
def test_the_seed_decides(change: Callable[[Data, int, int], Data]) -> None:
    data = generate_graph(2000)
    first, again, other = (change(data, 50, seed).edge_index for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_what_is_no_share(graph: Data) -> None:
    for percent in (-1, 101):
        with pytest.raises(InvalidInput, match="0 to 100"):
            remove_edges(graph, percent)
    with pytest.raises(InvalidInput, match="0 or more"):
        add_random_edges(graph, -1)
    graph.edge_weight = torch.ones(graph.num_edges - 1)
    with pytest.raises(InvalidInput, match="edge_weight does not belong"):
        add_random_edges(graph, 1)


@given(st.integers(0, 100), st.integers(0, 10**6))
def test_shares_are_rounded(percent: int, total: int) -> None:
    share = share_of(percent, total)
    assert -50 < 100 * share - percent * total <= 50
