"""Nettack: the closed form of a flip, the surrogate, degrees that look as before."""

import numpy as np
import pytest
import torch

from attacks.graphs import CLASSES, NODES, scene, small_graph, test_nodes, victim
from gsebo import Graph, InvalidInput
from gsebo.attacks import Nettack
from gsebo.attacks.linear import LinearGCN, adjacency_of
from gsebo.attacks.perturbation import Perturbation, undirected_pairs


@pytest.mark.parametrize("node", [0, 17, 118])
def test_every_flip_of_a_node_at_once(node: int) -> None:
    network, graph = LinearGCN(np.random.default_rng(0).normal(size=(NODES, 4))), None
    graph, pairs = small_graph(), undirected_pairs(small_graph())
    found = network.after_flips(adjacency_of(pairs, NODES), node)
    np.testing.assert_allclose(found[node], network.logits(pairs)[node])
    for other in range(NODES):
        if other == node:
            continue
        flip = Perturbation.of_flips(torch.tensor([[node, other]]), graph)
        changed = undirected_pairs(flip.apply(graph))
        expected = network.logits(changed)[node]
        np.testing.assert_allclose(found[other], expected, rtol=1e-9, atol=1e-12)


def test_the_surrogate_learns_whatever_the_scale_of_features() -> None:
    graph, known = small_graph(), scene().known
    pairs = undirected_pairs(graph)
    made = [
        LinearGCN.fit(scale * graph.x, pairs, graph.y, known, CLASSES).logits(pairs)
        for scale in (1.0, 1000.0)
    ]
    right = made[0].argmax(1) == graph.y.numpy()
    assert right[graph.test_mask.numpy()].mean() > 0.8
    np.testing.assert_allclose(made[0], made[1], atol=1e-3)


def test_each_step_leaves_a_smaller_margin() -> None:
    here, nodes = scene(), test_nodes()[:5]
    pairs = undirected_pairs(small_graph())
    for node in nodes.tolist():
        label, before = int(here.labels[node]), np.inf
        for budget in range(4):
            flips = Nettack(degree_test=False).attack_each(
                small_graph(), budget=budget, victim=victim(), nodes=[node]
            )[node]
            changed = undirected_pairs(flips.apply(small_graph()))
            logits = here.linear.logits(changed if budget else pairs)[node]
            margin = logits[label] - np.delete(logits, label).max()
            assert margin <= before
            before = margin


def test_no_node_is_left_alone() -> None:
    flips = Nettack(degree_test=False).attack(
        small_graph(), budget=10, victim=victim(), nodes=test_nodes()[:1]
    )
    degree = torch.bincount(undirected_pairs(small_graph()).flatten(), minlength=NODES)
    changed = undirected_pairs(flips.apply(small_graph())).flatten()
    after = torch.bincount(changed, minlength=NODES)
    assert bool((after[degree > 0] > 0).all())


def test_degrees_that_are_watched_allow_less() -> None:
    node = int(test_nodes()[0])
    free, watched = (
        Nettack(degree_test=test).attack_each(
            small_graph(), budget=60, victim=victim(), nodes=[node]
        )[node]
        for test in (False, True)
    )
    assert 0 < watched.num_flips < free.num_flips


def test_features_are_needed() -> None:
    graph = small_graph()
    bare = Graph(None, graph.edge_index, graph.y, num_nodes=NODES)
    with pytest.raises(InvalidInput, match="expected features"):
        Nettack(knows_labels=True).attack(bare, budget=1, nodes=[0])
