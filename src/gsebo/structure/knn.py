"""The nodes with the most similar features, by cosine."""

import torch
from torch import Tensor

from gsebo.sparse import SparseFeatures
from gsebo.sparse.unit_rows import unit_rows

# Numbers held at a time: 64 MiB in single precision.
_CHUNK = 1 << 24


@torch.no_grad()
def nearest_neighbours(features: Tensor | SparseFeatures, k: int) -> Tensor:
    """Find the ``k`` other nodes whose features point most nearly the same way.

    Of equally similar nodes those with smaller numbers are taken. A node without
    features has the similarity 0 to every other.

    Args:
        features: One row for each node, ``[nodes, channels]``.
        k: Number of neighbours; all other nodes if there are fewer.

    Returns:
        Edges from every neighbour to the node that has found it, sorted by target and
        source, int64 ``[2, nodes * k]``.
    """
    num_nodes, channels = features.shape
    k = min(k, num_nodes - 1)
    rows = max(_CHUNK // (num_nodes + channels), 1)
    unit = unit_rows(features)
    found = [
        _most_similar(_similarity(unit, start, min(start + rows, num_nodes)), start, k)
        for start in range(0, num_nodes, rows)
    ]
    target = torch.arange(num_nodes, device=features.device).repeat_interleave(k)
    return torch.stack([torch.cat(found), target])


def _similarity(unit: Tensor | SparseFeatures, start: int, stop: int) -> Tensor:
    """Products of the rows from ``start`` to ``stop`` with all, ``[rows, nodes]``."""
    if isinstance(unit, Tensor):
        return unit[start:stop] @ unit.mT
    row, column = unit.pattern.row_of_entry, unit.pattern.column_of_entry
    here = (row >= start) & (row < stop)
    chunk = unit.values.new_zeros(stop - start, unit.shape[1])
    chunk[row[here] - start, column[here]] = unit.values[here]
    return (unit @ chunk.mT).mT


def _most_similar(similarity: Tensor, start: int, k: int) -> Tensor:
    """Columns of the ``k`` largest numbers, row by row, ``[rows * k]``."""
    if k == 0:
        return similarity.new_empty(0, dtype=torch.int64)
    own = torch.arange(len(similarity), device=similarity.device)
    similarity[own, own + start] = -torch.inf
    least = similarity.topk(k, dim=-1).values[:, -1:]
    # Which of several equals topk finds depends on the device, so only their value
    # is taken from it.
    above, level = similarity > least, similarity == least
    room = k - above.sum(-1, keepdim=True)
    chosen = above | (level & (level.cumsum(-1) <= room))
    return chosen.nonzero()[:, 1]
