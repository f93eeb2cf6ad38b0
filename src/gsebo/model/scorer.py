"""Strengths by a learned function, of graphs in memory and on disk, also of new edges.

The function looks at what networks predict: first at what one knows from features
alone, then at what another one makes of the strengths that follow. Weights of all edges
and their sums are found first, because a network may divide by sums over any node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
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
from gsebo.model.state import (
    FittedFacts,
    Parts,
    ScorerFacts,
    Tensors,
    under,
    weight_forms,
)
from gsebo.nn import Backbone
from gsebo.nn.base import Features
from gsebo.sparse import Pattern, row_sum
from gsebo.structure import AmortisedStrength
from gsebo.structure.amortised import entry_weights
from gsebo.structure.base import Predictions

Array = NDArray[Any]
_FUNCTION, _FEATURES_ONLY, _FIRST = "scorer:", "features_only:", "first:"
_EDGE_WEIGHTS = "edge_weights"


@final
@dataclass(eq=False)
class ScoredEdges:
    """Strengths of the entries of any chunk, by a function that was learned.

    Weights and sums of all edges are found when the first strengths are asked for.
    """

    structure: AmortisedStrength  # The function, as it was learned or restored.
    graph: ChunkedGraph
    backbone: Backbone  # Whose propagation of a weighted graph gives the strengths.
    # What two predictors say of the nodes of a chunk, [nodes, classes] each.
    state_of: Callable[[Chunk], Predictions | None]
    own: Array | None = None  # Of single edges, beside the function, [..., edges].
    _: KW_ONLY
    num_classes: int = 0
    # From the weights that were found to those that are used, in one chunk.
    kept: Callable[[Tensor], Tensor] | None = None
    evidence: ScratchTable | None = None  # Of all edges, where it was found before.
    keep_evidence: bool = False

    def __call__(self, chunk: Chunk) -> Tensor:
        """Strengths of the entries, ``[entries]`` or ``[layers, entries]``."""
        weights, sums = self.tables
        of_edges = self._leading(weights.read(chunk.edges.start, chunk.edges.stop))
        if self.graph.whole is not None:
            # All rows are at hand, and a network may want more of them than sums.
            return self.structure.strengths(
                chunk.topology, of_edges, self.backbone.normalise
            )
        if self.structure.renormalise:
            of_rows = self._leading(sums.take(chunk.nodes.numpy()))
        else:
            # The vanilla strengths, times the weights.
            of_rows = chunk.sums_of_rows.to(of_edges.dtype)
        normalise = partial(self.backbone.normalise, sums=of_rows)
        return self.structure.strengths(chunk.topology, of_edges, normalise)

    @cached_property
    @torch.no_grad()
    def tables(self) -> tuple[ScratchTable, ScratchTable]:
        """Weights of all edges and their sums over each row, a column for each layer.

        The sums are of what was learned times what is given; a self-loop adds one.
        """
        structure, graph = self.structure, self.graph
        layers, dtype = structure.output.shape[:-2].numel(), structure.output.dtype
        columns = len(structure.mean) if self.keep_evidence else 0
        kept = graph.num_edges * (layers + columns) + graph.num_nodes * layers
        kept *= dtype.itemsize
        in_file = kept > graph.half // 2
        table = partial(graph.table, dtype=dtype, in_file=in_file)
        weights, sums = table(graph.num_edges, layers), table(graph.num_nodes, layers)
        fresh = table(graph.num_edges, columns) if self.keep_evidence else None
        for chunk in graph.chunks(
            self_loops=self.backbone.self_loops,
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
            entries = entry_weights(chunk.topology, found)
            totals = row_sum(chunk.topology.pattern, entries)
            totals = totals.index_select(-1, chunk.own)
            weights.put(chunk.edges.start, found.reshape(layers, found.shape[-1]).T)
            sums.put(chunk.begin, totals.reshape(layers, totals.shape[-1]).T)
        self.evidence = fresh or self.evidence
        return weights, sums

    def _weights(self, chunk: Chunk, evidence: Tensor) -> Tensor:
        """Weights of the edges of a chunk, ``[..., edges]``."""
        structure, own = self.structure, None
        if self.own is not None:
            own = torch.from_numpy(np.array(self.own[..., chunk.edges])).to(evidence)
            release(self.own)
        state = self.state_of(chunk)
        candidate = self.graph.candidate
        found = structure.weights(chunk.topology, evidence, candidate, state, own)
        structure.forget()
        return found if self.kept is None else self.kept(found)

    def weights(self) -> Tensor:
        """Of all edges of a graph in memory, ``[edges]`` or ``[layers, edges]``."""
        return self._leading(self.tables[0].read(0, self.graph.num_edges))

    def _edge_bytes(self) -> int:
        """What is computed for an edge, its source and that one's self-loop."""
        structure = self.structure
        layers, size = structure.output.shape[:-2].numel(), structure.output.itemsize
        scorer = 5 * structure.num_inputs + 3 * layers * structure.hidden.shape[-1]
        numbers = scorer + 4 * self.num_classes + 8 * layers
        features = 2 * self.graph.feature_bytes(structure.output.dtype)
        return features + size * numbers

    def _leading(self, rows: Tensor) -> Tensor:
        """From rows of a table to ``[...]`` or ``[layers, ...]`` on the device."""
        by_layer = rows.to(self.graph.device).T
        return by_layer.contiguous() if self.structure.per_layer else by_layer[0]


