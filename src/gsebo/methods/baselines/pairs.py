"""Unordered pairs of nodes: one number each, ranked, drawn, put into graphs or out.

The pair of i < j is the number i n + j, so that sorted pairs are sorted by (i, j).
"""

from collections.abc import Iterator
from typing import final

import torch
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.memory import free_memory
from gsebo.nn.base import Features
from gsebo.sparse import Noise, uniform


def dense_features(features: Features) -> Tensor:
    """The same features ``[nodes, channels]``, zeros stored too."""
    return features if isinstance(features, Tensor) else features.to_dense()


def gram_matrix(features: Features) -> Tensor:
    """Products of all pairs of feature rows, ``X Xᵀ``, ``[nodes, nodes]``."""
    dense = dense_features(features)
    return dense @ dense.mT


_GIGABYTE = 1e9


def require_dense_memory(
    method: str, matrices: int, num_nodes: int, dtype: torch.dtype, device: torch.device
) -> None:
    """Raise `InvalidInput` if so many matrices of n² numbers at once do not fit."""
    needed = matrices * num_nodes**2 * dtype.itemsize
    free = free_memory(device)
    if free is not None and needed > free:
        raise InvalidInput(
            f"{method} weighs all pairs of {num_nodes} nodes given and needs about "
            f"{needed / _GIGABYTE:.1f} GB; expected a graph that fits into the "
            f"{free / _GIGABYTE:.1f} GB that are free."
        )


@final
class PairMatrix:
    """The n (n - 1) / 2 pairs of nodes below the diagonal, row by row.

    >>> PairMatrix(3, "cpu").symmetric(torch.tensor([1, 2, 3])).tolist()
    [[0, 1, 2], [1, 0, 3], [2, 3, 0]]
    """

    def __init__(self, num_nodes: int, device: torch.device | str) -> None:
        self.num_nodes = num_nodes
        larger, smaller = torch.tril_indices(num_nodes, num_nodes, -1, device=device)
        self._position: Tensor = larger * num_nodes + smaller

    def joined(self, edge_index: Tensor) -> Tensor:
        """Whether one of the edges ``[2, edges]`` joins the pair, bool ``[pairs]``."""
        source, target = edge_index.to(self._position.device)
        found = self._position.new_zeros(self.num_nodes**2, dtype=torch.bool)
        larger, smaller = torch.maximum(source, target), torch.minimum(source, target)
        found[larger * self.num_nodes + smaller] = True
        return found[self._position]

    def symmetric(self, values: Tensor, *, diagonal: float = 0.0) -> Tensor:
        """Put ``[pairs]`` on both sides of a constant diagonal, ``[nodes, nodes]``."""
        flat = values.new_zeros(self.num_nodes**2)
        lower = flat.index_copy(0, self._position, values).view(self.num_nodes, -1)
        return (lower + lower.mT).fill_diagonal_(diagonal)


