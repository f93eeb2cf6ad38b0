"""One small function scores all edges: it survives noise, and knows new edges too.

The weight of the edge from j to i is

    g_ij = sigmoid(b + f(e_ij)) / sigmoid(b)

where e_ij is the evidence of :mod:`~gsebo.structure.evidence` together with how far
predictions agree at both ends, and f a network with one hidden layer. It starts at
zero, so that every edge begins with weight 1. Self-loops always weigh 1, and the
network's own normalisation turns weights into strengths, differentiably. Where edges
are given weights a_ij of their own, it is g_ij a_ij that is normalised.
"""

from __future__ import annotations

from threading import Lock
from typing import NamedTuple, final
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gsebo.errors import InvalidInput
from gsebo.files import Form
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.chunks import features_of
from gsebo.graph.mapped import gather_rows
from gsebo.graph.node_match import find_edges
from gsebo.graph.topology import CanonicalGraph, Topology
from gsebo.sparse import Pattern, SparseFeatures
from gsebo.structure.agreement import NUM_AGREEMENTS, Agreements
from gsebo.structure.base import (
    BatchContext,
    BatchedStructure,
    GraphContext,
    Normalise,
    Predictions,
    Structure,
)
from gsebo.structure.evidence import (
    Features,
    FeatureWeights,
    PartOfGraphEdges,
    WholeGraphEdges,
    evidence_columns,
    evidence_of,
)

# An edge starts at 0.88 of what it could weigh: room to grow, and no flat sigmoid.
_BIAS = 2.0
# Where a candidate starts: sigmoid(-3), a twentieth of an edge.
_CANDIDATE = -5.0


class _Gathered(NamedTuple):
    """The evidence of a graph, and what it was gathered from."""

    features: Tensor | SparseFeatures
    candidate: Tensor | None
    columns: tuple[str, ...]
    weights: FeatureWeights
    raw: Tensor  # [edges, columns]

    def is_of(
        self,
        features: Tensor | SparseFeatures,
        candidate: Tensor | None,
        columns: tuple[str, ...],
    ) -> bool:
        same = self.features is features and self.candidate is candidate
        return same and self.columns == columns

    def weighs_by(self, weights: FeatureWeights) -> bool:
        """Whether features were weighed as another graph may say."""
        return all(map(torch.equal, self.weights, weights))


_GATHERING = Lock()
_gathered: WeakKeyDictionary[Topology, _Gathered] = WeakKeyDictionary()


