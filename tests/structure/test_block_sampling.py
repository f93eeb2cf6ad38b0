"""Graphs drawn from blocks: different pairs, as many and where they should be."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from gsebo.methods.baselines.pairs import sample_links
from gsebo.sparse import Noise


def matrix_of(pairs: Tensor, num_nodes: int) -> Tensor:
    """1 for each drawn pair; one that was drawn twice would count twice."""
    matrix = torch.zeros(num_nodes, num_nodes)
    ones = torch.ones(pairs.shape[1])
    return matrix.index_put_(tuple(pairs), ones, accumulate=True)


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.lists(st.sampled_from([0.0, 1e-3, 0.2, 0.5, 0.9, 1.0]), min_size=4, max_size=4),
    st.sampled_from([0.0, 1e-4, 0.3, 0.8, 1.0]),
    st.integers(0, 2**40),
)
def test_pairs_are_different_and_certain_ones_are_there(
    block: list[int], density: list[float], delta: float, step: int
) -> None:
    blocks, probability = torch.tensor(block), torch.tensor(density)
    pairs = sample_links(blocks, probability, delta, Noise(7, step))
    drawn = matrix_of(pairs, len(block))
    assert float(drawn.max()) <= 1
    assert float(drawn.tril().sum()) == 0
    own, other = blocks.unsqueeze(-1), blocks
    expected = torch.where(own == other, probability[own], delta).triu(1)
    assert bool((drawn[expected == 0] == 0).all())
    certain = (expected == 1).triu(1)
    assert bool((drawn[certain] == 1).all())
    again = sample_links(blocks, probability, delta, Noise(7, step))
    assert torch.equal(pairs, again)


def test_every_pair_is_drawn_as_often_as_it_should() -> None:
    # Of some kinds few pairs are drawn, of others most, in any one graph.
    block = torch.tensor([0, 1, 0, 2, 1, 0, 0, 1, 2, 0])
    density, delta, draws = torch.tensor([0.3, 0.8, 0.5]), 0.1, 400
    total = torch.zeros(10, 10)
    for step in range(draws):
        total += matrix_of(sample_links(block, density, delta, Noise(1, step)), 10)
    same = block.unsqueeze(-1) == block
    expected = torch.where(same, density[block], delta).triu(1)
    spread = (expected * (1 - expected) / draws).sqrt()
    assert bool(((total / draws - expected).abs() <= 4.5 * spread).all())


def test_numbers_of_links_are_binomial() -> None:
    generator = torch.Generator().manual_seed(0)
    block = torch.randint(3, (400,), generator=generator)
    density, delta, draws = torch.tensor([0.02, 0.05, 0.3]), 0.003, 40
    counts = torch.zeros(draws, 4)
    for step in range(draws):
        first, second = block[sample_links(block, density, delta, Noise(2, step))]
        kind = torch.where(first == second, first, 3)
        counts[step] = kind.bincount(minlength=4)
    size = block.bincount().double()
    within = size * (size - 1) / 2
    pairs = torch.cat([within, (400 * 399 / 2 - within.sum()).view(1)])
    probability = torch.cat([density, torch.tensor([delta])])
    mean, variance = pairs * probability, pairs * probability * (1 - probability)
    spread = (variance / draws).sqrt()
    assert bool(((counts.mean(0) - mean).abs() < 4.5 * spread).all())
    ratio = counts.double().var(0) / variance
    assert 0.4 < float(ratio.min()) <= float(ratio.max()) < 2


def test_a_graph_whose_pairs_would_not_fit_anywhere() -> None:
    # 2e10 pairs: a look at each would take minutes and 20 GB.
    block = torch.arange(200_000) % 2
    pairs = sample_links(block, torch.tensor([1e-5, 0.0]), 1e-6, Noise(0, 0))
    assert abs(pairs.shape[1] - 60_000) < 5 * 60_000**0.5
    keys = pairs[0] * 200_000 + pairs[1]
    assert len(keys.unique()) == len(keys)
    assert bool((pairs[0] < pairs[1]).all())


def test_other_noise_is_another_graph() -> None:
    block, density = torch.zeros(50).long(), torch.tensor([0.2])
    drawn = {
        str(sample_links(block, density, 0.0, Noise(*noise)).tolist())
        for noise in ((0, 0), (0, 1), (1, 0))
    }
    assert len(drawn) == 3
