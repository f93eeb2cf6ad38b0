"""GCN-SVD trains on the nearest graph of a low rank."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo import GCNSVD, InvalidInput, Vanilla
from gsebo.graph import CanonicalGraph, canonicalise
from gsebo.methods.defences.gcn_svd import low_rank_adjacency, normalise_signed

from ..examples import small_graph, with_fields

OPTIONS = {"hidden_channels": 8, "max_epochs": 12, "random_state": 0, "device": "cpu"}


def in_double(data: Data) -> Data:
    return with_fields(data, x=data.x.double())


def dense(graph: CanonicalGraph) -> Tensor:
    matrix = torch.zeros(graph.num_nodes, graph.num_nodes, dtype=torch.float64)
    source, target = graph.edge_index
    matrix[target, source] = 1 if graph.weight is None else graph.weight
    return matrix


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("rank", [1, 7, 29, 30, 45, 59])
def test_it_is_the_truncated_decomposition(rank: int, directed: bool) -> None:
    data = small_graph()
    edges = data.edge_index
    edges = edges[:, edges[0] < edges[1]] if directed else edges
    weight = torch.rand(edges.shape[1], generator=torch.Generator().manual_seed(1))
    graph = canonicalise(with_fields(data, edge_index=edges, edge_weight=weight))
    left, values, right = np.linalg.svd(dense(graph).numpy())
    expected = (left[:, :rank] * values[:rank]) @ right[:rank]
    found = low_rank_adjacency(graph, rank)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-6)
    assert torch.equal(found, low_rank_adjacency(graph, rank))


@pytest.mark.parametrize("rank", [60, 10**6])
def test_of_full_rank_it_is_the_adjacency_itself(rank: int) -> None:
    graph = canonicalise(small_graph())
    assert torch.equal(low_rank_adjacency(graph, rank), dense(graph))


def test_of_full_rank_it_is_the_vanilla_network() -> None:
    data = in_double(small_graph())
    vanilla = Vanilla(**OPTIONS).fit(data)
    found = GCNSVD(rank=60, **OPTIONS).fit(data)
    close = {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(found.probability_, vanilla.probability_, **close)
    torch.testing.assert_close(found.strength_, vanilla.strength_, **close)
    assert found.new_edge_index_.shape[1] == 0


def test_training_is_on_the_normalised_approximation() -> None:
    data = in_double(small_graph())
    graph = canonicalise(data)
    found = GCNSVD(rank=4, **OPTIONS).fit(data)
    matrix = low_rank_adjacency(graph, 4) + torch.eye(60, dtype=torch.float64)
    assert bool((matrix < 0).any())
    scale = matrix.sum(1).rsqrt()
    expected = scale[:, None] * matrix * scale
    source, target = data.edge_index
    shown = expected[target, source].clamp(0, 1)
    torch.testing.assert_close(found.strength_, shown)
    (member,) = found.model_.members
    kept = torch.zeros_like(expected)
    pattern, strengths = member.propagation
    kept[pattern.row_of_entry, pattern.column_of_entry] = strengths
    # Negative ones, too, but none that nobody would notice.
    torch.testing.assert_close(kept, expected, rtol=0, atol=1e-6)


def test_a_node_whose_sum_is_not_positive_is_left_alone() -> None:
    matrix = torch.tensor([[1.0, -2.0, 0.0], [-2.0, 5.0, 1.0], [0.0, 1.0, -1.0]])
    found = normalise_signed(matrix)
    expected = torch.zeros(3, 3)
    expected[1, 1] = 5 / 4
    torch.testing.assert_close(found, expected)


def test_too_large_a_graph_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsebo.methods.baselines.pairs.free_memory", lambda _: 1000)
    with pytest.raises(InvalidInput, match="gcnsvd weighs all pairs of 60 nodes"):
        GCNSVD(**OPTIONS).fit(small_graph())


def test_other_networks_are_refused() -> None:
    with pytest.raises(InvalidInput, match="GCNSVD expected 'gcn'"):
        GCNSVD("gat").fit(small_graph())
