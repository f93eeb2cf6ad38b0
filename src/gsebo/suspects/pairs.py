"""Edges as pairs of nodes, and what can be told of a pair without any network.

A user may give an edge in one direction or in both, and several times: it is one pair.
What is told of a pair never counts the pair's own edge, so that a pair that is joined
and one that is not can be compared:

    cosine           of the features of both ends
    rarity           cosine of the same with rare features weighed more
    one_neighborhood, other_neighborhood
                     cosine of one end and the other neighbors of the other: the larger
                     one and the smaller one
    neighborhoods    cosine of the other neighbors of both ends
    common           logarithm of the number of common neighbors
    allocation       sum of 1 / degree over the common neighbors
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from gsebo.graph.features import features_to_csr
from gsebo.graph.graph import Graph
from gsebo.sparse import Pattern
from gsebo.structure.evidence import common_columns

Ints = NDArray[np.int64]
Numbers = NDArray[np.float64]
Matrix = Any
"""Rows of numbers, a numpy array or a ``csr_matrix``."""

# Pairs whose rows are held at a time.
_PAIRS_AT_ONCE = 2**14
# The share of non-zeros below which features are kept as a sparse matrix.
_SPARSE_BELOW = 0.25


@final
@dataclass(frozen=True, eq=False)
class Pairs:
    """The distinct pairs of nodes that the edges of a graph join.

    Attributes:
        num_nodes: Number of nodes.
        ends: The two nodes of each pair, the smaller number first, ``[pairs, 2]``.
        given: The same in the direction that the user wrote first, ``[pairs, 2]``.
        pair_of_edge: For each edge of the user its pair, -1 for a self-loop.
    """

    num_nodes: int
    ends: Ints
    given: Ints
    pair_of_edge: Ints

    @classmethod
    def of(cls, graph: Graph) -> Pairs:
        """The pairs of a graph's edges, in the order of their first mention."""
        size = graph.num_nodes
        edges = graph.edge_index.cpu().numpy().astype(np.int64)
        joins = edges[0] != edges[1]
        keys = keys_of_ends(edges.T[joins], size)
        _, first, place = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        pair_of_edge = np.full(edges.shape[1], -1)
        pair_of_edge[joins] = rank[place]
        given = edges.T[joins][first[order]]
        return cls(size, np.sort(given, axis=1), given, pair_of_edge)

    def __len__(self) -> int:
        return len(self.ends)

    def to_edges(self, values: Numbers, of_loops: float) -> Tensor:
        """From a number for each pair to one for each edge of the user."""
        found = np.full(len(self.pair_of_edge), of_loops)
        joins = self.pair_of_edge >= 0
        found[joins] = values[self.pair_of_edge[joins]]
        return torch.from_numpy(found)


def keys_of_ends(pairs: Ints, num_nodes: int) -> Ints:
    """A number for each pair that is the same in both directions."""
    ends = np.sort(pairs, axis=1)
    keys: Ints = ends[:, 0] * num_nodes + ends[:, 1]
    return keys


def edges_of_ends(pairs: Ints) -> Tensor:
    """Pairs as an undirected ``edge_index``, int64 ``[2, 2 * pairs]``."""
    return torch.from_numpy(np.concatenate([pairs, pairs[:, ::-1]]).T.copy())


@final
class NodeFeatures:
    """Features as unit rows, plain and with rare features weighed more."""

    def __init__(self, x: Tensor) -> None:
        matrix = features_to_csr(x.detach().cpu().float())
        sparse = matrix.nnz < _SPARSE_BELOW * np.prod(matrix.shape)
        if sparse:
            present = csr_matrix(matrix, copy=True)
            present.data = (present.data != 0).astype(np.float64)
            nodes = np.asarray(present.sum(0)).ravel()
            rarity = np.log((matrix.shape[0] + 1) / (nodes + 1))
            weighed = present.multiply(rarity[None]).tocsr()
        else:
            dense = matrix.toarray().astype(np.float64)
            spread = dense.std(0)
            # Of a constant feature, rounding may leave a little.
            varies = spread > 1e-5 * np.abs(dense.mean(0))
            scale = np.where(varies, spread, np.inf)
            matrix, weighed = dense, (dense - dense.mean(0)) / scale
        self.plain, self.weighed = _unit(matrix), _unit(weighed)


