"""Strengths that have seen false edges."""

from pathlib import Path

import pytest
import torch

from gsebo import Amortised, Inoculated, InvalidInput, load_model
from gsebo.attacks import Nettack
from gsebo.data import load
from gsebo.graph import Topology
from gsebo.sparse import make_features
from gsebo.structure.shift import Shift

from .examples import assert_same_fit, quick, small_graph


def test_without_a_dose_it_is_amortised() -> None:
    data = small_graph()
    plain = quick("amortised").fit(data)
    assert_same_fit(quick("inoculated", dose=0.0, candidates=0).fit(data), plain)


def test_a_dose_changes_the_function() -> None:
    data = small_graph()
    none, some = (
        quick("inoculated", dose=dose, candidates=0).fit(data) for dose in (0.0, 2.0)
    )
    assert not torch.equal(none.strength_, some.strength_)


def test_one_seed_one_fit() -> None:
    data = small_graph()
    first, again = (quick("inoculated").fit(data) for _ in range(2))
    assert_same_fit(first, again)


@pytest.mark.parametrize("sure", [0.0, 0.03, 0.1, 0.5])
def test_the_prescription_follows_the_evidence(sure: float) -> None:
    method = Inoculated()
    dose, candidates, floor = method.prescribed(Shift(sure, 0.0))
    more = method.prescribed(Shift(sure + 0.05, 0.0))
    assert 0 < dose <= more[0] <= 4
    assert 0 <= candidates <= more[1] <= 5
    assert 0 <= floor <= more[2] <= 0.5
    # What is within two standard errors is no evidence.
    assert method.prescribed(Shift(sure, 0.5)) == method.prescribed(Shift())


def test_what_is_given_is_prescribed() -> None:
    method = Inoculated(dose=1.5, candidates=2, floor=0.1)
    assert method.prescribed(Shift(0.9, 0.0)) == (1.5, 2, 0.1)


@pytest.mark.parametrize("candidates", [0, 2])
def test_a_floor_multiplies_what_features_alone_say(
    candidates: int, tmp_path: Path
) -> None:
    data = small_graph()
    plain, floored = (
        quick("inoculated", dose=1.0, candidates=candidates, floor=floor).fit(data)
        for floor in (0.0, 0.5)
    )
    assert torch.equal(plain.strength_, floored.strength_)
    features = make_features(data.x, torch.float32, "cpu")
    pattern = Topology.of(plain.model_.held[0], self_loops=True, device="cpu").pattern
    with torch.no_grad():
        alone = plain.model_.scorer.features_only(features, pattern, None, None)
    expected = plain.probability_ * alone.softmax(-1).sqrt()
    expected /= expected.sum(-1, keepdim=True)
    torch.testing.assert_close(floored.probability_, expected)
    torch.testing.assert_close(floored.predict_proba(data), expected)
    assert floored.allows_floor(0.5) and not floored.allows_floor(0.4)
    assert not quick("amortised").allows_floor(0.5)
    floored.save(tmp_path / "model")
    again = load_model(tmp_path / "model").predict_proba(data)
    assert torch.equal(again, floored.predict_proba(data))
    if not candidates:
        module = floored.to_module()
        found = module(data.x, data.edge_index).softmax(-1)
        torch.testing.assert_close(found, expected)


def test_a_floor_without_predictions_of_features_is_refused() -> None:
    for options in ({"predictions": "none"}, {"refit": False}):
        with pytest.raises(InvalidInput, match="floor=0"):
            quick("inoculated", floor=0.5, **options).fit(small_graph())


def test_no_prediction_is_compared_where_none_is_asked_for() -> None:
    model = quick("inoculated", predictions="none").fit(small_graph())
    assert model.model_.scorer.features_only is None


def test_it_holds_where_nodes_without_labels_are_attacked() -> None:
    graph = load("cora")
    degree = graph.edge_index[1].bincount(minlength=graph.num_nodes)
    nodes = (graph.test_mask & (degree > 6)).nonzero().squeeze(-1)[:50]
    change = Nettack().attack(graph, budget=5, nodes=nodes, random_state=0)
    attacked = change.apply(graph)
    fits = [kind(random_state=0).fit(attacked) for kind in (Amortised, Inoculated)]
    right = [fit.probability_.argmax(-1)[nodes] == graph.y[nodes] for fit in fits]
    assert int(right[1].sum()) > int(right[0].sum()) + 2