def grounded(logits: Tensor, alone: Tensor, floor: float) -> Tensor:
    """Logits to which those of features alone are added, as probabilities multiply."""
    return logits.log_softmax(-1) + floor * alone.log_softmax(-1)


@final
@dataclass(frozen=True, eq=False)
class Scorer:
    """A learned function that scores any edges, and what it looks at."""

    structure: AmortisedStrength
    # The network that predicts from features alone, if predictions are looked at, and
    # weights of the network whose predictions are looked at, too.
    features_only: Backbone | None = None
    first: Tree | None = None
    # Of the edges of the fit, before normalisation, [..., edges], if its graph is held;
    # factors of what these edges weigh by themselves.
    weights: Tensor | None = None
    # How much what features alone say counts in a prediction: the power of it.
    floor: float = 0.0

    def grounded(self, logits: Tensor, features: Features) -> Tensor:
        """Logits in which what features alone say has its part, ``[nodes, classes]``.

        Nobody who changes edges can change that part.
        """
        if not self.floor or self.features_only is None:
            return logits
        none = torch.empty(0, dtype=torch.int64, device=logits.device)
        pattern = Pattern.from_positions(none, none, len(logits))
        alone = self.features_only(features, pattern, None, None)
        return grounded(logits, alone, self.floor)

    def strengths(
        self,
        graph: ChunkedGraph,
        backbone: Backbone,
        num_classes: int,
        *,
        own: Array | None = None,
        kept: Callable[[Tensor], Tensor] | None = None,
    ) -> ScoredEdges:
        """Strengths of any chunk of a graph, for a trained network.

        First by what features alone predict, then by what a network makes of those;
        ``own`` is what single edges have beside the function, and ``kept`` changes the
        weights that were found in the end.
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
        tensors = under(_FUNCTION, function) | under(_FIRST, self.first or {})
        if self.features_only is not None:
            tensors |= under(_FEATURES_ONLY, self.features_only.state_dict())
        if self.weights is not None:
            tensors[_EDGE_WEIGHTS] = self.weights
        weighted, attributes, relations = self.structure.given_values
        facts = ScorerFacts(
            centred=self.structure.centre.numel() > 0,
            features_only=self.features_only is not None,
            first=self.first is not None,
            edge_weight=weighted,
            edge_attr=attributes,
            relations=relations,
            floor=self.floor or None,
        )
        return facts, tensors

    @classmethod
    def from_state(
        cls,
        facts: FittedFacts,
        parts: Parts,
        backbone: Backbone,
        structure: AmortisedStrength,
        features_only: Callable[[str], Backbone],
    ) -> Scorer:
        """The scorer of files, of a function that is still empty, for a network.

        ``features_only`` builds the network that knows features alone from tensors
        whose names begin so.
        """
        said, dtype, held = facts.scorer, facts.torch_dtype, facts.graph
        assert said is not None
        there = 0 if isinstance(held, str) else len(held.edge_types)
        if said.relations not in (0, there):
            raise parts.misfit(
                f"it tells {said.relations} relations apart, and its graph has {there}"
            )
        layers = backbone.num_propagations
        structure.expect(said.edge_weight, said.edge_attr, said.relations)
        forms = structure.forms(facts.num_features, layers, dtype, centred=said.centred)
        structure.restore(parts.take(forms, _FUNCTION), backbone.normalise)
        network = features_only(_FEATURES_ONLY) if said.features_only else None
        first = parts.take(weight_forms(backbone), _FIRST) if said.first else None
        weights = None
        if not isinstance(facts.graph, str):
            form = Form(dtype, (*structure.output.shape[:-2], facts.graph.num_edges))
            weights = parts.take({_EDGE_WEIGHTS: form})[_EDGE_WEIGHTS]
        return cls(structure, network, first, weights, said.floor or 0.0)
