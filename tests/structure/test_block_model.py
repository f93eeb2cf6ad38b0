"""The block model: its gradients, its batches, and whether it finds blocks."""

from itertools import permutations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from gsebo.graph import Topology
from gsebo.methods.baselines.bgcn import (
    BlockFit,
    Blocks,
    Meetings,
    at_links,
    at_nonlinks,
    climbed,
    nonlinks_inside,
    phi_climb,
    theta_climb,
)
from gsebo.sparse import Noise

DELTA = 0.03
NUM_NODES, NUM_BLOCKS = 12, 3
DOUBLE = torch.empty((), dtype=torch.float64)


def random_links(num_nodes: int = NUM_NODES, probability: float = 0.3) -> Tensor:
    """A symmetric matrix of zeros and ones without a diagonal."""
    generator = torch.Generator().manual_seed(num_nodes)
    upper = torch.rand(num_nodes, num_nodes, generator=generator) < probability
    upper = upper.triu(1)
    return (upper | upper.mT).double()


def fit_of(links: Tensor, **options: object) -> BlockFit:
    edges = links.nonzero().mT
    graph = Topology.from_edges(edges, len(links), self_loops=True, device="cpu")
    return BlockFit(graph, **{"delta": DELTA, **options})


def log_likelihood(membership: Tensor, partners: Tensor, density: Tensor, y: Tensor):
    """log Q_ab from its definition, for all pairs of rows and partners."""
    q = torch.where(y == 1, DELTA, 1 - DELTA).double()
    for k, beta in enumerate(density):
        bernoulli = torch.where(y == 1, beta, 1 - beta)
        background = torch.where(y == 1, DELTA, 1 - DELTA)
        met = membership[:, k].unsqueeze(-1) * partners[:, k]
        q = q + (bernoulli - background) * met
    return q.log()


# --- gradients -----------------------------------------------------------------------


@pytest.mark.parametrize("batch_nodes", [500, 7])
def test_the_gradient_by_phi_is_that_of_the_log_likelihood(batch_nodes: int) -> None:
    links = random_links()
    fit = fit_of(links, batch_nodes=batch_nodes)
    blocks = Blocks.at_random(NUM_NODES, NUM_BLOCKS, seed=1)
    rows, columns, weight = fit.batch(Noise(0, 0), 5, DOUBLE)
    phi = blocks.phi[rows].requires_grad_()
    own = phi / phi.sum(-1, keepdim=True)
    seen = log_likelihood(own, blocks.membership, blocks.density, links[rows])
    unseen = log_likelihood(
        own, blocks.membership[columns], blocks.density, links[rows][:, columns]
    )
    total = (links[rows] * seen).sum() + (weight * unseen).sum()
    (expected,) = torch.autograd.grad(total, phi)
    found = phi_climb(
        blocks,
        DELTA,
        rows,
        Meetings(*(sums[rows] for sums in at_links(blocks, DELTA, fit.links))),
        at_nonlinks(blocks, DELTA, rows, columns, weight),
    )
    torch.testing.assert_close(found, blocks.phi[rows] * expected)


@pytest.mark.parametrize("batch_nodes", [500, 7])
def test_the_gradient_by_theta_is_that_of_the_log_likelihood(batch_nodes: int) -> None:
    links = random_links()
    fit = fit_of(links, batch_nodes=batch_nodes, nonlink_share=0.4)
    blocks = Blocks.at_random(NUM_NODES, NUM_BLOCKS, seed=2)
    pairs, weight = fit.pairs(Noise(0, 0), 5, DOUBLE)
    theta = blocks.theta.clone().requires_grad_()
    density = theta[:, 1] / theta.sum(-1)
    all_pairs = log_likelihood(blocks.membership, blocks.membership, density, links)
    total = (links.triu(1) * all_pairs).sum() + (weight * all_pairs[*pairs]).sum()
    (expected,) = torch.autograd.grad(total, theta)
    found = theta_climb(
        blocks,
        at_links(blocks, DELTA, fit.links),
        nonlinks_inside(blocks, DELTA, pairs, weight),
    )
    torch.testing.assert_close(found, blocks.theta * expected)


def test_a_step_is_the_one_of_the_paper() -> None:
    x, climb = torch.tensor([2.0, 1.0]), torch.tensor([3.0, -50.0])
    moved = climbed(x, climb, 0.5)
    torch.testing.assert_close(moved, torch.tensor([3.499, 24.0005]))


# --- batches -------------------------------------------------------------------------


def test_a_graph_as_small_as_a_batch_is_taken_as_a_whole() -> None:
    links = random_links()
    fit = fit_of(links, batch_nodes=NUM_NODES)
    rows, columns, weight = fit.batch(Noise(0, 0), 5, DOUBLE)
    assert torch.equal(rows, torch.arange(NUM_NODES))
    assert torch.equal(columns, rows)
    assert torch.equal(weight, 1 - links - torch.eye(NUM_NODES))
    pairs, each = fit.pairs(Noise(0, 0), 5, DOUBLE)
    assert torch.equal(pairs, (1 - links).triu(1).nonzero().mT)
    assert torch.equal(each, torch.ones_like(each))


