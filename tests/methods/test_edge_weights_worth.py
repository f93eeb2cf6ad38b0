"""Where wrong edges tend to weigh less, weights are worth a lot."""

from functools import cache

import pytest
import torch
from examples.edge_weights import doubtful_graph, measured, without_weights

from gsebo import Amortised, Vanilla

SEEDS = 2


@cache
def gains() -> dict[str, float]:
    """By how much each number rises with the weights, in the mean over seeds."""
    runs = [measured(seed) for seed in range(SEEDS)]
    return {
        name: sum(run[name][1] - run[name][0] for run in runs) / SEEDS
        for name in runs[0]
    }


@pytest.mark.parametrize("name", ["vanilla", "GSEBO", "amortised"])
def test_accuracy_is_better_with_weights(name: str) -> None:
    assert gains()[f"accuracy of {name}"] > 0.02


def test_wrong_edges_are_ranked_better_with_weights() -> None:
    assert gains()["ranking by amortised"] > 0.03


@pytest.mark.parametrize("backbone", ["gat", "sage", "jk"])
def test_and_so_it_is_with_other_networks(backbone: str) -> None:
    graph = doubtful_graph(0)
    with_them, without = (
        Vanilla(backbone, hidden_channels=8, random_state=0).fit(given).score(given)
        for given in (graph, without_weights(graph))
    )
    assert with_them > without + 0.02


def test_attributes_alone_are_evidence() -> None:
    """The same numbers as an attribute do not touch A, but tell wrong edges."""
    graph = doubtful_graph(0)
    bare = without_weights(graph)
    told = without_weights(graph)
    told.edge_attr = torch.stack(
        [graph.edge_weight.log(), torch.ones(graph.num_edges)], 1
    )
    options = {"max_outer_steps": 40, "refit_epochs": 150, "random_state": 0}
    with_them, without = (
        Amortised(**options).fit(given).score(given) for given in (told, bare)
    )
    assert with_them > without + 0.01
