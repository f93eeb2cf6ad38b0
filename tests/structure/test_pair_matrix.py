import pytest
import torch
from hypothesis import given

from gsebo.graph.topology import CanonicalGraph
from gsebo.methods.baselines.pairs import PairMatrix

from .graphs import examples, graphs


@pytest.mark.parametrize("num_nodes", [1, 2, 5])
def test_the_matrix_is_symmetric_with_the_diagonal_asked_for(num_nodes: int) -> None:
    pairs = PairMatrix(num_nodes, "cpu")
    num_pairs = pairs.joined(torch.empty(2, 0, dtype=torch.int64)).numel()
    assert num_pairs == num_nodes * (num_nodes - 1) // 2
    values = torch.arange(1.0, num_pairs + 1)
    matrix = pairs.symmetric(values)
    assert torch.equal(matrix, matrix.T)
    assert torch.equal(matrix.diagonal(), torch.zeros(num_nodes))
    assert sorted(matrix.tril(-1)[matrix.tril(-1) > 0].tolist()) == values.tolist()
    other = pairs.symmetric(values, diagonal=1.0)
    assert torch.equal(other, matrix + torch.eye(num_nodes))


@examples
@given(graphs())
def test_a_pair_is_joined_by_an_edge_in_either_direction(
    graph: CanonicalGraph,
) -> None:
    pairs = PairMatrix(graph.num_nodes, "cpu")
    matrix = pairs.symmetric(pairs.joined(graph.edge_index).int())
    expected = torch.zeros_like(matrix)
    source, target = graph.edge_index
    expected[source, target] = expected[target, source] = 1
    assert torch.equal(matrix, expected)


def test_the_gradient_of_a_pair_is_that_of_its_two_entries() -> None:
    pairs = PairMatrix(4, "cpu")
    values = torch.rand(6, dtype=torch.float64, requires_grad=True)

    def squares(values: torch.Tensor) -> torch.Tensor:
        return pairs.symmetric(values, diagonal=1.0).square().sum(0)

    assert torch.autograd.gradcheck(squares, (values,))
