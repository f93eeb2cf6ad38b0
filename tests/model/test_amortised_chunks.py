"""Amortised strengths in chunks are those of the whole graph."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import gsebo.model.layerwise as module
from gsebo.data.datasets.load import load
from gsebo.graph import Topology
from gsebo.graph.arrays import GraphArrays
from gsebo.graph.chunks import Chunk, chunks
from gsebo.model.layerwise import ChunkedGraph
from gsebo.model.scorer import ScoredEdges
from gsebo.nn import Backbone
from gsebo.structure import AmortisedStrength, GraphContext

from .cases import (
    CLASSES,
    examples,
    features,
    graphs,
    mapped,
    memories,
    network,
    random,
    whole,
)


def learned(
    arrays: GraphArrays, backbone: Backbone, dtype: torch.dtype, **options: Any
) -> tuple[AmortisedStrength, Topology]:
    """A function as it might be after some steps, laid over the whole graph."""
    graph = whole(arrays, backbone.self_loops)
    structure = AmortisedStrength(scorer_channels=3, **options)
    structure.setup(
        GraphContext(
            graph=graph,
            start=backbone.initial_strength(graph.pattern),
            num_layers=backbone.num_propagations,
            features=features(arrays, dtype),
            normalise=backbone.normalise,
        )
    )
    for number, leaf in enumerate(structure.parameters()):
        leaf.data = random(*leaf.shape, seed=number, dtype=dtype) - 0.5
    return structure, graph


def chunked(
    structure: AmortisedStrength,
    arrays: GraphArrays,
    backbone: Backbone,
    predicted: Tensor | None,
    memory: int,
    scratch: Path | None = None,
    **options: Any,
) -> ScoredEdges:
    def state(chunk: Chunk) -> list[Tensor] | None:
        if predicted is None:
            return None
        return [one[chunk.nodes] for one in predicted]

    own = structure.own.detach().numpy() if structure.residual else None
    # Half of what a graph may use is for strengths.
    graph = ChunkedGraph(arrays, memory=2 * memory, scratch=scratch)
    return ScoredEdges(structure, graph, backbone, state, own, **options)


def predictions(arrays: GraphArrays, dtype: torch.dtype, seed: int = 5) -> Tensor:
    return random(2, arrays.num_nodes, CLASSES, seed=seed, dtype=dtype).softmax(-1)


def assert_same(
    found: ScoredEdges,
    expected: Tensor,
    arrays: GraphArrays,
    self_loops: bool,
    atol: float,
    edges_per_chunk: int = 9,
) -> None:
    """Of all edges and of the self-loops of targets."""
    for chunk in chunks(arrays, self_loops=self_loops, edges_per_chunk=edges_per_chunk):
        strengths = found(chunk)
        edges = chunk.topology.num_edges
        assert strengths.shape == (*expected.shape[:-1], chunk.topology.num_entries)
        torch.testing.assert_close(
            strengths[..., :edges], expected[..., chunk.edges], rtol=0, atol=atol
        )
        if self_loops:
            places = arrays.num_edges + torch.arange(chunk.begin, chunk.end)
            torch.testing.assert_close(
                strengths[..., edges:][..., chunk.own],
                expected[..., places],
                rtol=0,
                atol=atol,
            )


options = st.fixed_dictionaries(
    {name: st.booleans() for name in ("per_layer", "renormalise", "residual")}
)


@pytest.mark.parametrize("kind", ["gcn", "gat", "sage", "sage-gcn"])
@settings(examples, max_examples=20)
@given(arrays=graphs(), memory=memories, options=options, with_state=st.booleans())
def test_they_are_those_of_the_whole_graph(
    kind: str,
    arrays: GraphArrays,
    memory: int,
    options: dict[str, bool],
    with_state: bool,
) -> None:
    dtype, backbone = torch.float64, network(kind)
    structure, graph = learned(arrays, backbone, dtype, **options)
    state = predictions(arrays, dtype) if with_state else None
    found = chunked(structure, arrays, backbone, state, memory=memory)
    with torch.no_grad():
        expected = structure(graph, state)
        weights = structure(graph, state, normalised=False)
    assert_same(found, expected, arrays, backbone.self_loops, 1e-10)
    by_layer = np.atleast_2d(weights)
    np.testing.assert_allclose(found.tables[0].array.T, by_layer, rtol=0, atol=1e-10)


def test_sums_are_those_of_the_weights_and_the_self_loop() -> None:
    indptr, source = np.array([0, 2, 2, 3]), np.array([1, 2, 0])
    arrays = GraphArrays(indptr, source, random(3, 6).numpy())
    backbone = network("gcn")
    structure, _ = learned(arrays, backbone, torch.float64)
    found = chunked(structure, arrays, backbone, None, memory=10**9)
    weights, sums = (table.array[:, 0] for table in found.tables)
    first, second, third = weights
    np.testing.assert_allclose(sums, [1 + first + second, 1, 1 + third])


def test_evidence_that_was_kept_is_not_found_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrays = GraphArrays.of(load("planted"))
    dtype, backbone = arrays.dtype, network("gcn", torch.float32)
    structure, graph = learned(arrays, backbone, dtype)
    first = chunked(structure, arrays, backbone, None, memory=10**7, keep_evidence=True)
    assert first.tables
    monkeypatch.delattr(module, "evidence_of")
    for seed in (1, 2):
        state = predictions(arrays, dtype, seed)
        with torch.no_grad():
            expected = structure(graph, state)
        found = chunked(
            structure, arrays, backbone, state, memory=10**7, evidence=first.evidence
        )
        assert_same(found, expected, arrays, True, 1e-5, edges_per_chunk=5000)


def test_cora_in_files(tmp_path: Path) -> None:
    arrays = GraphArrays.of(load("cora"))
    dtype, backbone = torch.float32, network("gcn", torch.float32, 1433)
    structure, graph = learned(arrays, backbone, dtype, residual=True, per_layer=True)
    state = predictions(arrays, dtype)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    found = chunked(
        structure,
        mapped(arrays, tmp_path),
        backbone,
        state,
        # Less than the weights of three layers need.
        memory=200_000,
        num_classes=CLASSES,
        scratch=scratch,
    )
    assert isinstance(found.tables[0].array, np.memmap)
    with torch.no_grad():
        expected = structure(graph, state)
    assert_same(found, expected, arrays, True, 1e-5, edges_per_chunk=3000)
    assert not list(scratch.iterdir())
