"""False edges between classes, to see what a learner does about them."""

from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray

from gsebo.data.seeding import seeded_generator, sorted_distinct
from gsebo.errors import InvalidInput
from gsebo.graph.features import whole_numbers
from gsebo.graph.graph import Graph
from gsebo.memory import require_memory

Ints = NDArray[np.int64]

# Of numbers, keys and what sorts them.
_BYTES_PER_PAIR = 40


def add_pairs(data: Graph, groups: Ints, count: int, seed: int, kind: str) -> Graph:
    """Return a copy of a graph with ``count`` more undirected edges between groups.

    The pairs are drawn uniformly, without replacement, from all pairs of nodes of
    different groups that are no edge in either direction. Both directions of each are
    appended after the user's edges, which name existing nodes and carry no values: new
    ones would lack them. ``kind`` is what such edges are called in a message.
    """
    if count < 0:
        raise InvalidInput(f"{count} edges to add: expected 0 or more.")
    for key in ("edge_weight", "edge_attr"):
        if key in data and data[key] is not None:
            raise InvalidInput(f"the graph has {key}: expected none, to add edges.")
    pairs = _PairsBetween(groups)
    edges = data.edge_index.cpu().numpy().astype(np.int64)
    taken = sorted_distinct(pair_keys(edges, len(groups)))
    taken = taken[groups[taken // len(groups)] != groups[taken % len(groups)]]
    if count > pairs.count - len(taken):
        raise InvalidInput(
            f"{count} {kind} edges to add: expected at most "
            f"{pairs.count - len(taken)}, the pairs that are free."
        )
    # Free pairs are listed where most that are drawn would not be free.
    are_few = pairs.count <= 4 * (count + len(taken))
    listed = 2 * pairs.count if are_few else 3 * count
    require_memory(
        _BYTES_PER_PAIR * listed,
        what=f"drawing {count} {kind} edges",
        instead="fewer of them",
    )
    keys = _draw(pairs, taken, count, are_few, seeded_generator(seed))
    added = torch.from_numpy(np.stack(divmod(keys, len(groups))))
    added = added.to(data.edge_index)
    noisy = copy(data)
    noisy.edge_index = torch.cat([data.edge_index, added, added.flip(0)], dim=1)
    return noisy


def pair_keys(pairs: Ints, num_nodes: int) -> Ints:
    """Return one number per unordered pair of ``[2, pairs]``."""
    keys: Ints = pairs.min(axis=0) * num_nodes + pairs.max(axis=0)
    return keys


class _PairsBetween:
    """All unordered pairs of nodes of different groups, numbered, not stored."""

    def __init__(self, groups: Ints) -> None:
        _, group_of = np.unique(groups, return_inverse=True)
        sizes = np.bincount(group_of)
        self.num_nodes = len(groups)
        self.by_group = np.argsort(group_of, kind="stable")
        self.start = (np.cumsum(sizes) - sizes)[group_of[self.by_group]]
        self.size = sizes[group_of[self.by_group]]
        self.partners_up_to = np.cumsum(self.num_nodes - self.size)
        self.count = int(self.partners_up_to[-1]) // 2

    def keys(self, ordered_pairs: Ints) -> Ints:
        """Return the keys of the pairs with these numbers, below ``2 * count``."""
        first = np.searchsorted(self.partners_up_to, ordered_pairs, side="right")
        partner = ordered_pairs - self.partners_up_to[first]
        partner += self.num_nodes - self.size[first]
        partner += np.where(partner >= self.start[first], self.size[first], 0)
        return pair_keys(self.by_group[[first, partner]], self.num_nodes)


def _draw(
    pairs: _PairsBetween,
    taken: Ints,
    count: int,
    are_few: bool,
    generator: np.random.Generator,
) -> Ints:
    """Draw free pairs: from their list when few are free, else by rejection."""
    if count == 0:
        return np.empty(0, dtype=np.int64)
    if are_few:
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


def add_inter_class_edges(data: Graph, count: int, seed: int = 0) -> Graph:
    """Return a copy of a graph with ``count`` more undirected edges between classes.

    The pairs are drawn uniformly, without replacement, from all pairs of nodes with
    different labels that are no edge in either direction. Both directions of each are
    appended after the user's edges. This is a diagnostic only: it uses *all* labels,
    test labels too.

    Raises:
        InvalidInput: ``count`` is negative or more than there are such pairs.
    """
    if "y" not in data or data.y is None:
        raise InvalidInput("the graph has no y: expected labels, to add edges.")
    labels = whole_numbers(data, "y")
    fits = labels.ndim == 1 and labels.size > 0 and labels.dtype.kind in "iu"
    if not fits or (labels < 0).any():
        raise InvalidInput(
            f"y has shape {list(labels.shape)} and dtype {labels.dtype}: expected one "
            "integer class per node, none negative, to add edges."
        )
    groups = np.asarray(labels, dtype=np.int64)
    return add_pairs(data, groups, count, seed, "inter-class")
