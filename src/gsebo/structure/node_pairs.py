"""Unordered pairs of nodes as one number each, and graphs with pairs put in or out.

The pair of i < j is the number i n + j, so that sorted pairs are sorted by (i, j).
"""

import torch
from torch import Tensor


def linked_pairs(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Return the pairs with an edge in some direction, sorted, loops left out.

    Args:
        edge_index: Directed edges, ``[2, edges]``.
        num_nodes: Number of nodes.

    >>> linked_pairs(torch.tensor([[0, 2, 2, 1], [2, 0, 1, 1]]), 3)
    tensor([2, 5])
    """
    pairs = _pair_of_edge(edge_index, num_nodes)
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
    edges stay as they are, directed ones too.

    Args:
        edge_index: Directed edges, ``[2, edges]``.
        num_nodes: Number of nodes.
        added: Pairs that are not linked yet.
        removed: Pairs.
    """
    kept = ~torch.isin(_pair_of_edge(edge_index, num_nodes), removed)
    new = nodes_of(added, num_nodes)
    return torch.cat([edge_index[:, kept], new, new.flip(0)], dim=1)


def _pair_of_edge(edge_index: Tensor, num_nodes: int) -> Tensor:
    source, target = edge_index.to(torch.int64)
    return number_of(source, target, num_nodes)