@final
class AmortisedStrength(Structure):
    """Weights of all edges by a learned function of what is known of their ends.

    Args:
        scorer_channels: Width of the hidden layer.
        per_layer: Learn one function for each layer of the network.
        residual: Add a number of its own to the score of every edge of the fit.
        shrinkage: Share of those numbers that is taken off after every step.
        scorer_decay: The same for the weights of the function.
        evidence: Columns of evidence to use, separated by commas; ``"all"``.
        renormalise: Whether strengths are normalised anew from the weights, or are the
            vanilla ones times the weights.
    """

    hidden: nn.Parameter
    shift: nn.Parameter
    output: nn.Parameter
    own: nn.Parameter
    mean: Tensor
    spread: Tensor
    centre: Tensor
    scale: Tensor
    evidence: Tensor
    candidate: Tensor | None

    def __init__(
        self,
        *,
        scorer_channels: int = 16,
        per_layer: bool = False,
        residual: bool = False,
        shrinkage: float = 0.02,
        scorer_decay: float = 0.0,
        evidence: str = "all",
        renormalise: bool = True,
    ) -> None:
        super().__init__()
        self._channels = scorer_channels
        self.per_layer = per_layer
        self.residual = residual
        self.shrinkage = shrinkage
        self.scorer_decay = scorer_decay
        self._evidence = evidence
        self.columns, self._num_attributes = evidence_columns(evidence), 0
        self._num_relations = 0
        self.renormalise = renormalise
        self._agreements = Agreements()
        self._places: Tensor | None = None

    def expect(
        self, weighted: bool, num_attributes: int, num_relations: int = 0
    ) -> None:
        """Say whether edges have weights, and how many attributes, in the fit's graph.

        And how many relations they are of, where there are several.

        Raises:
            InvalidInput: Attributes or relations are asked for as evidence, and there
                are none.
        """
        self.columns = evidence_columns(
            self._evidence,
            weighted=weighted,
            num_attributes=num_attributes,
            num_relations=num_relations,
        )
        asked = [
            each for each in ("relation", "relation_degree") if each in self.columns
        ]
        if asked and num_relations < 2:
            raise InvalidInput(
                f"evidence={self._evidence!r} given for a graph with one relation; "
                "expected other evidence, or a graph with several."
            )
        self._num_relations = num_relations if asked else 0
        looks = "edge_attr" in self.columns
        if looks and not num_attributes:
            raise InvalidInput(
                f"evidence={self._evidence!r} given for a graph without edge_attr; "
                "expected other evidence, or a graph that has it."
            )
        self._num_attributes = num_attributes if looks else 0

    @property
    def given_values(self) -> tuple[bool, int, int]:
        """Whether it looks at edge weights, at how many attributes and relations."""
        return "edge_weight" in self.columns, self._num_attributes, self._num_relations

    @property
    def num_columns(self) -> int:
        """Numbers of evidence, and one that says whether an edge is a candidate."""
        several = max(self._num_attributes - 1, 0)
        if "relation" in self.columns:
            several += self._num_relations - 1
        # One for each end.
        several += "relation_degree" in self.columns
        return len(self.columns) + several + 1

    def setup(self, context: GraphContext) -> None:
        """Gather the evidence; draw the hidden layer by torch's seed."""
        graph, features = context.graph, context.features
        self._normalise = context.normalise
        given = graph.graph
        self.expect(
            given.weight is not None,
            0 if given.attr is None else given.attr.shape[1],
            0 if given.types is None else given.types.num_relations,
        )
        raw = self._gathered(graph, context.candidate, features)
        self.measure(raw, context.num_layers)
        self.register_buffer("evidence", self.scaled(raw), persistent=False)
        self.register_buffer("candidate", context.candidate, persistent=False)
        if self.residual:
            layers = (context.num_layers,) if self.per_layer else ()
            self.own = nn.Parameter(raw.new_zeros(*layers, len(raw)))

    def _gathered(
        self,
        graph: Topology,
        candidate: Tensor | None,
        features: Tensor | SparseFeatures,
    ) -> Tensor:
        """Evidence before it has units, gathered once for a graph and its features.

        It depends on no label and no seed, so that fits which differ in these share it.
        """
        key = features, candidate, self.columns
        with _GATHERING:
            found = _gathered.get(graph)
            if found is None or not found.is_of(*key):
                self.take_feature_weights(FeatureWeights.of(features))
                raw = self._raw(graph, candidate, features)
                weights = FeatureWeights(self.centre, self.scale)
                _gathered[graph] = found = _Gathered(*key, weights, raw)
        self.take_feature_weights(found.weights)
        return found.raw

    def take_feature_weights(self, weights: FeatureWeights) -> None:
        """Weigh features by these from now on."""
        self.register_buffer("centre", weights.centre)
        self.register_buffer("scale", weights.scale)

    def measure(self, raw: Tensor, num_layers: int) -> None:
        """Find the units of the evidence; draw the hidden layer by torch's seed.

        Of ``raw``, ``[edges, columns]``, the last column says which are candidates.
        """
        # Of no edges at all, the mean would not be a number.
        measured = raw if len(raw) > 0 else raw.new_zeros(1, raw.shape[1])
        self.register_buffer("mean", measured.mean(0))
        spread = measured.std(0, correction=0)
        # Evidence that all edges share tells nothing: it becomes 0.
        floor = 1e-6 * (1 + self.mean.abs())
        self.register_buffer("spread", torch.where(spread > floor, spread, torch.inf))
        self._make_scorer(num_layers, raw)

    def restore(self, tensors: dict[str, Tensor], normalise: Normalise) -> None:
        """Take the ``state_dict`` of what was learned on a graph, to score others.

        Only ``evidence_of``, ``weights`` and ``strengths`` can be asked then.
        """
        self._normalise = normalise
        for name in ("centre", "scale", "mean", "spread"):
            self.register_buffer(name, tensors[name])
        for name in ("hidden", "shift", "output"):
            self.register_parameter(name, nn.Parameter(tensors[name]))

    def forms(
        self, num_features: int, num_layers: int, dtype: torch.dtype, *, centred: bool
    ) -> dict[str, Form]:
        """What :meth:`restore` needs, by name; dense features have a centre."""
        lead = (num_layers,) if self.per_layer else ()
        width, channels = self.num_inputs, self._channels
        units = (self.num_columns,)
        return {
            "centre": Form(dtype, (num_features if centred else 0,)),
            "scale": Form(dtype, (num_features,)),
            "mean": Form(dtype, units),
            # Infinite for evidence that all edges of the fit shared.
            "spread": Form(dtype, units, low=0, may_be_infinite=True),
            "hidden": Form(dtype, (*lead, width, channels)),
            "shift": Form(dtype, (*lead, 1, channels)),
            "output": Form(dtype, (*lead, channels, 1)),
        }

    def _make_scorer(self, num_layers: int, like: Tensor) -> None:
        width, channels = self.num_inputs, self._channels
        lead = (num_layers,) if self.per_layer else ()
        # Drawn once for every device and precision, so that all begin at one place.
        hidden = torch.randn(*lead, width, channels) / width**0.5
        self.hidden = nn.Parameter(hidden.to(like))
        self.shift = nn.Parameter(like.new_zeros(*lead, 1, channels))
        self.output = nn.Parameter(like.new_zeros(*lead, channels, 1))

    def over(self, context: BatchContext, raw: Tensor) -> AmortisedStrength:
        """The same function on a part of the graph that it was measured on."""
        part = self._over(raw, None, context.normalise)
        if self.residual:
            part.own = context.zeros(tuple(self.output.shape[:-2]))
            part._places = context.places
        return part

    def with_edges(
        self, graph: Topology, given: Topology, features: Tensor | SparseFeatures
    ) -> AmortisedStrength:
        """The same function on the same nodes with further edges.

        Degrees are those of the ``given`` graph: a node that has got false edges would
        otherwise be known by their number. New edges have nothing of their own.
        """
        wanted, known = graph.graph.edge_index, given.graph.edge_index
        types = given.graph.types, graph.graph.types
        places = find_edges(known.cpu(), given.num_nodes, wanted.cpu(), *types)
        places = places.to(self.evidence.device)
        candidate = self.candidate
        if candidate is not None:
            candidate = candidate[places.clamp(min=0)] & (places >= 0)
        degree = known[1].bincount(minlength=given.num_nodes).to(self.evidence)
        raw = self._raw(graph, candidate, features, degree)
        other = self._over(raw, candidate, self._normalise)
        if self.residual:
            other.own, other._places = self.own, places
        return other

    def _over(
        self, raw: Tensor, candidate: Tensor | None, normalise: Normalise
    ) -> AmortisedStrength:
        other = AmortisedStrength(
            scorer_channels=self._channels,
            per_layer=self.per_layer,
            residual=self.residual,
            evidence=",".join(self.columns),
            renormalise=self.renormalise,
        )
        other._num_attributes = self._num_attributes
        other._num_relations = self._num_relations
        other.restore(dict(self.state_dict()), normalise)
        other.register_buffer("evidence", self.scaled(raw), persistent=False)
        other.register_buffer("candidate", candidate, persistent=False)
        return other

    @property
    def num_inputs(self) -> int:
        """Numbers that the function knows of an edge."""
        return self.num_columns + NUM_AGREEMENTS

    def forward(
        self,
        graph: Topology,
        state: Predictions | None = None,
        *,
        normalised: bool = True,
    ) -> Tensor:
        """Return the strengths, or the weights of the edges before normalisation."""
        own: Tensor | None = self.own if self.residual else None
        if own is not None and self._places is not None:
            own = _at_places(own, self._places)
        weights = self.weights(graph, self.evidence, self.candidate, state, own)
        return self.strengths(graph, weights) if normalised else weights

    def weights(
        self,
        graph: Topology,
        evidence: Tensor,
        candidate: Tensor | None,
        state: Predictions | None,
        own: Tensor | None = None,
    ) -> Tensor:
        """Weights of the edges of any graph, ``[..., edges]``.

        The evidence is that of :meth:`evidence_of`; ``own`` is what single edges have
        beside the function.
        """
        agreements = self._agreements.of(graph, state, evidence)
        return self.weights_by(evidence, agreements, candidate, own)

    def weights_by(
        self,
        evidence: Tensor,
        agreements: Tensor,
        candidate: Tensor | None = None,
        own: Tensor | None = None,
    ) -> Tensor:
        """The same, where it is known how far predictions agree at each edge."""
        inputs = torch.cat([evidence, agreements], dim=-1)
        # In place: a number for each edge and unit is the largest thing there is.
        hidden = (inputs @ self.hidden).add_(self.shift).tanh_()
        score = (hidden @ self.output).squeeze(-1).add_(_BIAS)
        if candidate is not None:
            score = score + _CANDIDATE * candidate
        return _weight(score if own is None else score + own)

    def strengths(
        self, graph: Topology, weights: Tensor, normalise: Normalise | None = None
    ) -> Tensor:
        """From what was learned of edges to the strengths of all entries."""
        normalise = self._normalise if normalise is None else normalise
        if self.renormalise:
            return normalise(graph.pattern, entry_weights(graph, weights))
        entries = _with_loops(graph, weights)
        vanilla = entry_weights(graph, torch.ones_like(weights))
        return entries * normalise(graph.pattern, vanilla)

    def evidence_of(
        self,
        graph: Topology,
        candidate: Tensor | None,
        features: Tensor | SparseFeatures,
    ) -> Tensor:
        """Evidence of the edges of any graph, in the units of the fit."""
        weights = FeatureWeights(self.centre, self.scale)
        with _GATHERING:
            found = _gathered.get(graph)
        known = found is not None and found.is_of(features, candidate, self.columns)
        if found is None or not known or not found.weighs_by(weights):
            return self.scaled(self._raw(graph, candidate, features))
        return self.scaled(found.raw)

    def _raw(
        self,
        graph: Topology,
        candidate: Tensor | None,
        features: Tensor | SparseFeatures,
        degree: Tensor | None = None,
    ) -> Tensor:
        source, target = graph.graph.edge_index.to(graph.pattern.device)
        kept = slice(None) if candidate is None else ~candidate
        edges = WholeGraphEdges(
            features,
            FeatureWeights(self.centre, self.scale),
            source,
            target,
            weight=graph.graph.weight,
            attr=graph.graph.attr,
            types=graph.graph.types,
            given=Pattern.from_positions(target[kept], source[kept], graph.num_nodes),
            told_degree=degree,
        )
        found = evidence_of(edges, self.columns)
        flag = found.new_zeros(len(found)) if candidate is None else candidate
        return torch.cat([found, flag.to(found).unsqueeze(-1)], dim=-1)

    def scaled(self, raw: Tensor) -> Tensor:
        """Evidence in the units of the fit."""
        return (raw - self.mean) / self.spread

    def forget(self) -> None:
        """Let go of the predictions that were looked at."""
        self._agreements.forget()

    def project(self, outer: dict[str, Tensor]) -> dict[str, Tensor]:
        kept = {"own": 1 - self.shrinkage}
        kept |= dict.fromkeys(("hidden", "output"), 1 - self.scorer_decay)
        return {name: leaf * kept.get(name, 1) for name, leaf in outer.items()}


