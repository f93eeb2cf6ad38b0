"""What can be wrong with a graph: edges, features and labels."""

from collections.abc import Iterator, Sequence
from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.data.relations import refuse_types
from gsebo.data.seeding import seeded_generator, sorted_distinct
from gsebo.data.validate import MASKS, sized
from gsebo.errors import InvalidInput
from gsebo.graph.features import (
    csr_tensor,
    normalise_rows,
    require_numbers,
    whole_numbers,
)
from gsebo.graph.graph import Graph, as_graph
from gsebo.graph.node_match import at_or_median
from gsebo.memory import require_memory

Ints = NDArray[np.int64]

# Of numbers, keys and what sorts them.
_BYTES_PER_PAIR = 40
_ROUNDING = 1e-4


def share_of(percent: int, total: int) -> int:
    """Return so many percent of a number, rounded, halves up.

    >>> share_of(10, 120), share_of(50, 3)
    (12, 2)
    """
    if not 0 <= percent <= 100:
        raise InvalidInput(f"{percent} percent given: expected 0 to 100.")
    return (percent * total + 50) // 100


def _add_pairs(data: Graph, groups: Ints, count: int, seed: int, kind: str) -> Graph:
    """Return a copy of a graph with ``count`` more undirected edges between groups.

    The pairs are drawn uniformly, without replacement, from all pairs of nodes of
    different groups that are no edge in either direction. Both directions of each are
    appended after the user's edges, which name existing nodes. Where those have weights
    or attributes, new ones have the median of each. ``kind`` is what such edges are
    called in a message.
    """
    if count < 0:
        raise InvalidInput(f"{count} edges to add: expected 0 or more.")
    values = edge_values(data, "add edges")
    pairs = _PairsBetween(groups)
    edges = data.edge_index.cpu().numpy().astype(np.int64)
    taken = sorted_distinct(_pair_keys(edges, len(groups)))
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
    old, new = torch.arange(data.num_edges), torch.full((2 * count,), -1)
    for key, held in values.items():
        noisy[key] = at_or_median(held, torch.cat([old, new]).to(held.device))
    return noisy


def _refuse_types(data: Graph) -> None:
    refuse_types(
        data,
        "the graph",
        "added edges would be of none",
        "graph.without_types(), or the noise false_typed:PERCENT",
    )


def edge_values(data: Graph, purpose: str) -> dict[str, Tensor]:
    """Weights and attributes of edges, those that there are, a row for each edge."""
    count, found = data.edge_index.shape[1], {}
    for key in ("edge_weight", "edge_attr"):
        if key not in data or (held := data[key]) is None:
            continue
        if not isinstance(held, torch.Tensor) or held.shape[:1] != (count,):
            raise InvalidInput(
                f"{key} does not belong to the edges: expected a tensor with a row for "
                f"each of {count} edges, to {purpose}."
            )
        require_numbers(held, key)
        if held.layout != torch.strided or held.is_complex():
            raise InvalidInput(
                f"{key} is {held.layout} of {held.dtype}: expected dense real numbers, "
                f"to {purpose}."
            )
        found[key] = held
    return found


