"""How many nodes a graph has, where there are no features to count."""

import copy
from numbers import Integral

from torch import Tensor
from torch_geometric.data import Data

from gsebo.errors import InvalidInput

_MOST_NODES_PER_EDGE = 64
_FEW_NODES = 10**6


def num_nodes_without_features(data: Data) -> int:
    """Count the nodes of a graph without ``x``.

    ``num_nodes`` where it was set, or else the length of ``y``, or else one more than
    the largest node of an edge.
    """
    # As it was set: asked for the number itself, PyG makes its own guesses.
    stated = data.get("num_nodes")
    if stated is not None:
        if not isinstance(stated, Integral):
            raise InvalidInput(
                f"num_nodes={stated!r:.40} given: expected a whole number."
            )
        return int(stated)
    for key in ("y", "train_mask", "val_mask", "test_mask"):
        if key in data and isinstance(data[key], Tensor) and data[key].dim():
            return int(data[key].shape[0])
    return int(data.edge_index.max()) + 1


def most_nodes(num_edges: int) -> int:
    """Number of nodes up to which so many edges are believed to join them.

    Beyond it, numbers of nodes are more likely names, or a slip.
    """
    return max(_FEW_NODES, _MOST_NODES_PER_EDGE * num_edges)


def sized(data: Data) -> Data:
    """Return a graph that knows its number of nodes: itself, or a shallow copy."""
    if "x" in data and data.x is not None:
        return data
    counted = copy.copy(data)
    counted.num_nodes = num_nodes_without_features(data)
    return counted
