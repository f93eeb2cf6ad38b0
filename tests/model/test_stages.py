"""All stages of amortised strengths, in chunks and on the whole graph at once."""

from copy import deepcopy

import numpy as np
import pytest
import torch

from gsebo.data.datasets.load import load
from gsebo.graph.arrays import GraphArrays
from gsebo.model.amortised_chunks import AmortisedChunks, predicted_by
from gsebo.model.extension import AmortisedExtension, KnownEntries
from gsebo.model.layerwise import layerwise_scores, vanilla_strengths
from gsebo.structure import AmortisedStrength, GraphContext

from .cases import features, network, random, whole

MEMORY = 10**6


@pytest.mark.parametrize("kind", ["gcn", "gat", "jk, max"])
def test_guess_first_network_and_final_network(kind: str) -> None:
    arrays = GraphArrays.of(load("planted"))
    sizes = arrays.num_features, int(arrays.y.max()) + 1
    guess = network("mlp", torch.float32, *sizes)
    backbone = network(kind, torch.float32, *sizes)
    first = deepcopy(backbone)
    for number, weight in enumerate(first.parameters()):
        weight.data += 0.1 * random(*weight.shape, seed=number, dtype=weight.dtype)
    graph, x = whole(arrays, backbone.self_loops), features(arrays, torch.float32)
    structure = AmortisedStrength(per_layer=True)
    start = backbone.initial_strength(graph.pattern)
    layers = backbone.num_propagations
    structure.setup(GraphContext(graph, start, layers, x, backbone.normalise))
    structure.output.data = random(*structure.output.shape, dtype=torch.float32)

    nothing = torch.empty(layers, 0)
    extension = AmortisedExtension(
        structure, guess, dict(first.named_parameters()), nothing
    )
    new = torch.full((graph.num_entries,), -1)
    known = KnownEntries(new, new[: graph.num_nodes], graph.num_edges, nothing)
    with torch.no_grad():
        strengths = extension.strengths(known, graph, x, backbone)
        expected = backbone(x, graph.pattern, strengths)

    guessed = layerwise_scores(guess, arrays, vanilla_strengths(guess), memory=MEMORY)
    at_first = AmortisedChunks(
        structure,
        arrays,
        predicted_by(guessed, guessed),
        None,
        backbone.normalise,
        self_loops=backbone.self_loops,
        memory=MEMORY,
        keep_evidence=True,
    )
    predicted = layerwise_scores(first, arrays, at_first, memory=MEMORY)
    final = at_first.with_state(predicted_by(guessed, predicted))
    found = layerwise_scores(backbone, arrays, final, memory=MEMORY)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-5)
