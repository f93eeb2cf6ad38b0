"""Strengths by a learned function, of graphs in memory and on disk, also of new edges.

The function looks at what networks predict: first at what one knows from features
alone, then at what another one makes of the strengths that follow. Where the network
divides by sums of weights, those of all nodes have to be known before the first
strength is. So there are two passes: the first finds the weights of all edges and their
sums, the second turns them into strengths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.bilevel import Tree
from gsebo.files import Form
from gsebo.graph.chunks import Chunk
from gsebo.graph.mapped import ScratchTable, release
from gsebo.model.layerwise import ChunkedGraph
from gsebo.model.state import Parts, ScorerFacts, Tensors, under, weight_forms
from gsebo.nn import Backbone
from gsebo.sparse import row_sum
from gsebo.structure import AmortisedStrength
from gsebo.structure.base import Predictions

Array = NDArray[Any]
_FUNCTION, _FEATURES_ONLY, _FIRST = "scorer:", "features_only:", "first:"
_EDGE_WEIGHTS = "edge_weights"


@final
class ScoredEdges:
    """Strengths of the entries of any chunk, by a function that was learned.

    Weights and sums of all edges are found when the first strengths are asked for.

    Args:
        structure: The function, as it was learned or restored.
        graph: Whose edges are scored.
        backbone: Whose propagation of a weighted graph gives the strengths.
        state_of: What two predictors say of the nodes of a chunk, ``[nodes, classes]``
            each.
        own: What single edges have beside the function, ``[..., edges]``.
        kept: From the weights that were found to those that are used, in one chunk.
        evidence: Of all edges, where it was found before.
        num_classes: Columns of the predictions.
        keep_evidence: Whether evidence is kept for other predictions.
    """

    def __init__(
        self,
        structure: AmortisedStrength,
        graph: ChunkedGraph,
        backbone: Backbone,
        state_of: Callable[[Chunk], Predictions | None],
        own: Array | None = None,
        *,
        kept: Callable[[Tensor], Tensor] | None = None,
        evidence: ScratchTable | None = None,
        num_classes: int = 0,
        keep_evidence: bool = False,
    ) -> None:
        self._structure, self._graph, self._backbone = structure, graph, backbone
        self._state_of, self._own, self._kept = state_of, own, kept
        self.evidence, self._keep_evidence = evidence, keep_evidence
        self._num_classes = num_classes

    def __call__(self, chunk: Chunk) -> Tensor:
        """Strengths of the entries, ``[entries]`` or ``[layers, entries]``."""
        weights, sums = self.tables
        of_edges = self._leading(weights.read(chunk.edges.start, chunk.edges.stop))
        if self._structure.renormalise:
            of_rows = self._leading(sums.take(chunk.nodes.numpy()))
        else:
            # The vanilla strengths, times the weights.
            of_rows = chunk.num_entries_of_rows.to(of_edges.dtype)
        normalise = partial(self._backbone.normalise, sums=of_rows)
        pattern = chunk.topology.pattern
        return self._structure.strengths(pattern, of_edges, normalise)

    @cached_property
    @torch.no_grad()
    def tables(self) -> tuple[ScratchTable, ScratchTable]:
        """Weights of all edges and their sums over each row, a column for each layer.

        A self-loop adds one.
        """
        structure, graph = self._structure, self._graph
        layers, dtype = structure.output.shape[:-2].numel(), structure.output.dtype
        columns = len(structure.mean) if self._keep_evidence else 0
        kept = graph.num_edges * (layers + columns) + graph.num_nodes * layers
        kept *= dtype.itemsize
        in_file = kept > graph.half // 2
        table = partial(graph.table, dtype=dtype, in_file=in_file)
        weights, sums = table(graph.num_edges, layers), table(graph.num_nodes, layers)
        fresh = table(graph.num_edges, columns) if self._keep_evidence else None
        for chunk in graph.chunks(
            self_loops=self._backbone.self_loops,
            memory=graph.half if in_file else graph.half - kept,
            edge_bytes=self._edge_bytes(),
        ):
            if self.evidence is None:
                evidence = graph.evidence(structure, chunk)
            else:
                evidence = self.evidence.read(chunk.edges.start, chunk.edges.stop)
            if fresh is not None:
                fresh.put(chunk.edges.start, evidence)
            found = self._weights(chunk, evidence.to(graph.device))
            loops = found.new_ones(*found.shape[:-1], chunk.topology.num_loops)
            entries = torch.cat([found, loops], dim=-1)
            totals = row_sum(chunk.topology.pattern, entries)
            totals = totals.index_select(-1, chunk.own)
            weights.put(chunk.edges.start, found.reshape(layers, found.shape[-1]).T)
            sums.put(chunk.begin, totals.reshape(layers, totals.shape[-1]).T)
        self.evidence = fresh or self.evidence
        return weights, sums

    def _weights(self, chunk: Chunk, evidence: Tensor) -> Tensor:
        """Weights of the edges of a chunk, ``[..., edges]``."""
        structure, own = self._structure, None
        if self._own is not None:
            own = torch.from_numpy(np.array(self._own[..., chunk.edges])).to(evidence)
            release(self._own)
        state = self._state_of(chunk)
        found = structure.weights(chunk.topology, evidence, None, state, own)
        structure.forget()
        return found if self._kept is None else self._kept(found)

    def _edge_bytes(self) -> int:
        """What is computed for an edge, its source and that one's self-loop."""
        structure = self._structure
        layers, size = structure.output.shape[:-2].numel(), structure.output.itemsize
        scorer = 5 * structure.num_inputs + 3 * layers * structure.hidden.shape[-1]
        numbers = scorer + 4 * self._num_classes + 8 * layers
        features = 2 * self._graph.feature_bytes(structure.output.dtype)
        return features + size * numbers

    def _leading(self, rows: Tensor) -> Tensor:
        """From rows of a table to ``[...]`` or ``[layers, ...]`` on the device."""
        by_layer = rows.to(self._graph.device).T
        return by_layer.contiguous() if self._structure.per_layer else by_layer[0]


