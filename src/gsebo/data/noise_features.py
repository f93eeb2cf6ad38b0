"""Features that belong to other nodes."""

from collections.abc import Iterator
from copy import copy

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo.data.features import csr_tensor, normalise_rows
from gsebo.data.noise_share import share_of
from gsebo.data.seeding import seeded_generator
from gsebo.errors import InvalidInput

_ROUNDING = 1e-4


def shuffle_features(data: Data, percent: int, seed: int = 0) -> Data:
    """Return a copy of a graph in whose features nodes have swapped entries.

    In each column, so many percent of the nodes are drawn, other nodes in each, and
    their entries are dealt out among them anew. A column keeps its values, and so its
    distribution and its number of zeros; what it says about a node is lost where it was
    dealt. At 100 percent nothing is left but the columns' distributions.

    Rows that came normalised, their absolute values adding up to 1, are scaled to a
    largest entry of 1 before and normalised again after. For words that are there or
    not, that is the same as to swap words and to normalise then.

    Args:
        data: The graph; its features are dense or ``sparse_csr``, and stay so.
        percent: Of the entries of each column, zeros included.
        seed: Decides which.

    Raises:
        InvalidInput: ``percent`` is not from 0 to 100, or there are no features.
    """
    if "x" not in data or not isinstance(data.x, Tensor) or data.x.dim() != 2:
        raise InvalidInput("the graph has no x: expected features, to shuffle them.")
    nodes, columns = (int(side) for side in data.x.shape)
    count = share_of(percent, nodes)
    noisy = copy(data)
    if count > 1:
        normalised = _is_normalised(data.x)
        x = _with_largest_entry_one(data.x) if normalised else data.x
        x = _dealt(x, _moves(nodes, columns, count, seed))
        noisy.x = normalise_rows(x) if normalised else x
    return noisy


def _moves(nodes: int, columns: int, count: int, seed: int) -> Iterator[Tensor]:
    """For each column, the node that each node's entry goes to."""
    generator = seeded_generator(seed)
    for _ in range(columns):
        chosen = generator.choice(nodes, count, replace=False)
        target = np.arange(nodes)
        target[chosen] = generator.permutation(chosen)
        yield torch.from_numpy(target)


def _dealt(x: Tensor, moves: Iterator[Tensor]) -> Tensor:
    if x.layout == torch.sparse_csr:
        return _dealt_entries(x, moves)
    by_column = x.T.contiguous()
    dealt = torch.empty_like(by_column)
    for column, target in enumerate(moves):
        dealt[column, target.to(x.device)] = by_column[column]
    return dealt.T.contiguous()


def _dealt_entries(x: Tensor, moves: Iterator[Tensor]) -> Tensor:
    """The same for stored entries; those that are not stored are zeros."""
    rows, columns = _rows(x), x.col_indices()
    by_column = torch.argsort(columns, stable=True)
    counts = torch.bincount(columns, minlength=x.shape[1]).tolist()
    parts = torch.split(rows[by_column], counts)
    moved = torch.cat(
        [target.to(x.device)[part] for part, target in zip(parts, moves, strict=True)]
    )
    by_row = torch.argsort(moved, stable=True)
    sizes = torch.bincount(moved, minlength=x.shape[0])
    starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    order = by_column[by_row]
    shape = (x.shape[0], x.shape[1])
    return csr_tensor(starts, columns[order], x.values()[order], shape)


def _is_normalised(x: Tensor) -> bool:
    """Whether the absolute values of each row add up to 1, but for rows of zeros."""
    sums = _by_row(x, "sum")
    some = sums[sums != 0]
    return some.numel() > 0 and bool(((some - 1).abs() < _ROUNDING).all())


def _with_largest_entry_one(x: Tensor) -> Tensor:
    largest = _by_row(x, "amax")
    largest = torch.where(largest == 0, 1, largest)
    if x.layout != torch.sparse_csr:
        return x / largest[:, None]
    values = x.values() / largest[_rows(x)]
    shape = (x.shape[0], x.shape[1])
    return csr_tensor(x.crow_indices(), x.col_indices(), values, shape)


def _by_row(x: Tensor, how: str) -> Tensor:
    """Sum or largest of the absolute values of each row."""
    if x.layout != torch.sparse_csr:
        return x.abs().sum(dim=1) if how == "sum" else x.abs().amax(dim=1)
    zeros = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
    return zeros.scatter_reduce(0, _rows(x), x.values().abs(), how)


def _rows(x: Tensor) -> Tensor:
    """Row of each stored entry."""
    nodes = torch.arange(x.shape[0], device=x.device)
    return nodes.repeat_interleave(x.crow_indices().diff())