def entry_weights(graph: Topology, weights: Tensor) -> Tensor:
    """What was learned of the edges ``[..., edges]`` times what is given of them.

    Of all entries; self-loops weigh one.
    """
    entries, given = _with_loops(graph, weights), graph.weights
    return entries if given is None else entries * given.to(entries)


def _at_places(own: Tensor, places: Tensor) -> Tensor:
    """Numbers of single edges at some places, and 0 where a place is -1."""
    if not own.shape[-1]:
        return own.new_zeros(*own.shape[:-1], len(places))
    found = own.index_select(-1, places.clamp(min=0))
    return torch.where(places < 0, 0, found)


def _with_loops(graph: Topology, weights: Tensor) -> Tensor:
    loops = weights.new_ones(*weights.shape[:-1], graph.num_loops)
    return torch.cat([weights, loops], dim=-1)


def _sigmoid_at_bias() -> float:
    return float(torch.tensor(_BIAS, dtype=torch.float64).sigmoid())


def _weight(score: Tensor) -> Tensor:
    """1 at the bias, so that the start is the vanilla graph."""
    return torch.sigmoid(score) / _sigmoid_at_bias()


Numbers = NDArray[np.int64]

# The units of features and evidence are measured on so many nodes and edges at most.
_MEASURED = 2**17
# Of so many edges all evidence is gathered once and kept, some 60 MB; of fewer where
# edges have many attributes.
_KEPT, _USUAL_COLUMNS = 2**21, 7
_SHARED = ("hidden", "shift", "output")


