"""The victim of an attacker who knows that edges are scored, and how.

A model with amortised strengths answers an attack: it scores new edges by what their
ends have in common, by degrees, and by what networks predict on the changed graph. All
of that is part of what the attacker differentiates:

    weights of edges -> degrees -> scores by features alone -> predictions of the first
    network -> their agreement -> scores -> strengths -> logits

Common neighbors are counted anew, but not differentiated: a pair has them or not. Edges
of the fit keep the weight that was learned, as they do in a prediction.
"""

from __future__ import annotations

import copy
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.func import functional_call

from gsebo.data.preparation import given_features
from gsebo.errors import InvalidInput
from gsebo.graph import CanonicalGraph, Topology
from gsebo.graph.graph import Graph
from gsebo.graph.node_match import find_edges
from gsebo.model.fitted import FittedModel
from gsebo.sparse import Pattern, make_features, row_sum
from gsebo.structure.agreement import NUM_AGREEMENTS, agreement
from gsebo.structure.evidence import FeatureWeights, WholeGraphEdges, evidence_of

# Of a share of an edge: from here on it counts as a neighbor.
_THERE = 0.5


class _Layout(NamedTuple):
    """The edges that were asked for last."""

    edge_index: Tensor
    graph: Topology
    known: Tensor  # Number of each edge among those of the fit, -1 where it is new.
    there: Tensor  # Which edges counted as neighbors when evidence was gathered.
    evidence: Tensor  # Of each edge, not yet in units, [edges, columns].


@final
class ScoredVictim:
    """A model that scores edges, differentiable by what each edge weighs.

    With weights of zero and one, its logits are those of the model on that graph.

    Args:
        model: Fitted by a method with amortised strengths, on a graph in memory.
        graph: The graph that is attacked, with the nodes of the fit.
    """

    def __init__(self, model: FittedModel, graph: Graph) -> None:
        self._fitted, self._strengths = model.held
        scorer = model.scorer
        assert scorer is not None and scorer.weights is not None
        if model.members:
            raise InvalidInput(
                "a victim with candidate edges given; expected one that was fitted "
                "with candidates=0."
            )
        if any(scorer.structure.given_values):
            raise InvalidInput(
                "a victim given that looks at weights or attributes of edges; expected "
                "one that was fitted on a graph without."
            )
        if self._fitted.num_nodes != graph.num_nodes:
            raise InvalidInput(
                f"a graph of {graph.num_nodes} nodes given with a victim that learned "
                f"strengths on {self._fitted.num_nodes}; expected the graph of its fit."
            )
        x = given_features(graph, model.num_features)
        if model.preparation is not None:
            x = model.preparation.features(graph)
        self._features = make_features(x, model.dtype, model.device)
        self._backbone = copy.deepcopy(model.backbone).eval().requires_grad_(False)
        self._structure = copy.deepcopy(scorer.structure).requires_grad_(False)
        self._scorer, self._first = copy.deepcopy(scorer), scorer.first
        self._learned = scorer.weights.detach()
        self._feature_weights = FeatureWeights(
            self._structure.centre, self._structure.scale
        )
        self._layout: _Layout | None = None
        self._features_only: Tensor | None = None
        if scorer.features_only is not None:
            with torch.no_grad():
                none = torch.empty(0, dtype=torch.int64)
                pattern = Pattern.from_positions(none, none, len(x))
                inputs = self._features, pattern.to(model.device), None, None
                self._features_only = scorer.features_only(*inputs).softmax(-1)

    def logits(self, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """As :meth:`gsebo.attacks.victim.Victim.logits`."""
        weight = edge_weight.to(self._strengths)
        layout = self._laid_out(edge_index, weight)
        graph, structure = layout.graph, self._structure
        evidence = structure.scaled(self._with_degrees(layout, weight))
        state = self._features_only
        if state is None:
            agreements = evidence.new_zeros(len(evidence), NUM_AGREEMENTS)
        else:
            alone = agreement(graph, state)
            agreements = torch.cat([alone, alone], dim=-1)
            if self._first is not None:
                scores = structure.weights_by(evidence, agreements)
                strengths = self._normalised(graph, scores, weight)
                inputs = self._features, graph.pattern, strengths, None
                first = functional_call(self._backbone, self._first, inputs)
                agrees = agreement(graph, first.softmax(-1))
                agreements = torch.cat([alone, agrees], dim=-1)
        fresh = structure.weights_by(evidence, agreements)
        scores = fresh
        if self._learned.shape[-1]:
            stored = self._learned.index_select(-1, layout.known.clamp(min=0))
            scores = torch.where(layout.known >= 0, stored, fresh)
        strengths = self._normalised(graph, scores, weight)
        found: Tensor = self._backbone(self._features, graph.pattern, strengths, None)
        return self._scorer.grounded(found, self._features)

    def _normalised(self, graph: Topology, scores: Tensor, weight: Tensor) -> Tensor:
        """Strengths of all entries; a self-loop weighs one."""
        normalise = self._backbone.normalise
        loops = weight.new_ones(*scores.shape[:-1], graph.num_loops)
        if self._structure.renormalise:
            entries = torch.cat([scores * weight, loops], dim=-1)
            return normalise(graph.pattern, entries)
        alone = torch.cat([weight, weight.new_ones(graph.num_loops)])
        vanilla = normalise(graph.pattern, alone)
        return torch.cat([scores, loops], dim=-1) * vanilla

    def _with_degrees(self, layout: _Layout, weight: Tensor) -> Tensor:
        """Evidence in which degrees follow the weights of the edges."""
        pattern, loops = layout.graph.pattern, layout.graph.num_loops
        degree = row_sum(pattern, torch.cat([weight, weight.new_zeros(loops)]))
        ends = dict(zip(("source", "target"), layout.edge_index, strict=True))
        columns = list(layout.evidence.unbind(-1))
        for end, nodes in ends.items():
            name = f"{end}_degree"
            if name in self._structure.columns:
                place = self._structure.columns.index(name)
                columns[place] = degree.log1p()[nodes.to(degree.device)]
        return torch.stack(columns, dim=-1)

    @torch.no_grad()
    def _laid_out(self, edge_index: Tensor, weight: Tensor) -> _Layout:
        layout, there = self._layout, weight >= _THERE
        same = layout is not None and layout.edge_index is edge_index
        if layout is not None and same and torch.equal(layout.there, there):
            return layout
        if layout is not None and same:
            graph, known = layout.graph, layout.known
        else:
            graph, known = self._entries(edge_index)
        evidence = self._evidence(edge_index.to(weight.device), there)
        self._layout = _Layout(edge_index, graph, known, there, evidence)
        return self._layout

    def _entries(self, edge_index: Tensor) -> tuple[Topology, Tensor]:
        size, device = self._fitted.num_nodes, self._strengths.device
        places = torch.arange(edge_index.shape[1])
        # In the order in which the edges were given, which no one else relies on.
        graph = CanonicalGraph(size, edge_index, places)
        loops = self._backbone.self_loops
        known = find_edges(self._fitted.edge_index.cpu(), size, edge_index.cpu())
        topology = Topology.of(graph, self_loops=loops, device=device)
        return topology, known.to(device)

    def _evidence(self, edge_index: Tensor, there: Tensor) -> Tensor:
        source, target = edge_index
        size, structure = self._fitted.num_nodes, self._structure
        edges = WholeGraphEdges(
            self._features,
            self._feature_weights,
            source,
            target,
            given=Pattern.from_positions(target[there], source[there], size),
        )
        found = evidence_of(edges, structure.columns)
        # No edge is a candidate.
        return torch.nn.functional.pad(found, (0, 1))
