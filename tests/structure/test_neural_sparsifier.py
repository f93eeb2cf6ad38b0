"""Scores, Gumbel softmax and the choice of neighbors, against dense formulas."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.func import functional_call

from gsebo.graph import Topology
from gsebo.graph.topology import CanonicalGraph
from gsebo.methods.baselines.neuralsparse import (
    NeighborScorer,
    gumbel_noise,
    sparsified,
    temperature_at,
)
from gsebo.sparse import Noise, Pattern, make_features

from .graphs import examples, graphs


def normal(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def edges_of(given: CanonicalGraph) -> Pattern:
    return Topology.of(given, self_loops=False, device="cpu").pattern


def scorer_of(in_channels: int, hidden_channels: int = 3) -> NeighborScorer:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        return NeighborScorer(in_channels, hidden_channels).double()


def weights_of(pattern: Pattern, *arguments: Any) -> Tensor:
    """Weights of all entries, 0 where an entry was not chosen."""
    chosen, weights = sparsified(pattern, *arguments)
    return torch.zeros(chosen.shape, dtype=weights.dtype).masked_scatter(
        chosen, weights
    )


def wheel(num_nodes: int = 9) -> Pattern:
    """Node 0 hears from all, the others from 0 and from one neighbor."""
    rim = torch.arange(1, num_nodes)
    hub = torch.zeros_like(rim)
    rows = torch.cat([hub, rim, rim])
    columns = torch.cat([rim, hub, rim.roll(1)])
    return Pattern.from_positions(rows, columns, num_nodes)


@examples
@given(graphs(), st.booleans())
def test_a_score_is_the_network_on_both_ends(
    given: CanonicalGraph, sparse: bool
) -> None:
    pattern, scorer = edges_of(given), scorer_of(5)
    x = normal(given.num_nodes, 5)
    if sparse:
        x = x * (torch.arange(x.numel()).view_as(x) % 6 == 0)
    features = make_features(x, torch.float64, "cpu")
    assert isinstance(features, Tensor) != sparse
    first = torch.cat(scorer.ends.chunk(2, dim=1))
    for entry, score in enumerate(scorer(features, pattern)):
        target = x[pattern.row_of_entry[entry]]
        source = x[pattern.column_of_entry[entry]]
        hidden = torch.relu(
            torch.cat([target, source]) @ first + scorer.bias.squeeze(1)
        )
        torch.testing.assert_close(score, hidden @ scorer.output[0])


@examples
@given(
    graphs(),
    st.integers(1, 5),
    st.sampled_from([0.05, 0.5, 1.0, 3.0]),
    st.booleans(),
)
def test_weights_are_the_largest_of_a_dense_softmax(
    given: CanonicalGraph, count: int, temperature: float, noisy: bool
) -> None:
    pattern = edges_of(given)
    scores = normal(pattern.num_entries)
    gumbel = gumbel_noise(pattern.num_entries, Noise(0, 1), 1000, scores)
    scores = scores + gumbel if noisy else scores
    weights = weights_of(pattern, scores, temperature, count)
    logits = scores / temperature
    dense = torch.full((given.num_nodes,) * 2, -math.inf, dtype=torch.float64)
    where = (pattern.row_of_entry, pattern.column_of_entry)
    dense[where] = logits
    share = dense.softmax(-1).nan_to_num()
    largest = share.topk(min(count, given.num_nodes), dim=-1).indices
    expected = torch.zeros_like(share).scatter(-1, largest, share.gather(-1, largest))
    torch.testing.assert_close(weights, expected[where])


@examples
@given(graphs(), st.integers(1, 5))
def test_a_row_has_few_weights_which_sum_to_one_if_none_was_left_out(
    given: CanonicalGraph, count: int
) -> None:
    pattern = edges_of(given)
    weights = weights_of(pattern, normal(pattern.num_entries), 1.0, count)
    rows = torch.zeros(2, given.num_nodes, dtype=torch.float64)
    rows.index_add_(1, pattern.row_of_entry, torch.stack([weights > 0, weights]))
    number, total = rows
    assert torch.equal(number, pattern.row_counts.clamp(max=count).double())
    complete = (pattern.row_counts > 0) & (pattern.row_counts <= count)
    torch.testing.assert_close(total[complete], torch.ones_like(total[complete]))
    assert (total <= 1 + 1e-12).all()


def test_a_cold_softmax_is_a_choice_by_the_scores() -> None:
    """Gumbel's trick: the largest noisy score is a draw from the softmax."""
    pattern = Pattern.from_positions(
        torch.zeros(4, dtype=torch.int64), torch.arange(4), 4
    )
    scores = torch.tensor([0.0, 1.0, -1.0, 0.5], dtype=torch.float64)
    draws = 1500
    total = torch.zeros(4, dtype=torch.float64)
    for step in range(draws):
        gumbel = gumbel_noise(4, Noise(7, step), 1000, scores)
        total += weights_of(pattern, scores + gumbel, 1e-3, 1).round()
    expected = scores.softmax(-1)
    spread = (expected * (1 - expected) / draws).sqrt()
    assert ((total / draws - expected).abs() < 5 * spread).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gumbel_noise_is_finite_and_has_its_mean(dtype: torch.dtype) -> None:
    noise = gumbel_noise(200_000, Noise(0, 0), 1000, torch.empty(0, dtype=dtype))
    assert noise.dtype == dtype
    assert noise.isfinite().all()
    assert abs(float(noise.mean()) - 0.5772) < 0.015
    assert abs(float(noise.var()) - math.pi**2 / 6) < 0.05


@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_gradient_against_finite_differences(temperature: float) -> None:
    pattern, scorer = wheel(), scorer_of(4)
    x, along = normal(9, 4), normal(pattern.num_entries, seed=3)
    gumbel = gumbel_noise(pattern.num_entries, Noise(1, 5), 1000, x)
    names = [name for name, _ in scorer.named_parameters()]

    def value(*leaves: Tensor) -> Tensor:
        named = dict(zip(names, leaves, strict=True))
        scores = functional_call(scorer, named, (x, pattern))
        return weights_of(pattern, scores + gumbel, temperature, 3) @ along

    leaves = tuple(p.detach().requires_grad_() for p in scorer.parameters())
    gradients = torch.autograd.grad(value(*leaves), leaves)
    assert all(bool((gradient != 0).any()) for gradient in gradients)
    assert torch.autograd.gradcheck(value, leaves)


def test_temperature_falls_every_fifty_steps_to_a_floor() -> None:
    for step in (0, 1, 49, 50, 137, 2949, 2950, 2999, 3000, 100_000):
        expected = max(0.05, math.exp(-1e-3 * 50 * (step // 50)))
        assert temperature_at(step) == pytest.approx(expected)
    assert temperature_at(0) == 1.0
    assert temperature_at(3000) == 0.05
