"""What a fit on a graph folder leaves behind: everything but the graph itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.errors import InvalidInput
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.chunks import Chunk, StrengthsOf, chunks, edges_within
from gsebo.graph.mapped import ScratchFolder, ScratchTable, release
from gsebo.model.amortised_chunks import AmortisedChunks
from gsebo.model.layerwise import layerwise_scores
from gsebo.nn import Backbone
from gsebo.structure import AmortisedStrength, Predictions

Array = NDArray[Any]

DEFAULT_MEMORY = 2**30
"""Bytes that predictions of a whole graph stay within."""

# What the strength of an edge is made of.
_EDGE_BYTES = 64


@final
@dataclass(frozen=True)
class Room:
    """What predicting may use.

    Attributes:
        memory: Bytes to stay within, beside the result.
        scratch: Folder for what does not fit; the system's for temporary files by
            default.
    """

    memory: int = DEFAULT_MEMORY
    scratch: Path | None = None

    @property
    def half(self) -> int:
        """Bytes for strengths, and as many for layers: both are there at a time."""
        return -(-self.memory // 2)


class EdgePiece(NamedTuple):
    """Some edges of a graph.

    Attributes:
        edge_index: Their sources and targets, int64 ``[2, edges]``.
        start: Their strengths in the network as it is, ``[edges]``.
        strength: Their learned strengths, ``[edges]`` or ``[layers, edges]``.
    """

    edge_index: Tensor
    start: Tensor
    strength: Tensor


@final
@dataclass(frozen=True, eq=False)
class LargeModel:
    """A trained network with its strengths, apart from any graph.

    Attributes:
        backbone: The network that predicts.
        own: What each entry of the fit's graph has of its own, ``[..., entries]``:
            the change of its strength, or beside a function a part of its score.
        graph: Checksum of the graph of the fit, which ``own`` belongs to.
        num_classes: Number of classes.
        num_features: Number of feature columns.
        scorer: The function that scores edges; without, strengths are the vanilla ones
            and ``own``.
        guess: The network that knows features alone; ``None`` where the function looks
            at no predictions.
        first: The network whose predictions the function looks at, too.
        files: Where ``own`` lies before the model is saved.
    """

    backbone: Backbone
    own: Array | None
    graph: str
    num_classes: int
    num_features: int
    scorer: AmortisedStrength | None = None
    guess: Backbone | None = None
    first: Backbone | None = None
    files: ScratchFolder | None = None

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return next(self.backbone.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        """Type of its numbers."""
        return next(self.backbone.parameters()).dtype

    def probabilities(
        self, arrays: GraphArrays, graph: str, room: Room, out: Array | None = None
    ) -> Array:
        """Class probabilities of all nodes, ``[nodes, classes]``.

        Args:
            arrays: The graph.
            graph: Its checksum.
            room: What may be used.
            out: Where to write them; by default a new array.
        """
        strengths = self.strengths_of(arrays, graph, room)
        return self._probabilities(self.backbone, arrays, strengths, room, out)

    def strengths_of(self, arrays: GraphArrays, graph: str, room: Room) -> StrengthsOf:
        """Strengths of any chunk of a graph.

        Args:
            arrays: The graph.
            graph: Its checksum.
            room: What may be used.
        """
        if arrays.num_features != self.num_features:
            raise InvalidInput(
                f"the graph has {arrays.num_features} features; expected "
                f"{self.num_features}, as in the graph of the fit."
            )
        if arrays.dtype != self.dtype:
            raise InvalidInput(
                f"the features of the graph are {_name(arrays.dtype)}; expected "
                f"{_name(self.dtype)}, as in the graph of the fit."
            )
        if graph == self.graph:
            self._check_own(arrays)
        if self.scorer is None:
            return self._changed(arrays, graph)
        return self._scored(self.scorer, arrays, graph, room)

    @torch.no_grad()
    def edge_strengths(
        self, arrays: GraphArrays, graph: str, room: Room
    ) -> Iterator[EdgePiece]:
        """All edges in their order with their strengths, piece by piece.

        Args:
            arrays: The graph.
            graph: Its checksum.
            room: What may be used.
        """
        strengths = self.strengths_of(arrays, graph, room)
        for chunk in chunks(
            arrays,
            self_loops=self.backbone.self_loops,
            edges_per_chunk=edges_within(room.memory, _EDGE_BYTES),
            device=self.device,
        ):
            edges, pattern = chunk.topology.num_edges, chunk.topology.pattern
            start = self.backbone.initial_strength(pattern, chunk.num_entries_of_rows)
            yield EdgePiece(
                chunk.nodes[chunk.topology.graph.edge_index],
                start[:edges].cpu(),
                strengths(chunk)[..., :edges].clamp(0, 1).cpu(),
            )

    def _check_own(self, arrays: GraphArrays) -> None:
        """Raise unless each entry of the graph of the fit has what is its own."""
        edges, nodes = arrays.num_edges, arrays.num_nodes
        allowed = (edges,) if self.scorer is not None else (edges, edges + nodes)
        if self.own is not None and self.own.shape[-1] not in allowed:
            raise InvalidInput(
                f"the model has numbers for {self.own.shape[-1]} entries; expected "
                f"{' or '.join(map(str, allowed))}, as the graph of the fit has."
            )

    def _changed(self, arrays: GraphArrays, graph: str) -> StrengthsOf:
        """The vanilla strengths, and what each entry was changed by."""
        if graph != self.graph:
            raise InvalidInput(
                "the model has one strength per edge of the graph of its fit and no "
                "other; expected that graph, or a model of the method 'amortised'."
            )
        own, edges = self.own, arrays.num_edges

        def strengths(chunk: Chunk) -> Tensor:
            pattern = chunk.topology.pattern
            start = self.backbone.initial_strength(pattern, chunk.num_entries_of_rows)
            if own is None:
                return start
            parts = [np.array(own[..., chunk.edges])]
            if own.shape[-1] > edges:
                loops = edges + chunk.nodes.numpy()
                parts.append(np.take(own, loops, axis=-1))
            change = torch.from_numpy(np.concatenate(parts, axis=-1)).to(start)
            release(own)
            missing = start.numel() - change.shape[-1]
            return start + torch.nn.functional.pad(change, (0, missing))

        return strengths

    def _scored(
        self, scorer: AmortisedStrength, arrays: GraphArrays, graph: str, room: Room
    ) -> StrengthsOf:
        """First by guesses from features, then by what a network makes of those."""
        seen: list[ScratchTable] = []

        def state(chunk: Chunk) -> Predictions | None:
            rows = [table.take(chunk.nodes.numpy()).to(self.device) for table in seen]
            return (rows[0], rows[-1]) if rows else None

        found = AmortisedChunks(
            scorer,
            arrays,
            state,
            # What single edges had belongs to the graph of the fit alone.
            self.own if graph == self.graph else None,
            self.backbone.normalise,
            self_loops=self.backbone.self_loops,
            memory=room.half,
            num_classes=self.num_classes,
            device=self.device,
            scratch=room.scratch,
            # Weights are found twice: for the first network and for the last.
            keep_evidence=self.first is not None,
        )
        if self.guess is None:
            return found
        seen.append(self._predicted(self.guess, arrays, lambda chunk: None, room))
        if self.first is None:
            return found
        predicted = self._predicted(self.first, arrays, found, room)
        final_state = found.with_state(state)
        seen.append(predicted)
        return final_state

    def _predicted(
        self, network: Backbone, arrays: GraphArrays, strengths: Any, room: Room
    ) -> ScratchTable:
        size = arrays.num_nodes * self.num_classes * arrays.dtype.itemsize
        table = ScratchTable(
            arrays.num_nodes,
            self.num_classes,
            arrays.dtype,
            in_file=size > room.memory // 8,
            folder=room.scratch,
        )
        self._probabilities(network, arrays, strengths, room, table.array)
        return table

    def _probabilities(
        self,
        network: Backbone,
        arrays: GraphArrays,
        strengths: StrengthsOf,
        room: Room,
        out: Array | None,
    ) -> Array:
        scores = layerwise_scores(
            network,
            arrays,
            strengths,
            memory=room.half,
            device=self.device,
            out=out,
            scratch=room.scratch,
        )
        step = max(room.memory // (16 * self.num_classes * 8), 1)
        for begin in range(0, len(scores), step):
            piece = torch.from_numpy(scores[begin : begin + step])
            scores[begin : begin + step] = piece.softmax(-1).numpy()
            release(scores)
        return scores


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
