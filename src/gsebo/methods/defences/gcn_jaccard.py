"""GCN-Jaccard: edges between nodes that share no features are taken out first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, final

import numpy as np
import torch
from msgspec import Meta
from scipy.sparse import csr_array
from torch import Tensor

from gsebo.graph import Graph
from gsebo.methods.fitting import Outcome, PreparedGraph
from gsebo.methods.run import Run
from gsebo.methods.schedule import EpochClassifier, train_on_fixed_structure
from gsebo.nn.base import Features

Similarity = Literal["auto", "jaccard", "cosine"]
_Threshold = Annotated[float, Meta(ge=-1, le=1)]
# Numbers of features that are compared at a time.
_BLOCK = 1 << 22


@final
@dataclass(kw_only=True, eq=False, repr=False)
class GCNJaccard(EpochClassifier):
    """Training without the edges whose ends are not alike (Wu et al., IJCAI 2019).

    Attacks mostly join nodes that have little in common. The Jaccard similarity of two
    nodes is the number of features that both have over the number that either has; of
    features that are not all zeros and ones the cosine takes its place. Edges at or
    below a threshold are removed, and any network is trained on the rest. Nodes without
    features are like nobody.

    Args:
        threshold: Edges are removed whose similarity is not above it. The authors
            remove those of similarity 0; 0.01 is common in comparisons. Below 0 every
            edge between zeros and ones stays.
        similarity: ``"jaccard"`` of which features are not zero, ``"cosine"`` of their
            numbers, or ``"auto"``: the first where all numbers are 0 or 1.
    """

    threshold: _Threshold = 0.01
    similarity: Similarity = "auto"

    def _train(self, data: Graph, runs: Sequence[Run]) -> list[Outcome]:
        prepared = PreparedGraph(data, runs[0].device)
        edges = prepared.graph.edge_index
        alike = edge_similarity(prepared.features, edges, self.similarity)
        kept = alike > self.threshold
        return train_on_fixed_structure(
            data,
            runs,
            self.network(),
            self.schedule(),
            graph=edges[:, kept.to(edges.device)],
        )


def edge_similarity(
    features: Features, edge_index: Tensor, kind: Similarity = "auto"
) -> Tensor:
    """How alike the ends of edges ``[2, edges]`` are, double on the CPU, ``[edges]``.

    >>> x = torch.tensor([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    >>> edge_similarity(x, torch.tensor([[0, 0], [1, 2]])).tolist()
    [0.3333333333333333, 0.0]
    """
    rows = _rows_of(features)
    if kind == "jaccard" or (kind == "auto" and bool((rows.data == 1).all())):
        rows.data = np.ones_like(rows.data)
        size = np.diff(rows.indptr).astype(np.float64)
        source, target = edge_index.cpu().numpy()
        shared = _products(rows, source, target)
        # Of two nodes without features the union is empty, and nothing is shared.
        found = shared / np.maximum(size[source] + size[target] - shared, 1)
    else:
        length = np.sqrt(rows.multiply(rows).sum(axis=1))
        source, target = edge_index.cpu().numpy()
        scale = length[source] * length[target]
        found = _products(rows, source, target) / np.where(scale > 0, scale, 1)
    return torch.from_numpy(found)


def _rows_of(features: Features) -> csr_array:
    """Features in double precision, without zeros that are stored."""
    if isinstance(features, Tensor):
        return csr_array(features.cpu().numpy().astype(np.float64))
    pattern = features.pattern.to("cpu")
    indptr, columns, entries = pattern.arrays
    values = features.values.cpu().numpy().astype(np.float64)[entries]
    rows = csr_array((values, columns, indptr), shape=tuple(features.shape))
    rows.eliminate_zeros()
    return rows


def _products(rows: csr_array, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Inner products of pairs of rows, ``[pairs]``, a block of pairs at a time."""
    step = max(1, _BLOCK * rows.shape[0] // max(rows.nnz, 1))
    found = np.zeros(len(first))
    for begin in range(0, len(first), step):
        here = slice(begin, begin + step)
        both = rows[first[here]].multiply(rows[second[here]])
        found[here] = both.sum(axis=1)
    return found
