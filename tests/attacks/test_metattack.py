"""Metattack: its derivative is that of whole trainings, and what it may look at."""

from typing import Any

import pytest
import torch
from torch import Tensor

from attacks.graphs import (
    CLASSES,
    as_double,
    fitted,
    pair_set,
    small_graph,
    test_nodes,
    victim,
)
from gsebo import Graph, InvalidInput, Vanilla, generate_graph
from gsebo.attacks.base import Scene
from gsebo.attacks.metattack import Metattack, PairWeights, choose_flips
from gsebo.attacks.perturbation import pair_keys, undirected_pairs
from gsebo.bilevel import begin, make_optimizer
from gsebo.bilevel.derivatives import descend, first_derivatives
from gsebo.methods.fitting import PreparedGraph
from methods.examples import to_csr

QUICK: dict[str, Any] = {
    "rounds": 4,
    "block_size": 1500,
    "inner_steps": 30,
    "device": "cpu",
}


def weighted_pairs() -> tuple[Tensor, Tensor]:
    """The pairs of the small graph and others of weight zero, sorted."""
    graph = small_graph()
    present = undirected_pairs(graph)
    absent = torch.combinations(torch.arange(20))
    keys = torch.unique(
        pair_keys(torch.cat([present, absent]), graph.num_nodes), sorted=True
    )
    pairs = torch.stack([keys // graph.num_nodes, keys % graph.num_nodes], 1)
    weight = torch.isin(keys, pair_keys(present, graph.num_nodes)).double()
    return pairs, weight


@pytest.mark.parametrize("optimizer", ["momentum", "adam"])
@pytest.mark.parametrize("labels", ["self", "train", "both"])
def test_the_derivative_is_that_of_whole_trainings(optimizer: str, labels: Any) -> None:
    attack = Metattack(
        inner_steps=12, inner_optimizer=optimizer, labels=labels, device="cpu"
    )
    scene = Scene(as_double(small_graph()), fitted(), False, 0)
    prepared = attack._prepared(scene)
    objective = attack._objective(scene, test_nodes())
    pairs, weight = weighted_pairs()
    found = attack.gradient(prepared, pairs, weight, objective, 5)

    def trained(weight: Tensor) -> float:
        problem = attack.problem(prepared, pairs, weight, 5)
        outer = problem.initial_outer()
        step = make_optimizer(optimizer, attack.inner_lr)
        start = begin(step, problem.initial_weights())
        end, _ = descend(first_derivatives(problem, outer), step, start, 12)
        return float(objective(problem.logits(end.weights, outer, None)))

    for present in (False, True):
        # Those that matter most are not lost in rounding.
        size = found.abs() * (weight == present)
        for place in size.topk(3).indices.tolist():
            nudge = torch.zeros_like(weight)
            nudge[place] = 1e-6
            slope = (trained(weight + nudge) - trained(weight - nudge)) / 2e-6
            assert slope == pytest.approx(float(found[place]), rel=1e-4)


def test_zero_weight_is_absence() -> None:
    attack = Metattack(device="cpu")
    prepared = PreparedGraph(as_double(small_graph()), torch.device("cpu"))
    pairs, weight = weighted_pairs()
    laid, bare = (
        attack.problem(prepared, pairs[kept], weight[kept], 0)
        for kept in (weight >= 0, weight > 0)
    )
    scores = [
        each.scores(each.initial_weights(), each.initial_outer()).clone()
        for each in (laid, bare)
    ]
    torch.testing.assert_close(*scores)
    assert isinstance(laid.structure, PairWeights)
    outside = {"weight": torch.tensor([-1.0, 0.5, 2.0])}
    assert laid.structure.project(outside)["weight"].tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("budget", [1, 3, "20%"])
def test_a_budget_is_kept_and_a_seed_repeats(budget: int | str) -> None:
    graph = small_graph()
    pairs = pair_set(undirected_pairs(graph))
    first, second = (
        Metattack(**QUICK).attack(
            graph, budget=budget, victim=victim(), random_state=seed
        )
        for seed in (3, 3)
    )
    allowed = round(0.2 * len(pairs)) if isinstance(budget, str) else budget
    assert first.num_flips == allowed
    assert not pair_set(first.added) & pairs and pair_set(first.removed) <= pairs
    assert torch.equal(first.flips, second.flips)


def test_no_more_than_a_block_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    whole = Metattack.gradient

    def counted(
        self: Metattack, prepared: PreparedGraph, pairs: Tensor, *rest: Any
    ) -> Tensor:
        sizes.append(len(pairs))
        return whole(self, prepared, pairs, *rest)

    monkeypatch.setattr(Metattack, "gradient", counted)
    graph, budget = small_graph(), 20
    options = QUICK | {"block_size": 300, "rounds": 5}
    Metattack(**options).attack(graph, budget=budget, victim=victim())
    assert len(sizes) == 5
    assert max(sizes) <= 300 + len(undirected_pairs(graph)) + budget
    with pytest.raises(InvalidInput, match="20 pairs given with 5 rounds"):
        Metattack(**options | {"block_size": 3}).attack(
            graph, budget=budget, victim=victim()
        )


def test_no_test_label_is_read() -> None:
    graph = small_graph()
    hidden = graph.clone()
    hidden.y = torch.where(graph.test_mask, (graph.y + 1) % CLASSES, graph.y)
    # The victim is fitted on the way, which must not read any either.
    found = [
        Metattack(**QUICK).attack(each, budget=10).flips for each in (graph, hidden)
    ]
    assert torch.equal(*found)


def test_features_of_any_size_and_form_give_the_same_pairs() -> None:
    graph = small_graph()
    larger, sparse = graph.clone(), graph.clone()
    larger.x = graph.x * 8
    sparse.x = to_csr(graph.x)
    options: dict[str, Any] = {"budget": 10, "victim": victim()}
    found = [
        Metattack(**QUICK, labels="train").attack(each, **options).flips
        for each in (graph, larger, sparse)
    ]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_networks_that_are_trained_on_the_result_go_wrong() -> None:
    graph = generate_graph(
        400,
        num_classes=3,
        num_features=16,
        average_degree=4.0,
        homophily=0.9,
        feature_signal=0.5,
        split="random:10/10/80",
        seed=0,
    )
    attack = Metattack(rounds=10, block_size=20_000, device="cpu")
    attacked = attack.attack(graph, budget="25%").apply(graph)
    assert accuracy(attacked) < accuracy(graph) - 0.15


def accuracy(graph: Graph) -> float:
    network = Vanilla(random_state=1, device="cpu").fit(graph, replicas=2)
    right = [
        (each.transduction_ == graph.y)[graph.test_mask].double().mean()
        for each in network.replicas_
    ]
    return float(sum(right)) / len(right)


def test_flips_share_no_node_while_there_are_others() -> None:
    pairs = torch.tensor([[0, 1], [0, 2], [0, 3], [2, 3], [4, 5], [1, 4]])
    gain = torch.tensor([6.0, 5.0, 4.0, 3.0, -1.0, 0.0])
    absent = torch.zeros(6, dtype=torch.bool)
    assert choose_flips(pairs, gain, absent, 2).tolist() == [0, 3]
    assert choose_flips(pairs, gain, absent, 3).tolist() == [0, 3, 1]
    # Nothing is gained by the others.
    assert choose_flips(pairs, gain, absent, 6).tolist() == [0, 3, 1, 2]


def test_no_node_loses_its_last_edge() -> None:
    pairs = torch.tensor([[0, 1], [1, 2], [2, 3], [0, 3]])
    present = torch.ones(4, dtype=torch.bool)
    gain = torch.tensor([4.0, 3.0, 2.0, 1.0])
    assert choose_flips(pairs, gain, present, 4).tolist() == [0, 2]


def test_a_graph_without_labels_is_refused() -> None:
    graph = small_graph().clone()
    del graph["train_mask"]
    with pytest.raises(InvalidInput, match="train_mask"):
        Metattack().attack(graph, budget=1, victim=victim(), nodes="all")
