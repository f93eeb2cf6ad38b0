"""The graphs that are measured."""

import pytest
import torch
from benchmarks.failure import BenchmarkError
from benchmarks.graphs import load_graph, small_part
from benchmarks.power_law import power_law_graph
from torch_geometric.utils import contains_self_loops, degree, is_undirected


def test_power_law_graph() -> None:
    data = power_law_graph(20_000, degree=20, num_features=3)
    assert 0.9 * 20_000 < data.num_edges <= 20_000
    assert data.num_nodes == 1000
    assert data.x.shape == (1000, 3)
    assert is_undirected(data.edge_index)
    assert not contains_self_loops(data.edge_index)
    assert torch.unique(data.edge_index, dim=1).shape == data.edge_index.shape
    assert not bool((data.train_mask & data.val_mask).any())
    assert 0.05 < float(data.train_mask.float().mean()) < 0.11


def test_degrees_follow_a_power_law() -> None:
    data = power_law_graph(400_000, degree=20, num_features=1)
    degrees = degree(data.edge_index[0], data.num_nodes)
    # The share of nodes with at least d neighbors falls as d ** (1 - exponent).
    shares = [float((degrees >= least).float().mean()) for least in (40, 160)]
    slope = torch.tensor(shares).log().diff().item() / torch.tensor(4.0).log().item()
    assert 2.2 < 1 - slope < 2.8


def test_the_same_seed_gives_the_same_graph() -> None:
    first, second = power_law_graph(1000, seed=1), power_law_graph(1000, seed=1)
    assert torch.equal(first.edge_index, second.edge_index)
    assert torch.equal(first.x, second.x)


def test_a_small_part_is_of_the_same_kind() -> None:
    data = load_graph("cora")
    part = small_part(data)
    assert part.num_nodes < data.num_nodes
    assert part.num_edges > 0
    assert part.x.shape[1] == data.x.shape[1]
    assert int(part.train_mask.sum()) == int(data.train_mask.sum())
    assert bool(part.val_mask.any())


def test_an_unknown_dataset_is_refused() -> None:
    with pytest.raises(BenchmarkError, match="dataset 'nothing' asked for"):
        load_graph("nothing")
