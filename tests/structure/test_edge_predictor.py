import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from gsebo.graph import Propagation, Topology
from gsebo.graph.topology import CanonicalGraph
from gsebo.methods.baselines.gaug.gaug_o import (
    EdgePredictor,
    edge_probabilities,
    reconstruction_loss,
    sample_graph,
    straight_through_bernoulli,
)
from gsebo.sparse import Noise, Pattern, make_features, uniform

from .graphs import graph, graphs

few = settings(max_examples=25)
N, F = 9, 5
EDGES = graph([[0, 1, 2, 3, 4, 5, 6, 0, 2], [1, 2, 3, 4, 5, 6, 7, 7, 6]], N)


def undirected(canonical: CanonicalGraph) -> Pattern:
    """Positions of A + I with every edge both ways."""
    edges = canonical.edge_index
    return Topology.from_edges(
        torch.cat([edges, edges.flip(0)], dim=1),
        canonical.num_nodes,
        self_loops=True,
        device="cpu",
    ).pattern


def dense(pattern: Pattern, values: Tensor | float = 1.0) -> Tensor:
    matrix = torch.zeros(pattern.num_rows, pattern.num_rows, dtype=torch.float64)
    matrix[pattern.row_of_entry, pattern.column_of_entry] = torch.as_tensor(
        values, dtype=torch.float64
    )
    return matrix


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def embeddings(num_nodes: int, seed: int = 0) -> Tensor:
    return random(num_nodes, 3, seed=seed).relu()


def sampled(probability: Tensor, step: int = 0, *, self_loops: bool = True) -> Tensor:
    return sample_graph(probability, 0.7, Noise(3, step), self_loops=self_loops)


@pytest.mark.parametrize("density", [0.1, 1.0])
def test_the_embedding_is_two_propagations_of_the_features(density: float) -> None:
    x = random(N, F) * (random(N, F, seed=1).abs() < density)
    pattern = undirected(EDGES)
    values = random(pattern.num_entries, seed=2)
    net = EdgePredictor(F, 4, 3).double()
    features = make_features(x, torch.float64, "cpu")
    a = dense(pattern, values)
    expected = torch.relu(a @ (a @ x @ net.first) @ net.second)
    torch.testing.assert_close(net(features, Propagation(pattern, values)), expected)


@few
@given(graphs(), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 5))
def test_probabilities_mix_scaled_products_with_the_observed_graph(
    canonical: CanonicalGraph, alpha: float, seed: int
) -> None:
    pattern, z = undirected(canonical), embeddings(canonical.num_nodes, seed)
    logits, observed = z @ z.mT, dense(undirected(canonical))
    largest = logits.max()
    predicted = logits / largest if largest > 0 else logits
    torch.testing.assert_close(
        edge_probabilities(z, pattern, alpha),
        alpha * predicted + (1 - alpha) * observed,
    )