@final
class BatchedAmortisedStrength(BatchedStructure):
    """One function for all edges of a graph that is read in parts.

    The hidden layer is drawn by torch's seed.
    """

    def __init__(
        self,
        structure: AmortisedStrength,
        arrays: GraphArrays,
        num_layers: int,
        device: torch.device,
    ) -> None:
        super().__init__(
            "own" if structure.residual else None,
            (num_layers,) if structure.per_layer else (),
        )
        self.structure = structure
        self._arrays = arrays
        attr = arrays.edge_attr
        structure.expect(
            arrays.edge_weight is not None, 0 if attr is None else attr.shape[1]
        )
        nodes = _spread(arrays.num_nodes, _MEASURED)
        rows = features_of(arrays, torch.from_numpy(nodes), arrays.dtype, device)
        structure.take_feature_weights(FeatureWeights.of(rows))
        sample = self._sample(_spread(arrays.num_edges, _MEASURED), device)
        structure.measure(sample, num_layers)
        self._all: Tensor | None = None
        if arrays.num_edges <= _MEASURED:
            self._all = sample
        elif arrays.num_edges * max(structure.num_columns / _USUAL_COLUMNS, 1) <= _KEPT:
            self._all = self._sample(np.arange(arrays.num_edges), device)

    def shared(self) -> dict[str, Tensor]:
        named = dict(self.structure.named_parameters())
        return {name: named[name].detach().clone() for name in _SHARED}

    def over(self, context: BatchContext) -> Structure:
        if self._all is not None:
            return self.structure.over(context, self._all[context.edges])
        raw = self._raw(context.features, context.graph.graph, context.nodes)
        return self.structure.over(context, raw)

    def project(self, outer: dict[str, Tensor], start: Tensor) -> dict[str, Tensor]:
        return self.structure.project(outer)

    def _raw(self, features: Features, part: CanonicalGraph, nodes: Tensor) -> Tensor:
        structure = self.structure
        source, target = part.edge_index.to(features.device)
        seen = PartOfGraphEdges(
            features,
            FeatureWeights(structure.centre, structure.scale),
            source,
            target,
            weight=part.weight,
            attr=part.attr,
            arrays=self._arrays,
            nodes=nodes,
        )
        found = evidence_of(seen, structure.columns)
        # No candidates are among the edges of the graph.
        return torch.nn.functional.pad(found, (0, 1))

    def _sample(self, edges: Numbers, device: torch.device) -> Tensor:
        """Evidence of some edges of the whole graph."""
        arrays = self._arrays
        source = gather_rows(arrays.source, edges).astype(np.int64)
        target = np.searchsorted(arrays.indptr, edges, side="right") - 1
        nodes, local = np.unique(np.stack([source, target]), return_inverse=True)
        rows = features_of(arrays, torch.from_numpy(nodes), arrays.dtype, device)
        ends = torch.from_numpy(local.reshape(2, -1))
        part = CanonicalGraph(
            len(nodes), ends, torch.arange(len(edges)), *arrays.values_of_edges(edges)
        )
        found = self._raw(rows, part, torch.from_numpy(nodes))
        arrays.release()
        return found


def _spread(count: int, most: int) -> Numbers:
    """At most so many numbers below ``count``, evenly spread; all of a few."""
    return np.arange(count) if count <= most else np.arange(most) * count // most
