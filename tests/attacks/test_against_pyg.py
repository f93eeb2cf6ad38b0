"""With the same network, loss, steps and blocks, ours does as much harm as PyG's."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gsebo import Graph, Vanilla
from gsebo.attacks import GRBCD, PRBCD
from gsebo.attacks.perturbation import undirected_pairs
from gsebo.attacks.victim import Victim, victim_of
from gsebo.data import load
from gsebo.methods import GraphClassifier

BLOCK = 50_000
TOLERANCE = 0.02


class Called(nn.Module):
    """A victim as PyG calls a network."""

    def __init__(self, victim: Victim) -> None:
        super().__init__()
        self.victim = victim

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        return self.victim.logits(edge_index, edge_weight)


@pytest.fixture(scope="module")
def models() -> tuple[Graph, list[GraphClassifier]]:
    graph = load("cora")
    fits = [Vanilla(random_state=seed, device="cpu").fit(graph) for seed in (0, 1)]
    return graph, list(fits)


@pytest.mark.parametrize(
    ("ours", "theirs", "own", "other"),
    [
        (PRBCD, "PRBCDAttack", {"resampling_epochs": 30}, {"epochs_resampling": 30}),
        (GRBCD, "GRBCDAttack", {}, {}),
    ],
    ids=["prbcd", "grbcd"],
)
def test_as_much_harm(
    ours: Any, theirs: str, own: Any, other: Any, models: Any
) -> None:
    with warnings.catch_warnings():
        # It says that it is experimental.
        warnings.simplefilter("ignore")
        import torch_geometric.contrib.nn as contributed
    graph, fits = models
    shared = {"epochs": 40, "loss": "prob_margin"}
    budget, mask = round(0.1 * len(undirected_pairs(graph))), graph.test_mask
    scores = []
    for seed, model in enumerate(fits):
        victim = victim_of(model, graph)
        attack = ours(**shared, **own, block_size=BLOCK, knows_labels=True)
        found = attack.attack(graph, budget=budget, victim=victim, random_state=seed)
        assert found.num_flips <= budget
        torch.manual_seed(seed)
        theirs_made = getattr(contributed, theirs)(
            Called(victim), BLOCK, **shared, **other, log=False
        )
        edges, _ = theirs_made.attack(
            graph.x, graph.edge_index, graph.y, budget=budget, idx_attack=mask
        )
        predicted = victim.logits(edges, torch.ones(edges.shape[1])).argmax(-1)
        right = float((predicted == graph.y)[mask].float().mean())
        scores.append((model.score(found.apply(graph)), right))
    mine, pyg = np.mean(scores, axis=0)
    assert mine < pyg + TOLERANCE
