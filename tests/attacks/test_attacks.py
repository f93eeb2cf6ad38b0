"""What holds of every attack: budgets, seeds, what is known, and that it does harm."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from attacks.graphs import (
    CLASSES,
    NODES,
    fitted,
    pair_set,
    small_graph,
    test_nodes,
    victim,
)
from gsebo import Graph, InvalidInput
from gsebo.attacks import DICE, GRBCD, PRBCD, Attack, Nettack, RandomAttack
from gsebo.attacks.base import Scene, attacked_nodes, known_nodes
from gsebo.attacks.perturbation import undirected_pairs

QUICK: dict[str, Any] = {"block_size": 2000, "epochs": 20}
ATTACKERS = [
    RandomAttack(),
    DICE(),
    PRBCD(**QUICK, resampling_epochs=15),
    GRBCD(**QUICK),
    Nettack(),
]


def called(attack: Attack) -> str:
    return type(attack).__name__


@pytest.mark.parametrize("attack", ATTACKERS, ids=called)
def test_a_budget_is_kept_and_a_seed_repeats(attack: Attack) -> None:
    graph = small_graph()
    budget: Any = 2 if attack.per_node else "10%"
    pairs = pair_set(undirected_pairs(graph))
    made = [
        attack.attack(graph, budget=budget, victim=victim(), random_state=seed)
        for seed in (3, 3)
    ]
    most = 2 * len(test_nodes()) if attack.per_node else round(0.1 * len(pairs))
    found = made[0]
    assert 0 < found.num_flips <= most
    assert not pair_set(found.added) & pairs and pair_set(found.removed) <= pairs
    assert torch.equal(found.added, made[1].added)
    assert torch.equal(found.removed, made[1].removed)
    assert attack.attack(graph, budget=0, victim=victim()).num_flips == 0


@pytest.mark.parametrize("attack", ATTACKERS, ids=called)
def test_no_test_label_is_read(attack: Attack) -> None:
    graph = small_graph()
    hidden = graph.clone()
    hidden.y = torch.where(graph.test_mask, (graph.y + 1) % CLASSES, graph.y)
    options: dict[str, Any] = {
        "budget": 3,
        "victim": victim(),
        "nodes": test_nodes()[:4],
    }
    found = [attack.attack(each, **options) for each in (graph, hidden)]
    assert torch.equal(found[0].flips, found[1].flips)


@pytest.mark.parametrize("attack", ATTACKERS, ids=called)
def test_each_node_on_its_own(attack: Attack) -> None:
    nodes = test_nodes()[:6]
    each = attack.attack_each(
        small_graph(), budget="100%", victim=victim(), nodes=nodes
    )
    assert list(each) == nodes.tolist()
    degree = torch.bincount(undirected_pairs(small_graph()).flatten(), minlength=NODES)
    for node, found in each.items():
        assert found.num_flips <= int(degree[node])
        assert bool((found.flips == node).any(1).all())


@pytest.mark.parametrize("attack", [PRBCD(**QUICK), GRBCD(**QUICK)], ids=called)
def test_a_gradient_does_more_harm_than_chance(attack: Attack) -> None:
    graph, model = small_graph(), fitted()
    options: dict[str, Any] = {"budget": "30%", "victim": model}
    by_chance = RandomAttack().attack(graph, **options)
    found = replace(attack, knows_labels=True).attack(graph, **options)
    before = model.score(graph)
    assert model.score(by_chance.apply(graph)) > before - 0.15
    assert model.score(found.apply(graph)) < before - 0.2


def test_a_class_can_be_the_target() -> None:
    attack = PRBCD(**QUICK, target_class=2)
    found = attack.attack(small_graph(), budget="15%", victim=fitted(), nodes="test")
    before, after = (
        fitted().predict(graph)[small_graph().test_mask] == 2
        for graph in (small_graph(), found.apply(small_graph()))
    )
    assert int(after.sum()) > int(before.sum()) + 8
    with pytest.raises(InvalidInput, match="a class from 0 to 2"):
        PRBCD(target_class=3).attack(small_graph(), budget=1, victim=victim())


@pytest.mark.parametrize("loss", ["prob_margin", "masked", "cross_entropy"])
def test_other_losses_do_harm_too(loss: Any) -> None:
    attack = PRBCD(**QUICK, loss=loss, knows_labels=True)
    found = attack.attack(small_graph(), budget="15%", victim=fitted())
    assert fitted().score(found.apply(small_graph())) < fitted().score(small_graph())


def test_pairs_are_at_attacked_nodes_or_anywhere() -> None:
    nodes = test_nodes()[:2]
    options: dict[str, Any] = {"budget": 30, "victim": victim(), "nodes": nodes}
    for attack in (
        RandomAttack(),
        DICE(),
        PRBCD(**QUICK, ends="attacked"),
        GRBCD(**QUICK, ends="attacked"),
    ):
        flips = attack.attack(small_graph(), **options).flips
        assert bool(torch.isin(flips, nodes).any(1).all())
    anywhere = RandomAttack(ends="any").attack(small_graph(), **options).flips
    assert not bool(torch.isin(anywhere, nodes).any(1).all())


def test_dice_parts_within_classes_and_joins_between() -> None:
    for knows in (False, True):
        attack = DICE(knows_labels=knows)
        labels = Scene(small_graph(), victim(), knows, 0).labels
        found = attack.attack(small_graph(), budget=40, victim=victim())
        assert len(found.removed) == len(found.added) == 20
        one, other = labels[found.removed].unbind(1)
        assert bool((one == other).all())
        one, other = labels[found.added].unbind(1)
        assert bool((one != other).all())


def test_dice_takes_all_that_there_is() -> None:
    graph = Graph(
        edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), y=torch.tensor([0, 0, 1, 1])
    )
    found = DICE(knows_labels=True).attack(graph, budget=6, nodes="all")
    assert found.removed.tolist() == [[0, 1]]
    assert pair_set(found.added) == {(0, 3), (1, 3)}


def test_what_an_attacker_takes_for_classes() -> None:
    graph = small_graph()
    labels = Scene(graph, victim(), False, 0).labels
    taught = graph.train_mask | graph.val_mask
    assert torch.equal(labels[taught], graph.y[taught])
    assert torch.equal(labels[~taught], fitted().predict(graph)[~taught])
    assert torch.equal(Scene(graph, victim(), True, 0).labels, graph.y)
    assert torch.equal(known_nodes(graph), taught)
    bare = Graph(graph.x, graph.edge_index)
    assert not bool(known_nodes(bare).any())
    with pytest.raises(InvalidInput, match="knows_labels=True given"):
        known_nodes(bare, every=True)


def test_attacked_nodes() -> None:
    graph, tests = small_graph(), test_nodes()
    for given in (None, "test", graph.test_mask, tests.flip(0), tests.tolist()):
        assert torch.equal(attacked_nodes(graph, given), tests)
    assert torch.equal(attacked_nodes(graph, tests.numpy()), tests)
    assert len(attacked_nodes(graph, "all")) == NODES
    rest = (~(graph.train_mask | graph.val_mask)).nonzero().squeeze(1)
    assert torch.equal(attacked_nodes(graph, "unlabelled"), rest)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nodes": "best"}, "nodes='best' given; expected one of: test, val"),
        ({"nodes": [NODES]}, "expected numbers from 0 to 119"),
        ({"nodes": [0.5]}, "expected numbers of nodes, or a mask"),
        ({"nodes": torch.zeros(NODES, dtype=torch.bool)}, "expected at least one"),
        ({"budget": "x"}, "budget='x' given"),
        ({"budget": NODES * NODES}, "expected at most 7140"),
        ({"budget": 3000}, "expected no more pairs than a block has"),
        ({"random_state": -1}, "seed=-1"),
        ({"victim": 3}, "int given as victim"),
    ],
)
def test_refusals(options: dict[str, Any], words: str) -> None:
    given = {"budget": 5, "victim": victim()} | options
    with pytest.raises(InvalidInput, match=words):
        PRBCD(block_size=2000).attack(small_graph(), **given)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: PRBCD(epochs=0), "epochs=0 given"),
        (lambda: PRBCD(loss="mse"), "loss='mse' given; expected 'prob_margin'"),  # type: ignore[arg-type]
        (lambda: GRBCD(block_size=0), "block_size=0 given"),
        (lambda: DICE(knows_labels=1), "knows_labels=1 given; expected True"),  # type: ignore[arg-type]
    ],
)
def test_parameters_are_checked_when_they_are_given(make: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


def test_a_graph_without_a_name_for_nodes() -> None:
    bare = Graph(small_graph().x, small_graph().edge_index, small_graph().y)
    with pytest.raises(InvalidInput, match="without test_mask"):
        RandomAttack().attack(bare, budget=3, nodes="test")
    with pytest.raises(InvalidInput, match="no node to attack"):
        # All labels are known.
        RandomAttack().attack(bare, budget=3)
