"""How many nodes a graph has, where there are no features to count."""

import copy

from torch import Tensor
from torch_geometric.data import Data


def num_nodes_without_features(data: Data) -> int:
    """Count the nodes of a graph without ``x``.

    ``num_nodes`` where it was set, or else the length of ``y``, or else one more than
    the largest node of an edge.
    """
    if "num_nodes" in data and data.num_nodes is not None:
        return int(data.num_nodes)
    for key in ("y", "train_mask", "val_mask", "test_mask"):
        if key in data and isinstance(data[key], Tensor) and data[key].dim():
            return int(data[key].shape[0])
    return int(data.edge_index.max()) + 1


def sized(data: Data) -> Data:
    """Return a graph that knows its number of nodes: itself, or a shallow copy."""
    if "x" in data and data.x is not None:
        return data
    counted = copy.copy(data)
    counted.num_nodes = num_nodes_without_features(data)
    return counted
