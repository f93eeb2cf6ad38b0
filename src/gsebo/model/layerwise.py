"""Exact predictions for all nodes of a graph, layer by layer and chunk by chunk.

Each layer is applied to all nodes before the next one, so that no node is computed
twice and none is left out. What a layer gives is kept for the next one: in memory if it
fits, else in a file. A graph in memory is one chunk, on which networks run at once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast, final

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import pad

from gsebo.bilevel import Tree
from gsebo.errors import InvalidInput
from gsebo.graph import Topology
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.chunks import (
    Chunk,
    StrengthsOf,
    chunks,
    edges_within,
    feature_bytes,
    features_of,
)
from gsebo.graph.mapped import ScratchTable, release
from gsebo.nn.base import Backbone, Features, Layer, LayeredBackbone
from gsebo.nn.mlp import MLP
from gsebo.sparse import Pattern, row_sum
from gsebo.structure import AmortisedStrength
from gsebo.structure.evidence import FeatureWeights, PartOfGraphEdges, evidence_of

Array = NDArray[Any]

DEFAULT_MEMORY = 2**30
"""Bytes that predictions of a graph on disk stay within."""


@final
class ChunkedGraph:
    """A graph that networks and learned functions are run on, chunk by chunk.

    Args:
        graph: Arrays that may lie in files, or all entries of a graph in memory, which
            is one chunk.
        features: Of a graph in memory.
        candidate: Which of its edges are not given, if any are not.
        memory: Bytes to stay within, beside results: half for strengths and half for
            layers, because both are there at a time.
        device: Where to compute.
        scratch: Folder for what does not fit into memory, which is empty again
            afterwards; by default the system's folder for temporary files.
    """

    def __init__(
        self,
        graph: GraphArrays | Topology,
        features: Features | None = None,
        *,
        candidate: Tensor | None = None,
        memory: int = DEFAULT_MEMORY,
        device: torch.device | str = "cpu",
        scratch: Path | None = None,
    ) -> None:
        if memory < 1:
            raise InvalidInput(
                f"memory={memory} given; expected a number of bytes >= 1."
            )
        self.num_nodes, self.num_edges = graph.num_nodes, graph.num_edges
        self.memory, self.half = memory, -(-memory // 2)
        self.device, self.scratch = device, scratch
        self.whole: Chunk | None = None
        self._features, self.candidate = features, candidate
        if isinstance(graph, GraphArrays):
            self.arrays = graph
            return
        self.memory, self.half, self.device = 2**62, 2**61, graph.pattern.device
        nodes, loops = torch.arange(graph.num_nodes), int(graph.num_loops > 0)
        sums = None
        if graph.weights is not None:
            dtype = torch.float32 if features is None else features.dtype
            sums = row_sum(graph.pattern, graph.weights.to(dtype))
        self.whole = Chunk(
            begin=0,
            end=graph.num_nodes,
            edges=slice(0, graph.num_edges),
            nodes=nodes,
            topology=graph,
            own=nodes.to(self.device),
            degree=graph.pattern.row_counts - loops,
            weight_sums=sums,
        )

    def chunks(
        self, *, self_loops: bool, memory: int, edge_bytes: int
    ) -> Iterable[Chunk]:
        """All nodes; so much may be used in all, and is computed for an edge."""
        if self.whole is not None:
            return [self.whole]
        return chunks(
            self.arrays,
            self_loops=self_loops,
            edges_per_chunk=edges_within(memory, edge_bytes),
            device=self.device,
        )

    def features(self, nodes: Tensor, dtype: torch.dtype) -> Features:
        """Features of the nodes of a chunk, which are in ascending order."""
        if self._features is not None:
            return self._features
        return features_of(self.arrays, nodes, dtype, self.device)

    def feature_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of the features of a node, with copies on their way."""
        return 0 if self.whole else feature_bytes(self.arrays, dtype)

    def evidence(self, structure: AmortisedStrength, chunk: Chunk) -> Tensor:
        """Evidence of the edges of a chunk in the units of the fit."""
        features = self.features(chunk.nodes, structure.output.dtype)
        if self.whole is not None:
            return structure.evidence_of(chunk.topology, self.candidate, features)
        graph = chunk.topology.graph
        source, target = graph.edge_index.to(self.device)
        edges = PartOfGraphEdges(
            features,
            FeatureWeights(structure.centre, structure.scale),
            source,
            target,
            weight=graph.weight,
            attr=graph.attr,
            arrays=self.arrays,
            nodes=chunk.nodes,
        )
        # The edges of the graph are no candidates.
        raw = pad(evidence_of(edges, structure.columns), (0, 1))
        return (raw - structure.mean) / structure.spread

    def table(
        self, rows: int, width: int, dtype: torch.dtype, *, in_file: bool
    ) -> ScratchTable:
        """A table for what is found of the graph."""
        return ScratchTable(rows, width, dtype, in_file=in_file, folder=self.scratch)

    def probabilities(
        self,
        network: Backbone,
        strengths_of: StrengthsOf | None,
        weights: Tree | None = None,
        out: Array | None = None,
    ) -> Array:
        """Class probabilities of all nodes, of what :meth:`scores` gives."""
        scores = self.scores(network, strengths_of, weights, out)
        step = max(self.memory // (16 * scores.shape[1] * 8), 1)
        for begin in range(0, len(scores), step):
            piece = torch.from_numpy(scores[begin : begin + step])
            scores[begin : begin + step] = piece.softmax(-1).numpy()
            release(scores)
        return scores

    @torch.no_grad()
    def scores(
        self,
        network: Backbone,
        strengths_of: StrengthsOf | None,
        weights: Tree | None = None,
        out: Array | None = None,
    ) -> Array:
        """Logits of all nodes, ``[nodes, classes]``, written to ``out`` if it is given.

        Weights by name take the place of the network's own. A node whose edges alone
        need more than the memory is still one chunk.

        Raises:
            InvalidInput: The graph is read in chunks, and the network has no layers
                that can be run one after another.
        """
        if self.whole is not None:
            strengths = None if strengths_of is None else strengths_of(self.whole)
            inputs = self._features, self.whole.topology.pattern, strengths, None
            logits: Tensor = functional_call(network, weights or {}, inputs)
            out = self.result(out, logits.shape[1], logits.dtype)
            out[:] = logits.numpy(force=True)
            return out
        require_layers(network)
        if weights is not None:
            network = copy.deepcopy(network)
            network.load_state_dict(weights, strict=False)
        if isinstance(network, MLP):
            return self._rows_alone(network, out)
        assert strengths_of is not None
        return _Layers(cast(LayeredBackbone, network), self).run(strengths_of, out)

    def result(self, out: Array | None, width: int, dtype: torch.dtype) -> Array:
        """The array that numbers for each node are to be written to."""
        if out is None:
            return self.table(self.num_nodes, width, dtype, in_file=False).array
        if out.shape != (self.num_nodes, width):
            raise InvalidInput(
                f"out has shape {out.shape}, expected {(self.num_nodes, width)}, one "
                "row for each node."
            )
        return out

    def _rows_alone(self, network: MLP, out: Array | None) -> Array:
        """Scores by a network that looks at no edges."""
        dtype = network.weights[0].dtype
        widths = [weight.shape[1] for weight in network.weights]
        out = self.result(out, widths[-1], dtype)
        row = self.feature_bytes(dtype) + 4 * max(widths) * dtype.itemsize
        step = max(self.half // row, 1)
        nowhere = torch.empty(0, dtype=torch.int64, device=self.device)
        for begin in range(0, self.num_nodes, step):
            nodes = torch.arange(begin, min(begin + step, self.num_nodes))
            pattern = Pattern.from_positions(nowhere, nowhere, len(nodes))
            found = network(self.features(nodes, dtype), pattern)
            out[begin : begin + len(nodes)] = found.numpy(force=True)
            self.arrays.release()
            release(out)
        return out


def require_layers(backbone: Backbone) -> None:
    """Refuse a network whose layers cannot be run one after another."""
    if isinstance(backbone, LayeredBackbone) and backbone.norm == "batch":
        raise InvalidInput(
            f"{type(backbone).__name__} with norm='batch' given for scores in chunks, "
            "which looks at all nodes at once; expected norm='layer' or 'none'."
        )
    if not isinstance(backbone, MLP | LayeredBackbone):
        name = type(getattr(backbone, "module", backbone)).__name__
        raise InvalidInput(
            f"{name} given for scores in chunks; expected a network whose layers can "
            "be run one after another: gcn, gat, sage, jk or mlp."
        )


# Numbers for every entry at a time: strengths and what they are made of; attention.
_PER_ENTRY = 6


@final
class _Layers:
    """One network on one graph."""

    def __init__(self, backbone: LayeredBackbone, graph: ChunkedGraph) -> None:
        self.backbone, self.graph = backbone, graph
        self.layers = [cast(Layer, layer) for layer in backbone.layers]
        self.dtype = self.layers[0].weight.dtype
        kept = self._kept_bytes()
        self.in_file = kept > graph.half // 2
        self.memory = graph.half if self.in_file else graph.half - kept

    def run(self, strengths_of: StrengthsOf, out: Array | None) -> Array:
        """Logits of all nodes."""
        graph, backbone = self.graph, self.backbone
        biases = [layer.bias for layer in self.layers]
        # What no nodes at all would get.
        nothing = backbone.read_out([bias.new_empty(0, len(bias)) for bias in biases])
        out = graph.result(out, nothing.shape[1], self.dtype)
        tables: list[ScratchTable] = []
        for number, bias in enumerate(biases):
            is_last = number == len(biases) - 1
            # The last layer is read out at once.
            rows = 0 if is_last else graph.num_nodes
            table = graph.table(rows, len(bias), self.dtype, in_file=self.in_file)
            for chunk in graph.chunks(
                self_loops=backbone.self_loops,
                memory=self.memory,
                edge_bytes=self._edge_bytes(),
            ):
                given: Features
                if tables:
                    given = tables[-1].take(chunk.nodes.numpy()).to(graph.device)
                else:
                    given = graph.features(chunk.nodes, self.dtype)
                inputs = given, chunk.topology.pattern, strengths_of(chunk), None
                found = backbone.output(number, *inputs).index_select(0, chunk.own)
                if not is_last:
                    table.put(chunk.begin, found)
                    continue
                here, joined = (chunk.begin, chunk.end), tables * backbone.joins_layers
                others = [each.read(*here).to(graph.device) for each in joined]
                scores = backbone.read_out([*others, found])
                out[slice(*here)] = scores.numpy(force=True)
                release(out)
            tables = [*tables, table] if backbone.joins_layers else [table]
        return out

    def _kept_bytes(self) -> int:
        """Of what the layers give, as far as it is needed at a time."""
        widths = [layer.bias.numel() for layer in self.layers[:-1]]
        if self.backbone.joins_layers:
            most = sum(widths)
        else:
            most = max(map(sum, pairwise([*widths, 0])), default=0)
        return most * self.graph.num_nodes * self.dtype.itemsize

    def _edge_bytes(self) -> int:
        """What is computed for an edge, its source and that one's self-loop."""
        size, backbone = self.dtype.itemsize, self.backbone
        needed = []
        for number, layer in enumerate(self.layers):
            rows, columns = layer.weight.shape
            features = self.graph.feature_bytes(self.dtype)
            read = 2 * rows * size if number else features
            if number == 0 and backbone.input_projection:
                read += 3 * rows * size
            entries = 2 * _PER_ENTRY * layer.heads * size
            # Beside the convolution: a residual map, and normalised numbers.
            copies = 4 + backbone.residual + 2 * (backbone.norm != "none")
            needed.append(read + copies * columns * size + entries)
        strengths = 2 * _PER_ENTRY * backbone.num_propagations * size
        return strengths + max(needed)
