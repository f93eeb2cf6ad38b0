"""What a graph that may lie in files holds of some of its nodes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.data.arrays import CSRArrays, GraphArrays
from gsebo.data.mapped import gather_rows
from gsebo.sparse.features import SparseFeatures, features_as_stored

Nodes = NDArray[np.int64]

# A stored number of sparse features: its value, its place and copies of both.
_STORED_BYTES = 32


def degrees_of(arrays: GraphArrays, nodes: Nodes) -> Nodes:
    """Number of edges into some nodes, given in ascending order, int64."""
    found = gather_rows(arrays.indptr, nodes + 1) - gather_rows(arrays.indptr, nodes)
    return found.astype(np.int64, copy=False)


def features_of(
    arrays: GraphArrays,
    nodes: Tensor,
    dtype: torch.dtype,
    device: torch.device | str,
) -> Tensor | SparseFeatures:
    """Features of some nodes, given in ascending order, in the form of the graph."""
    return features_as_stored(arrays.features(nodes.numpy()), dtype, device)


def feature_bytes(arrays: GraphArrays, dtype: torch.dtype) -> int:
    """Bytes of the features of one node on average, with copies on their way."""
    if isinstance(arrays.x, CSRArrays):
        stored = len(arrays.x.values) / max(arrays.num_nodes, 1)
        return int(_STORED_BYTES * (stored + 1))
    return 3 * arrays.num_features * dtype.itemsize
