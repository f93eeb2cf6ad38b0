"""Weights that tell of wrong edges are heard, others are not."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from gsebo import Graph, add_inter_class_edges, generate_graph
from gsebo.suspects.detector import given_values
from gsebo.suspects.pairs import Pairs
from suspects.graphs import fitted, noisy_graph, without


def weighted_graph(seed: int, nodes: int = 300) -> tuple[Graph, Any]:
    """A graph without labels whose wrong edges weigh less, but overlap, and which."""
    clean = generate_graph(
        nodes,
        num_classes=3,
        average_degree=6.0,
        homophily=0.95,
        feature_signal=0.3,
        seed=seed,
    )
    graph = add_inter_class_edges(clean, 4 * nodes // 3, seed)
    source, target = graph.edge_index
    wrong = graph.y[source] != graph.y[target]
    key = torch.minimum(source, target) * nodes + torch.maximum(source, target)
    number = torch.unique(key, return_inverse=True)[1]
    spread = torch.randn(int(number.max()) + 1, generator=torch.manual_seed(seed))
    graph.edge_weight = torch.exp(0.7 * spread[number] - 1.0 * wrong)
    return without(graph, "y"), wrong.numpy()


def with_and_without(name: str, graph: Graph, wrong: Any) -> tuple[float, float]:
    """How well wrong edges are told, without what is given of edges and with it."""
    both = without(graph, name), graph
    bare, heard = (
        float(roc_auc_score(wrong, fitted(each).decision_score_)) for each in both
    )
    return bare, heard


def test_weights_that_tell_are_heard() -> None:
    areas = np.array(
        [with_and_without("edge_weight", *weighted_graph(seed)) for seed in range(4)]
    )
    gained = areas[:, 1] - areas[:, 0]
    # How much depends on how many edges already looked wrong without them.
    assert gained.min() > -0.01
    assert gained.mean() > 0.03


def test_weights_are_shown_and_are_a_reason() -> None:
    graph, _ = weighted_graph(0)
    found = fitted(graph)
    by_pair = {
        frozenset(pair): weight
        for pair, weight in zip(
            graph.edge_index.T.tolist(), graph.edge_weight.tolist(), strict=True
        )
    }
    expected = [by_pair[frozenset(pair)] for pair in found.ends_.T.tolist()]
    np.testing.assert_allclose(found.edges_["edge_weight"], expected, rtol=1e-6)
    assert found.edges_["reason"].str.contains("given of the edge itself").any()


@pytest.mark.parametrize("value", [1.0, 3.0])
def test_weights_that_are_all_equal_are_none(value: float) -> None:
    graph = without(noisy_graph(), "y")
    found = fitted(graph)
    graph.edge_weight = torch.full((graph.num_edges,), value)
    other = fitted(graph)
    assert torch.equal(other.decision_score_, found.decision_score_)
    assert other.edges_.equals(found.edges_)


def test_attributes_of_edges_are_heard() -> None:
    graph, wrong = weighted_graph(0)
    noise = torch.randn(graph.num_edges, generator=torch.manual_seed(0))
    graph.edge_attr = torch.stack([noise, -graph.edge_weight.log()], dim=1)
    del graph["edge_weight"]
    bare, heard = with_and_without("edge_attr", graph, wrong)
    assert heard > bare + 0.02


def test_what_is_given_of_a_pair_is_a_mean_of_its_mentions() -> None:
    edges = torch.tensor([[0, 1, 2, 0, 3], [1, 0, 2, 3, 4]])
    graph = Graph(
        edge_index=edges,
        edge_weight=torch.tensor([1.0, 3.0, 9.0, 5.0, 0.0]),
        edge_attr=torch.tensor([[1, 7], [2, 7], [3, 7], [4, 7], [5, 7]]),
    )
    found = given_values(graph, Pairs.of(graph))
    # The second attribute is the same everywhere.
    assert found.keys() == {"edge_weight", "edge_attr_0"}
    np.testing.assert_allclose(np.exp(found["edge_weight"]), [2.0, 5.0, 1e-6])
    np.testing.assert_allclose(found["edge_attr_0"], [1.5, 4.0, 5.0])
