"""AdaEdge: which pairs it touches, and when it stops."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from gsebo import Checkpoint
from gsebo.methods.baselines import adaedge
from gsebo.methods.baselines.adaedge import AdaEdge, Belief, belief_of
from gsebo.methods.baselines.pairs import linked_pairs
from gsebo.methods.controls import Vanilla
from gsebo.methods.fitting import Outcome

from .examples import assert_same_fit, small_graph, with_fields

QUICK: dict[str, Any] = {
    "hidden_channels": 8,
    "max_epochs": 20,
    "evaluate_every": 5,
    "inner_lr": 0.05,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(60, homophily=0.6, num_classes=3)


@dataclass
class Rounds:
    """The graphs that were trained on and what came out, and made-up accuracies."""

    accuracies: list[float]
    graphs: list[Tensor] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def train(self, *arguments: Any, graph: Tensor) -> list[Outcome]:
        (outcome,) = _TRAIN(*arguments, graph=graph)
        progress = outcome.progress
        accuracy = self.accuracies[len(self.graphs)]
        progress.best = replace(progress.best, val_accuracy=accuracy)
        self.graphs.append(graph)
        self.outcomes.append(outcome)
        return [outcome]


_TRAIN = adaedge.train_on_fixed_structure


def rounds_of(
    monkeypatch: pytest.MonkeyPatch, data: Data, accuracies: Sequence[float], **options
) -> tuple[Rounds, AdaEdge]:
    rounds = Rounds(list(accuracies))
    monkeypatch.setattr(adaedge, "train_on_fixed_structure", rounds.train)
    return rounds, AdaEdge(**QUICK | options).fit(data)


@pytest.mark.parametrize(
    ("accuracies", "options", "trained", "kept"),
    [
        ([0.5, 0.4], {}, 2, 0),
        ([0.5, 0.5], {}, 2, 0),
        ([0.5, 0.6, 0.7, 0.7], {}, 4, 2),
        ([0.1, 0.2, 0.3, 0.4, 0.5], {}, 5, 4),
        ([0.1, 0.2], {"max_rounds": 2}, 2, 1),
        ([0.1], {"max_rounds": 1}, 1, 0),
        ([0.1], {"num_add": 0, "num_remove": 0}, 1, 0),
    ],
)
def test_it_goes_on_while_validation_gets_better(
    monkeypatch, data: Data, accuracies, options, trained: int, kept: int
) -> None:
    rounds, model = rounds_of(monkeypatch, data, accuracies, **options)
    assert len(rounds.graphs) == trained
    assert model.model_.backbone is rounds.outcomes[kept].model.backbone
    assert torch.equal(model.probability_, rounds.outcomes[kept].probability)


def edges_without(edges: Tensor, pairs: Tensor, num_nodes: int) -> set[tuple[int, ...]]:
    """The edges that belong to none of some pairs."""
    without = set(pairs.tolist())
    return {
        tuple(edge)
        for edge in edges.T.tolist()
        if min(edge) * num_nodes + max(edge) not in without
    }


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_each_round_links_agreeing_and_cuts_disagreeing_pairs(
    monkeypatch, data: Data, compat: bool, directed: bool
) -> None:
    n = data.num_nodes
    if directed:
        up = data.edge_index[0] < data.edge_index[1]
        data = with_fields(data, edge_index=data.edge_index[:, up])
    options = {"conf_add": 0.5, "conf_remove": 0.6, "num_add": 9, "num_remove": 7}
    rounds, _ = rounds_of(
        monkeypatch, data, [0.1, 0.2, 0.3, 0.4, 0.5], compat=compat, **options
    )
    changes = [0, 0]
    for number, (old, new) in enumerate(pairwise(rounds.graphs)):
        belief = belief_of(rounds.outcomes[number].probability)
        before, after = linked_pairs(old, n), linked_pairs(new, n)
        added = after[~torch.isin(after, before)]
        removed = before[~torch.isin(before, after)]
        assert len(added) <= 9
        assert len(removed) <= 7
        least = 0.5 if compat else 0.6
        for pairs, equal, confidence in ((added, True, 0.5), (removed, False, least)):
            first, second = pairs // n, pairs % n
            agree = belief.label[first] == belief.label[second]
            assert bool((agree == equal).all())
            assert bool((belief.confidence[first] >= confidence).all())
            assert bool((belief.confidence[second] >= confidence).all())
        # The edges of all other pairs are as they were; new pairs go both ways.
        assert edges_without(old, removed, n) == edges_without(new, added, n)
        assert new.shape[1] == len(edges_without(new, added, n)) + 2 * len(added)
        changes[0] += len(added)
        changes[1] += len(removed)
    assert all(changes)


def test_compat_asks_removals_for_the_other_threshold(data: Data) -> None:
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    belief = Belief(torch.tensor([0, 1, 0, 1]), torch.tensor([0.9, 0.8, 0.6, 0.6]))
    options = {"num_add": 0, "num_remove": 1, "conf_add": 0.7, "conf_remove": 0.5}
    few = {"conf_add": 0.85, "conf_remove": 0.5}

    def kept(**changes: Any) -> list[int]:
        model = AdaEdge(**options | changes)
        return linked_pairs(model._adjusted(edges, belief, 3), 4).tolist()

    assert kept() == kept(compat=True) == [6, 11]
    assert kept(**few) == [6, 11]
    assert kept(compat=True, **few) == [1, 6, 11]


def test_compat_takes_the_first_nodes_and_not_the_surest() -> None:
    edges = torch.tensor([[0, 4], [4, 0]])
    label = torch.tensor([0, 0, 0, 0, 1])
    belief = Belief(label, torch.tensor([0.7, 0.7, 0.9, 0.8, 0.7]))

    def added(compat: bool) -> list[int]:
        model = AdaEdge(num_add=2, num_remove=0, compat=compat)
        return linked_pairs(model._adjusted(edges, belief, 1), 5).tolist()

    assert added(compat=False) == [2, 4, 13]
    assert added(compat=True) == [1, 2, 4]


def test_whether_pairs_come_or_go_first_makes_no_difference(data: Data) -> None:
    first, second = (
        AdaEdge(**QUICK, order=order).fit(data) for order in ("add", "remove")
    )
    assert_same_fit(first, second)
    assert torch.equal(first.new_edge_index_, second.new_edge_index_)


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_every_edge_may_go(monkeypatch, data: Data, backbone: str) -> None:
    everything = {"conf_remove": 0.0, "num_remove": 10**6, "num_add": 0}
    sources, targets = data.edge_index
    between = with_fields(
        data, edge_index=data.edge_index[:, data.y[sources] != data.y[targets]]
    )
    monkeypatch.setattr(
        adaedge, "belief_of", lambda _: Belief(data.y, torch.ones(data.num_nodes))
    )
    rounds, model = rounds_of(
        monkeypatch, between, [0.1, 0.2, 0.3], backbone=backbone, **everything
    )
    assert [graph.shape[1] > 0 for graph in rounds.graphs] == [True, False]
    assert not model.strength_.any()


def test_one_round_is_vanilla(data: Data) -> None:
    plain = Vanilla(**QUICK).fit(data)
    assert_same_fit(AdaEdge(**QUICK, max_rounds=1).fit(data), plain)


@pytest.mark.parametrize("backbone", ["gcn", "gat", "sage", "jk", "mlp"])
def test_the_graph_of_the_last_round_is_the_one_that_predicts(
    monkeypatch, data: Data, backbone: str
) -> None:
    rounds, model = rounds_of(
        monkeypatch, data, [0.1, 0.2], backbone=backbone, max_rounds=2
    )
    changed = with_fields(data, edge_index=rounds.graphs[1])
    plain = Vanilla(**QUICK, backbone=backbone).fit(changed)
    torch.testing.assert_close(model.probability_, plain.probability_)


def test_a_killed_fit_goes_on_in_its_round(data: Data, tmp_path: Path) -> None:
    seen: list[int] = []

    def killer(record: Any, _: Tensor) -> None:
        seen.append(record.step)
        if len(seen) == 6:
            raise KeyboardInterrupt

    model = AdaEdge(**QUICK, conf_add=0.0, conf_remove=0.0)
    with pytest.raises(KeyboardInterrupt):
        model.fit(
            data, checkpoint=Checkpoint(tmp_path, every_seconds=0), watcher=killer
        )
    assert seen == [1, 2, 3, 4, 1, 2]
    resumed = AdaEdge(**QUICK, conf_add=0.0, conf_remove=0.0)
    resumed.fit(
        data,
        checkpoint=Checkpoint(tmp_path, every_seconds=0, resume=True),
        watcher=lambda record, _: seen.append(record.step),
    )
    assert seen[6:8] == [2, 3]
    assert_same_fit(resumed, model.fit(data))


def test_each_replica_has_its_own_graph(data: Data) -> None:
    together = AdaEdge(**QUICK).fit(data, replicas=2)
    alone = AdaEdge(**QUICK | {"random_state": 1}).fit(data)
    assert_same_fit(together.replicas_[1], alone)