def linked_pairs(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return the pairs with an edge in some direction, sorted, loops left out.

    >>> linked_pairs(torch.tensor([[0, 2, 2, 1], [2, 0, 1, 1]]), 3)
    tensor([2, 5])
    """
    source, target = edge_index.to(torch.int64)
    pairs = number_of(source, target, num_nodes)
    linked: Tensor = torch.unique(pairs[edge_index[0] != edge_index[1]])
    return linked


def nodes_of(pairs: Tensor, num_nodes: int) -> Tensor:
    """Return the smaller and the larger node of each pair, ``[2, pairs]``."""
    return torch.stack([pairs // num_nodes, pairs % num_nodes])


def number_of(first: Tensor, second: Tensor, num_nodes: int) -> Tensor:
    """Return the pairs of ``first`` and ``second``, whichever is larger."""
    return torch.minimum(first, second) * num_nodes + torch.maximum(first, second)


def rewired(
    edge_index: Tensor, num_nodes: int, *, added: Tensor, removed: Tensor
) -> Tensor:
    """Return the edges without some pairs and with others, ``[2, edges]``.

    A removed pair loses the edges of both directions, an added one gets both. All other
    edges stay as they are, directed ones too. Those that are added are not linked yet.
    """
    source, target = edge_index.to(torch.int64)
    pairs = number_of(source, target, num_nodes)
    new = nodes_of(added, num_nodes)
    kept = edge_index[:, ~torch.isin(pairs, removed)]
    return torch.cat([kept, new, new.flip(0)], dim=1)


_BLOCK = 1 << 22
"""Scores that are looked at together."""


def row_blocks(num_nodes: int, block: int) -> Iterator[tuple[int, int]]:
    """Cut the rows of a square matrix into blocks of some ``block`` numbers."""
    rows = max(1, block // max(1, num_nodes))
    for start in range(0, num_nodes, rows):
        yield start, min(start + rows, num_nodes)


def highest_unlinked_pairs(
    embedding: Tensor, linked: Tensor, count: int, *, block: int = _BLOCK
) -> Tensor:
    """Return the pairs that are not linked and have the largest products z_i · z_j.

    The best come first, at most ``count``; of two equal products the smaller pair is
    ahead. Memory is O(block + nodes + count), a block being products held at once. The
    linked pairs are sorted.
    """
    num_nodes = embedding.shape[0]
    pairs, scores = linked.new_empty(0), embedding.new_empty(0)
    if count == 0:
        return pairs
    least = float("-inf")
    for start, stop in row_blocks(num_nodes, block):
        found = (embedding[start:stop] @ embedding.mT).view(-1)
        unwanted = _unwanted(start, stop, linked, num_nodes)
        found = found.masked_fill_(unwanted, -torch.inf)
        # Whoever came before is ahead of an equal, so that only more is of interest.
        better = (found > least).nonzero().squeeze(-1)
        pairs = torch.cat([pairs, better + start * num_nodes])
        scores = torch.cat([scores, found[better]])
        if scores.numel() > count:
            kept = _largest(scores, count)
            pairs, scores = pairs[kept], scores[kept]
        if scores.numel() == count:
            least = float(scores.min())
    return pairs[scores.argsort(descending=True, stable=True)]


def lowest_linked_pairs(embedding: Tensor, linked: Tensor, count: int) -> Tensor:
    """Return the ``count`` linked pairs with the least products, the smallest first."""
    first, second = nodes_of(linked, embedding.shape[0])
    scores = (embedding[first] * embedding[second]).sum(-1)
    return linked[scores.argsort(stable=True)[:count]]


def _unwanted(start: int, stop: int, linked: Tensor, num_nodes: int) -> Tensor:
    """Which pairs of a block of rows are linked, or not i < j; bool, one axis."""
    rows = torch.arange(start, stop, device=linked.device)
    columns = torch.arange(num_nodes, device=linked.device)
    unwanted = (columns <= rows.unsqueeze(-1)).view(-1)
    ends = linked.new_tensor([start * num_nodes, stop * num_nodes])
    first, last = torch.searchsorted(linked, ends).tolist()
    unwanted[linked[first:last] - start * num_nodes] = True
    return unwanted


def _largest(scores: Tensor, count: int) -> Tensor:
    """Where the ``count`` largest are, in order; the first ones of equals."""
    # Which of several equal numbers ``topk`` picks is nobody's promise.
    least = scores.topk(count).values[-1]
    above = scores > least
    equal = scores == least
    wanted = count - above.sum()
    return (above | (equal & (equal.cumsum(0) <= wanted))).nonzero().squeeze(-1)


# Far from the places of a network.
_NUMBER_SITE, _DRAW_SITE, _CHOICE_SITE = 1000, 1001, 500_000


def sample_links(block: Tensor, density: Tensor, delta: float, noise: Noise) -> Tensor:
    """Draw a graph with blocks: pairs of nodes, the smaller first, ``[2, links]``.

    Pairs inside a block, int64 ``[nodes]``, are linked with its density, pairs between
    blocks with δ, all independently. So the number of links of each kind is binomial,
    and given the number every set of so many pairs is equally likely: work and memory
    grow with the links. The same arguments give the same graph on every device.
    """
    kinds = _PairKinds(block, len(density))
    probability = torch.cat([density.double().cpu(), torch.tensor([delta]).double()])
    low, high = noise.keys(_NUMBER_SITE)
    generator = torch.Generator().manual_seed((high >> 1) << 32 | low)
    number = torch.binomial(kinds.num_pairs, probability, generator).long()
    # Most pairs of a kind would be drawn over and over again before all were there.
    is_most = 2 * number > kinds.num_pairs
    found = [kinds.drawn(number.masked_fill(is_most, 0), noise)]
    for kind in is_most.nonzero().flatten().tolist():
        found.append(kinds.chosen(kind, int(number[kind]), noise))
    return nodes_of(torch.cat(found), block.numel())


@final
class _PairKinds:
    """The pairs of nodes by kind: inside each block, and as the last between blocks."""

    def __init__(self, block: Tensor, num_blocks: int) -> None:
        self._block = block
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
        self._hit = 2 * self.num_pairs / (self._sizes**2).clamp(min=1)
        self._double = torch.empty((), dtype=torch.float64, device=block.device)

    def drawn(self, wanted: Tensor, noise: Noise) -> Tensor:
        """Draw until each kind has as many different pairs as wanted: the first."""
        pairs = kind = self._block.new_empty(0)
        found = torch.zeros_like(wanted)
        total, site = self.num_pairs, _DRAW_SITE
        while bool((found < wanted).any()):
            # A new pair is met ever more rarely; a few more draws spare another round.
            expected = ((total - found) / (total - wanted)).log() * total / self._hit
            draws = expected + 3 * expected.sqrt() + 3
            draws = torch.where(found < wanted, draws, 0).ceil().long()
            new_pairs, new_kind = self._draw(draws, noise, site)
            pairs, kind = torch.cat([pairs, new_pairs]), torch.cat([kind, new_kind])
            # That which is a pair of its kind, and of equal ones the first.
            ordered, order = pairs.sort(stable=True)
            is_new = pairs >= 0
            is_new[order[1:]] &= ordered[1:] != ordered[:-1]
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

    def _draw(self, number: Tensor, noise: Noise, site: int) -> tuple[Tensor, Tensor]:
        """Draw pairs, -1 for what is none of its kind, and their kinds, ``[draws]``."""
        device = self._block.device
        kind = torch.arange(len(number)).repeat_interleave(number).to(device)
        sizes, starts = self._sizes.to(device)[kind], self._starts.to(device)[kind]
        drawn = (uniform((2, len(kind)), noise, site, self._double) * sizes).long()
        first, second = self._nodes[starts + drawn]
        is_apart = self._block[first] != self._block[second]
        fits = (first != second) & (is_apart == (kind == len(number) - 1))
        pairs = number_of(first, second, self._block.numel())
        return torch.where(fits, pairs, -1), kind

    def chosen(self, kind: int, wanted: int, noise: Noise) -> Tensor:
        """Choose among all pairs of a kind, of which at least half are wanted."""
        start, size = int(self._starts[kind]), int(self._sizes[kind])
        nodes = self._nodes[start : start + size]
        first, second = nodes[torch.triu_indices(size, size, 1, device=nodes.device)]
        is_apart = self._block[first] != self._block[second]
        pairs = number_of(first, second, self._block.numel())
        pairs = pairs[is_apart == (kind == len(self.num_pairs) - 1)]
        drawn = uniform((len(pairs),), noise, _CHOICE_SITE + kind, self._double)
        return pairs[drawn.argsort(stable=True)[:wanted]]
