"""What a perturbation does to a graph, and that it does nothing else."""

import pytest
import torch
from torch_geometric.data import Data

from attacks.graphs import NODES, edge_set, pair_set, small_graph
from gsebo import Graph, InvalidInput
from gsebo.attacks.perturbation import Perturbation, both_directions, undirected_pairs


def some_flips(seed: int = 0) -> Perturbation:
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(NODES, (40, 2), generator=generator)
    joined = undirected_pairs(small_graph())[::17]
    ends = torch.cat([ends[ends[:, 0] != ends[:, 1]], joined])
    return Perturbation.of_flips(ends, small_graph())


def test_flips_are_added_or_removed_as_the_graph_has_them() -> None:
    flips, joined = some_flips(), pair_set(undirected_pairs(small_graph()))
    assert not pair_set(flips.added) & joined
    assert pair_set(flips.removed) <= joined
    assert len(flips.removed) > 3 and len(flips.added) > 3
    assert flips.num_flips == len(flips.added) + len(flips.removed)


def test_pairs_change_in_both_directions_and_no_others() -> None:
    flips = some_flips()
    before, after = edge_set(small_graph()), edge_set(flips.apply(small_graph()))
    assert after - before == edge_set(Graph(edge_index=both_directions(flips.added)))
    assert before - after == edge_set(Graph(edge_index=both_directions(flips.removed)))


def test_applied_twice_it_is_the_graph() -> None:
    graph, flips = small_graph(), some_flips()
    attacked = flips.apply(graph)
    assert edge_set(flips.apply(attacked)) == edge_set(graph)
    for name in ("x", "y", "train_mask", "val_mask", "test_mask"):
        assert attacked[name] is graph[name]
    assert torch.equal(Perturbation().apply(graph).edge_index, graph.edge_index)


def test_new_edges_weigh_one_and_others_as_before() -> None:
    graph = Graph(
        edge_index=torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 1, 3]]),
        edge_weight=torch.tensor([0.5, 0.5, 2.0, 2.0, 7.0]),
        edge_attr=torch.arange(5.0),
        edge_type=torch.zeros(5),
        node_id=torch.tensor([7, 8, 9, 10]),
        num_nodes=4,
    )
    flips = Perturbation(torch.tensor([[0, 3]]), torch.tensor([[0, 1]]))
    attacked = flips.apply(graph)
    assert attacked.edge_index.tolist() == [[1, 2, 3, 0, 3], [2, 1, 3, 3, 0]]
    assert attacked.edge_weight.tolist() == [2, 2, 7, 1, 1]
    assert attacked.edge_attr.tolist() == [2, 3, 4, 2, 2]
    assert attacked.node_id.tolist() == [7, 8, 9, 10]
    assert "edge_type" not in attacked and "edge_type" in graph


def test_a_one_way_edge_and_its_doubles_go_together() -> None:
    graph = Graph(edge_index=torch.tensor([[2, 2, 0], [1, 1, 1]]), num_nodes=3)
    flips = Perturbation.of_flips(torch.tensor([[1, 2], [2, 1]]), graph)
    assert flips.removed.tolist() == [[1, 2]] and flips.num_flips == 1
    assert flips.apply(graph).edge_index.tolist() == [[0], [1]]


def test_a_graph_of_pyg_comes_back_as_one() -> None:
    attacked = some_flips().apply(small_graph().to_pyg())
    assert isinstance(attacked, Data)


def test_a_union_has_each_change_once() -> None:
    first, second = some_flips(0), some_flips(1)
    both = Perturbation.union([first, second, first])
    assert pair_set(both.added) == pair_set(first.added) | pair_set(second.added)
    assert pair_set(both.removed) == pair_set(first.removed) | pair_set(second.removed)
    assert Perturbation.union([]).num_flips == 0


def test_another_graph_is_refused() -> None:
    with pytest.raises(InvalidInput, match="of 3 nodes; expected the graph"):
        some_flips().apply(Graph(edge_index=torch.tensor([[0], [2]])))
