"""What can be told of an edge before anything is learned.

For an edge from j to i, with the degrees d of the given graph,

    cosine      of the features x_i and x_j
    rarity      cosine of the same with rare features weighed more
    d_i, d_j    logarithms of the degrees
    common      logarithm of the number of common neighbors
    allocation  sum of 1 / d_k over the common neighbors k
    edge_weight logarithm of the weight that is given of the edge
    edge_attr   its attributes, as many columns as are given
    relation    a column for each relation of a graph with types, 1 in its own
    relation_degree  logarithms of the edges of the same relation into i and out of j

Random false edges rarely close a triangle, and join texts that share only common words.
Each column is a function of a :class:`SeenEdges`: all edges of a graph that is laid out
whole, or some edges of one that may lie in files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.mapped import gather_rows, stretches
from gsebo.names import names_among
from gsebo.sparse import EntryTypes, Pattern, SparseFeatures, row_sum, sddmm
from gsebo.sparse.numba_compile import compile_twice, run_kernel
from gsebo.sparse.operators import unit_rows

_WEIGHT, _ATTR = "edge_weight", "edge_attr"
_RELATION, _RELATION_DEGREE = "relation", "relation_degree"
# Its logarithm stands for that of zero, too.
_LEAST_WEIGHT = 1e-6
# Of a longer row only so many positions are looked at, evenly spread: two hubs of a
# large graph would otherwise cost more than all other pairs together.
_MOST = 256


@njit(inline="always")
def _find(columns, begin, end, wanted):  # type: ignore[no-untyped-def]
    """Place of ``wanted`` in a sorted stretch, or -1."""
    low, high = begin, end
    while low < high:
        middle = (low + high) // 2
        if columns[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < end and columns[low] == wanted else -1


@njit(inline="always")
def _shorter_first(indptr, one, other):  # type: ignore[no-untyped-def]
    """The two rows, that with fewer columns first, and how many of those to look at."""
    if indptr[one + 1] - indptr[one] > indptr[other + 1] - indptr[other]:
        one, other = other, one
    length = indptr[one + 1] - indptr[one]
    return one, other, length, min(length, _MOST)


def _row_overlap(  # type: ignore[no-untyped-def]
    indptr, columns, entries, values, first, second, out
):
    for pair in prange(first.shape[0]):
        short, long, length, looks = _shorter_first(indptr, first[pair], second[pair])
        total = 0.0
        for number in range(looks):
            k = indptr[short] + number * length // looks
            found = _find(columns, indptr[long], indptr[long + 1], columns[k])
            if found >= 0:
                total += values[entries[k]] * values[entries[found]]
        out[pair] = total * length / max(looks, 1)


def _common_columns(  # type: ignore[no-untyped-def]
    indptr, columns, first, second, count, share
):
    for pair in prange(first.shape[0]):
        short, long, length, looks = _shorter_first(indptr, first[pair], second[pair])
        seen, total = 0, 0.0
        for number in range(looks):
            k = indptr[short] + number * length // looks
            wanted = columns[k]
            if _find(columns, indptr[long], indptr[long + 1], wanted) >= 0:
                seen += 1
                total += 1.0 / max(indptr[wanted + 1] - indptr[wanted], 1)
        scale = length / max(looks, 1)
        count[pair] = seen * scale
        share[pair] = total * scale


_ROW_OVERLAP = compile_twice(_row_overlap)
_COMMON_COLUMNS = compile_twice(_common_columns)


def overlap_kernel(
    arrays: tuple[np.ndarray[Any, Any], ...],
    values: np.ndarray[Any, Any],
    first: np.ndarray[Any, Any],
    second: np.ndarray[Any, Any],
    out: np.ndarray[Any, Any],
) -> None:
    """Write the product of the rows ``first[k]`` and ``second[k]`` to ``out[k]``."""
    average = values.shape[0] // max(arrays[0].shape[0] - 1, 1) + 1
    work = 8 * average * len(first)
    run_kernel(_ROW_OVERLAP, work, *arrays, values, first, second, out)


def common_columns(
    indptr: np.ndarray[Any, Any],
    columns: np.ndarray[Any, Any],
    first: np.ndarray[Any, Any],
    second: np.ndarray[Any, Any],
    count: np.ndarray[Any, Any],
    share: np.ndarray[Any, Any],
) -> None:
    """Count the columns that two rows of a square matrix share, for many pairs.

    It reads nothing as long as the matrix but the matrix itself, which may lie in
    files. To ``share`` go sums over the shared columns of 1 / length of the row of the
    same number.
    """
    work = 8 * (len(columns) // max(len(indptr) - 1, 1) + 1) * len(first)
    run_kernel(_COMMON_COLUMNS, work, indptr, columns, first, second, count, share)


@torch.no_grad()
def row_overlap(matrix: SparseFeatures, first: Tensor, second: Tensor) -> Tensor:
    """Inner products of pairs of rows, ``[pairs]``.

    The work grows with the stored entries of the shorter row of each pair. Of a row
    with more than 256, that many are looked at and the sum is scaled up. It runs on the
    CPU, wherever the matrix lies: it is needed once for a graph.

    Args:
        matrix: The rows; none holds a column twice.
        first: Numbers of rows, int64 ``[pairs]``.
        second: The others of each pair.

    >>> from gsebo.sparse import make_features
    >>> rows = make_features(torch.eye(5), torch.float32, "cpu")
    >>> row_overlap(rows, torch.tensor([0, 0]), torch.tensor([0, 1]))
    tensor([1., 0.])
    """
    out = torch.empty(first.numel(), dtype=matrix.dtype)
    overlap_kernel(
        matrix.pattern.to("cpu").arrays,
        matrix.values.detach().cpu().numpy(),
        first.cpu().numpy(),
        second.cpu().numpy(),
        out.numpy(),
    )
    return out.to(matrix.device)


Features = Tensor | SparseFeatures


@final
class FeatureWeights(NamedTuple):
    """How much each feature says about a node that has it.

    Attributes:
        centre: Taken from every feature first; empty where only counts whether a
            feature is there.
        scale: Factor of every feature: large for rare ones.
    """

    centre: Tensor
    scale: Tensor

    @classmethod
    def of(cls, features: Features) -> FeatureWeights:
        """Weigh sparse features by their rarity, dense ones by their spread."""
        if isinstance(features, Tensor):
            centre, spread = features.mean(0), features.std(0, correction=0)
            # Of a constant feature, rounding may leave a little.
            varies = spread > 1e-5 * centre.abs()
            scale = torch.where(varies, spread, torch.inf).reciprocal()
            return cls(centre, scale)
        pattern = features.pattern
        present = (features.values != 0).to(features.dtype)
        nodes = row_sum(pattern.T, present)
        scale = torch.log((pattern.num_rows + 1) / (nodes + 1))
        return cls(scale.new_empty(0), scale)

    def weigh(self, features: Features) -> Features:
        """The weighed features, in the way of the graph that the weights are of.

        Another graph may have so many zeros, or so few, that its features come in the
        other form.
        """
        if self.centre.numel() > 0:
            if not isinstance(features, Tensor):
                features = features.to_dense()
            return (features - self.centre) * self.scale
        if isinstance(features, Tensor):
            return (features != 0) * self.scale
        weighed = (features.values != 0) * self.scale[features.pattern.column_of_entry]
        return SparseFeatures(features.pattern, weighed)


@dataclass(frozen=True, eq=False)
class SeenEdges(ABC):
    """Some edges of a graph, and what can be looked at to judge them.

    Attributes:
        features: Of the nodes at hand, whose device and type evidence has.
        weights: Of the features.
        source: The node at hand that each edge comes from, int64 ``[edges]``.
        target: The one that it goes to.
        weight: What each weighs, ``[edges]``; ``None``: all weigh one.
        attr: What else is given of it, ``[edges, columns]``.
        types: Relations of the edges, in a graph that has several.
    """

    features: Features
    weights: FeatureWeights
    source: Tensor
    target: Tensor
    _: KW_ONLY
    weight: Tensor | None = None
    attr: Tensor | None = None
    types: EntryTypes | None = None

    @cached_property
    def pattern(self) -> Pattern:
        """The edges as entries, rows = targets."""
        return Pattern.from_positions(
            self.target, self.source, int(self.features.shape[0])
        )

    @cached_property
    @abstractmethod
    def degree(self) -> Tensor:
        """Edges of the given graph into each node at hand, ``[nodes]``."""

    @cached_property
    @abstractmethod
    def common_neighbors(self) -> tuple[Tensor, Tensor]:
        """How many senders both ends have, and the sum of 1 / their degree."""


@final
@dataclass(frozen=True, eq=False)
class WholeGraphEdges(SeenEdges):
    """Edges between the nodes of a graph whose ``given`` edges are laid out whole.

    ``told_degree`` is shown instead of what the given edges come to.
    """

    given: Pattern = field(kw_only=True)
    told_degree: Tensor | None = field(default=None, kw_only=True)

    @cached_property
    def degree(self) -> Tensor:
        if self.told_degree is not None:
            return self.told_degree
        return self.given.row_counts.to(self.features.dtype)

    @cached_property
    def common_neighbors(self) -> tuple[Tensor, Tensor]:
        indptr, columns, _ = self.given.to("cpu").arrays
        found = torch.empty(2, self.source.numel(), dtype=self.features.dtype)
        ends = (end.cpu().numpy() for end in (self.target, self.source))
        common_columns(indptr, columns, *ends, *found.numpy())
        count, share = found.to(self.features.device)
        return count, share


@final
@dataclass(frozen=True, eq=False)
class PartOfGraphEdges(SeenEdges):
    """Edges between some nodes of a graph whose arrays may lie in files."""

    arrays: GraphArrays = field(kw_only=True)
    nodes: Tensor = field(kw_only=True)

    @cached_property
    def degree(self) -> Tensor:
        found = torch.from_numpy(self.arrays.degree(self.nodes.cpu().numpy()))
        return found.to(self.features.device, self.features.dtype)

    @cached_property
    def common_neighbors(self) -> tuple[Tensor, Tensor]:
        nodes = self.nodes.cpu()
        ends = torch.stack([nodes[self.source.cpu()], nodes[self.target.cpu()]])
        count, share = _common_neighbors(self.arrays, ends, self.features.dtype)
        return count.to(self.features.device), share.to(self.features.device)


def _cosine(edges: SeenEdges) -> Tensor:
    return entry_products(unit_rows(edges.features), edges.pattern)


def _rarity(edges: SeenEdges) -> Tensor:
    weighed = unit_rows(edges.weights.weigh(edges.features))
    return entry_products(weighed, edges.pattern)


def _log_weight(edges: SeenEdges) -> Tensor:
    features = edges.features
    if edges.weight is None:
        return torch.zeros(
            len(edges.source), dtype=features.dtype, device=features.device
        )
    return (
        edges.weight.clamp(min=_LEAST_WEIGHT).log().to(features.device, features.dtype)
    )


def _attributes(edges: SeenEdges) -> Tensor:
    if edges.attr is None:
        raise InvalidInput(
            "the graph has no edge_attr; expected one, as evidence that is asked for."
        )
    return edges.attr.to(edges.features.device, edges.features.dtype)


def _relation(edges: SeenEdges) -> Tensor:
    numbers, count = _relations(edges)
    return torch.nn.functional.one_hot(numbers, count).to(edges.features.dtype)


def _relation_degree(edges: SeenEdges) -> Tensor:
    numbers, count = _relations(edges)
    columns = []
    for end in (edges.target, edges.source):
        place = end * count + numbers
        columns.append(place.bincount()[place].to(edges.features.dtype).log1p())
    return torch.stack(columns, dim=-1)


def _relations(edges: SeenEdges) -> tuple[Tensor, int]:
    """The relation of each edge, and how many there are."""
    if edges.types is None:
        raise InvalidInput(
            "the graph has one relation; expected several, where the relation of an "
            "edge is evidence that is asked for."
        )
    return edges.types.edge_type.to(edges.source.device), edges.types.num_relations


EVIDENCE: dict[str, Callable[[SeenEdges], Tensor]] = {
    "cosine": _cosine,
    "rarity": _rarity,
    "target_degree": lambda edges: edges.degree.log1p()[edges.target],
    "source_degree": lambda edges: edges.degree.log1p()[edges.source],
    # In a directed graph, those who send to both ends are common neighbors.
    "common": lambda edges: edges.common_neighbors[0].log1p(),
    "allocation": lambda edges: edges.common_neighbors[1],
    _WEIGHT: _log_weight,
    _ATTR: _attributes,
    _RELATION: _relation,
    _RELATION_DEGREE: _relation_degree,
}
"""Columns of evidence by name: from edges to a number for each, ``[edges]``, or to
several, ``[edges, numbers]``."""

# What "all" stands for in every graph, also where a user has added a column.
_SOMETIMES = (_WEIGHT, _ATTR, _RELATION, _RELATION_DEGREE)
_OURS = tuple(name for name in EVIDENCE if name not in _SOMETIMES)


@torch.no_grad()
def evidence_of(edges: SeenEdges, columns: Sequence[str] = _OURS) -> Tensor:
    """Evidence of edges, not yet scaled, ``[edges, columns]``."""
    kind, device = edges.features.dtype, edges.features.device
    none = torch.empty(edges.source.numel(), 0, dtype=kind, device=device)
    found = [EVIDENCE[name](edges) for name in columns]
    by_column = [each if each.dim() == 2 else each.unsqueeze(-1) for each in found]
    return torch.cat([none, *by_column], dim=-1)


def entry_products(features: Features, edges: Pattern) -> Tensor:
    """Product of the features at both ends of every entry, ``[entries]``."""
    if isinstance(features, Tensor):
        return sddmm(edges, features, features)
    return row_overlap(features, edges.row_of_entry, edges.column_of_entry)


def evidence_columns(
    names: str,
    *,
    weighted: bool = False,
    num_attributes: int = 0,
    num_relations: int = 0,
) -> tuple[str, ...]:
    """Read which columns of evidence are used.

    Those that not every graph has are among all of them where the graph has them.

    >>> evidence_columns("cosine, common")
    ('cosine', 'common')
    >>> evidence_columns("all", weighted=True)[-2:]
    ('allocation', 'edge_weight')
    """
    if names != "all":
        return names_among("evidence", names, EVIDENCE)
    there = {
        _WEIGHT: weighted,
        _ATTR: num_attributes > 0,
        _RELATION: num_relations > 1,
        _RELATION_DEGREE: num_relations > 1,
    }
    return (*_OURS, *(name for name, is_there in there.items() if is_there))


def _common_neighbors(
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
