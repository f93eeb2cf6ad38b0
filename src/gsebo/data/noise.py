"""False edges between classes, to see what a learner does about them."""

import numpy as np
from numpy.typing import NDArray
from torch_geometric.data import Data

from gsebo.data.features import whole_numbers
from gsebo.data.noise_pairs import add_pairs
from gsebo.errors import InvalidInput


def add_inter_class_edges(data: Data, count: int, seed: int = 0) -> Data:
    """Return a copy of a graph with ``count`` more undirected edges between classes.

    The pairs are drawn uniformly, without replacement, from all pairs of nodes with
    different labels that are no edge in either direction. Both directions of each are
    appended after the user's edges. This is a diagnostic only: it uses *all* labels,
    test labels too.

    Raises:
        InvalidInput: ``count`` is negative or more than there are such pairs.
    """
    return add_pairs(data, _labels(data), count, seed, "inter-class")


def _labels(data: Data) -> NDArray[np.int64]:
    if "y" not in data or data.y is None:
        raise InvalidInput("the graph has no y: expected labels, to add edges.")
    labels = whole_numbers(data, "y")
    fits = labels.ndim == 1 and labels.size > 0 and labels.dtype.kind in "iu"
    if not fits or (labels < 0).any():
        raise InvalidInput(
            f"y has shape {list(labels.shape)} and dtype {labels.dtype}: expected one "
            "integer class per node, none negative, to add edges."
        )
    return np.asarray(labels, dtype=np.int64)
