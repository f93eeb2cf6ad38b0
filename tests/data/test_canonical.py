import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from gsebo.graph import canonicalise


@st.composite
def multigraphs(draw: st.DrawFn) -> Data:
    num_nodes = draw(st.integers(1, 8))
    node = st.integers(0, num_nodes - 1)
    pairs = draw(st.lists(st.tuples(node, node), max_size=30))
    ends = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    return Data(edge_index=ends, num_nodes=num_nodes)


@given(multigraphs())
def test_edges_are_the_users_sorted_without_loops_or_doubles(data: Data) -> None:
    graph = canonicalise(data)
    wanted = {(t, s) for s, t in data.edge_index.T.tolist() if s != t}
    assert [(t, s) for s, t in graph.edge_index.T.tolist()] == sorted(wanted)
    assert graph.edge_index.dtype == graph.entry_of_edge.dtype == torch.int64


@given(multigraphs())
def test_to_user_order_gives_each_edge_its_own_ends(data: Data) -> None:
    graph = canonicalise(data)
    nodes = torch.arange(graph.num_nodes).expand(2, -1)
    assert torch.equal(graph.to_user_order(graph.edge_index, nodes), data.edge_index)


@given(multigraphs())
def test_reverse_edge_names_the_edge_with_swapped_ends(data: Data) -> None:
    graph = canonicalise(data)
    pairs = [tuple(pair) for pair in graph.edge_index.T.tolist()]
    ids = {pair: edge for edge, pair in enumerate(pairs)}
    wanted = [ids.get((t, s), -1) for s, t in pairs]
    assert graph.reverse_edge.tolist() == wanted


@given(multigraphs())
def test_order_of_the_users_edges_does_not_matter(data: Data) -> None:
    order = torch.arange(data.num_edges).flip(0)
    shuffled = Data(edge_index=data.edge_index[:, order], num_nodes=data.num_nodes)
    first, second = canonicalise(data), canonicalise(shuffled)
    assert first.fingerprint() == second.fingerprint()
    assert torch.equal(first.entry_of_edge[order], second.entry_of_edge)


def test_fingerprint_tells_graphs_apart() -> None:
    ends = torch.tensor([[0, 1], [1, 2]])
    prints = {
        canonicalise(Data(edge_index=edges, num_nodes=n)).fingerprint()
        for edges, n in ((ends, 3), (ends, 4), (ends.flip(0), 3))
    }
    assert len(prints) == 3


def test_leading_axes_broadcast_and_gradients_flow() -> None:
    ends = torch.tensor([[0, 1, 1], [1, 1, 0]])
    graph = canonicalise(Data(edge_index=ends, num_nodes=2))
    edge_values = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    values: Tensor = graph.to_user_order(edge_values, torch.ones(2))
    assert values.tolist() == [[2.0, 1.0, 1.0], [4.0, 1.0, 3.0]]
    values.sum().backward()  # type: ignore[no-untyped-call]
    assert edge_values.grad is not None
    assert bool((edge_values.grad == 1).all())


def test_many_nodes_do_not_overflow() -> None:
    last = 2**31
    ends = torch.tensor([[last, 0], [0, last]])
    graph = canonicalise(Data(edge_index=ends, num_nodes=last + 1))
    assert graph.edge_index.tolist() == [[last, 0], [0, last]]
    assert graph.reverse_edge.tolist() == [1, 0]
