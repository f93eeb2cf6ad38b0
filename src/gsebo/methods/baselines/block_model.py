"""Blocks of densely linked nodes: an assortative mixed-membership block model.

Node a belongs to block k to the share π_ak. Two nodes that meet in block k link with
probability β_k, and with a small probability δ if they meet in none:

    L_ab = δ + Σ_k (β_k - δ) π_ak π_bk

The parameters are φ and θ, with π = φ / Σφ and β = θ_1 / (θ_0 + θ_1), and they climb
the likelihood of links and sampled non-links. A sum over pairs only needs the pairs'
L_ab and products with π, so that nothing of the size pairs x blocks is ever held.

A random graph with blocks, drawn without a look at every pair of nodes.

Pairs inside block k are linked with probability β_k, pairs between blocks with δ, all
independently. So the number of links of each kind is binomial, and given the number
every set of so many pairs is equally likely: work and memory grow with the links, not
with the pairs.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from gsebo.graph.topology import Topology
from gsebo.methods.baselines.pairs import nodes_of, number_of
from gsebo.methods.baselines.shared import both_ways
from gsebo.sparse import Noise, Pattern, row_sum, sddmm, spmm, uniform

# Far from the places of a network.
_NUMBER_SITE = 1000
_DRAW_SITE = 1001
_CHOICE_SITE = 500_000
# Far from the places of networks and of sampled graphs.
_FIRST_SITE = 1_000_000
_SITES_PER_ITERATION = 4
# Pairs for one gradient by θ at most: a share of all grows with the square of nodes.
_MOST_PAIRS = 1 << 20
_STEP_DELAY = 1024
# A pair that the model holds for impossible must not divide by zero.
_LEAST_PROBABILITY = 1e-10
# A parameter moves in proportion to itself: from zero it would never come back.
_LEAST_PARAMETER = 1e-30


def sample_links(block: Tensor, density: Tensor, delta: float, noise: Noise) -> Tensor:
    """Draw a graph: different pairs of nodes, the smaller first, ``[2, links]``.

    Given are the block of each node, int64 ``[nodes]``, and the probabilities of a link
    inside each block, ``[blocks]``, and between blocks. The same arguments give the
    same graph on every device.
    """
    kinds = _PairKinds(block, len(density))
    probability = torch.cat([density.double().cpu(), torch.tensor([delta]).double()])
    low, high = noise.keys(_NUMBER_SITE)
    generator = torch.Generator().manual_seed((high >> 1) << 32 | low)
    number = torch.binomial(kinds.num_pairs, probability, generator).long()
    # Most pairs of a kind would be drawn over and over again before all were there.
    is_most = 2 * number > kinds.num_pairs
    found = [_drawn(kinds, number.masked_fill(is_most, 0), noise)]
    for kind in is_most.nonzero().flatten().tolist():
        found.append(_chosen(kinds, kind, int(number[kind]), noise))
    return nodes_of(torch.cat(found), block.numel())


@final
class _PairKinds:
    """The pairs of nodes by kind: inside each block, and as the last between blocks."""

    def __init__(self, block: Tensor, num_blocks: int) -> None:
        self.block = block
        order = block.argsort(stable=True)
        # The nodes of each block one after another, then those of all.
        self._nodes = torch.cat([order, order])
        inside = torch.bincount(block, minlength=num_blocks).cpu()
        self._sizes = torch.cat([inside, inside.sum().view(1)])
        self._starts = self._sizes.cumsum(0) - self._sizes
        pairs = self._sizes * (self._sizes - 1) // 2
        pairs[-1] -= pairs[:-1].sum()
        self.num_pairs = pairs.double()
        # Share of two random nodes of a kind that are a pair of it.
        self.pairs_hit = 2 * self.num_pairs / (self._sizes**2).clamp(min=1)

    def draw(self, number: Tensor, noise: Noise, site: int) -> tuple[Tensor, Tensor]:
        """Draw two nodes so many times for each kind, which are counted on the CPU.

        Returns the pairs, -1 for what is none of its kind, and the kinds, ``[draws]``.
        """
        device = self.block.device
        kind = torch.arange(len(number)).repeat_interleave(number).to(device)
        sizes, starts = self._sizes.to(device)[kind], self._starts.to(device)[kind]
        double = torch.empty((), dtype=torch.float64, device=device)
        drawn = (uniform((2, len(kind)), noise, site, double) * sizes).long()
        first, second = self._nodes[starts + drawn]
        is_apart = self.block[first] != self.block[second]
        fits = (first != second) & (is_apart == (kind == len(number) - 1))
        pairs = number_of(first, second, self.block.numel())
        return torch.where(fits, pairs, -1), kind

    def all_of(self, kind: int) -> Tensor:
        """Every pair of a kind."""
        start, size = int(self._starts[kind]), int(self._sizes[kind])
        nodes = self._nodes[start : start + size]
        first, second = nodes[torch.triu_indices(size, size, 1, device=nodes.device)]
        is_apart = self.block[first] != self.block[second]
        pairs = number_of(first, second, self.block.numel())
        return pairs[is_apart == (kind == len(self.num_pairs) - 1)]


def _drawn(kinds: _PairKinds, wanted: Tensor, noise: Noise) -> Tensor:
    """Draw until each kind has as many different pairs as wanted: the first drawn."""
    pairs = kind = kinds.block.new_empty(0)
    found = torch.zeros_like(wanted)
    total, site = kinds.num_pairs, _DRAW_SITE
    while bool((found < wanted).any()):
        # A new pair is met ever more rarely; a few more draws spare another round.
        expected = ((total - found) / (total - wanted)).log() * total / kinds.pairs_hit
        draws = expected + 3 * expected.sqrt() + 3
        draws = torch.where(found < wanted, draws, 0).ceil().long()
        new_pairs, new_kind = kinds.draw(draws, noise, site)
        pairs, kind = torch.cat([pairs, new_pairs]), torch.cat([kind, new_kind])
        is_new = _first_occurrences(pairs) & (pairs >= 0)
        pairs, kind = pairs[is_new], kind[is_new]
        # By kind, and within one in the order of the draws.
        kind, order = kind.sort(stable=True)
        number = torch.bincount(kind, minlength=len(wanted))
        rank = torch.arange(len(kind), device=kind.device)
        rank -= (number.cumsum(0) - number)[kind]
        kept = rank < wanted.to(kind.device)[kind]
        pairs, kind = pairs[order][kept], kind[kept]
        found = torch.minimum(number.cpu(), wanted)
        site += 1
    return pairs


def _first_occurrences(numbers: Tensor) -> Tensor:
    """Whether no equal number comes before."""
    ordered, order = numbers.sort(stable=True)
    is_first = torch.ones_like(numbers, dtype=torch.bool)
    is_first[order[1:]] = ordered[1:] != ordered[:-1]
    return is_first


def _chosen(kinds: _PairKinds, kind: int, wanted: int, noise: Noise) -> Tensor:
    """Choose among all pairs of a kind, of which at least half are wanted."""
    pairs = kinds.all_of(kind)
    double = torch.empty((), dtype=torch.float64, device=pairs.device)
    drawn = uniform((len(pairs),), noise, _CHOICE_SITE + kind, double)
    return pairs[drawn.argsort(stable=True)[:wanted]]


class Blocks(NamedTuple):
    """Parameters of the model."""

    phi: Tensor  # Unnormalised membership of each node, [nodes, blocks].
    theta: Tensor  # Weight against and for a link inside each block, [blocks, 2].

    @property
    def membership(self) -> Tensor:
        """π, ``[nodes, blocks]``."""
        return self.phi / self.phi.sum(-1, keepdim=True)

    @property
    def density(self) -> Tensor:
        """β: probability of a link inside each block, ``[blocks]``."""
        return self.theta[:, 1] / self.theta.sum(-1)

    @classmethod
    def at_random(cls, num_nodes: int, num_blocks: int, seed: int) -> Blocks:
        """Draw φ from Gamma(1 / blocks) and θ from Gamma(1), on the CPU."""
        generator = np.random.default_rng(seed)
        phi = generator.gamma(1 / num_blocks, size=(num_nodes, num_blocks))
        theta = generator.gamma(1.0, size=(num_blocks, 2))
        return cls(*(torch.from_numpy(x).clamp(_LEAST_PARAMETER) for x in (phi, theta)))


def climbed(parameter: Tensor, climb: Tensor, step: float) -> Tensor:
    """One step uphill, pulled a little towards zero: |x + step (x g - x / 1000)|.

    The parameter x is positive, the climb is x g, x times its gradient.
    """
    moved = parameter + step * (climb - 0.001 * parameter)
    return moved.abs().clamp(min=_LEAST_PARAMETER)


class Meetings(NamedTuple):
    """Sums over the partners b of each node a, Q_ab the probability of what is seen."""

    number: Tensor  # Σ c_ab, [nodes]
    total: Tensor  # Σ c_ab / Q_ab, [nodes]
    mixed: Tensor  # Σ c_ab / Q_ab π_bk, [nodes, blocks]


def at_links(blocks: Blocks, delta: float, links: Pattern) -> Meetings:
    """Sum over the links of every node; there Q = L, and each link counts once."""
    membership = blocks.membership
    left = membership * (blocks.density - delta)
    probability = delta + sddmm(links, left, membership)
    inverse = 1 / probability.clamp(min=_LEAST_PROBABILITY)
    return Meetings(
        links.row_counts.to(inverse.dtype),
        row_sum(links, inverse),
        spmm(links, inverse, membership),
    )


def at_nonlinks(
    blocks: Blocks, delta: float, rows: Tensor, columns: Tensor, weight: Tensor
) -> Meetings:
    """Sum over non-links between nodes a (rows) and b (columns); there Q = 1 - L.

    The weight is c_ab, zero for pairs that are none, ``[rows, columns]``.
    """
    membership = blocks.membership
    left = membership.index_select(0, rows) * (blocks.density - delta)
    right = membership.index_select(0, columns)
    probability = 1 - delta - left @ right.mT
    scaled = weight / probability.clamp(min=_LEAST_PROBABILITY)
    return Meetings(weight.sum(-1), scaled.sum(-1), scaled @ right)


def phi_climb(
    blocks: Blocks, delta: float, rows: Tensor, links: Meetings, nonlinks: Meetings
) -> Tensor:
    """φ times the gradient of the log-likelihood by φ, ``[rows, blocks]``.

    φ_ak g_ak = Σ_b c_ab (f_ab(k) / Q_ab - π_ak), where
    f_ab(k) = π_ak (B(y; β_k) π_bk + B(y; δ) (1 - π_bk)).
    """
    gain = blocks.density - delta
    seen = delta * links.total.unsqueeze(-1) + gain * links.mixed
    unseen = (1 - delta) * nonlinks.total.unsqueeze(-1) - gain * nonlinks.mixed
    number = (links.number + nonlinks.number).unsqueeze(-1)
    return blocks.membership.index_select(0, rows) * (seen + unseen - number)


def theta_climb(blocks: Blocks, links: Tensor, nonlinks: Tensor) -> Tensor:
    """θ times the gradient of the log-likelihood by θ, ``[blocks, 2]``.

    θ_ki g_ki = Σ_ab c_ab B(y; β_k) π_ak π_bk / Q_ab (1[y = i] - θ_ki / Σ_i θ_ki),
    over pairs without order; given are Σ c_ab π_ak π_bk / Q_ab over links and
    non-links, ``[blocks]``.
    """
    density = blocks.density
    share = torch.stack([1 - density, density], dim=-1)
    owned = share * torch.stack([nonlinks, links], dim=-1)
    return owned - share * owned.sum(-1, keepdim=True)


def links_inside(blocks: Blocks, links: Meetings) -> Tensor:
    """Σ c_ab π_ak π_bk / Q_ab over the links, each once, ``[blocks]``."""
    return (blocks.membership * links.mixed).sum(0) / 2


def nonlinks_inside(
    blocks: Blocks, delta: float, pairs: Tensor, weight: Tensor
) -> Tensor:
    """Σ c_ab π_ak π_bk / Q_ab over non-links, ``[blocks]``.

    The pairs of a and b are ``[2, pairs]``, their weight is c_ab, zero for pairs that
    are none.
    """
    membership = blocks.membership
    both = membership.index_select(0, pairs[0]) * membership.index_select(0, pairs[1])
    probability = 1 - delta - both @ (blocks.density - delta)
    return (weight / probability.clamp(min=_LEAST_PROBABILITY)) @ both


@final
class BlockFit:
    """Finds blocks in a graph; the direction of its edges does not count.

    In each iteration some nodes meet all their links and those of their non-links that
    lie among as many random nodes, which are the same for all, so that a batch is one
    product of matrices. A graph that is no larger than a batch is taken as a whole. A
    gradient by θ samples a share of all non-links.
    """

    def __init__(
        self,
        graph: Topology,
        *,
        delta: float,
        batch_nodes: int = 500,
        nonlink_share: float = 0.01,
        device: torch.device | str = "cpu",
    ) -> None:
        edges, size = both_ways(graph.graph.edge_index), graph.num_nodes
        self.links = Topology.from_edges(
            edges, size, self_loops=False, device=device
        ).pattern
        self.delta = delta
        self._size = size
        self._batch = min(batch_nodes, size)
        self._num_nonlinks = (size * (size - 1) - self.links.num_entries) // 2
        wanted = min(round(nonlink_share * self._num_nonlinks), _MOST_PAIRS)
        self._num_pairs = max(wanted, 1)
        rows, columns = self.links.rows.long(), self.links.columns.long()
        # In order, because they are stored by rows; the last one ends every search.
        last = rows.new_full((1,), size * size)
        self._link_keys = torch.cat([rows * size + columns, last])

    def restart(self, blocks: Blocks, probability: Tensor) -> Blocks:
        """Begin anew from class probabilities; only the sizes of φ and θ are kept.

        Each density is the share of linked pairs among those of one predicted class,
        and at least δ: a block without any link would never get one.
        """
        label = probability.argmax(-1)
        row, column = label[self.links.rows.long()], label[self.links.columns.long()]
        num_blocks = probability.shape[-1]
        inside = torch.where(row == column, row, num_blocks)
        num_links = inside.bincount(minlength=num_blocks + 1)[:num_blocks]
        size = label.bincount(minlength=num_blocks).to(probability.dtype)
        density = (num_links / (size**2 + 1)).clamp(min=self.delta)
        theta = torch.stack([1 - density, density], dim=-1)
        return Blocks(
            probability * blocks.phi.sum(-1, keepdim=True),
            theta * blocks.theta.sum(-1, keepdim=True),
        )

    @torch.no_grad()
    def climb(
        self,
        blocks: Blocks,
        *,
        iterations: int,
        noise: Noise,
        first: int = 0,
        scale: float = 1.0,
    ) -> Blocks:
        """Improve the parameters, by steps of φ (of one batch) and then of θ.

        The iterations t count from ``first``; a step size is 1 / √(1024 + t) / scale.
        """
        for number in range(first, first + iterations):
            step = (_STEP_DELAY + number) ** -0.5 / scale / 2
            site = _FIRST_SITE + _SITES_PER_ITERATION * number
            blocks = self._moved_phi(blocks, step, noise, site)
            blocks = self._moved_theta(blocks, step, noise, site + 2)
        return blocks

    def _moved_phi(
        self, blocks: Blocks, step: float, noise: Noise, site: int
    ) -> Blocks:
        rows, columns, weight = self.batch(noise, site, blocks.theta)
        links = at_links(blocks, self.delta, self.links)
        links = Meetings(*(sums.index_select(0, rows) for sums in links))
        nonlinks = at_nonlinks(blocks, self.delta, rows, columns, weight)
        climb = phi_climb(blocks, self.delta, rows, links, nonlinks)
        moved = climbed(blocks.phi.index_select(0, rows), climb, step)
        return blocks._replace(phi=blocks.phi.index_copy(0, rows, moved))

    def _moved_theta(
        self, blocks: Blocks, step: float, noise: Noise, site: int
    ) -> Blocks:
        pairs, weight = self.pairs(noise, site, blocks.theta)
        climb = theta_climb(
            blocks,
            links_inside(blocks, at_links(blocks, self.delta, self.links)),
            nonlinks_inside(blocks, self.delta, pairs, weight),
        )
        return blocks._replace(theta=climbed(blocks.theta, climb, step))

    def batch(self, noise: Noise, site: int, like: Tensor) -> tuple[Tensor, ...]:
        """Draw non-links for a gradient by φ, at two sites.

        Returns nodes that move ``[rows]``, nodes that they meet ``[columns]``, and how
        many non-links of its row each pair stands for ``[rows, columns]``: 0 for links
        and loops.
        """
        rows = self._some_nodes(noise, site, like)
        columns = self._some_nodes(noise, site + 1, like)
        free = self._free(rows, columns, like)
        nonlinks = self._size - 1 - self.links.row_counts.index_select(0, rows)
        each = nonlinks / free.sum(-1).clamp(min=1)
        return rows, columns, free * each.unsqueeze(-1)

    def pairs(self, noise: Noise, site: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Draw non-links for a gradient by θ.

        Returns pairs ``[2, pairs]`` and how many non-links each stands for ``[pairs]``:
        0 for links.
        """
        if self._batch == self._size:
            pairs = self._all_nonlinks
            return pairs, like.new_ones(pairs.shape[1])
        drawn = uniform((2, self._num_pairs), noise, site, like.double())
        # One from each of as many equal parts of all nodes: in order, which makes the
        # search for links several times as fast, and less noisy than without.
        parts = torch.arange(self._num_pairs, device=like.device)
        first = ((parts + drawn[0]) * (self._size / self._num_pairs)).long()
        first = first.clamp(max=self._size - 1)
        # From 1 to size - 1 further on, round the corner: never the node itself.
        second = (first + 1 + (drawn[1] * (self._size - 1)).long()) % self._size
        free = (~self._are_linked(first, second)).to(like.dtype)
        each = self._num_nonlinks / free.sum().clamp(min=1)
        return torch.stack([first, second]), free * each

    def _some_nodes(self, noise: Noise, site: int, like: Tensor) -> Tensor:
        """Draw the nodes of a batch, all different."""
        if self._batch == self._size:
            return torch.arange(self._size, device=like.device)
        # Double precision draws more bits, so that there are hardly any ties.
        drawn = uniform((self._size,), noise, site, like.double())
        return drawn.topk(self._batch).indices

    def _free(self, rows: Tensor, columns: Tensor, like: Tensor) -> Tensor:
        """1 where two nodes may be a non-link, 0 for links and loops."""
        height, width = len(rows), len(columns)
        # Links from or to other nodes end in a last row or column, which is cut off.
        row_place = rows.new_full((self._size,), height)
        row_place[rows] = torch.arange(height, device=rows.device)
        column_place = rows.new_full((self._size,), width)
        column_place[columns] = torch.arange(width, device=rows.device)
        free = like.new_ones(height + 1, width + 1)
        free[row_place[self.links.rows], column_place[self.links.columns]] = 0
        return free[:-1, :-1] * (rows.unsqueeze(-1) != columns)

    @cached_property
    def _all_nonlinks(self) -> Tensor:
        size, device = self._size, self.links.device
        pairs = torch.triu_indices(size, size, offset=1, device=device)
        return pairs[:, ~self._are_linked(*pairs)]

    def _are_linked(self, first: Tensor, second: Tensor) -> Tensor:
        wanted = first * self._size + second
        place = torch.searchsorted(self._link_keys, wanted)
        return self._link_keys[place] == wanted
