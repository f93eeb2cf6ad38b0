"""Evidence of some edges of a graph that is too large to be laid out whole.

It is that of :mod:`~gsebo.structure.evidence`: cosines need the features of the ends
alone; degrees and common neighbours are read from the arrays of the whole graph.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gsebo.data.arrays import GraphArrays
from gsebo.data.mapped import gather_rows, stretches
from gsebo.sparse import Pattern
from gsebo.sparse.kernels.numba_overlap import common_columns
from gsebo.sparse.unit_rows import unit_rows
from gsebo.structure.evidence import (
    EVIDENCE,
    Features,
    FeatureWeights,
    entry_products,
)


@torch.no_grad()
def raw_evidence(
    arrays: GraphArrays,
    features: Features,
    edge_index: Tensor,
    nodes: Tensor,
    weights: FeatureWeights,
    columns: Sequence[str] = EVIDENCE,
) -> Tensor:
    """Evidence of some edges, not yet scaled, ``[edges, columns]``.

    Args:
        arrays: The whole graph.
        features: Of the nodes at hand, whose device and type the result has.
        edge_index: Local sources and targets of the edges, ``[2, edges]``.
        nodes: Which nodes of the whole graph are at hand, int64 ``[nodes]``.
        weights: Of the features.
        columns: Some of ``EVIDENCE``.
    """
    source, target = edge_index.to(features.device)
    dtype, size = features.dtype, features.shape[0]
    wanted = set(columns)
    found: dict[str, Tensor] = {}
    if wanted & {"cosine", "rarity"}:
        edges = Pattern.from_positions(target, source, size)
        if "cosine" in wanted:
            found["cosine"] = entry_products(unit_rows(features), edges)
        if "rarity" in wanted:
            weighed = unit_rows(weights.weigh(features))
            found["rarity"] = entry_products(weighed, edges)
    whole = nodes.cpu().numpy()
    if wanted & {"target_degree", "source_degree"}:
        degree = torch.from_numpy(arrays.degree(whole)).to(features.device, dtype)
        logarithm = degree.log1p()
        found["target_degree"] = logarithm[target]
        found["source_degree"] = logarithm[source]
    if wanted & {"common", "allocation"}:
        ends = nodes.cpu()[edge_index.cpu()]
        common, allocation = _common_neighbours(arrays, ends, dtype)
        found["common"] = common.to(features.device).log1p()
        found["allocation"] = allocation.to(features.device)
    if not columns:
        return torch.empty(len(source), 0, dtype=dtype, device=features.device)
    return torch.stack([found[name] for name in columns], dim=-1)


def _common_neighbours(
    arrays: GraphArrays, ends: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """How many senders both ends have, and the sum of 1 / their degree."""
    source, target = ends.numpy()
    # Kernels are compiled for plain arrays; a mapped one is seen as such.
    given = np.asarray(arrays.indptr), np.asarray(arrays.source)
    # In the order of the file, so that only a stretch of it is in memory at a time.
    order = np.argsort(source)
    source, target = source[order], target[order]
    offsets = gather_rows(arrays.indptr, source) * arrays.source.itemsize
    found = torch.empty(2, len(source), dtype=dtype)
    for piece in stretches(offsets):
        out = found[:, piece].numpy()
        common_columns(*given, target[piece], source[piece], *out)
        arrays.release()
    count, share = torch.empty_like(found).index_copy_(
        1, torch.from_numpy(order), found
    )
    return count, share
