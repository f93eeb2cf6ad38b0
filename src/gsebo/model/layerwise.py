"""Exact scores of all nodes of a graph, layer by layer and chunk by chunk.

Each layer is applied to all nodes before the next one, so that no node is computed
twice and none is left out. What a layer gives is kept for the next one: in memory if it
fits, else in a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gsebo.errors import InvalidInput
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
from gsebo.sparse import Pattern

Array = NDArray[Any]


@torch.no_grad()
def node_map(
    arrays: GraphArrays,
    function: Callable[[Features], Tensor],
    width: int,
    *,
    memory: int,
    widest: int = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    out: Array | None = None,
) -> Array:
    """Apply a function to all nodes, ``[nodes, width]``.

    Args:
        arrays: The graph.
        function: From features of some nodes to ``[those nodes, width]``.
        width: Columns of the result.
        memory: Bytes to stay within, beside the result.
        widest: Columns of the widest that the function makes on its way.
        dtype: Type of the features that the function gets; by default their own.
        device: Where the function runs.
        out: Where the result is written; by default a new array.
    """
    dtype = arrays.dtype if dtype is None else dtype
    out = result_array(out, arrays.num_nodes, width, dtype)
    columns = feature_bytes(arrays, dtype) + 4 * max(width, widest) * dtype.itemsize
    step = max(positive(memory) // columns, 1)
    for begin in range(0, arrays.num_nodes, step):
        end = min(begin + step, arrays.num_nodes)
        nodes = torch.arange(begin, end)
        found = function(features_of(arrays, nodes, dtype, device))
        out[begin:end] = found.numpy(force=True)
        arrays.release()
        release(out)
    return out


def result_array(
    out: Array | None, num_nodes: int, width: int, dtype: torch.dtype
) -> Array:
    """The array that a result is to be written to.

    Raises:
        InvalidInput: That which was given has another shape.
    """
    if out is None:
        kind = torch.empty(0, dtype=dtype).numpy().dtype
        return np.empty((num_nodes, width), kind)
    if out.shape != (num_nodes, width):
        raise InvalidInput(
            f"out has shape {out.shape}, expected {(num_nodes, width)}, one row for "
            "each node."
        )
    return out


def positive(memory: int) -> int:
    """Return the bytes to stay within.

    Raises:
        InvalidInput: There are none.
    """
    if memory < 1:
        raise InvalidInput(f"memory={memory} given; expected a number of bytes >= 1.")
    return memory


# Numbers for every entry at a time: strengths and what they are made of; attention.
_PER_ENTRY = 6


@torch.no_grad()
def layerwise_scores(
    backbone: Backbone,
    arrays: GraphArrays,
    strengths_of: StrengthsOf,
    *,
    memory: int,
    device: torch.device | str = "cpu",
    out: Array | None = None,
    scratch: Path | None = None,
) -> Array:
    """Logits of all nodes, ``[nodes, classes]``.

    A node whose edges alone need more than ``memory`` is still one chunk.

    Args:
        backbone: The trained network, on ``device``.
        arrays: The graph, which may lie in files.
        strengths_of: Strengths of each chunk; asked once for every layer.
        memory: Bytes to stay within, beside the result.
        device: Where to compute.
        out: Where the result is written; by default a new array.
        scratch: Folder for what does not fit into memory, which is empty again
            afterwards; by default the system's folder for temporary files.

    Raises:
        InvalidInput: The network has no layers that can be run one after another, or
            there is no room.
    """
    if isinstance(backbone, MLP):
        return _rows_alone(backbone, arrays, memory, device, out)
    require_layers(backbone)
    layered = cast(LayeredBackbone, backbone)
    return _Layers(layered, arrays, positive(memory), device, scratch).run(
        strengths_of, out
    )


def require_layers(backbone: Backbone) -> None:
    """Refuse a network whose layers cannot be run one after another."""
    if not isinstance(backbone, MLP | LayeredBackbone):
        name = type(getattr(backbone, "module", backbone)).__name__
        raise InvalidInput(
            f"{name} given for scores in chunks; expected a network whose layers can "
            "be run one after another: gcn, gat, sage, jk or mlp."
        )


def vanilla_strengths(backbone: Backbone) -> StrengthsOf:
    """The network's own propagation, for :func:`layerwise_scores`."""

    def strengths(chunk: Chunk) -> Tensor:
        pattern = chunk.topology.pattern
        return backbone.initial_strength(pattern, chunk.num_entries_of_rows)

    return strengths


def stored_strengths(
    edges: Array, loops: Array | None, device: torch.device | str = "cpu"
) -> StrengthsOf:
    """Strengths that lie in arrays, for :func:`layerwise_scores`.

    Args:
        edges: Of the edges, ``[edges]`` or ``[layers, edges]``.
        loops: Of the self-loops, ``[nodes]`` or ``[layers, nodes]``; ``None`` where the
            network has none.
        device: Where the network is.
    """

    def strengths(chunk: Chunk) -> Tensor:
        parts = [torch.from_numpy(edges[..., chunk.edges].copy())]
        release(edges)
        if loops is not None:
            own = torch.from_numpy(loops[..., chunk.begin : chunk.end].copy())
            release(loops)
            others = own.new_zeros(*own.shape[:-1], chunk.topology.num_loops)
            parts.append(others.index_copy_(-1, chunk.own.cpu(), own))
        return torch.cat(parts, dim=-1).to(device)

    return strengths


