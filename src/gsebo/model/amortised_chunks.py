"""Amortised strengths of a whole graph, chunk by chunk.

Where the network divides by sums of weights, those of all nodes have to be known before
the first strength is. So there are two passes: the first finds the weights of all edges
and their sums, the second turns them into strengths.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.graph.arrays import GraphArrays
from gsebo.graph.chunks import Chunk, chunks, edges_within, feature_bytes, features_of
from gsebo.graph.mapped import ScratchTable, gather_rows, release
from gsebo.sparse import Pattern, row_sum
from gsebo.structure.amortised import AmortisedStrength
from gsebo.structure.base import Predictions
from gsebo.structure.evidence import FeatureWeights, PartOfGraphEdges, evidence_of

Array = NDArray[Any]


class NormaliseBySums(Protocol):
    """The network's own propagation of a part of a weighted graph."""

    def __call__(
        self, pattern: Pattern, weights: Tensor, sums: Tensor | None = None
    ) -> Tensor:
        """From entries, their weights and the sums of all rows to strengths."""


StateOf = Callable[[Chunk], Predictions | None]
"""What two predictors say of the nodes of a chunk, ``[nodes, classes]`` each."""


def predicted_by(*scores: Array, device: torch.device | str = "cpu") -> StateOf:
    """Class probabilities from logits of all nodes.

    Args:
        scores: Of each predictor, ``[nodes, classes]``, in memory or in files.
        device: Where they are used.
    """

    def state_of(chunk: Chunk) -> Predictions:
        nodes = chunk.nodes.numpy()
        logits = [torch.from_numpy(gather_rows(one, nodes)) for one in scores]
        return [one.to(device).softmax(-1) for one in logits]

    return state_of