def _pair_keys(pairs: Ints, num_nodes: int) -> Ints:
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
        return _pair_keys(self.by_group[[first, partner]], self.num_nodes)


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

    Args:
        data: A graph with a label of every node.
        count: Number of pairs to join.
        seed: Draws the pairs.

    Raises:
        InvalidInput: ``count`` is negative or more than there are such pairs.
    """
    _refuse_types(data)
    if "y" not in data or data.y is None:
        raise InvalidInput("the graph has no y: expected labels, to add edges.")
    labels = whole_numbers(data, "y")
    fits = labels.ndim == 1 and labels.size > 0 and labels.dtype.kind in "iu"
    if not fits or (labels < 0).any():
        raise InvalidInput(
            f"y has shape {list(labels.shape)} and dtype {labels.dtype}: expected one "
            "integer class per node, none negative, to add edges."
        )
    return _add_pairs(data, labels.astype(np.int64), count, seed, "inter-class")


def add_random_edges(data: Graph, count: int, seed: int = 0) -> Graph:
    """Return a copy of a graph with ``count`` more undirected edges.

    The pairs are drawn uniformly, without replacement, from all pairs of two nodes
    that are no edge in either direction. Both directions of each are appended after
    the user's edges. No label is read.
    """
    _refuse_types(data)
    # With a group of its own for each node, every pair is one between groups.
    groups = np.arange(int(sized(data).num_nodes), dtype=np.int64)
    return _add_pairs(data, groups, count, seed, "random")


def remove_edges(data: Graph, percent: int, seed: int = 0) -> Graph:
    """Return a copy of a graph without so many percent of the pairs that are joined.

    An edge goes with its opposite direction and its duplicates. Self-loops stay, and so
    does at least one edge; the order of what stays is as before.
    """
    edges = data.edge_index.cpu().numpy().astype(np.int64)
    is_loop = edges[0] == edges[1]
    keys = _pair_keys(edges, int(sized(data).num_nodes))
    pairs = sorted_distinct(keys[~is_loop])
    if len(pairs) == 0:
        raise InvalidInput("the graph has no edges: expected some, to remove a part.")
    count = min(share_of(percent, len(pairs)), len(pairs) - 1)
    gone = seeded_generator(seed).choice(pairs, count, replace=False)
    kept = torch.from_numpy(is_loop | ~np.isin(keys, gone)).to(data.edge_index.device)
    noisy = copy(data)
    noisy.edge_index = data.edge_index[:, kept]
    values = edge_values(data, "remove a part")
    if "edge_type" in data:
        values["edge_type"] = data.edge_type
    for key, held in values.items():
        noisy[key] = held[kept.to(held.device)]
    return noisy


def shuffle_features(data: Graph, percent: int, seed: int = 0) -> Graph:
    """Return a copy of a graph in whose features nodes have swapped entries.

    In each column, so many percent of the nodes are drawn, other nodes in each, and
    their entries, zeros included, are permuted among them. A column keeps its values,
    and so its distribution; what it said about a drawn node is lost. At 100 percent
    nothing is left but the columns' distributions. Where there are several types of
    nodes, that is done with the nodes of each type on their own.

    Rows that came normalised, their absolute values adding up to 1, are scaled to a
    largest entry of 1 before and normalised again after. For words that are there or
    not, that is the same as to swap words and to normalise then. Features are dense or
    ``sparse_csr``, and stay so.
    """
    if "x" not in data or not isinstance(data.x, Tensor) or data.x.dim() != 2:
        raise InvalidInput("the graph has no x: expected features, to shuffle them.")
    nodes, columns = (int(side) for side in data.x.shape)
    types = as_graph(data).types
    groups = [np.arange(nodes)]
    if types is not None:
        kinds = types.node_type.numpy()
        groups = [np.flatnonzero(kinds == n) for n in range(len(types.node_types))]
    # What is permuted on its own stays where it is.
    sizes = [(group, share_of(percent, len(group))) for group in groups]
    sizes = [(group, count) for group, count in sizes if count > 1]
    noisy = copy(data)
    if sizes:
        sums = _by_row(data.x, "sum")
        # But for rows of zeros.
        some = sums[sums != 0]
        near = bool(((some - 1).abs() < _ROUNDING).all())
        normalised = some.numel() > 0 and near
        x = _with_largest_entry_one(data.x) if normalised else data.x
        x = _permuted(x, _moves(nodes, columns, sizes, seed))
        noisy.x = normalise_rows(x) if normalised else x
    return noisy


def _moves(
    nodes: int, columns: int, sizes: Sequence[tuple[Ints, int]], seed: int
) -> Iterator[Tensor]:
    """For each column, the node that each node's entry goes to, in the same group."""
    generator = seeded_generator(seed)
    for _ in range(columns):
        target = np.arange(nodes)
        for group, count in sizes:
            chosen = generator.choice(group, count, replace=False)
            target[chosen] = generator.permutation(chosen)
        yield torch.from_numpy(target)