@final
@dataclass(frozen=True, eq=False)
class Scorer:
    """A learned function that scores any edges, and what it looks at.

    Attributes:
        structure: The function.
        features_only: The network that knows features alone; ``None`` where the
            function looks at no predictions.
        first: Weights of the network whose predictions the function looks at; ``None``
            where it looks at those from features alone.
        weights: Of the edges of the fit, before normalisation, ``[..., edges]``;
            ``None`` where its graph is not held.
    """

    structure: AmortisedStrength
    features_only: Backbone | None = None
    first: Tree | None = None
    weights: Tensor | None = None

    def strengths(
        self,
        graph: ChunkedGraph,
        backbone: Backbone,
        num_classes: int,
        *,
        own: Array | None = None,
        kept: Callable[[Tensor], Tensor] | None = None,
    ) -> ScoredEdges:
        """Strengths of any chunk of a graph.

        Args:
            graph: Whose edges are scored.
            backbone: The trained network.
            num_classes: How many it tells apart.
            own: What single edges have beside the function, if anything.
            kept: From the weights that were found in the end to those that are used.
        """
        dtype, predicted = self.structure.output.dtype, list[ScratchTable]()

        def state(chunk: Chunk) -> Predictions | None:
            nodes = chunk.nodes.numpy()
            rows = [table.take(nodes).to(graph.device) for table in predicted]
            return (rows[0], rows[-1]) if rows else None

        def predict(
            network: Backbone, strengths_of: ScoredEdges | None, weights: Tree | None
        ) -> None:
            size = graph.num_nodes * num_classes * dtype.itemsize
            in_file = size > graph.memory // 8
            table = graph.table(graph.num_nodes, num_classes, dtype, in_file=in_file)
            graph.probabilities(network, strengths_of, weights, table.array)
            predicted.append(table)

        scored = partial(
            ScoredEdges,
            self.structure,
            graph,
            backbone,
            state,
            own,
            num_classes=num_classes,
        )
        if self.features_only is not None:
            predict(self.features_only, None, None)
        if self.first is None:
            return scored(kept=kept)
        # Weights are found twice: for the first network and for the last.
        at_first = scored(keep_evidence=True)
        predict(backbone, at_first, self.first)
        return scored(kept=kept, evidence=at_first.evidence)

    def to_state(self) -> tuple[ScorerFacts, Tensors]:
        """What a file says of it, and its tensors by name."""
        function = dict(self.structure.state_dict())
        # What single edges had is in their weights, or in a file of its own.
        function.pop("own", None)
        parts: dict[str, Any] = {_FUNCTION: function, _FIRST: self.first or {}}
        if self.features_only is not None:
            parts[_FEATURES_ONLY] = self.features_only.state_dict()
        tensors: Tensors = {}
        for prefix, part in parts.items():
            tensors |= under(prefix, part)
        if self.weights is not None:
            tensors[_EDGE_WEIGHTS] = self.weights
        facts = ScorerFacts(
            centred=self.structure.centre.numel() > 0,
            features_only=self.features_only is not None,
            first=self.first is not None,
        )
        return facts, tensors

    @classmethod
    def from_state(
        cls,
        facts: ScorerFacts,
        parts: Parts,
        backbone: Backbone,
        structure: AmortisedStrength,
        features_only: Callable[[Tensors], Backbone],
        *,
        num_features: int,
        num_edges: int | None,
        dtype: torch.dtype,
    ) -> Scorer:
        """The scorer of files.

        Args:
            facts: What they say of it.
            parts: Their tensors.
            backbone: The network that predicts.
            structure: As the estimator configures it.
            features_only: Builds the network that knows features alone.
            num_features: Number of columns of the features.
            num_edges: Of the graph of the fit, where that is held.
            dtype: Of all numbers.
        """
        forms = structure.forms(
            num_features, backbone.num_propagations, dtype, centred=facts.centred
        )
        structure.restore(parts.take(forms, _FUNCTION), backbone.normalise)
        network = first = weights = None
        if facts.features_only:
            network = features_only(parts.take_all(_FEATURES_ONLY))
        if facts.first:
            first = parts.take(weight_forms(backbone), _FIRST)
        if num_edges is not None:
            shape = *structure.output.shape[:-2], num_edges
            found = parts.take({_EDGE_WEIGHTS: Form(dtype, shape)})
            weights = found[_EDGE_WEIGHTS]
        return cls(structure, network, first, weights)
