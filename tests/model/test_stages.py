"""All stages of amortised strengths, in chunks and on the whole graph at once."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch.func import functional_call

from gsebo.data.datasets.load import load
from gsebo.graph.arrays import GraphArrays
from gsebo.model.layerwise import ChunkedGraph
from gsebo.model.scorer import Scorer
from gsebo.structure import AmortisedStrength, GraphContext

from .cases import features, network, random, whole

MEMORY = 2 * 10**6


@pytest.mark.parametrize("stages", [0, 1, 2])
@pytest.mark.parametrize("kind", ["gcn", "gat", "jk, max"])
def test_features_only_first_network_and_final_network(kind: str, stages: int) -> None:
    arrays = GraphArrays.of(load("planted"))
    sizes = arrays.num_features, int(arrays.y.max()) + 1
    features_only = network("mlp", torch.float32, *sizes)
    backbone = network(kind, torch.float32, *sizes)
    first = dict(deepcopy(backbone).named_parameters())
    for number, weight in enumerate(first.values()):
        weight.data += 0.1 * random(*weight.shape, seed=number, dtype=weight.dtype)
    graph, x = whole(arrays, backbone.self_loops), features(arrays, torch.float32)
    structure = AmortisedStrength(per_layer=True)
    start = backbone.initial_strength(graph.pattern)
    layers = backbone.num_propagations
    structure.setup(GraphContext(graph, start, layers, x, backbone.normalise))
    structure.output.data = random(*structure.output.shape, dtype=torch.float32)
    scorer = Scorer(
        structure,
        features_only if stages > 0 else None,
        first if stages > 1 else None,
    )
    with torch.no_grad():
        state = None
        if stages > 0:
            from_features = features_only(x, graph.pattern).softmax(-1)
            state = from_features, from_features
        if stages > 1:
            inputs = x, graph.pattern, structure(graph, state)
            predicted = functional_call(backbone, first, inputs).softmax(-1)
            state = from_features, predicted
        expected = backbone(x, graph.pattern, structure(graph, state))
    at_once = ChunkedGraph(graph, x)
    strengths = scorer.strengths(at_once, backbone, sizes[1])
    found = at_once.scores(backbone, strengths)
    np.testing.assert_array_equal(found, expected)
    in_chunks = ChunkedGraph(arrays, memory=MEMORY)
    strengths = scorer.strengths(in_chunks, backbone, sizes[1])
    found = in_chunks.scores(backbone, strengths)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
    scored = in_chunks.probabilities(backbone, strengths)
    np.testing.assert_allclose(scored, expected.softmax(-1), rtol=0, atol=2e-5)