@final
class JoinedPairs:
    """A graph of pairs, and what it says of these and of other pairs."""

    def __init__(self, pairs: Ints, num_nodes: int, x: NodeFeatures | None) -> None:
        self.pairs, self.num_nodes, self._x = pairs, num_nodes, x
        ends = np.concatenate([pairs, pairs[:, ::-1]])
        ones = np.ones(len(ends))
        self.adjacency = csr_matrix((ones, ends.T), shape=(num_nodes, num_nodes))

    @cached_property
    def _around(self) -> Matrix:
        """Sum of the weighed features of each node's neighbors."""
        assert self._x is not None
        return self.adjacency @ self._x.weighed

    def evidence(self, pairs: Ints, *, joined: bool) -> dict[str, Numbers]:
        """What is told of some pairs, which are all joined here, or none of them."""
        found = self._structure(pairs)
        if self._x is not None:
            found = self._similarity(pairs, joined) | found
        return found

    def _structure(self, pairs: Ints) -> dict[str, Numbers]:
        # Of the types that the kernel is compiled for elsewhere.
        source, target = edges_of_ends(self.pairs)
        indptr, columns, _ = Pattern.from_positions(
            target, source, self.num_nodes
        ).arrays
        count, share = np.empty((2, len(pairs)), np.float32)
        ends = np.ascontiguousarray(pairs.T)
        common_columns(indptr, columns, ends[0], ends[1], count, share)
        found = {"common": np.log1p(count), "allocation": share}
        return {name: column.astype(np.float64) for name, column in found.items()}

    def _similarity(self, pairs: Ints, joined: bool) -> dict[str, Numbers]:
        assert self._x is not None
        plain, unit, around = self._x.plain, self._x.weighed, self._around
        one, other = pairs.T
        own = _products(unit, unit, np.arange(self.num_nodes), None)
        size = _products(around, around, np.arange(self.num_nodes), None)
        rarity = _products(unit, unit, one, other)
        # An edge of the pair's own has put each end among the neighbors of the other.
        less = 1.0 if joined else 0.0
        towards, square = [], []
        for here, there in ((one, other), (other, one)):
            product = _products(unit, around, here, there)
            towards.append(product - less * own[here])
            square.append(size[there] - less * (2 * product - own[here]))
        crossed = _products(around, around, one, other)
        inner = [_products(unit, around, end, end) for end in (one, other)]
        crossed += less * (rarity - inner[0] - inner[1])
        length = [np.sqrt(np.maximum(each, 0)) for each in square]
        ends = [np.sqrt(own[end]) for end in (one, other)]
        sides = [
            _ratio(top, here * there)
            for top, here, there in zip(towards, ends, length, strict=True)
        ]
        return {
            "cosine": _products(plain, plain, one, other),
            "rarity": rarity,
            "one_neighborhood": np.maximum(*sides),
            "other_neighborhood": np.minimum(*sides),
            "neighborhoods": _ratio(crossed, length[0] * length[1]),
        }


def _unit(rows: Matrix) -> Matrix:
    """Rows of length one; a row without anything stays so."""
    if isinstance(rows, np.ndarray):
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / np.maximum(length, 1e-12)
    length = np.sqrt(np.asarray(rows.multiply(rows).sum(1)).ravel())
    return csr_matrix(rows.multiply((1 / np.maximum(length, 1e-12))[:, None]))


def _products(first: Matrix, second: Matrix, one: Ints, other: Ints | None) -> Numbers:
    """Inner product of row ``one[k]`` of the first and ``other[k]`` of the second."""
    other = one if other is None else other
    found = np.empty(len(one))
    for begin in range(0, len(one), _PAIRS_AT_ONCE):
        part = slice(begin, begin + _PAIRS_AT_ONCE)
        left, right = first[one[part]], second[other[part]]
        if isinstance(left, np.ndarray):
            found[part] = np.einsum("ij,ij->i", left, right)
        else:
            found[part] = np.asarray(left.multiply(right).sum(1)).ravel()
    return found


def _ratio(top: Numbers, bottom: Numbers) -> Numbers:
    """A quotient that is 0 where there is nothing to compare."""
    small = bottom < 1e-9
    return np.where(small, 0.0, top / np.where(small, 1.0, bottom))
