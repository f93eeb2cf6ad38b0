"""Which nodes and edges of one graph are those of another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.graph.features import features_to_csr, take_rows
from gsebo.graph.graph import Graph
from gsebo.graph.topology import CanonicalGraph
from gsebo.sparse import EntryTypes

Words = NDArray[np.uint64]
Ids = Tensor | NDArray[np.str_]

# Rows are hashed in blocks, so that the numbers in between stay in the cache.
_ENTRIES_AT_ONCE = 2**18


def row_hashes(x: Tensor) -> Tensor:
    """Hash each row of a dense or ``sparse_csr`` matrix, int64 ``[rows]``.

    Equal rows have equal hashes, dense or sparse, on every machine; numbers count as
    float32, and zeros do not count.

    >>> first, second = row_hashes(torch.tensor([[0.0, 2.0], [2.0, 0.0]])).tolist()
    >>> first == second
    False
    """
    x = x.detach().cpu()
    hashes = np.empty(x.shape[0], dtype=np.uint64)
    for begin, end in _blocks(x):
        rows = take_rows(x, torch.arange(begin, end))
        matrix = features_to_csr(rows.to(torch.float32))
        entries = _mixed(
            (matrix.indices.astype(np.uint64) << np.uint64(32))
            | matrix.data.view(np.uint32)
        )
        # A sum of the hashes of a row's entries: differences of running sums that wrap
        # around are exact, and no order of the entries matters.
        running = np.zeros(len(entries) + 1, dtype=np.uint64)
        np.cumsum(entries, out=running[1:])
        hashes[begin:end] = _mixed(np.diff(running[matrix.indptr]))
    return torch.from_numpy(hashes.view(np.int64))


def _blocks(x: Tensor) -> Iterator[tuple[int, int]]:
    stored = x.numel() if x.layout == torch.strided else x.values().numel()
    step = max(_ENTRIES_AT_ONCE * x.shape[0] // max(stored, 1), 1)
    for begin in range(0, x.shape[0], step):
        yield begin, min(begin + step, x.shape[0])


def _mixed(words: Words) -> Words:
    """Scatter words over all 64 bits, one to one (the finaliser of SplitMix64)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class NodeKeys:
    """What the nodes of a graph are known by.

    Attributes:
        row_hash: Hash of each row of features, int64 ``[nodes]``, if anybody kept it.
        node_id: The user's own name of each node, int64 or texts ``[nodes]``, if there
            are any.
    """

    num_nodes: int
    row_hash: Tensor | None = None
    node_id: Ids | None = None

    def __post_init__(self) -> None:
        for name in ("row_hash", "node_id"):
            keys = getattr(self, name)
            if keys is not None and keys.shape != (self.num_nodes,):
                raise InvalidInput(
                    f"{name} has shape {list(keys.shape)}; expected one for each of "
                    f"{self.num_nodes} nodes."
                )

    @classmethod
    def of(cls, data: Graph) -> NodeKeys:
        """Take the keys of a validated graph."""
        # A graph without features is one that knows its number of nodes.
        hashes = row_hashes(data.x) if data.x is not None else None
        return cls(int(data.num_nodes), hashes, node_ids(data))

    def find(self, others: NodeKeys) -> Tensor:
        """Find the nodes of another graph among these, -1 where there is none.

        By ``node_id`` where both graphs have it. Otherwise by position, where a node
        whose features are not those of the node here is another one; without hashes
        the position alone decides.
        """
        if self.node_id is not None and others.node_id is not None:
            return _find_ids(self.node_id, others.node_id)
        node = torch.full((others.num_nodes,), -1)
        shared = min(self.num_nodes, others.num_nodes)
        node[:shared] = torch.arange(shared)
        if self.row_hash is not None and others.row_hash is not None:
            differs = self.row_hash[:shared] != others.row_hash[:shared]
            node[:shared][differs] = -1
        return node

    def may_be(self, data: Graph) -> bool:
        """Whether no ``node_id`` says that a graph's nodes or their order are others.

        The features are not looked at.
        """
        given = node_ids(data)
        if self.node_id is None or given is None:
            return True
        if isinstance(self.node_id, Tensor) and isinstance(given, Tensor):
            return torch.equal(self.node_id, given)
        return np.array_equal(_as_texts(self.node_id), _as_texts(given))