def _permuted(x: Tensor, moves: Iterator[Tensor]) -> Tensor:
    if x.layout != torch.sparse_csr:
        by_column = x.T.contiguous()
        permuted = torch.empty_like(by_column)
        for column, target in enumerate(moves):
            permuted[column, target.to(x.device)] = by_column[column]
        return permuted.T.contiguous()
    # Entries that are not stored are zeros.
    rows, columns = _rows(x), x.col_indices()
    by_column = torch.argsort(columns, stable=True)
    counts = torch.bincount(columns, minlength=x.shape[1]).tolist()
    parts = torch.split(rows[by_column], counts)
    moved = torch.cat(
        [target.to(x.device)[part] for part, target in zip(parts, moves, strict=True)]
    )
    by_row = torch.argsort(moved, stable=True)
    sizes = torch.bincount(moved, minlength=x.shape[0])
    starts = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    order = by_column[by_row]
    shape = (x.shape[0], x.shape[1])
    return csr_tensor(starts, columns[order], x.values()[order], shape)


def _with_largest_entry_one(x: Tensor) -> Tensor:
    largest = _by_row(x, "amax")
    largest = torch.where(largest == 0, 1, largest)
    if x.layout != torch.sparse_csr:
        return x / largest[:, None]
    values = x.values() / largest[_rows(x)]
    shape = (x.shape[0], x.shape[1])
    return csr_tensor(x.crow_indices(), x.col_indices(), values, shape)


def _by_row(x: Tensor, how: str) -> Tensor:
    """Sum or largest of the absolute values of each row."""
    if x.layout != torch.sparse_csr:
        return x.abs().sum(dim=1) if how == "sum" else x.abs().amax(dim=1)
    zeros = torch.zeros(x.shape[0], dtype=x.dtype, device=x.device)
    return zeros.scatter_reduce(0, _rows(x), x.values().abs(), how)


def _rows(x: Tensor) -> Tensor:
    """Row of each stored entry."""
    nodes = torch.arange(x.shape[0], device=x.device)
    return nodes.repeat_interleave(x.crow_indices().diff())


def replace_labels(data: Graph, percent: int, seed: int = 0) -> Graph:
    """Return a copy of a graph with other training and validation labels.

    Of the training nodes, and likewise of the validation nodes, so many percent are
    drawn. Each gets another class, drawn evenly from the classes that training and
    validation nodes have. No other label is read or changed, so that accuracy on test
    nodes is measured with the true ones.
    """
    for key in ("y", *MASKS[:2]):
        if key not in data or not isinstance(data[key], torch.Tensor):
            raise InvalidInput(
                f"the graph has no {key}: expected a tensor, to change labels."
            )
        given = whole_numbers(data, key)
        if given.ndim != 1 or len(given) != len(data.y):
            raise InvalidInput(
                f"{key} has shape {list(given.shape)} and dtype {given.dtype}: "
                "expected one class or truth value per node, to change labels."
            )
    labels = whole_numbers(data, "y").copy()
    sets = [np.flatnonzero(whole_numbers(data, key)) for key in MASKS[:2]]
    classes = np.unique(labels[np.concatenate(sets)])
    if len(classes) < 2:
        raise InvalidInput(
            f"training and validation nodes have {len(classes)} classes: expected at "
            "least two, to change labels."
        )
    generator = seeded_generator(seed)
    for nodes in sets:
        count = share_of(percent, len(nodes))
        chosen = generator.choice(nodes, count, replace=False)
        # One of the others: a step of 1 to classes - 1 around the circle of classes.
        steps = generator.integers(1, len(classes), size=count)
        place = np.searchsorted(classes, labels[chosen]) + steps
        labels[chosen] = classes[place % len(classes)]
    noisy = copy(data)
    noisy.y = torch.from_numpy(labels).to(data.y)
    return noisy