@final
class _Layers:
    """One network on one graph."""

    def __init__(
        self,
        backbone: LayeredBackbone,
        arrays: GraphArrays,
        memory: int,
        device: torch.device | str,
        scratch: Path | None,
    ) -> None:
        self.backbone, self.arrays, self.device = backbone, arrays, device
        self.scratch = scratch
        self.layers = [cast(Layer, layer) for layer in backbone.layers]
        self.dtype = self.layers[0].weight.dtype
        kept = self._kept_bytes()
        self.in_file = kept > memory // 2
        left = memory if self.in_file else memory - kept
        self.edges_per_chunk = edges_within(left, self._edge_bytes())

    def run(self, strengths_of: StrengthsOf, out: Array | None) -> Array:
        """Logits of all nodes."""
        joins = self.backbone.joins_layers
        out = result_array(out, self.arrays.num_nodes, self._classes(), self.dtype)
        tables: list[ScratchTable] = []
        for number, layer in enumerate(self.layers[:-1]):
            table = self._table(layer.bias.numel())
            for chunk in self._chunks():
                found = self._output(number, chunk, tables, strengths_of)
                table.put(chunk.begin, found)
            tables = [*tables, table] if joins else [table]
        for chunk in self._chunks():
            last = self._output(len(self.layers) - 1, chunk, tables, strengths_of)
            rows = chunk.begin, chunk.end
            others = [table.read(*rows).to(self.device) for table in tables if joins]
            scores = self.backbone.read_out([*others, last])
            out[chunk.begin : chunk.end] = scores.numpy(force=True)
            release(out)
        return out

    def _table(self, width: int) -> ScratchTable:
        return ScratchTable(
            self.arrays.num_nodes,
            width,
            self.dtype,
            in_file=self.in_file,
            folder=self.scratch,
        )

    def _classes(self) -> int:
        """How many logits a node gets: those that no nodes at all would get."""
        biases = [layer.bias for layer in self.layers]
        nowhere = [bias.new_empty(0, len(bias)) for bias in biases]
        return self.backbone.read_out(nowhere).shape[1]

    def _chunks(self) -> Iterator[Chunk]:
        return chunks(
            self.arrays,
            self_loops=self.backbone.self_loops,
            edges_per_chunk=self.edges_per_chunk,
            device=self.device,
        )

    def _output(
        self,
        number: int,
        chunk: Chunk,
        tables: list[ScratchTable],
        strengths_of: StrengthsOf,
    ) -> Tensor:
        """What a layer gives at the targets of a chunk."""
        given: Features
        if tables:
            given = tables[-1].take(chunk.nodes.numpy()).to(self.device)
        else:
            given = features_of(self.arrays, chunk.nodes, self.dtype, self.device)
        pattern = chunk.topology.pattern
        found = self.backbone.output(number, given, pattern, strengths_of(chunk), None)
        return found.index_select(0, chunk.own)

    def _kept_bytes(self) -> int:
        """Of what the layers give, as far as it is needed at a time."""
        widths = [layer.bias.numel() for layer in self.layers[:-1]]
        if self.backbone.joins_layers:
            most = sum(widths)
        else:
            most = max(map(sum, pairwise([*widths, 0])), default=0)
        return most * self.arrays.num_nodes * self.dtype.itemsize

    def _edge_bytes(self) -> int:
        """What is computed for an edge, its source and that one's self-loop."""
        size = self.dtype.itemsize
        needed = []
        for number, layer in enumerate(self.layers):
            rows, columns = layer.weight.shape
            read = 2 * rows * size if number else feature_bytes(self.arrays, self.dtype)
            entries = 2 * _PER_ENTRY * layer.heads * size
            needed.append(read + 4 * columns * size + entries)
        strengths = 2 * _PER_ENTRY * self.backbone.num_propagations * size
        return strengths + max(needed)


def _rows_alone(
    backbone: MLP,
    arrays: GraphArrays,
    memory: int,
    device: torch.device | str,
    out: Array | None,
) -> Array:
    """Scores by a network that looks at no edges."""

    def scores(features: Features) -> Tensor:
        nowhere = torch.empty(0, dtype=torch.int64, device=device)
        pattern = Pattern.from_positions(nowhere, nowhere, features.shape[0])
        logits: Tensor = backbone(features, pattern)
        return logits

    widths = [weight.shape[1] for weight in backbone.weights]
    return node_map(
        arrays,
        scores,
        widths[-1],
        memory=memory,
        widest=max(widths),
        dtype=backbone.weights[0].dtype,
        device=device,
        out=out,
    )