@few
@given(graphs(), st.booleans(), st.integers(0, 5))
def test_samples_are_undirected_graphs(
    canonical: CanonicalGraph, self_loops: bool, step: int
) -> None:
    z = embeddings(canonical.num_nodes)
    probability = edge_probabilities(z, undirected(canonical), 0.6)
    drawn = sampled(probability, step, self_loops=self_loops)
    assert ((drawn == 0) | (drawn == 1)).all()
    assert torch.equal(drawn, drawn.mT)
    assert torch.equal(drawn.diagonal(), torch.full_like(drawn[0], float(self_loops)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_without_predicted_edges_a_sample_is_the_graph(dtype: torch.dtype) -> None:
    pattern = undirected(EDGES)
    probability = edge_probabilities(embeddings(N).to(dtype), pattern, 0.0)
    for step in range(5):
        assert torch.equal(sampled(probability, step), dense(pattern).to(dtype))


@pytest.mark.parametrize("size", [1, 6, 7])
def test_every_pair_is_drawn_for_itself(size: int) -> None:
    """Over many steps two pairs agree half of the time, whichever they are."""
    probability = torch.full((size, size), 0.5)
    upper = tuple(torch.triu_indices(size, size, 1))
    steps = 100
    drawn = torch.stack([sampled(probability, step)[upper] for step in range(steps)])
    agree = (drawn.T @ drawn + (1 - drawn).T @ (1 - drawn)) / steps
    apart = agree[~torch.eye(len(agree), dtype=torch.bool)]
    assert ((apart - 0.5).abs() < 5 * 0.5 / steps**0.5).all()


def test_an_edge_appears_as_often_as_its_probability_says() -> None:
    probability = torch.full((200, 200), 0.3)
    upper = sampled(probability)[tuple(torch.triu_indices(200, 200, 1))]
    assert abs(float(upper.mean()) - 0.3) < 4 * (0.21 / upper.numel()) ** 0.5


def test_a_step_has_its_own_sample() -> None:
    probability = torch.full((20, 20), 0.5)
    assert torch.equal(sampled(probability, 1), sampled(probability, 1))
    assert not torch.equal(sampled(probability, 1), sampled(probability, 2))


@pytest.mark.parametrize("temperature", [0.1, 0.7, 2.1])
def test_the_sample_has_the_derivative_of_the_relaxed_one(temperature: float) -> None:
    probability = random(200).sigmoid().requires_grad_()
    drawn = uniform((200,), Noise(0, 0), 1, probability)
    weight = random(200, seed=1)

    def relaxed(p: Tensor) -> Tensor:
        odds = p.log() - (1 - p).log() + (1 - drawn).log() - drawn.log()
        return 1 / (1 + (-odds / temperature).exp())

    sample = straight_through_bernoulli(probability, temperature, drawn)
    assert torch.equal(sample, relaxed(probability).round())
    (found,) = torch.autograd.grad((weight * sample).sum(), probability)
    with torch.no_grad():
        change = 1e-6
        up, down = relaxed(probability + change), relaxed(probability - change)
        expected = weight * (up - down) / (2 * change)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-7)


def test_certain_pairs_have_no_derivative() -> None:
    probability = torch.tensor([0.0, 1.0, 1.0 + 1e-7], requires_grad=True)
    drawn = torch.tensor([1e-7, 0.9999999, 0.5])
    sample = straight_through_bernoulli(probability, 2.1, drawn)
    assert sample.tolist() == [0.0, 1.0, 1.0]
    (found,) = torch.autograd.grad(sample.sum(), probability)
    assert found.tolist() == [0.0, 0.0, 0.0]


@few
@given(graphs(), st.integers(0, 5))
def test_the_reconstruction_loss_is_the_balanced_cross_entropy(
    canonical: CanonicalGraph, seed: int
) -> None:
    pattern, z = undirected(canonical), embeddings(canonical.num_nodes, seed)
    pairs, edges = canonical.num_nodes**2, pattern.num_entries
    found = reconstruction_loss(z, pattern)
    if pairs == edges:
        expected = 0.5 * torch.nn.functional.softplus(-(z @ z.mT)).mean()
    else:
        expected = (pairs / (2 * (pairs - edges))) * binary_cross_entropy_with_logits(
            z @ z.mT,
            dense(pattern),
            pos_weight=torch.tensor((pairs - edges) / edges, dtype=torch.float64),
        )
    torch.testing.assert_close(found, expected)


def test_dead_embeddings_are_harmless() -> None:
    pattern = undirected(EDGES)
    z = torch.zeros(N, 3, requires_grad=True)
    probability = edge_probabilities(z, pattern, 0.4)
    loss = sampled(probability).sum() + reconstruction_loss(z, pattern)
    (gradient,) = torch.autograd.grad(loss, z)
    assert float(probability.detach().max()) == pytest.approx(0.6)
    assert gradient.isfinite().all()


def test_gradients_of_the_whole_chain_are_finite_differences() -> None:
    pattern = undirected(EDGES)
    z = (embeddings(N) + 0.1).requires_grad_()

    def losses(z: Tensor) -> tuple[Tensor, Tensor]:
        return edge_probabilities(z, pattern, 0.4), reconstruction_loss(z, pattern)

    assert torch.autograd.gradcheck(losses, (z,))
