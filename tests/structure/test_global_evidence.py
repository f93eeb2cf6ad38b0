"""Evidence of some edges of a large graph is that of the same edges in the whole."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from gsebo.data.datasets.load import load
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.chunks import features_of
from gsebo.graph.topology import CanonicalGraph
from gsebo.sparse import Pattern, SparseFeatures
from gsebo.structure.evidence import (
    FeatureWeights,
    PartOfGraphEdges,
    WholeGraphEdges,
    evidence_columns,
    evidence_of,
)

from .graphs import examples, graphs


def arrays_of(graph: CanonicalGraph, x: Tensor) -> GraphArrays:
    data = Data(x=x, edge_index=graph.edge_index, num_nodes=graph.num_nodes)
    return GraphArrays.of(data)


def whole(
    arrays: GraphArrays,
) -> tuple[Tensor, Tensor | SparseFeatures, FeatureWeights, Tensor]:
    """Edges, features, their weights, and the evidence of all edges."""
    target = np.repeat(np.arange(arrays.num_nodes), np.diff(arrays.indptr))
    ends = torch.from_numpy(np.stack([arrays.source, target]).astype(np.int64))
    pattern = Pattern.from_positions(ends[1], ends[0], arrays.num_nodes)
    features = features_of(arrays, torch.arange(arrays.num_nodes), arrays.dtype, "cpu")
    weights = FeatureWeights.of(features)
    seen = WholeGraphEdges(features, weights, ends[0], ends[1], given=pattern)
    return ends, features, weights, evidence_of(seen)


def part(
    arrays: GraphArrays,
    features: Tensor | SparseFeatures,
    ends: Tensor,
    nodes: Tensor,
    weights: FeatureWeights,
) -> PartOfGraphEdges:
    source, target = ends
    return PartOfGraphEdges(
        features, weights, source, target, arrays=arrays, nodes=nodes
    )


def some(
    arrays: GraphArrays, ends: Tensor, weights: FeatureWeights, edges: Tensor
) -> Tensor:
    """Evidence of some edges, of which only the ends are at hand."""
    nodes, local = ends[:, edges].unique(return_inverse=True)
    features = features_of(arrays, nodes, arrays.dtype, "cpu")
    return evidence_of(part(arrays, features, local, nodes, weights))


@pytest.mark.parametrize("sparse", [False, True])
@examples
@given(where=graphs(), seed=st.integers(0, 99))
def test_some_edges_have_the_evidence_that_they_have_among_all(
    sparse: bool, where: CanonicalGraph, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(where.num_nodes, 6, generator=generator, dtype=torch.float64)
    if sparse:
        x = x * (torch.rand(x.shape, generator=generator) < 0.2)
    arrays = arrays_of(where, x)
    ends, features, weights, expected = whole(arrays)
    nodes = torch.arange(where.num_nodes)
    found = evidence_of(part(arrays, features, ends, nodes, weights))
    torch.testing.assert_close(found, expected)
    chosen = torch.rand(where.num_edges, generator=generator) < 0.5
    if chosen.any():
        found = some(arrays, ends, weights, chosen)
        torch.testing.assert_close(found, expected[chosen])


def test_cora_in_files(tmp_path: Path) -> None:
    arrays = GraphArrays.of(load("cora"))
    ends, _, weights, expected = whole(arrays)
    for name in ("indptr", "source"):
        np.save(tmp_path / name, getattr(arrays, name))
    on_disk = replace(
        arrays,
        indptr=np.load(tmp_path / "indptr.npy", mmap_mode="r"),
        source=np.load(tmp_path / "source.npy", mmap_mode="r"),
    )
    chosen = torch.arange(0, arrays.num_edges, 3).flip(0)
    found = some(on_disk, ends, weights, chosen)
    torch.testing.assert_close(found, expected[chosen], rtol=0, atol=1e-6)


def test_of_two_hubs_only_some_neighbors_are_looked_at() -> None:
    """As in the whole graph: the same ones, and the sum is scaled up."""
    size, generator = 900, np.random.default_rng(0)
    adjacency = np.zeros((size, size), bool)
    adjacency[:3] = generator.random((3, size)) < 0.7
    np.fill_diagonal(adjacency, False)
    target, source = adjacency.nonzero()
    indptr = np.searchsorted(target, np.arange(size + 1))
    arrays = GraphArrays(indptr, source, generator.standard_normal((size, 4)))
    _, _, _, expected = whole(arrays)
    ends, _, weights, _ = whole(arrays)
    every = torch.arange(arrays.num_edges)
    torch.testing.assert_close(some(arrays, ends, weights, every), expected)


def test_columns_come_in_the_order_that_is_asked_for() -> None:
    arrays = GraphArrays.of(load("planted"))
    ends, features, weights, expected = whole(arrays)
    nodes = torch.arange(arrays.num_nodes)
    for columns in (("common", "cosine"), ("source_degree",), ()):
        found = evidence_of(part(arrays, features, ends, nodes, weights), columns)
        places = [evidence_columns("all").index(name) for name in columns]
        torch.testing.assert_close(found, expected[:, places], rtol=0, atol=1e-6)
