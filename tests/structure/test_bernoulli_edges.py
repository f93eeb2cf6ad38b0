"""Graphs drawn edge by edge: what is drawn, how often, and its derivative."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gsebo.methods.baselines.lds import BernoulliEdges
from gsebo.sparse import Noise

from .graphs import examples

NUM_NODES = 6
NUM_PAIRS = 15
SITE = 1000
LOWER = tuple(torch.tril_indices(NUM_NODES, NUM_NODES, -1))


def probabilities(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(NUM_PAIRS, dtype=torch.float64, generator=generator)


@examples
@given(seed=st.integers(0, 2**40), step=st.integers(0, 2**40))
def test_a_sample_is_an_undirected_graph(seed: int, step: int) -> None:
    edges = BernoulliEdges(NUM_NODES, "cpu")
    drawn = edges.sample(probabilities(), Noise(seed, step), SITE)
    assert torch.equal(drawn, drawn.T)
    assert bool((drawn.diagonal() == 1).all())
    assert set(drawn.unique().tolist()) <= {0.0, 1.0}
    again = edges.sample(probabilities(), Noise(seed, step), SITE)
    assert torch.equal(drawn, again)


@examples
@given(step=st.integers(0, 2**40))
def test_edges_and_matrix_are_the_same_draw(step: int) -> None:
    edges = BernoulliEdges(NUM_NODES, "cpu")
    noise = Noise(3, step)
    matrix = torch.eye(NUM_NODES, dtype=torch.float64)
    matrix[tuple(edges.sample_edges(probabilities(), noise, SITE))] = 1
    assert torch.equal(matrix, edges.sample(probabilities(), noise, SITE))


def test_every_pair_of_many_nodes_has_its_edges() -> None:
    chances = torch.ones(300 * 299 // 2)
    edges = BernoulliEdges(300, "cpu").sample_edges(chances, Noise(0, 0), SITE)
    found = torch.zeros(300, 300).index_put(tuple(edges), torch.ones(1), True)
    assert torch.equal(found, 1 - torch.eye(300))


def test_every_pair_is_drawn_as_often_as_its_probability_says() -> None:
    edges, chance, draws = BernoulliEdges(NUM_NODES, "cpu"), probabilities(), 4000
    counts = sum(edges.sample(chance, Noise(1, step), SITE) for step in range(draws))
    deviation = counts[LOWER] / draws - chance
    # Five standard errors, of fixed draws.
    assert bool((deviation.abs() < 5 * (chance * (1 - chance) / draws).sqrt()).all())


def test_what_is_certain_is_never_drawn_otherwise() -> None:
    edges = BernoulliEdges(NUM_NODES, "cpu")
    given_edges = torch.tensor([[0, 4, 5, 2], [3, 1, 2, 5]])
    chance = edges.certain(given_edges, torch.float32)
    assert chance.dtype == torch.float32
    expected = torch.eye(NUM_NODES)
    expected[tuple(given_edges)] = 1
    expected = torch.maximum(expected, expected.T)
    for step in range(50):
        assert torch.equal(edges.sample(chance, Noise(0, step), SITE), expected)


def test_the_gradient_is_that_at_the_drawn_entries_both_triangles_added() -> None:
    edges, noise = BernoulliEdges(NUM_NODES, "cpu"), Noise(2, 7)
    chance = probabilities().requires_grad_()
    generator = torch.Generator().manual_seed(5)
    square = torch.rand(NUM_NODES, NUM_NODES, dtype=torch.float64, generator=generator)

    def loss(matrix: Tensor) -> Tensor:
        return (torch.sin(matrix @ square) * square).sum()

    (found,) = torch.autograd.grad(loss(edges.sample(chance, noise, SITE)), chance)
    entries = edges.sample(chance.detach(), noise, SITE).requires_grad_()
    (by_entry,) = torch.autograd.grad(loss(entries), entries)
    assert torch.equal(found, (by_entry + by_entry.T)[LOWER])


def test_a_single_node_has_no_pairs() -> None:
    edges = BernoulliEdges(1, "cpu")
    none = torch.empty(0)
    assert torch.equal(edges.sample(none, Noise(0, 0), SITE), torch.ones(1, 1))
    assert edges.sample_edges(none, Noise(0, 0), SITE).shape == (2, 0)
