"""Edges that a graph could have too: between nodes with similar features."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from gsebo.errors import InvalidInput, without_warnings
from gsebo.graph.topology import CanonicalGraph
from gsebo.sparse import Pattern, SparseFeatures
from gsebo.sparse.operators import unit_rows
from gsebo.structure.evidence import entry_products

# Numbers held at a time: 64 MiB in single precision.
_CHUNK = 1 << 24


@torch.no_grad()
def nearest_neighbors(
    features: Tensor | SparseFeatures, k: int, *, cosine: bool = True
) -> Tensor:
    """Find the ``k`` other nodes whose features point most nearly the same way.

    Without ``cosine`` those whose products with the node's own features are largest.

    Of equally similar nodes those with smaller numbers are taken. A node without
    features has the similarity 0 to every other. The edges go from a neighbor to the
    node that has found it, sorted by target and source, int64 ``[2, nodes * k]``.
    """
    num_nodes, channels = features.shape
    k = min(k, num_nodes - 1)
    rows = max(_CHUNK // (num_nodes + channels), 1)
    unit = unit_rows(features) if cosine else features
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


# PubMed's 19,717 nodes take 26 seconds on one core exactly, and the time grows with the
# square. The library takes 23, and 15 to 35 more for compiling itself.
_EXACT_NODES = 20_000
# Where many nodes are equally similar, as with few words each, the search stops early:
# of WordNet's ten nearest it finds 0.69 with its own numbers, and 0.96 with these.
_TREES = 32
_SEARCHED = 2


@torch.no_grad()
def candidate_edges(
    features: Tensor | SparseFeatures, k: int, graph: CanonicalGraph
) -> Tensor:
    """Find edges between similar nodes that ``graph`` does not have.

    Every node is joined both ways to the ``k`` others whose features are nearest by
    cosine, as far as they share any: a cosine of 0 or less gives no edge. Of more than
    20,000 nodes, nearly all of the nearest are found by a search of the library
    pynndescent.

    Args:
        features: One row for each node, ``[nodes, channels]``.
        k: Number of neighbors of a node.
        graph: Its edges, each in its own direction, are left out.

    Returns:
        Sources and targets without self-loops, distinct, sorted by target and source,
        int64 ``[2, edges]`` on the CPU. The same for any number of threads.

    >>> from gsebo.graph import Topology
    >>> one_way = Topology.from_edges(
    ...     torch.tensor([[0], [1]]), 3, self_loops=False, device="cpu"
    ... ).graph
    >>> x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    >>> candidate_edges(x, 1, one_way)
    tensor([[1],
            [0]])

    Raises:
        InvalidInput: The library is needed and not installed.
    """
    size = graph.num_nodes
    exact = size <= _EXACT_NODES
    pairs = nearest_neighbors(features, k) if exact else _searched(features, k)
    source, target = pairs
    pattern = Pattern.from_positions(target, source, size)
    alike = entry_products(features, pattern) > 0
    source, target = pairs[:, alike].cpu()
    keys = torch.cat([target * size + source, source * size + target])
    keys = torch.unique(keys)
    known_source, known_target = graph.edge_index.cpu()
    keys = keys[~torch.isin(keys, known_target * size + known_source)]
    return torch.stack([keys % size, keys // size])


def _searched(features: Tensor | SparseFeatures, k: int) -> Tensor:
    """Nearly the ``k`` nearest of every node that has features, ``[2, pairs]``."""
    rows = _as_rows(features)
    # Nodes without features are all alike to the library, and similar to none.
    present = np.flatnonzero(np.asarray(abs(rows).sum(axis=1)).ravel())
    if len(present) < 2:
        return torch.empty(2, 0, dtype=torch.int64, device=features.device)
    found = _search(rows[present], min(_SEARCHED * k + 1, len(present)))
    own = np.arange(len(present))[:, None]
    kept = (found >= 0) & (found != own)
    kept &= kept.cumsum(axis=1) <= k
    target, place = kept.nonzero()
    pairs = np.stack([present[found[target, place]], present[target]])
    return torch.from_numpy(pairs).to(features.device)


def _as_rows(features: Tensor | SparseFeatures) -> csr_matrix | NDArray[np.float32]:
    if isinstance(features, Tensor):
        return features.cpu().float().numpy()
    indptr, columns, entries = features.pattern.to("cpu").arrays
    values = features.values.cpu().float().numpy()[entries]
    return csr_matrix((values, columns, indptr), shape=tuple(features.shape))


def _search(rows: csr_matrix | NDArray[np.float32], number: int) -> NDArray[np.integer]:
    """Neighbors of each row, nearest first, -1 where too few were found."""
    try:
        # Slow to import, and not needed for small graphs.
        from pynndescent import NNDescent
    except ImportError as missing:
        raise InvalidInput(
            f"Candidate edges between {rows.shape[0]} nodes need the library "
            f"pynndescent, which is not installed; expected it to be there "
            f"(pip install pynndescent), or at most {_EXACT_NODES} nodes."
        ) from missing
    # Fewer neighbors mean fewer candidates, and nothing else.
    with without_warnings(UserWarning, "Failed to correctly find n_neighbors"):
        index = NNDescent(
            rows,
            metric="cosine",
            n_neighbors=number,
            n_trees=_TREES,
            random_state=0,
            # What it finds depends on the number of threads.
            n_jobs=1,
        )
    found: NDArray[np.integer] = index.neighbor_graph[0]
    return found