def node_ids(data: Graph) -> Ids | None:
    """The user's own names of a graph's nodes, int64 or texts, if there are any.

    Raises:
        InvalidInput: They are of another kind.
    """
    given: Any = data.node_id if "node_id" in data else None
    if given is None:
        return None
    if isinstance(given, Tensor):
        return given.detach().cpu().to(torch.int64)
    # PyG keeps lists, and arrays of pandas hold texts as objects.
    if isinstance(given, list | tuple) or hasattr(given, "__array__"):
        plain = np.asarray(given, None if hasattr(given, "__array__") else object)
        kinds = {type(one) for one in plain.ravel().tolist()}
        if kinds == {int} and max(map(abs, plain.ravel().tolist())) < 2**63:
            return torch.from_numpy(plain.astype(np.int64))
        if kinds == {str}:
            return plain.astype(np.str_)
    raise InvalidInput(
        f"node_id is {type(given).__name__} of something else: expected whole numbers "
        "or texts."
    )


def _as_texts(ids: Ids) -> NDArray[np.str_]:
    return ids.numpy().astype(np.str_) if isinstance(ids, Tensor) else ids


def _find_ids(ids: Ids, wanted: Ids) -> Tensor:
    """Place of each of ``wanted`` among distinct ids, or -1.

    A number and a text are one id if the number is written so.
    """
    if isinstance(ids, Tensor) and isinstance(wanted, Tensor):
        order = torch.argsort(ids)
        place = _find_sorted(ids[order], wanted)
        return torch.where(place >= 0, order[place], -1)
    place_of = {text: place for place, text in enumerate(_as_texts(ids).tolist())}
    found = [place_of.get(text, -1) for text in _as_texts(wanted).tolist()]
    return torch.tensor(found, dtype=torch.int64)


def find_edges(
    edge_index: Tensor,
    num_nodes: int,
    wanted: Tensor,
    types: EntryTypes | None = None,
    wanted_types: EntryTypes | None = None,
) -> Tensor:
    """Number of each pair of nodes among canonical edges, or -1, int64 ``[pairs]``.

    A node of a pair that the graph does not have is -1. Where both have types, an edge
    is one of the same relation.
    """
    keys = edge_index[1] * num_nodes + edge_index[0]
    pairs = wanted[1] * num_nodes + wanted[0]
    if types is not None and wanted_types is not None:
        count = types.num_relations
        keys = keys * count + types.edge_type.cpu()
        pairs = pairs * count + wanted_types.edge_type.cpu()
    # Of a pair with one node that is not there the number would be that of another.
    return _find_sorted(keys, torch.where((wanted >= 0).all(0), pairs, -1))


def at_or_median(values: Tensor, place: Tensor) -> Tensor:
    """Values ``[edges, ...]`` at some places, and their median where a place is -1.

    Of no values at all, one stands for the median.

    >>> at_or_median(torch.tensor([1.0, 5.0, 2.0]), torch.tensor([1, -1]))
    tensor([5., 2.])
    """
    if not len(values):
        return values.new_ones(len(place), *values.shape[1:])
    # Not every type of number can be sorted.
    middle = values.double().median(dim=0).values.to(values)
    found = values[place.clamp(min=0)]
    known = (place >= 0).view(-1, *[1] * (values.dim() - 1))
    return torch.where(known, found, middle)


def find_entries(
    edge_index: Tensor,
    num_nodes: int,
    graph: CanonicalGraph,
    node: Tensor,
    *,
    self_loops: bool,
    types: EntryTypes | None = None,
) -> Tensor:
    """Find the edges and self-loops of a graph among those of another.

    ``node`` says which node of the other one each node is, or -1. For each edge, and
    then for each self-loop if there are any, the number of the other's entry or -1.
    ``types`` are those of the other.
    """
    ends = node[graph.edge_index.cpu()]
    entry = find_edges(edge_index, num_nodes, ends, types, graph.types)
    if not self_loops:
        return entry
    loops = torch.where(node >= 0, edge_index.shape[1] + node, -1)
    return torch.cat([entry, loops])


def _find_sorted(keys: Tensor, wanted: Tensor) -> Tensor:
    """Place of each of ``wanted`` among the sorted keys, or -1."""
    if keys.numel() == 0:
        return torch.full_like(wanted, -1)
    place = torch.searchsorted(keys, wanted).clamp(max=keys.numel() - 1)
    return torch.where(keys[place] == wanted, place, -1)
