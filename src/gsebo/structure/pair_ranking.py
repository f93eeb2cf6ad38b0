"""The best of all pairs of nodes by their score, without holding all pairs at once."""

from collections.abc import Iterator

import torch
from torch import Tensor

from gsebo.structure.node_pairs import nodes_of

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

    Memory is O(block + nodes + count). Of two equal products the smaller pair is ahead.

    Args:
        embedding: One row z_i for each node.
        linked: Sorted pairs that do not count.
        count: How many pairs are wanted; all there are if these are fewer.
        block: How many products are held at once.

    Returns:
        Pairs, the best first.
    """
    num_nodes = embedding.shape[0]
    pairs, scores = linked.new_empty(0), embedding.new_empty(0)
    if count == 0:
        return pairs
    least = float("-inf")
    for start, stop in row_blocks(num_nodes, block):
        found = (embedding[start:stop] @ embedding.mT).view(-1)
        found = found.masked_fill_(
            _unwanted(start, stop, linked, num_nodes), -torch.inf
        )
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
    """Return the linked pairs with the smallest products z_i · z_j, the least first.

    Args:
        embedding: One row z_i for each node.
        linked: Sorted pairs; of two equal products the smaller pair is ahead.
        count: How many pairs are wanted; all there are if these are fewer.
    """
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
