"""An attacker who knows how edges are scored sees what the model would do."""

from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from attacks.graphs import as_double, scene, small_graph
from attacks.test_perturbation import some_flips
from attacks.test_victim import of_model, probabilities
from gsebo import Amortised, Auto, Inoculated, InvalidInput
from gsebo.attacks import PRBCD
from gsebo.attacks.adaptive import ScoredVictim
from gsebo.attacks.base import Scene
from gsebo.attacks.perturbation import both_directions
from gsebo.attacks.victim import victim_of

QUICK: dict[str, Any] = {
    "max_outer_steps": 20,
    "num_folds": 2,
    "refit_epochs": 60,
    "outer_lr": 0.1,
    "random_state": 0,
    "device": "cpu",
}
KINDS: dict[str, dict[str, Any]] = {
    "amortised": {},
    "features": {"predictions": "features"},
    "none": {"predictions": "none"},
    "layers": {"per_layer": True},
    "factors": {"renormalise": False},
    "gat": {"backbone": "gat", "backbone_options": {"renormalise": True}},
    "sage": {"backbone": "sage"},
}


@cache
def scored(kind: str) -> Amortised:
    return Amortised(**QUICK | KINDS[kind]).fit(small_graph())


@pytest.mark.parametrize("kind", KINDS)
def test_a_victim_predicts_as_its_model(kind: str) -> None:
    graph, victim = small_graph(), victim_of(scored(kind), small_graph())
    assert isinstance(victim, ScoredVictim)
    for seen in (graph, some_flips().apply(graph)):
        expected = of_model(scored(kind), seen)
        torch.testing.assert_close(probabilities(victim, seen), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_an_edge_of_weight_zero_is_none(kind: str) -> None:
    victim = victim_of(scored(kind), small_graph())
    edges, weights = scene().edges
    flips = some_flips()
    without = Scene(flips.apply(small_graph()), None, False, 0).edges
    new, gone = both_directions(flips.added), both_directions(flips.removed)
    keys = {tuple(pair) for pair in gone.T.tolist()}
    left = torch.tensor([float(tuple(p) not in keys) for p in edges.T.tolist()])
    more = torch.cat([edges, new], dim=1)
    found = victim.logits(more, torch.cat([weights * left, torch.ones(new.shape[1])]))
    torch.testing.assert_close(found, victim.logits(*without))


def test_its_gradient_is_that_of_finite_differences() -> None:
    graph = as_double(small_graph())
    victim = victim_of(Amortised(**QUICK).fit(graph), graph)
    edges, _ = scene().edges
    new = both_directions(some_flips().added)
    more = torch.cat([edges, new], dim=1)
    rng = torch.Generator().manual_seed(0)
    # Away from where a pair begins to count as a neighbor.
    there = 0.7 + 0.2 * torch.rand(edges.shape[1], generator=rng).double()
    absent = 0.1 + 0.2 * torch.rand(new.shape[1], generator=rng).double()
    point = torch.cat([there, absent]).requires_grad_()
    direction = torch.randn(len(point), generator=rng).double()

    def loss(weights: Tensor) -> Tensor:
        found = victim.logits(more, weights).log_softmax(-1)[:, 0]
        return found.sum()

    (gradient,) = torch.autograd.grad(loss(point), point)
    step = 1e-6 * direction
    with torch.no_grad():
        numeric = (loss(point + step) - loss(point - step)) / 2e-6
    assert float(gradient @ direction) == pytest.approx(float(numeric), rel=1e-5)
    # Through the degrees every edge of a node has a say, not only through its message.
    assert (gradient != 0).double().mean() > 0.9


def test_prbcd_finds_more_than_it_does_against_a_plain_network() -> None:
    graph, model = small_graph(), scored("amortised")
    attack = PRBCD(knows_labels=True, epochs=30, resampling_epochs=20, block_size=4000)
    losses = []
    for victim in (model, None):
        change = attack.attack(graph, budget="10%", victim=victim, random_state=0)
        right = of_model(model, change.apply(graph)).argmax(-1) == graph.y
        losses.append(float(right[graph.test_mask].double().mean()))
    assert losses[0] <= losses[1]
    assert losses[0] < model.score(graph)


def test_inoculated_and_automatic_fits_are_attacked_in_the_same_way() -> None:
    graph = small_graph()
    model = Inoculated(**QUICK, candidates=0, floor=0.5).fit(graph)
    auto = Auto(methods="amortised", features="given", random_state=0, num_folds=2)
    for each in (model, auto.set_params(max_epochs=20).fit(graph)):
        victim = victim_of(each, graph)
        assert isinstance(victim, ScoredVictim)
        expected = of_model(each, some_flips().apply(graph))
        found = probabilities(victim, some_flips().apply(graph))
        torch.testing.assert_close(found, expected)


def test_candidate_edges_are_refused() -> None:
    model = Amortised(**QUICK, candidates=2).fit(small_graph())
    with pytest.raises(InvalidInput, match="candidates=0"):
        victim_of(model, small_graph())


def test_a_graph_of_other_nodes_is_refused() -> None:
    graph = small_graph().clone()
    graph.x = graph.x[:-1]
    with pytest.raises(InvalidInput, match="expected the graph of its fit"):
        ScoredVictim(scored("amortised").model_, Scene(graph, None, False, 0).graph)
