"""False edges between classes, to see what a learner does about them."""

from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch_geometric.data import Data

from gsebo.data.edge_list import sorted_distinct
from gsebo.data.seeding import seeded_generator
from gsebo.errors import InvalidInput

Ints = NDArray[np.int64]


def add_inter_class_edges(data: Data, count: int, seed: int = 0) -> Data:
    """Return a copy of a graph with ``count`` more undirected edges between classes.

    The pairs are drawn uniformly, without replacement, from all pairs of nodes with
    different labels that are no edge in either direction. Both directions of each are
    appended after the user's edges. This is a diagnostic only: it uses *all* labels,
    test labels too.

    Raises:
        InvalidInput: ``count`` is negative or more than there are such pairs.
    """
    labels = _labels(data)
    if count < 0:
        raise InvalidInput(f"{count} edges to add: expected 0 or more.")
    for key in ("edge_weight", "edge_attr"):
        if key in data and data[key] is not None:
            raise InvalidInput(f"the graph has {key}: expected none, to add edges.")
    pairs = _InterClassPairs(labels)
    edges = data.edge_index.cpu().numpy().astype(np.int64)
    taken = sorted_distinct(_pair_keys(edges, len(labels)))
    taken = taken[labels[taken // len(labels)] != labels[taken % len(labels)]]
    if count > pairs.count - len(taken):
        raise InvalidInput(
            f"{count} inter-class edges to add: expected at most "
            f"{pairs.count - len(taken)}, the pairs that are free."
        )
    generator = seeded_generator(seed)
    keys = _draw(pairs, taken, count, generator)
    added = torch.from_numpy(np.stack([keys // len(labels), keys % len(labels)]))
    added = added.to(data.edge_index)
    noisy = copy(data)
    noisy.edge_index = torch.cat([data.edge_index, added, added.flip(0)], dim=1)
    return noisy


class _InterClassPairs:
    """All unordered pairs of nodes with different labels, numbered, not stored."""

    def __init__(self, labels: Ints) -> None:
        _, class_of = np.unique(labels, return_inverse=True)
        sizes = np.bincount(class_of)
        self.num_nodes = len(labels)
        self.by_class = np.argsort(class_of, kind="stable")
        self.start = (np.cumsum(sizes) - sizes)[class_of[self.by_class]]
        self.size = sizes[class_of[self.by_class]]
        self.partners_up_to = np.cumsum(self.num_nodes - self.size)
        self.count = int(self.partners_up_to[-1]) // 2

    def keys(self, ordered_pairs: Ints) -> Ints:
        """Return the keys of the pairs with these numbers, below ``2 * count``."""
        first = np.searchsorted(self.partners_up_to, ordered_pairs, side="right")
        partner = ordered_pairs - self.partners_up_to[first]
        partner += self.num_nodes - self.size[first]
        partner += np.where(partner >= self.start[first], self.size[first], 0)
        return _pair_keys(self.by_class[[first, partner]], self.num_nodes)


def _draw(
    pairs: _InterClassPairs, taken: Ints, count: int, generator: np.random.Generator
) -> Ints:
    """Draw free pairs: from their list when few are free, else by rejection."""
    if count == 0:
        return np.empty(0, dtype=np.int64)
    if pairs.count <= 4 * (count + len(taken)):
        every = sorted_distinct(pairs.keys(np.arange(2 * pairs.count)))
        free = every[~np.isin(every, taken, assume_unique=True)]
        return generator.choice(free, count, replace=False)
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < count:
        numbers = generator.integers(2 * pairs.count, size=2 * count + 16)
        keys = pairs.keys(numbers)
        drawn = np.concatenate([drawn, keys[~np.isin(keys, taken)]])
        _, first_time = np.unique(drawn, return_index=True)
        drawn = drawn[np.sort(first_time)]
    return drawn[:count]


def _pair_keys(pairs: Ints, num_nodes: int) -> Ints:
    """Return one number per unordered pair of ``[2, pairs]``."""
    keys: Ints = pairs.min(axis=0) * num_nodes + pairs.max(axis=0)
    return keys


def _labels(data: Data) -> Ints:
    if "y" not in data or data.y is None:
        raise InvalidInput("the graph has no y: expected labels, to add edges.")
    labels = data.y.cpu().numpy()
    fits = labels.ndim == 1 and labels.size > 0 and labels.dtype.kind in "iu"
    if not fits or (labels < 0).any():
        raise InvalidInput(
            f"y has shape {list(labels.shape)} and dtype {labels.dtype}: expected one "
            "integer class per node, none negative, to add edges."
        )
    return np.asarray(labels, dtype=np.int64)
