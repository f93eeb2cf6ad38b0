"""The auto-encoder and its loss over all pairs against dense formulas."""

from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Normal, kl_divergence
from torch.func import functional_call
from torch.nn.functional import binary_cross_entropy_with_logits, elu

from gsebo.graph import Propagation, Topology
from gsebo.graph.topology import CanonicalGraph
from gsebo.methods.baselines.gaug.gaug_m import (
    Embedding,
    GraphEncoder,
    auto_encoder_loss,
    pair_reconstruction_loss,
    scaled_rows,
)
from gsebo.methods.baselines.pairs import linked_pairs, nodes_of
from gsebo.sparse import Noise, Pattern, make_features

from .graphs import EDGES, examples, graph, graphs

N = 6


def links_of(linked: Tensor, num_nodes: int) -> Pattern:
    return Pattern.from_positions(*nodes_of(linked, num_nodes), num_nodes)


LINKS = links_of(linked_pairs(graph(EDGES["directed"], N).edge_index, N), N)


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def dense_adjacency(linked: Tensor, num_nodes: int, *, both_ways: bool) -> Tensor:
    a = torch.zeros(num_nodes, num_nodes, dtype=torch.float64)
    first, second = nodes_of(linked, num_nodes)
    a[first, second] = 1
    return a + a.T if both_ways else a


@examples
@given(
    graph=graphs(),
    both_ways=st.booleans(),
    block=st.integers(1, 60),
    scale=st.sampled_from([0.1, 1.0, 8.0]),
)
def test_the_loss_is_the_dense_formula(
    graph: CanonicalGraph, both_ways: bool, block: int, scale: float
) -> None:
    n = graph.num_nodes
    linked = linked_pairs(graph.edge_index, n)
    if linked.numel() == 0:
        return
    z = (scale * normal(n, 3)).requires_grad_()
    total = 2 * linked.numel()
    target = dense_adjacency(linked, n, both_ways=both_ways) + torch.eye(n)
    weight = n * n / (2 * (n * n - total))
    odds = torch.tensor((n * n - total) / total, dtype=z.dtype)
    expected = weight * binary_cross_entropy_with_logits(
        z @ z.T, target, pos_weight=odds
    )
    found = pair_reconstruction_loss(
        z, links_of(linked, n), both_ways=both_ways, block=block
    )
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(loss, z)[0] for loss in (found, expected))
    )


@pytest.mark.parametrize("both_ways", [True, False])
def test_its_gradient_is_that_of_finite_differences(both_ways: bool) -> None:
    z = normal(N, 3).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda z: pair_reconstruction_loss(z, LINKS, both_ways=both_ways, block=2 * N),
        z,
    )


def test_the_divergence_is_that_of_torch() -> None:
    mean, log_deviation = normal(N, 4), normal(N, 4, seed=1)
    expected = kl_divergence(Normal(mean, log_deviation.exp()), Normal(0.0, 1.0))
    found = Embedding(mean, log_deviation).divergence()
    torch.testing.assert_close(found, expected.sum(-1).mean())
    assert float(Embedding(mean, None).divergence()) == 0


def test_samples_are_normal_and_repeat() -> None:
    mean = torch.full((20_000, 2), 3.0, dtype=torch.float64)
    embedding = Embedding(mean, torch.full_like(mean, 0.5).log())
    drawn = embedding.sample(Noise(1, 2))
    standard = (drawn - 3) / 0.5
    moments = [float((standard**power).mean()) for power in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.1)
    assert abs(float((standard[:, 0] * standard[:, 1]).mean())) < 0.05
    assert torch.equal(drawn, embedding.sample(Noise(1, 2)))
    assert not torch.equal(drawn, embedding.sample(Noise(1, 3)))


def encoder_example(*, variational: bool) -> tuple[GraphEncoder, Tensor, Propagation]:
    topology = Topology.of(graph(EDGES["undirected"], N), self_loops=True, device="cpu")
    strengths = normal(topology.num_entries, seed=2).abs()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        encoder = GraphEncoder(4, 5, 2, variational=variational).double()
    return encoder, normal(N, 4, seed=4), Propagation(topology.pattern, strengths)


def test_the_encoder_is_two_propagations() -> None:
    encoder, x, propagation = encoder_example(variational=True)
    pattern, strengths = propagation
    a = torch.zeros(N, N, dtype=torch.float64)
    a[pattern.row_of_entry, pattern.column_of_entry] = strengths
    hidden = elu(a @ x @ encoder.first)
    mean, log_deviation = encoder(x, propagation)
    torch.testing.assert_close(mean, a @ hidden @ encoder.mean)
    torch.testing.assert_close(log_deviation, a @ hidden @ encoder.deviation)
    plain, x, propagation = encoder_example(variational=False)
    assert plain(x, propagation).log_deviation is None
    assert {name for name, _ in plain.named_parameters()} == {"first", "mean"}


@pytest.mark.parametrize("variational", [True, False])
def test_the_whole_loss_is_differentiated_right(variational: bool) -> None:
    encoder, x, propagation = encoder_example(variational=variational)
    names, weights = zip(*encoder.named_parameters(), strict=True)

    def loss(*weights: Tensor) -> Tensor:
        named = dict(zip(names, weights, strict=True))
        embedding = functional_call(encoder, named, (x, propagation))
        return auto_encoder_loss(embedding, LINKS, Noise(0, 1))

    assert torch.autograd.gradcheck(loss, weights)
    embedding = encoder(x, propagation)
    parts = pair_reconstruction_loss(embedding.sample(Noise(0, 1)), LINKS)
    torch.testing.assert_close(loss(*weights), parts + embedding.divergence() / N)


@pytest.mark.parametrize("by", ["sum", "max"])
def test_rows_are_scaled_in_either_form(by: Literal["sum", "max"]) -> None:
    x = normal(8, 30) * (normal(8, 30, seed=1) > 1.5)
    x[3] = 0
    sparse = make_features(x, torch.float64, "cpu")
    assert not isinstance(sparse, Tensor)
    found = scaled_rows(x, by)
    torch.testing.assert_close(scaled_rows(sparse, by).to_dense(), found)
    size = x.abs().sum(1) if by == "sum" else x.abs().amax(1)
    torch.testing.assert_close(found * size.unsqueeze(1), x)
    assert not found[3].any()
