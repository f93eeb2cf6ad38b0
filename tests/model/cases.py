"""Graphs as arrays, networks, and what they give on the whole graph at once."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from gsebo.graph import Topology
from gsebo.graph.arrays import CSRArrays, GraphArrays
from gsebo.graph.chunks import Chunk, StrengthsOf
from gsebo.graph.topology import CanonicalGraph
from gsebo.model.layerwise import ChunkedGraph
from gsebo.nn import Backbone, make_backbone
from gsebo.sparse import SparseFeatures
from gsebo.sparse.operators import features_as_stored

FEATURES, CLASSES, LAYERS = 6, 3, 3
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "gcn": ("gcn", {}),
    "gat": ("gat", {"heads": 2}),
    "gat, renormalised": ("gat", {"heads": 2, "renormalise": True}),
    "sage": ("sage", {}),
    "sage-gcn": ("sage-gcn", {}),
    "jk, concat": ("jk", {}),
    "jk, max": ("jk", {"mode": "max"}),
    "jk, lstm": ("jk-sage", {"mode": "lstm"}),
    "gcn, strong": ("gcn", {"residual": True, "norm": "layer"}),
    "gat, projected": ("gat", {"heads": 2, "input_projection": True, "norm": "layer"}),
    "jk, projected": ("jk", {"residual": True, "input_projection": True}),
    "mlp": ("mlp", {}),
}
examples = settings(deadline=None, max_examples=10)
# From one target at a time to the whole graph.
memories = st.sampled_from([1, 20_000, 10**9])


def network(
    kind: str,
    dtype: torch.dtype = torch.float64,
    num_features: int = FEATURES,
    num_classes: int = CLASSES,
    width: int = 4,
) -> Backbone:
    name, options = NETWORKS[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        built = make_backbone(
            name,
            in_channels=num_features,
            hidden_channels=width,
            out_channels=num_classes,
            num_layers=LAYERS,
            dropout=0.5,
            options=options,
        )
    return built.to(dtype)


@st.composite
def graphs(draw: st.DrawFn, max_nodes: int = 8) -> GraphArrays:
    """Any directed graph, with dense or sparse features."""
    size = draw(st.integers(1, max_nodes))
    node = st.integers(0, size - 1)
    pairs = draw(st.sets(st.tuples(node, node), max_size=20))
    edges = sorted((i, j) for i, j in pairs if i != j)
    target, source = np.array(edges, np.int64).reshape(-1, 2).T
    indptr = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(target, minlength=size), out=indptr[1:])
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    x = generator.standard_normal((size, FEATURES))
    if draw(st.booleans()):
        return GraphArrays(indptr, source.astype(np.int32), x)
    kept = generator.random(x.shape) < 0.4
    rows, columns = kept.nonzero()
    starts = np.searchsorted(rows, np.arange(size + 1)).astype(np.int64)
    sparse = CSRArrays(starts, columns.astype(np.int32), x[kept], FEATURES)
    return GraphArrays(indptr, source, sparse)


def mapped(arrays: GraphArrays, folder: Path) -> GraphArrays:
    """The same graph in files."""

    def on_disk(name: str, array: NDArray[Any]) -> NDArray[Any]:
        np.save(folder / f"{name}.npy", array)
        found: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r")
        return found

    if isinstance(arrays.x, CSRArrays):
        parts = zip(("starts", "columns", "values"), arrays.x[:3], strict=True)
        found = (on_disk(name, part) for name, part in parts)
        x: Any = CSRArrays(*found, arrays.num_features)
    else:
        x = on_disk("x", arrays.x)
    indptr, source = on_disk("indptr", arrays.indptr), on_disk("source", arrays.source)
    return replace(arrays, indptr=indptr, source=source, x=x)


def whole(arrays: GraphArrays, self_loops: bool) -> Topology:
    """All of the graph."""
    target = np.repeat(np.arange(arrays.num_nodes), np.diff(arrays.indptr))
    ends = np.stack([np.asarray(arrays.source, np.int64), target])
    graph = CanonicalGraph(
        arrays.num_nodes, torch.from_numpy(ends), torch.arange(len(target))
    )
    return Topology.of(graph, self_loops=self_loops, device="cpu")


def features(arrays: GraphArrays, dtype: torch.dtype) -> Tensor | SparseFeatures:
    rows = arrays.features(np.arange(arrays.num_nodes))
    return features_as_stored(rows, dtype, "cpu")


def random(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, dtype=dtype)


def scores(
    backbone: Backbone,
    arrays: GraphArrays,
    strengths_of: StrengthsOf,
    *,
    memory: int,
    out: NDArray[Any] | None = None,
    scratch: Path | None = None,
) -> NDArray[Any]:
    """Logits in chunks; half of what a graph may use is for layers."""
    graph = ChunkedGraph(arrays, memory=2 * memory, scratch=scratch)
    return graph.scores(backbone, strengths_of, out=out)


def vanilla_strengths(backbone: Backbone) -> StrengthsOf:
    """The network's own propagation of each chunk."""

    def strengths(chunk: Chunk) -> Tensor:
        pattern = chunk.topology.pattern
        return backbone.initial_strength(pattern, chunk.num_entries_of_rows)

    return strengths


def stored_strengths(edges: NDArray[Any], loops: NDArray[Any] | None) -> StrengthsOf:
    """Strengths of edges, and of self-loops where the network has any."""

    def strengths(chunk: Chunk) -> Tensor:
        parts = [torch.from_numpy(edges[..., chunk.edges].copy())]
        if loops is not None:
            own = torch.from_numpy(loops[..., chunk.begin : chunk.end].copy())
            others = own.new_zeros(*own.shape[:-1], chunk.topology.num_loops)
            parts.append(others.index_copy_(-1, chunk.own, own))
        return torch.cat(parts, dim=-1)

    return strengths