def test_sampled_nonlinks_stand_for_all_and_each_alike() -> None:
    links = random_links(20)
    fit = fit_of(links, batch_nodes=8, nonlink_share=0.3)
    by_phi, moves, by_theta = (torch.zeros(20, 20).double() for _ in range(3))
    draws = 500
    for step in range(draws):
        rows, columns, weight = fit.batch(Noise(3, step), 5, DOUBLE)
        assert len(rows.unique()) == len(columns.unique()) == 8
        by_phi[rows.unsqueeze(-1), columns] += weight
        moves[rows] += 1
        pairs, each = fit.pairs(Noise(3, step), 9, DOUBLE)
        by_theta.index_put_(tuple(pairs), each, accumulate=True)
    free = 1 - links - torch.eye(20)
    assert bool((by_phi[free == 0] == 0).all() and (by_theta[free == 0] == 0).all())
    ratio = (by_phi / moves)[free == 1]
    assert abs(float(ratio.mean()) - 1) < 0.02
    assert float((ratio - 1).abs().max()) < 0.5
    either = (by_theta + by_theta.mT)[free == 1] / draws
    assert abs(float(either.mean()) - 1) < 1e-9
    assert float((either - 1).abs().max()) < 0.5


def test_the_direction_of_edges_does_not_count() -> None:
    edges = random_links().triu(1).nonzero().mT
    one_way = Topology.from_edges(edges, NUM_NODES, self_loops=True, device="cpu")
    links = BlockFit(one_way, delta=DELTA).links
    dense = torch.zeros(NUM_NODES, NUM_NODES).double()
    dense[links.rows.long(), links.columns.long()] = 1
    assert torch.equal(dense, random_links())


def test_without_edges_everything_stays_finite() -> None:
    fit = fit_of(torch.zeros(9, 9), batch_nodes=4)
    blocks = fit.climb(Blocks.at_random(9, 2, seed=0), iterations=20, noise=Noise(0, 0))
    assert bool(blocks.phi.isfinite().all() and blocks.theta.isfinite().all())
    assert float(blocks.density.max()) < 0.5


# --- blocks --------------------------------------------------------------------------


def planted(num_nodes: int = 150) -> tuple[Tensor, Tensor]:
    """Blocks of the nodes, and links with 0.3 inside them and 0.02 between."""
    generator = torch.Generator().manual_seed(0)
    block = torch.randint(NUM_BLOCKS, (num_nodes,), generator=generator)
    probability = torch.where(block == block.unsqueeze(-1), 0.3, 0.02)
    drawn = torch.rand(num_nodes, num_nodes, generator=generator) < probability
    upper = drawn.triu(1)
    return block, (upper | upper.mT).float()


def agreement(found: Tensor, block: Tensor) -> float:
    """Share of equal blocks, whatever their numbers."""
    names = torch.tensor(list(permutations(range(NUM_BLOCKS))))
    return float((names[:, found] == block).float().mean(-1).max())


@pytest.mark.parametrize("batch_nodes", [500, 60])
def test_a_planted_partition_is_recovered(batch_nodes: int) -> None:
    block, links = planted()
    fit = fit_of(links, delta=0.02, batch_nodes=batch_nodes, nonlink_share=0.2)
    noisy = 0.8 * one_hot(block) + torch.randn(
        150, 3, generator=torch.Generator().manual_seed(1)
    )
    start = Blocks(*(x.float() for x in Blocks.at_random(150, 3, seed=0)))
    sized = fit.climb(start, iterations=60, noise=Noise(0, 0), scale=0.1)
    begun = fit.restart(sized, noisy.softmax(-1))
    assert agreement(begun.membership.argmax(-1), block) < 0.7
    torch.testing.assert_close(begun.membership, noisy.softmax(-1))
    torch.testing.assert_close(begun.phi.sum(-1), sized.phi.sum(-1))
    found = fit.climb(begun, iterations=200, noise=Noise(0, 0), first=10_000)
    assert agreement(found.membership.argmax(-1), block) > 0.93
    assert float((found.density - 0.3).abs().max()) < 0.1
    again = fit.climb(begun, iterations=200, noise=Noise(0, 0), first=10_000)
    assert torch.equal(found.phi, again.phi)


def test_densities_start_at_the_share_of_linked_pairs() -> None:
    links = torch.zeros(5, 5)
    for a, b in ((0, 1), (1, 2), (2, 3)):
        links[a, b] = links[b, a] = 1
    fit = fit_of(links)
    start = Blocks(torch.full((5, 3), 2.0), torch.tensor([[3.0, 1.0]] * 3))
    # Three nodes with two links inside (both ways: 4), two nodes without, no node.
    begun = fit.restart(start, one_hot(torch.tensor([0, 0, 0, 1, 1]), 3).float())
    expected = torch.tensor([4 / 10, DELTA, DELTA])
    torch.testing.assert_close(begun.density, expected)
    torch.testing.assert_close(begun.theta.sum(-1), torch.full((3,), 4.0))
    torch.testing.assert_close(begun.phi.sum(-1), torch.full((5,), 6.0))
