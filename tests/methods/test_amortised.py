"""Amortised strengths: what each choice does, and what none of them may do."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from gsebo import Amortised, InvalidInput, TrainVal
from gsebo.data import add_inter_class_edges, load
from gsebo.graph import canonicalise
from gsebo.methods.amortised_fit import FullBatchFit
from gsebo.methods.fitting import PreparedGraph
from gsebo.methods.folds import fold_nodes
from gsebo.methods.run import Run
from gsebo.structure.candidates import candidate_edges

from .examples import assert_same_fit, quick, small_graph, with_fields

CPU = torch.device("cpu")
CLOSE = {"rtol": 0.0, "atol": 2e-6}


def make(**changes: Any) -> Amortised:
    model = quick("amortised", **changes)
    assert isinstance(model, Amortised)
    return model


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


@pytest.fixture(scope="module")
def default(data: Data) -> Amortised:
    return make().fit(data)


@pytest.mark.parametrize(
    ("options", "records"),
    [
        ({"label_use": "folds", "num_folds": 3}, 2),
        ({"label_use": "cross"}, 4),
        ({"label_use": "fixed"}, 4),
        ({"label_use": "cross", "predictions": "features"}, 4),
        ({"predictions": "features"}, 2),
        ({"predictions": "none"}, 2),
        ({"per_layer": True}, 2),
        ({"residual": False}, 2),
        ({"residual": True, "scorer_decay": 0.1}, 2),
        ({"renormalise": False}, 2),
        ({"candidates": 2, "per_layer": True, "residual": True}, 2),
        ({"refit": False}, 2),
        ({"refit": False, "candidates": 2}, 2),
        ({"refit": False, "label_use": "cross"}, 4),
        ({"backbone": "gat"}, 2),
        ({"evidence": "cosine, common"}, 2),
    ],
    ids=str,
)
def test_every_choice_learns_and_predicts(
    options: dict[str, Any], records: int, data: Data, default: Amortised
) -> None:
    model = make(**options).fit(data)
    assert [record.step for record in model.history_] == list(range(1, records + 1))
    assert model.best_step_ == records
    assert torch.equal(model.predict_proba(data), model.probability_)
    layers = (2,) if options.get("per_layer") else ()
    assert model.strength_.shape == (*layers, data.num_edges)
    assert not torch.allclose(model.strength_, model.initial_strength_)
    assert not torch.equal(model.strength_, default.strength_)


@pytest.mark.parametrize(
    ("backbone", "label_use"),
    [(name, "folds") for name in ("gcn", "gat", "sage", "jk", "pyg:GCN")]
    + [("gcn", "cross"), ("gcn", "fixed")],
)
def test_without_outer_steps_it_is_the_control(
    backbone: str, label_use: str, data: Data
) -> None:
    model = make(outer_lr=0.0, backbone=backbone, label_use=label_use).fit(data)
    control = TrainVal(
        backbone, hidden_channels=8, max_epochs=12, patience=12, random_state=0
    ).fit(data)
    torch.testing.assert_close(model.strength_, control.strength_, **CLOSE)
    torch.testing.assert_close(model.probability_, control.probability_, **CLOSE)
    assert not model.history_[-1].changed_edges


def test_the_function_of_no_evidence_knows_nothing(data: Data) -> None:
    blind = make(evidence="", predictions="none", residual=False).fit(data)
    weights = blind.model_.scorer.weights
    # All edges look the same, so that they all weigh the same.
    torch.testing.assert_close(weights, weights[:1].expand_as(weights))


@pytest.mark.parametrize("batch_size", [None, 1000])
def test_what_features_say_does_not_know_what_is_held_out(
    data: Data, batch_size: int | None
) -> None:
    masks = data.train_mask | data.val_mask
    known = with_fields(data, y=torch.where(masks, data.y, -1))

    def guesses(labels: Data, label_use: str) -> list[Tensor]:
        model = make(label_use=label_use, num_folds=3, batch_size=batch_size)
        run = Run(model, labels, 0, CPU, None, None)
        fit = model.make_fit(PreparedGraph(labels, CPU), None, run)
        fit.folds = fold_nodes(data, label_use, 3, 0, CPU)
        networks = fit.networks()
        whole = FullBatchFit(model, PreparedGraph(labels, CPU), None, run).source.base
        at = whole, whole.initial_weights(), whole.initial_outer()
        return [
            networks.state_at(number)(*at)[0] for number in range(networks.num_networks)
        ]

    parts = fold_nodes(data, "folds", 3, 0, CPU)
    (stitched,) = guesses(known, "cross")
    before = guesses(known, "folds")
    for network, held_out in enumerate(parts.outer):
        other = with_fields(known, y=known.y.clone())
        other.y[held_out] = 1 - other.y[held_out]
        same = [
            torch.equal(*pair)
            for pair in zip(before, guesses(other, "folds"), strict=True)
        ]
        assert same == [number == network for number in range(3)]
        (others,) = guesses(other, "cross")
        assert torch.equal(others[held_out], stitched[held_out])


def test_without_a_refit_the_networks_predict_together(data: Data) -> None:
    model = make(refit=False, num_folds=3).fit(data)
    assert len(model.model_.members) == 3
    assert model.model_.scorer is None
    mean = torch.stack(
        [member.propagation.strengths for member in model.model_.members]
    )
    torch.testing.assert_close(model.model_.strengths, mean.mean(0))
    candidates = make(refit=False, num_folds=3, candidates=2).fit(data)
    assert len(candidates.model_.members) == 3
    names = set(dict(candidates.model_.backbone.named_parameters()))
    assert all(set(member.weights) == names for member in candidates.model_.members)


@pytest.mark.parametrize("refit", [False, True])
def test_candidates_begin_near_zero_and_are_told(refit: bool, data: Data) -> None:
    model = make(candidates=2, outer_lr=0.0, refit=refit, backbone="gat").fit(data)
    expected = candidate_edges(data.x, 2, canonicalise(data))
    assert torch.equal(model.new_edge_index_, expected)
    start = torch.sigmoid(torch.tensor(-3.0)) / torch.sigmoid(torch.tensor(2.0))
    strength = model.new_edge_strength_
    torch.testing.assert_close(strength, start.expand_as(strength))
    torch.testing.assert_close(model.strength_, model.initial_strength_, **CLOSE)
    learned = make(candidates=2, refit=refit, backbone="gat").fit(data)
    assert torch.equal(learned.new_edge_index_, expected)
    assert not torch.allclose(learned.new_edge_strength_, strength)


class OwnNetwork(nn.Module):
    """What a user may bring."""

    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int):
        super().__init__()
        self.first = GCNConv(in_channels, hidden_channels)
        self.second = GCNConv(hidden_channels, out_channels)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x, edge_index)), edge_index)


@pytest.mark.parametrize("backbone", [OwnNetwork, OwnNetwork(8, 8, 2)], ids=["c", "i"])
def test_a_network_of_the_user(backbone: Any, data: Data) -> None:
    model = make(backbone=backbone, candidates=2).fit(data)
    assert torch.equal(model.predict_proba(data), model.probability_)
    assert not torch.equal(model.strength_, model.initial_strength_)
    assert bool(model.history_[-1].changed_edges)


def test_replicas_are_single_fits(data: Data) -> None:
    together = make().fit(data, replicas=2).replicas_
    for seed, replica in enumerate(together):
        assert_same_fit(replica, make(random_state=seed).fit(data))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_folds": 1}, "num_folds=1 given; expected an integer >= 2"),
        ({"evidence": "cosin"}, "evidence='cosin' given; expected 'all' or some of"),
        ({"evidence": "common,common"}, "evidence='common,common' given"),
        ({"label_use": "fold"}, "label_use='fold'"),
        ({"predictions": "all"}, "predictions='all'"),
    ],
    ids=str,
)
def test_what_is_refused(options: dict[str, Any], text: str, data: Data) -> None:
    with pytest.raises(InvalidInput) as caught:
        make(**options).fit(data)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_wrong_edges_of_cora_weigh_less() -> None:
    clean = load("cora")
    data = add_inter_class_edges(clean, 3000)
    model = Amortised(
        num_folds=2,
        inner_steps=10,
        max_outer_steps=12,
        refit_epochs=60,
        outer_lr=0.03,
        random_state=0,
        device="cpu",
    ).fit(data)
    graph = model.model_.graph
    weights = graph.to_user_order(
        model.model_.scorer.weights, torch.ones(graph.num_nodes)
    )
    is_added = torch.arange(data.num_edges) >= clean.num_edges
    same = data.y[data.edge_index[0]] == data.y[data.edge_index[1]]
    assert not bool(same[is_added].any())
    gap = weights[~is_added].mean() - weights[is_added].mean()
    assert gap > 0.2
    control = TrainVal(max_epochs=60, random_state=0, device="cpu").fit(data)
    assert model.score(data) > control.score(data) + 0.05
