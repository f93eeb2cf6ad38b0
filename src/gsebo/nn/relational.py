"""Graph convolutions with a map for each relation (Schlichtkrull et al., ESWC 2018)."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple, cast, final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from gsebo.errors import InvalidInput
from gsebo.nn.base import (
    Features,
    LayerStrengths,
    Normalisation,
    SizedBackbone,
    glorot,
    strength_at,
)
from gsebo.sparse import Noise, Pattern, SparseFeatures, dropout, spmm


class RelationPattern(NamedTuple):
    """The entries of one relation as a pattern of their own.

    Its columns are those nodes alone that anything comes from.
    """

    pattern: Pattern
    sources: Tensor  # Number of the node of each column, int64 [columns].
    entries: Tensor  # Numbers of the entries in the whole pattern, int64 [entries].
    target: int  # Type of the nodes that they go to.


_relations: WeakKeyDictionary[Pattern, list[RelationPattern]] = WeakKeyDictionary()


def relation_of_entry(pattern: Pattern) -> Tensor:
    """Relation of each entry, int64 ``[entries]``; self-loops are of the last.

    Without types all edges are of one. Self-loops are those entries that join a node
    with itself: a graph has no other such entries.
    """
    if pattern.types is not None:
        return pattern.types.edge_type
    return (pattern.row_of_entry == pattern.column_of_entry).long()


def num_relations(pattern: Pattern) -> int:
    """How many relations there are beside that of the self-loops."""
    return 1 if pattern.types is None else pattern.types.num_relations


def by_relation(pattern: Pattern) -> list[RelationPattern]:
    """The entries of each relation, without the self-loops; found once for a pattern.

    >>> pattern = Pattern.from_positions(torch.tensor([1, 0]), torch.tensor([0, 0]), 2)
    >>> [part.entries.tolist() for part in by_relation(pattern)]
    [[0]]
    """
    if pattern not in _relations:
        relation, types = relation_of_entry(pattern), pattern.types
        found = []
        for number in range(num_relations(pattern)):
            entries = (relation == number).nonzero().squeeze(-1)
            rows, columns = (
                end[entries] for end in (pattern.row_of_entry, pattern.column_of_entry)
            )
            sources, places = torch.unique(columns, return_inverse=True)
            size = pattern.num_rows, len(sources)
            part = Pattern.from_positions(rows, places, *size)
            target = 0
            if types is not None:
                target = types.node_types.index(types.edge_types[number][2])
            found.append(RelationPattern(part, sources, entries, target))
        _relations[pattern] = found
    return _relations[pattern]


def _summed(pattern: Pattern, weights: Tensor) -> Tensor:
    """Sum of the weights of the same row and relation, for each entry."""
    relations = num_relations(pattern) + 1
    place = pattern.row_of_entry * relations + relation_of_entry(pattern)
    shape = (*weights.shape[:-1], pattern.num_rows * relations)
    total = weights.new_zeros(shape).index_add(-1, place, weights)
    return total.index_select(-1, place)


def _of_graph(pattern: Pattern, dtype: torch.dtype, degree: Tensor | None) -> Tensor:
    if degree is not None:
        raise InvalidInput(
            "a part of a graph given to a network of relations; expected the whole "
            "graph, because each relation is averaged by itself."
        )
    ones = torch.ones(pattern.num_entries, dtype=dtype, device=pattern.device)
    return _of_weights(pattern, ones, None)


def _of_weights(pattern: Pattern, weights: Tensor, sums: Tensor | None) -> Tensor:
    if sums is not None:
        return weights * _of_graph(pattern, weights.dtype, sums)
    total = _summed(pattern, weights)
    empty = total == 0
    return weights * total.masked_fill(empty, 1).reciprocal().masked_fill(empty, 0)


BY_RELATION = Normalisation(_of_graph, _of_weights)
"""w_ij / Σ of the weights of the same relation into i: a mean for each relation."""


_rows: WeakKeyDictionary[Pattern, WeakKeyDictionary[Pattern, tuple[Pattern, Tensor]]]
_rows = WeakKeyDictionary()


def source_rows(part: RelationPattern, h: Features) -> Features:
    """The rows of those nodes alone that anything of a relation comes from."""
    if isinstance(h, Tensor):
        return h.index_select(0, part.sources)
    known = _rows.setdefault(part.pattern, WeakKeyDictionary())
    if h.pattern not in known:
        place = torch.full((h.pattern.num_rows,), -1, device=h.device)
        place[part.sources] = torch.arange(len(part.sources), device=h.device)
        row = place[h.pattern.row_of_entry]
        kept = (row >= 0).nonzero().squeeze(-1)
        size = len(part.sources), h.pattern.num_columns
        columns = h.pattern.column_of_entry[kept]
        known[h.pattern] = Pattern.from_positions(row[kept], columns, *size), kept
    pattern, kept = known[h.pattern]
    return SparseFeatures(pattern, h.values.index_select(0, kept))


class RelationalBackbone(SizedBackbone):
    """A network with weights for each relation, which wait for the graph.

    A graph without types is one relation.
    """

    self_loops = True
    _num_relations: int | None = None

    def prepare(self, features: Features, pattern: Pattern, num_classes: int) -> None:
        count = num_relations(pattern)
        if self._num_relations is None:
            self._num_relations = count
            for parameters, shape in self.waiting(count):
                drawn = _stacked(shape).to(features.device, features.dtype)
                parameters.append(nn.Parameter(drawn))
        self.relations(pattern)

    @final
    def relations(self, pattern: Pattern) -> list[RelationPattern]:
        """The entries of each relation, if they are those that weights were made for.

        Raises:
            InvalidInput: There are more or fewer, or weights have not been made yet.
        """
        if self._num_relations is None:
            raise InvalidInput(
                f"{type(self).__name__} called before its weights were made; expected "
                "prepare(features, pattern, num_classes) first."
            )
        if (count := num_relations(pattern)) != self._num_relations:
            raise InvalidInput(
                f"a graph with {count} relations given; expected "
                f"{self._num_relations}, as the network was made for."
            )
        return by_relation(pattern)

    @abstractmethod
    def waiting(self, relations: int) -> list[tuple[nn.ParameterList, tuple[int, ...]]]:
        """Where weights are put that wait for the number of relations, in turn.

        And their shapes: matrices, on leading axes.
        """


def _stacked(shape: tuple[int, ...]) -> Tensor:
    """Matrices drawn one by one, ``[..., rows, columns]``."""
    count = torch.Size(shape[:-2]).numel()  # 1 of no axes.
    drawn = [glorot(*shape[-2:]).detach() for _ in range(count)]
    return torch.stack(drawn).view(shape)


@final
@dataclass(kw_only=True, eq=False, repr=False)
class RelationalGCN(RelationalBackbone):
    """R-GCN: neighbors of each relation are averaged, and each average has its map.

        h_i <- relu(h_i W_0 + Σ_r Σ_j s_ij h_j W_r + b),    W_r = Σ_b a_rb V_b

    with vanilla strengths s_ij = 1 / (number of edges of relation r into i). The
    strength of a node's self-loop is that of ``h_i W_0``.

    Args:
        num_bases: How many matrices V_b the maps of the relations are made of; 0: each
            relation has a map of its own.
    """

    normalisation = BY_RELATION
    num_bases: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.num_bases, int) or self.num_bases < 0:
            raise InvalidInput(
                f"num_bases={self.num_bases!r} given; expected a whole number, or 0."
            )
        sizes = self.sizes()
        self.self_weights = nn.ParameterList(glorot(*size) for size in sizes)
        self.biases = nn.ParameterList(torch.zeros(size[1]) for size in sizes)
        # Matrices of all relations, or what they are made of; and of how much of each.
        self.bases, self.shares = nn.ParameterList(), nn.ParameterList()

    def waiting(self, relations: int) -> list[tuple[nn.ParameterList, tuple[int, ...]]]:
        count = self.num_bases or relations
        waiting: list[tuple[nn.ParameterList, tuple[int, ...]]]
        waiting = [(self.bases, (count, *size)) for size in self.sizes()]
        if self.num_bases:
            waiting += [(self.shares, (relations, count)) for _ in self.sizes()]
        return waiting

    def forward(
        self,
        features: Features,
        pattern: Pattern,
        strengths: Tensor | LayerStrengths | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        if strengths is None:
            strengths = self.initial_strength(pattern)
        parts = self.relations(pattern)
        loops = (relation_of_entry(pattern) == len(parts)).nonzero().squeeze(-1)
        h: Features = features
        for number, own in enumerate(self.self_weights):
            given = cast(Tensor, h)
            h = torch.relu(given) if number else h
            strength = strength_at(strengths, number, h)
            h = dropout(h, self.dropout, noise, number)
            maps = self.bases[number]
            if self.num_bases:
                maps = torch.einsum("rb,bio->rio", self.shares[number], maps)
            out = (h @ own) * strength.index_select(-1, loops).unsqueeze(-1)
            for part, weight in zip(parts, maps, strict=True):
                values = strength.index_select(-1, part.entries)
                out = out + spmm(part.pattern, values, source_rows(part, h) @ weight)
            h = out + self.biases[number]
        return cast(Tensor, h)
