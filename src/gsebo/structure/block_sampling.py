"""A random graph with blocks, drawn without a look at every pair of nodes.

Pairs inside block k are linked with probability β_k, pairs between blocks with δ, all
independently. So the number of links of each kind is binomial, and given the number
every set of so many pairs is equally likely: work and memory grow with the links, not
with the pairs.
"""

from typing import final

import torch
from torch import Tensor

from gsebo.sparse import Noise, uniform
from gsebo.structure.node_pairs import nodes_of, number_of

# Far from the places of a network.
_NUMBER_SITE = 1000
_DRAW_SITE = 1001
_CHOICE_SITE = 500_000


def sample_links(block: Tensor, density: Tensor, delta: float, noise: Noise) -> Tensor:
    """Draw a graph; the same arguments give the same one on every device.

    Args:
        block: Block of each node, int64 ``[nodes]``.
        density: Probability of a link inside each block, ``[blocks]``.
        delta: Probability of a link between blocks.
        noise: Seed and step.

    Returns:
        Different pairs of nodes, the smaller first, ``[2, links]``.
    """
    kinds = _PairKinds(block, len(density))
    probability = torch.cat([density.double().cpu(), torch.tensor([delta]).double()])
    number = torch.binomial(kinds.num_pairs, probability, _generator(noise)).long()
    # Most pairs of a kind would be drawn over and over again before all were there.
    is_most = 2 * number > kinds.num_pairs
    found = [_drawn(kinds, number.masked_fill(is_most, 0), noise)]
    for kind in is_most.nonzero().flatten().tolist():
        found.append(_chosen(kinds, kind, int(number[kind]), noise))
    return nodes_of(torch.cat(found), block.numel())


@final
class _PairKinds:
    """The pairs of nodes by kind: inside each block, and as the last between blocks.

    Attributes:
        num_pairs: Of each kind, on the CPU, float64 ``[kinds]``.
        pairs_hit: Share of two random nodes of a kind that are a pair of it.
    """

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
        self.pairs_hit = 2 * self.num_pairs / (self._sizes**2).clamp(min=1)

    def draw(self, number: Tensor, noise: Noise, site: int) -> tuple[Tensor, Tensor]:
        """Draw two nodes so many times for each kind.

        Args:
            number: Of draws for each kind, on the CPU.
            noise: Seed and step.
            site: Number of the place.

        Returns:
            The pairs, -1 for what is none of its kind, and the kinds, ``[draws]``.
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


def _generator(noise: Noise) -> torch.Generator:
    low, high = noise.keys(_NUMBER_SITE)
    return torch.Generator().manual_seed((high >> 1) << 32 | low)
