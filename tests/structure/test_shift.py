"""Whether edges far from labels look like those near them."""

import math

import pytest
import torch
from torch import Tensor

from gsebo import generate_graph
from gsebo.graph import Graph, canonicalise
from gsebo.sparse import make_features
from gsebo.structure.shift import Shift, edge_shift


@pytest.fixture(scope="module")
def graph() -> Graph:
    return generate_graph(1500, average_degree=8.0, split="random:20/20/60", seed=3)


def shift_of(graph: Graph, edge_index: Tensor, *, seed: int = 0) -> Shift:
    """With predictions that are the classes, blurred: nothing else is compared."""
    data = Graph(edge_index=edge_index, num_nodes=graph.num_nodes)
    sure = torch.nn.functional.one_hot(graph.y).double()
    predicted = (3 * sure).softmax(-1)
    features = make_features(graph.x, torch.float64, "cpu")
    labelled = graph.train_mask | graph.val_mask
    return edge_shift(canonicalise(data), features, predicted, graph.y, labelled, seed)


def with_false_edges(graph: Graph, nodes: Tensor, count: int) -> Tensor:
    """So many pairs of different classes, all of whose ends are among some nodes."""
    rng = torch.Generator().manual_seed(1)
    ends = nodes[torch.randint(len(nodes), (2, 4 * count), generator=rng)]
    apart = ends[:, graph.y[ends[0]] != graph.y[ends[1]]][:, :count]
    assert apart.shape[1] == count
    return torch.cat([graph.edge_index, apart, apart.flip(0)], dim=1)


def test_a_graph_as_it_is_shows_no_excess(graph: Graph) -> None:
    found = shift_of(graph, graph.edge_index)
    assert abs(found.excess) < 3 * found.error
    assert found.sure < 0.02


def test_an_excess_is_about_the_share_of_false_edges(graph: Graph) -> None:
    far = (~(graph.train_mask | graph.val_mask)).nonzero().squeeze(-1)
    inside = torch.isin(graph.edge_index, far).all(0).sum() // 2
    found = shift_of(graph, with_false_edges(graph, far, int(inside)))
    # Half of the edges between unlabelled nodes are false now.
    assert found.excess == pytest.approx(0.5, abs=0.12)
    assert found.sure > 0.3


def test_false_edges_near_labels_are_no_excess(graph: Graph) -> None:
    near = (graph.train_mask | graph.val_mask).nonzero().squeeze(-1)
    found = shift_of(graph, with_false_edges(graph, near, 800))
    assert found.excess < 0
    assert found.sure == 0


def test_one_seed_one_answer(graph: Graph) -> None:
    first, again = (shift_of(graph, graph.edge_index, seed=7) for _ in range(2))
    assert first == again


@pytest.mark.parametrize("labelled", [True, False])
def test_where_nothing_can_be_compared_nothing_is_sure(
    graph: Graph, labelled: bool
) -> None:
    everywhere = torch.full((graph.num_nodes,), labelled)
    features = make_features(graph.x, torch.float64, "cpu")
    predicted = torch.full((graph.num_nodes, 2), 0.5, dtype=torch.float64)
    laid_out = canonicalise(graph)
    found = edge_shift(laid_out, features, predicted, graph.y, everywhere, 0)
    assert found == Shift(0.0, math.inf)
    assert found.sure == 0


def test_without_edges_nothing_is_sure(graph: Graph) -> None:
    none = torch.empty(2, 0, dtype=torch.int64)
    assert shift_of(graph, none).sure == 0
