"""A graph as plain arrays, in memory or mapped from files: read in parts, not whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from torch import Tensor

from gsebo.graph.features import csr_tensor
from gsebo.graph.graph import Graph
from gsebo.graph.mapped import gather_rows, release, stretches
from gsebo.graph.node_match import node_ids
from gsebo.graph.topology import canonicalise

Array = NDArray[Any]

# The share of non-zeros below which networks read features as a sparse matrix.
_SPARSE_BELOW = 0.25


@final
class CSRArrays(NamedTuple):
    """A sparse matrix, row by row: row ``i`` begins at ``indptr[i]``."""

    indptr: Array
    columns: Array
    values: Array
    num_columns: int

    def rows(self, chosen: Array) -> CSRArrays:
        """Some of the rows, copied, in the order asked for."""
        begin = self.indptr[chosen]
        counts = self.indptr[chosen + 1] - begin
        indptr = np.zeros(len(chosen) + 1, np.int64)
        np.cumsum(counts, out=indptr[1:])
        places = np.arange(indptr[-1]) + np.repeat(begin - indptr[:-1], counts)
        columns, values = self.columns[places], self.values[places]
        return CSRArrays(indptr, columns, values, self.num_columns)


@final
@dataclass(frozen=True, eq=False)
class GraphArrays:
    """A directed graph with features and labels, as arrays.

    The edges into node ``i`` are those with the ids ``indptr[i]`` to ``indptr[i + 1]``,
    sorted by their source, without self-loops or duplicates: the canonical order.

    Attributes:
        indptr: Where the edges into each node begin, int64 ``[nodes + 1]``.
        source: Source of each edge, integers ``[edges]``.
        x: Features, floating point ``[nodes, features]``, or sparse rows.
        y: Classes, integers ``[nodes]``; negative where unknown. ``None``: no labels.
        train: Nodes to learn from, bool ``[nodes]``.
        val: Nodes to choose by, bool ``[nodes]``.
        test: Nodes to report on, bool ``[nodes]``.
        node_id: Names of the nodes, distinct integers or texts ``[nodes]``; texts are
            bytes in UTF-8 where they lie in files.
        edge_weight: What each edge weighs, floating point ``[edges]``, not negative.
            ``None``: all weigh one.
        edge_attr: What else is given of it, floating point ``[edges, columns]``.
    """

    indptr: Array
    source: Array
    x: Array | CSRArrays
    y: Array | None = None
    train: Array | None = None
    val: Array | None = None
    test: Array | None = None
    node_id: Array | None = None
    edge_weight: Array | None = None
    edge_attr: Array | None = None

    @classmethod
    def of(cls, data: Graph) -> GraphArrays:
        """Lay out a validated graph that is in memory."""
        graph = canonicalise(data)
        source, target = graph.edge_index.cpu().numpy()
        indptr = np.zeros(graph.num_nodes + 1, np.int64)
        np.cumsum(np.bincount(target, minlength=graph.num_nodes), out=indptr[1:])
        named = {
            "y": "y",
            "train": "train_mask",
            "val": "val_mask",
            "test": "test_mask",
        }
        found = {
            name: data[key].cpu().numpy()
            for name, key in named.items()
            if key in data and data[key] is not None
        }
        if (ids := node_ids(data)) is not None:
            found["node_id"] = ids.numpy() if isinstance(ids, Tensor) else ids
        if graph.weight is not None:
            found["edge_weight"] = graph.weight.cpu().numpy()
        if graph.attr is not None:
            found["edge_attr"] = graph.attr.cpu().numpy()
        return cls(indptr, source, _features_of(data.x.detach().cpu()), **found)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """Number of edges, self-loops not among them."""
        return len(self.source)

    @property
    def num_features(self) -> int:
        """Number of feature columns."""
        if isinstance(self.x, CSRArrays):
            return self.x.num_columns
        return int(self.x.shape[1])

    @property
    def dtype(self) -> torch.dtype:
        """Type that networks compute in: that of the features, at least 32 bits."""
        kept = self.x.values if isinstance(self.x, CSRArrays) else self.x
        return torch.float64 if kept.dtype == np.float64 else torch.float32

    def degree(self, nodes: Array) -> Array:
        """Number of edges into some nodes, int64."""
        found: Array = self.indptr[nodes + 1] - self.indptr[nodes]
        return found

    def values_of_edges(
        self, edges: Array | slice
    ) -> tuple[Tensor | None, Tensor | None]:
        """Weights, in double precision, and attributes of some edges, if any are given.

        Edges are given in ascending order.
        """
        taken: list[Tensor | None] = []
        for array in (self.edge_weight, self.edge_attr):
            if array is None:
                taken.append(None)
            elif isinstance(edges, slice):
                taken.append(torch.from_numpy(np.array(array[edges])))
            else:
                taken.append(torch.from_numpy(gather_rows(array, edges)))
        weight, attr = taken
        return None if weight is None else weight.double(), attr

    def features(self, nodes: Array) -> Tensor:
        """Features of some nodes, dense or ``sparse_csr``, always in the same form.

        Of a mapped file only a stretch at a time is held in memory; nodes in ascending
        order are quickest.
        """
        if not isinstance(self.x, CSRArrays):
            return torch.from_numpy(gather_rows(self.x, nodes)).to(self.dtype)
        x = self.x
        parts = [x.rows(nodes[:0])]
        for piece in stretches(gather_rows(x.indptr, nodes) * x.values.itemsize):
            parts.append(x.rows(nodes[piece]))
            self.release()
        counts = np.concatenate([np.diff(part.indptr) for part in parts])
        columns = np.concatenate([part.columns for part in parts]).astype(np.int64)
        values = np.concatenate([part.values for part in parts])
        return csr_tensor(
            torch.from_numpy(np.concatenate([[0], np.cumsum(counts)])),
            torch.from_numpy(columns),
            torch.from_numpy(values).to(self.dtype),
            (len(nodes), self.num_features),
        )

    def release(self) -> None:
        """Let go of what was read from files; reading goes on as before.

        Pages of a mapped file count as memory of the process until then.
        """
        for array in self._arrays():
            release(array)

    def _arrays(self) -> Iterator[Array]:
        yield from (self.indptr, self.source)
        yield from self.x[:3] if isinstance(self.x, CSRArrays) else (self.x,)
        of_nodes = (self.y, self.train, self.val, self.test, self.node_id)
        optional = (*of_nodes, self.edge_weight, self.edge_attr)
        yield from (array for array in optional if array is not None)


def _features_of(x: Tensor) -> Array | CSRArrays:
    if x.layout == torch.strided:
        stored = int(torch.count_nonzero(x))
    else:
        stored = x.values().numel()
    if stored >= _SPARSE_BELOW * x.numel():
        dense: Array = x.to_dense().numpy()
        return dense
    if x.layout == torch.strided:
        matrix = csr_matrix(x.numpy())
    else:
        parts = (x.values(), x.col_indices(), x.crow_indices())
        matrix = csr_matrix(tuple(part.numpy() for part in parts), shape=x.shape)
        matrix.sum_duplicates()
    return CSRArrays(
        matrix.indptr.astype(np.int64), matrix.indices, matrix.data, x.shape[1]
    )