@final
class AmortisedChunks:
    """Strengths of the entries of any chunk, by a function that was learned.

    Weights and sums of all edges are found when the first strengths are asked for.

    Args:
        structure: The function, as it was learned or restored.
        arrays: The graph, which may lie in files.
        state_of: Predictions of the nodes of a chunk.
        own: What single edges have beside the function, ``[edges]`` or
            ``[layers, edges]``; ``None`` for nothing.
        normalise: The network's.
        self_loops: Whether the network has self-loops.
        memory: Bytes to stay within.
        num_classes: Columns of the predictions.
        device: Where to compute.
        scratch: Folder for what does not fit into memory, which is empty again
            afterwards; by default the system's folder for temporary files.
        keep_evidence: Whether evidence is kept for :meth:`with_state`, six numbers for
            each edge.
    """

    def __init__(
        self,
        structure: AmortisedStrength,
        arrays: GraphArrays,
        state_of: StateOf,
        own: Array | None,
        normalise: NormaliseBySums,
        *,
        self_loops: bool,
        memory: int,
        num_classes: int = 0,
        device: torch.device | str = "cpu",
        scratch: Path | None = None,
        keep_evidence: bool = False,
    ) -> None:
        self._structure, self._arrays = structure, arrays
        self._state_of, self._own = state_of, own
        self._normalise, self._self_loops = normalise, self_loops
        self._memory, self._num_classes = memory, num_classes
        self._device, self._scratch = device, scratch
        self._keep_evidence = keep_evidence
        self._evidence: ScratchTable | None = None
        self._found: tuple[ScratchTable, ScratchTable] | None = None

    def __call__(self, chunk: Chunk) -> Tensor:
        """Strengths of the entries, ``[entries]`` or ``[layers, entries]``."""
        weights, sums = self._tables()
        of_edges = self._leading(weights.read(chunk.edges.start, chunk.edges.stop))
        if self._structure.renormalise:
            of_rows = self._leading(sums.take(chunk.nodes.numpy()))
        else:
            # The vanilla strengths, times the weights.
            of_rows = chunk.num_entries_of_rows.to(of_edges.dtype)
        normalise = partial(self._normalise, sums=of_rows)
        pattern = chunk.topology.pattern
        return self._structure.strengths(pattern, of_edges, normalise)

    def sums(self) -> Array:
        """Sum of the weights of each row, ``[nodes]`` or ``[layers, nodes]``.

        A self-loop adds one.
        """
        return self._seen(self._tables()[1])

    def weights(self) -> Array:
        """Weights of all edges, ``[edges]`` or ``[layers, edges]``."""
        return self._seen(self._tables()[0])

    def with_state(self, state_of: StateOf) -> AmortisedChunks:
        """The same with other predictions; evidence that was kept is not found anew."""
        other = AmortisedChunks(
            self._structure,
            self._arrays,
            state_of,
            self._own,
            self._normalise,
            self_loops=self._self_loops,
            memory=self._memory,
            num_classes=self._num_classes,
            device=self._device,
            scratch=self._scratch,
        )
        if self._keep_evidence:
            self._tables()
        other._evidence = self._evidence
        return other

    @torch.no_grad()
    def _tables(self) -> tuple[ScratchTable, ScratchTable]:
        """Weights of the edges and sums of the nodes."""
        if self._found is not None:
            return self._found
        arrays, layers = self._arrays, self._structure.output.shape[:-2].numel()
        columns = len(self._structure.columns) if self._keep_evidence else 0
        size = self._structure.output.element_size()
        kept = arrays.num_edges * (layers + columns) + arrays.num_nodes * layers
        in_file = kept * size > self._memory // 2
        left = self._memory if in_file else self._memory - kept * size
        table = partial(
            ScratchTable,
            dtype=self._structure.output.dtype,
            in_file=in_file,
            folder=self._scratch,
        )
        weights = table(arrays.num_edges, layers)
        sums = table(arrays.num_nodes, layers)
        fresh = table(arrays.num_edges, columns) if self._keep_evidence else None
        for chunk in chunks(
            arrays,
            self_loops=self._self_loops,
            edges_per_chunk=edges_within(left, self._edge_bytes()),
            device=self._device,
        ):
            raw = self._raw(chunk)
            if fresh is not None:
                fresh.put(chunk.edges.start, raw)
            found = self._weights(chunk, raw)
            loops = found.new_ones(*found.shape[:-1], chunk.topology.num_loops)
            entries = torch.cat([found, loops], dim=-1)
            totals = row_sum(chunk.topology.pattern, entries)
            weights.put(chunk.edges.start, _trailing(found))
            sums.put(chunk.begin, _trailing(totals.index_select(-1, chunk.own)))
        self._evidence = fresh or self._evidence
        self._found = weights, sums
        return self._found

    def _raw(self, chunk: Chunk) -> Tensor:
        """Evidence of the edges of a chunk, not yet scaled."""
        structure = self._structure
        if self._evidence is not None:
            found = self._evidence.read(chunk.edges.start, chunk.edges.stop)
            return found.to(self._device)
        dtype = structure.output.dtype
        source, target = chunk.topology.graph.edge_index.to(self._device)
        edges = PartOfGraphEdges(
            features_of(self._arrays, chunk.nodes, dtype, self._device),
            FeatureWeights(structure.centre, structure.scale),
            source,
            target,
            arrays=self._arrays,
            nodes=chunk.nodes,
        )
        return evidence_of(edges, structure.columns)

    def _weights(self, chunk: Chunk, raw: Tensor) -> Tensor:
        """Weights of the edges of a chunk, ``[..., edges]``."""
        structure, own = self._structure, None
        if self._own is not None:
            own = torch.from_numpy(np.array(self._own[..., chunk.edges])).to(raw)
            release(self._own)
        # The edges of the graph are no candidates.
        raw = torch.nn.functional.pad(raw, (0, 1))
        evidence = (raw - structure.mean) / structure.spread
        state = self._state_of(chunk)
        found = structure.weights(chunk.topology, evidence, None, state, own)
        structure.forget()
        return found

    def _edge_bytes(self) -> int:
        """What is computed for an edge, its source and that one's self-loop."""
        structure = self._structure
        layers, size = structure.output.shape[:-2].numel(), structure.output.itemsize
        features = 2 * feature_bytes(self._arrays, structure.output.dtype)
        scorer = 5 * structure.num_inputs + 3 * layers * structure.hidden.shape[-1]
        predictions = 4 * self._num_classes
        return features + size * (scorer + predictions + 8 * layers)

    def _leading(self, rows: Tensor) -> Tensor:
        """From rows of a table to ``[...]`` or ``[layers, ...]`` on the device."""
        return self._shaped(rows.to(self._device).T)

    def _seen(self, table: ScratchTable) -> Array:
        array: Array = table.array.T
        return array if self._structure.per_layer else array[0]

    def _shaped(self, by_layer: Tensor) -> Tensor:
        return by_layer.contiguous() if self._structure.per_layer else by_layer[0]


def _trailing(values: Tensor) -> Tensor:
    """From ``[...]`` or ``[layers, ...]`` to rows of a table."""
    by_layer = values if values.dim() > 1 else values.unsqueeze(0)
    return by_layer.T
