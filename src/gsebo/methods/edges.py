"""What a fitted model says of the edges of its graph: a table, an order, a clean graph.

Of all that a model knows of an edge, how far its predictions agree at both ends tells
best whether the edge is wrong: a strength is normalised, and tells of degrees as well.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal, final, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.data.relations import opposite_relations
from gsebo.data.validate import sized
from gsebo.errors import InvalidInput
from gsebo.graph import Topology
from gsebo.graph.graph import as_graph
from gsebo.methods.parameters import require_choice
from gsebo.model.fitted import EdgePiece
from gsebo.structure.agreement import agreement, told_predictions

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch_geometric.data import Data, HeteroData

    from gsebo.methods.base import GraphClassifier

Array = NDArray[Any]

Sort = Literal[
    "suspicious",
    "agreement",
    "weight",
    "strength",
    "ratio",
    "changed",
    "strengthened",
]
# Those that need predictions or a learned function, which not every model has at hand.
_BY_PREDICTIONS = ("suspicious", "agreement")
Measure = Literal["weight", "agreement", "ratio", "strength"]
_PIECE = 2**18
WeightKind = Literal["weight", "strength"]


@final
@dataclass(frozen=True, eq=False)
class EdgeTable:
    """Some edges, one row each, with what a model says of them.

    What it does not say is not a number, and comes last in every order.
    """

    source: Array  # Number of each node, int64 [rows].
    target: Array
    relation: Array  # Number of the relation, int64 [rows]; 0 where there is one.
    way: Array  # A number that a relation shares with the one that is its opposite.
    start: Array  # Strength in the network as it is, float64 [rows].
    strength: Array  # As learned; the mean, where layers have their own.
    by_layer: Array  # The same of each layer, [rows, layers]; no columns otherwise.
    weight: Array  # As learned, before normalisation.
    # Probability that both ends are of one class, by predictions; nodes of a type
    # without classes are of those around them.
    agreement: Array

    @classmethod
    def of(cls, model: GraphClassifier) -> EdgeTable:
        """All edges that a user gave to a fit, in that order."""
        fitted = model.model_
        graph, _ = fitted.held
        source, target = as_graph(model.graph_).edge_index.cpu().long()
        piece = EdgePiece(
            torch.stack([source, target]), model.initial_strength_, model.strength_
        )
        table = cls.of_piece(piece)
        types = as_graph(model.graph_).types
        agreement = _agreement(model, source, target)
        if types is not None:
            relation = types.edge_type.numpy()
            opposite = opposite_relations(piece.edge_index, types)
            pair = [min(n, n if o is None else o) for n, o in enumerate(opposite)]
            table = replace(table, relation=relation, way=np.array(pair)[relation])
        weights = None if fitted.scorer is None else fitted.scorer.weights
        if weights is None or not fitted.learned:
            return replace(table, agreement=agreement)
        mean = (weights if weights.dim() == 1 else weights.mean(0)).double().cpu()
        # A self-loop weighs one, whatever is learned.
        loops = torch.ones(graph.num_nodes, dtype=torch.float64)
        weight = graph.to_user_order(mean, loops).numpy()
        return replace(table, agreement=agreement, weight=weight)

    @classmethod
    def of_piece(cls, piece: EdgePiece) -> EdgeTable:
        """Edges of which only strengths are known."""
        source, target = piece.edge_index.cpu().numpy()
        strength = piece.strength.detach().double().cpu()
        start = piece.start.detach().double().cpu().numpy()
        unknown, one = np.full(len(source), np.nan), np.zeros(len(source), np.int64)
        if strength.dim() == 1:
            columns = strength.numpy(), np.empty((len(source), 0))
        else:
            columns = strength.mean(0).numpy(), strength.T.numpy()
        return cls(source, target, one, one, start, *columns, unknown, unknown)

    @property
    def ratio(self) -> Array:
        """Strength / start, not a number where the start is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.start > 0, self.strength / self.start, np.nan)

    @property
    def knows_predictions(self) -> bool:
        """Whether it is known what a model predicts at both ends."""
        return not np.isnan(self.agreement).all()

    def take(self, rows: Array) -> EdgeTable:
        """Some of the rows, in this order."""
        return EdgeTable(*(getattr(self, each.name)[rows] for each in fields(self)))

    def of_layer(self, number: int) -> EdgeTable:
        """The same with the strengths of one layer."""
        return replace(self, strength=self.by_layer[:, number])

    def with_rows(self, other: EdgeTable) -> EdgeTable:
        """These rows and then those."""
        return EdgeTable(
            *(
                np.concatenate([getattr(self, each.name), getattr(other, each.name)])
                for each in fields(self)
            )
        )

    def pairs(self) -> tuple[Array, Array]:
        """Which rows name a pair of nodes first, and which pair each row is.

        Edges of different relations are different pairs, unless those are opposites.
        """
        low = np.minimum(self.source, self.target).astype(np.int64)
        high = np.maximum(self.source, self.target).astype(np.int64)
        keys = low * (int(high.max(initial=0)) + 1) + high
        keys = keys * (int(self.way.max(initial=0)) + 1) + self.way
        _, first, pair = np.unique(keys, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return first[order], place[pair]

    def undirected(self) -> EdgeTable:
        """One row for each pair of nodes: the mean of both directions, if it has two.

        It stands where the pair comes first, and is named as it is there.
        """
        first, pair = self.pairs()
        count = np.bincount(pair, minlength=len(first))

        def mean(column: Array) -> Array:
            if column.ndim == 1:
                return np.bincount(pair, column, len(first)) / count
            if not column.shape[1]:
                return column[first]
            return np.stack([mean(each) for each in column.T], axis=1)

        numbers = {
            each.name: mean(getattr(self, each.name)) for each in fields(self)[4:]
        }
        ends = self.source[first], self.target[first]
        return EdgeTable(*ends, self.relation[first], self.way[first], **numbers)

    def without_loops(self) -> EdgeTable:
        """Those that join two nodes."""
        return self.take(np.flatnonzero(self.source != self.target))

    def possible(self, sort: Sort) -> Sort:
        """The order that can be had: by ratio where what it needs is not known."""
        require_choice("sort", sort, get_args(Sort))
        if sort in _BY_PREDICTIONS and not self.knows_predictions:
            return "ratio"
        if sort == "weight" and np.isnan(self.weight).all():
            return "ratio"
        return sort

    def order(self, sort: Sort) -> Array:
        """Rows from the first to the last in an order; what is equal stays as it was.

        ``"suspicious"``: those first that join what the model takes for different
        classes, and of these the one that was weakened most; ``"agreement"``,
        ``"weight"``, ``"strength"``, ``"ratio"``: the least first; ``"changed"``: the
        largest change of a strength first; ``"strengthened"``: what grew most first.
        """
        change = self.strength - self.start
        weakness = self.weight if not np.isnan(self.weight).all() else self.ratio
        keys = {
            "suspicious": (weakness, self.agreement),
            "agreement": (self.agreement,),
            "weight": (self.weight,),
            "strength": (self.strength,),
            "ratio": (self.ratio,),
            "changed": (-np.abs(change),),
            "strengthened": (-change,),
        }
        return np.lexsort(keys[self.possible(sort)])

    def frame(self, names: NodeNames) -> DataFrame:
        """All of it, with nodes and classes as a user calls them."""
        from pandas import DataFrame

        columns: dict[str, Any] = {
            "source": names.ids[self.source],
            "target": names.ids[self.target],
        }
        if names.relations is not None:
            columns["relation"] = names.relations[self.relation]
        columns |= {"start": self.start, "strength": self.strength}
        for number, column in enumerate(self.by_layer.T):
            columns[f"strength_{number}"] = column
        columns |= {
            "ratio": self.ratio,
            "weight": self.weight,
            "agreement": self.agreement,
            "source_class": names.classes[self.source],
            "target_class": names.classes[self.target],
        }
        return DataFrame(columns)


def _agreement(model: GraphClassifier, source: Tensor, target: Tensor) -> Array:
    """Probability that both ends of an edge are of one class, ``[edges]``.

    A node of a type without classes is of the class of those around it, as the
    structure sees it too.
    """
    graph, _ = model.model_.held
    probability = model.probability_
    if graph.types is not None and graph.types.classified is not None:
        topology = Topology.of(graph, self_loops=False, device="cpu")
        alike = (agreement(topology, probability.double())[:, 0] + 1) / 2
        itself = told_predictions(topology, probability.double()).square().sum(-1)
        of_edges: Array = graph.to_user_order(alike, itself).numpy()
        return of_edges
    found = torch.empty(len(source), dtype=torch.float64)
    # Not all at once: there may be far more edges than nodes, and many classes.
    for begin in range(0, len(source), _PIECE):
        piece = slice(begin, begin + _PIECE)
        ends = (probability[each[piece]].double() for each in (source, target))
        found[piece] = torch.mul(*ends).sum(-1)
    return found.numpy()


def _have_classes(model: GraphClassifier) -> NDArray[np.bool_]:
    """Which nodes have a class, known or not: of several types those of one."""
    types = model.model_.held[0].types
    if types is None or types.classified is None:
        return np.ones(len(model.transduction_), bool)
    found: NDArray[np.bool_] = (types.node_type == types.classified).cpu().numpy()
    return found


@final
@dataclass(frozen=True, eq=False)
class NodeNames:
    """What a user calls nodes and their classes, known or predicted, ``[nodes]``."""

    ids: Array
    classes: Array  # Of a node whose type has no classes: None.
    known: Array  # Whether the class was given, not predicted.
    relations: Array | None = None  # What relations are called, if there are several.

    @classmethod
    def of(cls, model: GraphClassifier) -> NodeNames:
        """Those of the graph of a fit."""
        graph = sized(as_graph(model.graph_))
        predicted = model.transduction_.numpy()
        given = predicted if graph.y is None else graph.y.cpu().numpy()
        known = (given >= 0) if graph.y is not None else np.zeros(len(given), bool)
        classes = np.where(known, given, predicted)
        if (named := graph.class_names) is not None:
            # A class may have a label that no name was given for.
            texts = [*named, *map(str, range(len(named), int(classes.max()) + 1))]
            classes = np.array(texts, object)[classes]
        if (types := graph.types) is None:
            return cls(graph.ids, classes, known)
        classes = classes.astype(object)
        classes[~_have_classes(model)] = None
        relations = np.array(["-".join(each) for each in types.edge_types], object)
        return cls(graph.ids, classes, known, relations)


def edges_frame(model: GraphClassifier, *, undirected: bool) -> DataFrame:
    """The edges of a fit as a table, see :meth:`GraphClassifier.edges_frame`."""
    table = EdgeTable.of(model)
    table = table.undirected() if undirected else table
    return table.frame(NodeNames.of(model))


def clean_graph(
    model: GraphClassifier,
    *,
    threshold: float | None,
    by: Measure,
    edge_weight: WeightKind,
) -> Data | HeteroData:
    """The graph of a fit with what was learned, see `GraphClassifier.clean_graph`."""
    require_choice("by", by, get_args(Measure))
    require_choice("edge_weight", edge_weight, get_args(WeightKind))
    if threshold is not None and not isinstance(threshold, int | float):
        raise InvalidInput(
            f"threshold={threshold!r:.40} given; expected a number, or None to keep "
            "every edge."
        )
    table = EdgeTable.of(model)
    given = copy.copy(as_graph(model.graph_))
    # The one of PyG's names means what this graph gives it.
    weight = torch.from_numpy(_weights(table)) * _given_weights(model)
    given.edge_weight = weight.to(model.strength_.dtype)
    types = given.types
    kept = _first_of_each(table, None if types is None else types.edge_type.numpy())
    if threshold is not None:
        kept &= ~(_measured(table, by) < threshold) | (table.source == table.target)
    if types is not None:
        if edge_weight == "strength":
            raise InvalidInput(
                "edge_weight='strength' given for a graph with several types or "
                "relations, whose self-loops have no relation; expected 'weight'."
            )
        chosen = torch.from_numpy(kept)
        for name in ("edge_weight", "edge_attr", "edge_type", "edge_strength"):
            if name in given:
                given[name] = given[name][chosen]
        given.edge_index = given.edge_index[:, chosen]
        return sized(given).to_pyg()
    data = sized(given).to_pyg().edge_subgraph(torch.from_numpy(kept))
    if edge_weight == "weight":
        return data
    return _with_strengths(model, data)


def _given_weights(model: GraphClassifier) -> Tensor:
    """What each edge weighed as the method has used it, in the order of the user.

    What is learned is a factor of it; the self-loop of a network weighs one.
    """
    graph, _ = model.model_.held
    ones = torch.ones(graph.num_nodes, dtype=torch.float64)
    edges = ones.new_ones(graph.num_edges) if graph.weight is None else graph.weight
    return graph.to_user_order(edges.cpu(), ones)


def _weights(table: EdgeTable) -> Array:
    """By what an edge is multiplied before normalisation, or how it has changed."""
    weights = table.ratio if np.isnan(table.weight).all() else table.weight
    return np.where(np.isnan(weights), 1.0, weights)


def _measured(table: EdgeTable, by: Measure) -> Array:
    """A measure of each edge, the same for both directions of one."""
    merged, (_, pair) = table.undirected(), table.pairs()
    values = _weights(merged) if by == "weight" else getattr(merged, by)
    found: Array = values[pair]
    return found


def _first_of_each(table: EdgeTable, relation: Array | None) -> Array:
    """Which rows are not an edge that was there before: networks count it once."""
    size = int(max(table.source.max(), table.target.max())) + 1
    keys = table.source * size + table.target
    if relation is not None:
        keys = keys * (int(relation.max()) + 1) + relation
    _, first = np.unique(keys, return_index=True)
    kept = np.zeros(len(table.source), bool)
    kept[first] = True
    return kept


def _with_strengths(model: GraphClassifier, data: Data) -> Data:
    """Strengths in place of weights, those of self-loops among them."""
    edges, strength = data.edge_index, data.edge_strength
    strength = strength if strength.dim() == 1 else strength.mean(-1)
    joins = edges[0] != edges[1]
    edges, strength = edges[:, joins], strength[joins]
    if (loops := model.loop_strength_) is not None:
        loops = loops if loops.dim() == 1 else loops.mean(0)
        nodes = torch.arange(len(loops), device=edges.device).expand(2, -1)
        edges = torch.cat([edges, nodes], dim=1)
        strength = torch.cat([strength, loops.to(strength)])
    # What else edges had would have to be made up for self-loops.
    for name in data.edge_attrs():
        del data[name]
    data.edge_index, data.edge_weight = edges, strength
    return data
