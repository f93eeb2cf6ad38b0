"""Where labels are few: whose labels teach, and when a learned graph is taken."""

import copy
import json
import re
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp
from torch import Tensor
from torch.nn.functional import one_hot
from torch_geometric.data import Data

from gsebo import Auto, Frozen, InvalidInput, Vanilla, load_model
from gsebo.methods import METHODS, GraphClassifier, gsebo
from gsebo.methods.amortised import AmortisedClassifier
from gsebo.methods.amortised_fit import FullBatchFit, Learned
from gsebo.methods.auto import few_labels
from gsebo.methods.fitting import PreparedGraph
from gsebo.methods.folds import Lead, taught_labels
from gsebo.methods.run import Run

from .auto_examples import auto, bare
from .auto_examples import graph as larger_graph
from .examples import (
    HandWritten,
    assert_same_fit,
    fitted,
    permuted,
    quick,
    small_graph,
    with_fields,
)
from .saved import assert_refused, assert_same_model, change_facts, facts_of

CPU = torch.device("cpu")
LEARNERS = ("gsebo", "amortised", "inoculated")
AMORTISED = ("amortised", "inoculated")


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


def nodes(mask: Tensor) -> set[int]:
    return set(mask.nonzero().flatten().tolist())


def few(name: str, **changes: Any) -> GraphClassifier:
    return quick(name, labels="train", **changes)


# --- whether predictions are surely better -------------------------------------------


@st.composite
def predictions(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """Two predictions of some nodes, and their classes; ties among classes too."""
    size, classes = draw(st.integers(1, 40)), draw(st.integers(2, 4))
    score = st.lists(
        st.integers(0, 5), min_size=size * classes, max_size=size * classes
    )
    left, right = (
        torch.tensor(draw(score), dtype=torch.float32).view(size, classes)
        for _ in range(2)
    )
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=size, max_size=size))
    return left.log_softmax(-1), right.log_softmax(-1), torch.tensor(labels)


@given(given=predictions())
def test_the_lead_is_counted_node_by_node(given: tuple[Tensor, Tensor, Tensor]) -> None:
    left, right, labels = given
    lead = Lead.of(left, right, labels)
    difference = (left.argmax(-1) == labels).numpy().astype(int)
    difference -= (right.argmax(-1) == labels).numpy()
    won, lost = int((difference > 0).sum()), int((difference < 0).sum())
    assert lead == Lead(won, lost, len(labels))
    assert lead.share == pytest.approx(difference.mean(), abs=1e-12)
    # The standard deviation of a mean of coins, each of which is 1 or -1.
    expected = np.sqrt((difference**2).mean() / len(labels))
    assert lead.error == pytest.approx(expected, abs=1e-12)
    behind = Lead.of(right, left, labels)
    assert behind == Lead(lost, won, len(labels))
    assert behind.share == -lead.share and behind.error == lead.error
    assert not (lead.is_sure and behind.is_sure)
    assert not (lead.is_sure and lead.share <= 0)
    assert Lead.of(left, left, labels) == Lead(0, 0, len(labels))


COUNTS = st.integers(0, 10**6)


@given(won=COUNTS, lost=COUNTS, others=COUNTS)
def test_two_errors_are_not_enough_and_more_are(
    won: int, lost: int, others: int
) -> None:
    """In exact numbers, however many other nodes there are."""
    lead = Lead(won, lost, won + lost + others)
    nodes = max(lead.nodes, 1)
    share, variance = Fraction(won - lost, nodes), Fraction(won + lost, nodes**2)
    assert lead.is_sure == (share > 0 and share**2 > 4 * variance)


@given(half=st.integers(1, 10**6))
def test_what_is_equal_to_two_errors_is_not_more(half: int) -> None:
    won, lost = 2 * half * (half + 1), 2 * half * (half - 1)
    lead = Lead(won, lost, won + lost)
    assert lead.share == pytest.approx(2 * lead.error)
    assert not lead.is_sure
    assert Lead(won + 1, lost, won + lost + 1).is_sure


@pytest.mark.parametrize("size", [4, 5, 6, 10, 30, 500])
def test_four_nodes_are_never_enough_and_five_are(size: int) -> None:
    labels = torch.zeros(size, dtype=torch.int64)
    right = torch.tensor([0.9, 0.1]).log().repeat(size, 1)
    for wrong in range(min(size, 6) + 1):
        worse = right.clone()
        worse[:wrong] = right[:wrong].flip(-1)
        assert Lead.of(right, worse, labels).is_sure == (wrong > 4)
        assert not Lead.of(worse, right, labels).is_sure


@given(
    right=st.integers(1, 60).flatmap(
        lambda nodes: st.lists(
            st.lists(st.booleans(), min_size=nodes, max_size=nodes),
            min_size=2,
            max_size=6,
        )
    )
)
def test_nobody_is_surely_ahead_of_who_is_chosen_in_turn(
    right: list[list[bool]],
) -> None:
    """So it is no lie that who is ahead of the chosen one is not surely so."""
    labels = torch.ones(len(right[0]), dtype=torch.int64)
    told = [one_hot(torch.tensor(each).long(), 2).double() for each in right]
    held = 0
    for number in range(1, len(told)):
        if Lead.of(told[number], told[held], labels).is_sure:
            held = number
    assert not any(Lead.of(one, told[held], labels).is_sure for one in told)


# --- whose labels teach --------------------------------------------------------------


def test_which_labels_may_teach(data: Data) -> None:
    assert taught_labels(data, "all") is data
    taught = taught_labels(data, "train")
    assert torch.equal(taught.train_mask, data.train_mask)
    assert not bool(taught.val_mask.any()) and bool(data.val_mask.any())


def fit_of(name: str, data: Data, **changes: Any) -> FullBatchFit:
    model = quick(name, **{"labels": "train"} | changes)
    assert isinstance(model, AmortisedClassifier)
    run, dose = Run(model, data, 0, CPU, None, None), 2.0 * (name == "inoculated")
    return FullBatchFit(model, PreparedGraph(data, CPU), None, run, dose)


@pytest.mark.parametrize("label_use", ["folds", "cross"])
def test_folds_hold_training_nodes_alone(data: Data, label_use: Any) -> None:
    fit = fit_of("amortised", data, label_use=label_use, num_folds=3)
    train = nodes(data.train_mask)
    assert set(fit.labelled.tolist()) == train
    assert set(fit.stop_nodes.tolist()) == nodes(data.val_mask)
    for inner, outer in zip(*fit.folds, strict=True):
        found = set(inner.tolist()), set(outer.tolist())
        assert found[0] | found[1] == train and not found[0] & found[1]
    division = fit.networks().division
    for step in range(6):
        inner, outer = division.nodes(step)
        assert set(inner.tolist()) | set(outer.tolist()) == train


def other_validation_labels(data: Data) -> Data:
    y = data.y.clone()
    y[data.val_mask] = 1 - y[data.val_mask]
    return with_fields(data, y=y)


@pytest.mark.parametrize(
    ("labels", "name", "label_use"),
    [
        ("train", "amortised", "folds"),
        ("train", "amortised", "cross"),
        ("train", "inoculated", "folds"),
        ("all", "amortised", "folds"),
    ],
)
def test_validation_labels_teach_no_function(
    data: Data, labels: str, name: str, label_use: str
) -> None:
    """The one that is learned has the same bits, whatever they are."""
    options = {"labels": labels, "label_use": label_use}

    def learned(data: Data) -> Learned:
        return fit_of(name, data, **options).learn()

    left, right = learned(data), learned(other_validation_labels(data))
    same = labels == "train"
    for key, leaf in left.progress.best_outer.items():
        assert torch.equal(leaf, right.progress.best_outer[key]) == same, key
    assert left.features_only is not None and right.features_only is not None
    (one, other) = (each.features_only["weights"] for each in (left, right))
    assert torch.equal(one, other) == same
    told = [
        [record.train_loss for record in each.progress.history]
        for each in (left, right)
    ]
    assert (told[0] == told[1]) == same


def always(answer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the learned graph be surely better, or not."""
    monkeypatch.setattr(Lead, "is_beyond", lambda *_: answer)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gsebo", {"select_by": "last"}),
        ("amortised", {"predictions": "features"}),
        ("inoculated", {"predictions": "features"}),
    ],
)
def test_validation_labels_teach_no_strength(
    data: Data, name: str, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they do not choose between steps, they do not count at all."""
    always(True, monkeypatch)
    graphs = data, other_validation_labels(data)
    left, right = (few(name, **options).fit(each) for each in graphs)
    assert torch.equal(left.strength_, right.strength_)
    losses = [[record.train_loss for record in fit.history_] for fit in (left, right)]
    assert losses[0] == losses[1]
    with_all = quick(name, **options).fit(data)
    assert not torch.equal(left.strength_, with_all.strength_)


def test_what_gsebo_learns_from(data: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    train_structure = gsebo.train_structure

    def watched(problems: Any, *rest: Any, **options: Any) -> Any:
        seen.extend([*problems, *options["settings"]])
        return train_structure(problems, *rest, **options)

    monkeypatch.setattr(gsebo, "train_structure", watched)
    few("gsebo").fit(data)
    problem, settings = seen
    inner, outer = (
        set(each.tolist()) for each in (problem.inner_nodes, problem.outer_nodes)
    )
    assert inner | outer == nodes(data.train_mask) and not inner & outer
    assert len(inner) == 2 * len(outer)
    assert set(data.y[list(inner)].tolist()) == set(data.y[list(outer)].tolist())
    assert set(settings.stop_nodes.tolist()) == nodes(data.val_mask)


SAME = [{"labels": "all"}, {"consistency": 0.0}]
SAME_STRUCTURE = [
    {"structure_backbone": None, "consistent_inside": False},
    {"structure_backbone": "gcn"},
    {"consistent_inside": True},
]


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, options) for name in LEARNERS for options in SAME]
    + [(name, options) for name in AMORTISED for options in SAME_STRUCTURE],
    ids=str,
)
def test_what_changes_nothing(data: Data, name: str, options: dict[str, Any]) -> None:
    assert_same_fit(quick(name, **options).fit(data), fitted(name))


def test_what_changes_something(data: Data) -> None:
    taught = {"consistency": 1.0, "num_views": 2, "warmup": 3}
    fits = [
        few("amortised", **options).fit(data)
        for options in (taught, {**taught, "consistent_inside": True})
    ]
    assert fits[0].history_[-1].train_loss != fits[1].history_[-1].train_loss
    # After the structure is learned, nodes without labels always teach.
    plain = few("amortised").fit(data)
    assert fits[0].history_[-1].train_loss == plain.history_[-1].train_loss
    assert not torch.equal(fits[0].probability_, plain.probability_)


# --- the floor -----------------------------------------------------------------------


def plain_of(name: str, **changes: Any) -> GraphClassifier:
    """The same network, trained on the given graph as the last training is."""
    same = {"hidden_channels": 8, "random_state": 0, **changes}
    if name == "gsebo":
        return Frozen(inner_steps=3, max_outer_steps=4, **same)
    length = {"max_epochs": 12, "evaluate_every": 5, "patience": 40}
    return Vanilla(select_by="accuracy", **length, **same)


def assert_plain(model: GraphClassifier, plain: GraphClassifier, data: Data) -> None:
    """To the last bit: it is trained on the graph as given, and on nothing else."""
    assert torch.equal(model.strength_, model.initial_strength_)
    assert torch.equal(model.strength_, plain.strength_)
    assert torch.equal(model.probability_, plain.probability_)
    assert torch.equal(model.predict_proba(data), plain.predict_proba(data))
    assert not model.model_.learned and not model.model_.members
    assert not bool(model.new_edge_strength_.any())
    assert model.model_.scorer is None


@pytest.mark.parametrize(
    ("name", "options"),
    [
        (name, options)
        for name in ("gsebo", "amortised")
        for options in (
            {"per_layer": True},
            {"backbone": "sage"},
            {"backbone": "grand", "consistency": 1.0, "num_views": 2},
        )
    ]
    + [("inoculated", {})],
    ids=str,
)
def test_who_is_not_surely_better_is_the_plain_network(
    data: Data, name: str, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(False, monkeypatch)
    none = {"candidates": 0} if name == "inoculated" else {}
    model = few(name, **options, **none).fit(data)
    shared = {key: value for key, value in options.items() if key != "per_layer"}
    assert_plain(model, plain_of(name, **shared).fit(data), data)
    # It was learned all the same, and that is told.
    assert any(record.changed_edges for record in model.history_)


@pytest.mark.parametrize("backbone", ["gcn", "pyg:GCN"])
@pytest.mark.parametrize("name", AMORTISED)
def test_no_candidate_is_left_then(
    data: Data, name: str, backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do networks notice any that ask how many neighbors there are."""
    always(False, monkeypatch)
    model = few(name, candidates=2, backbone=backbone).fit(data)
    assert_plain(model, plain_of(name, backbone=backbone).fit(data), data)


@pytest.mark.parametrize(
    ("name", "options"),
    [("gsebo", {}), ("amortised", {}), ("amortised", {"candidates": 2})],
    ids=str,
)
def test_what_is_not_taken_says_nothing_of_other_graphs(
    data: Data, name: str, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(False, monkeypatch)
    model, plain = few(name, **options).fit(data), plain_of(name).fit(data)
    fewer = with_fields(data, edge_index=data.edge_index[:, 20:])
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    for other in (fewer, permuted(data, order)):
        assert torch.equal(model.predict_proba(other), plain.predict_proba(other))


@pytest.mark.parametrize("name", LEARNERS)
def test_what_has_not_moved_is_not_taken(data: Data, name: str) -> None:
    """Without a step from the start there is nothing to be better by."""
    model = few(name, outer_lr=0.0).fit(data)
    assert_plain(model, plain_of(name).fit(data), data)


def weighted(data: Data) -> Data:
    generator = torch.Generator().manual_seed(1)
    weights = torch.rand(data.num_edges, generator=generator) + 0.5
    return with_fields(data, edge_weight=weights)


@pytest.mark.parametrize("name", LEARNERS)
def test_weights_of_the_user_stay(
    data: Data, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(False, monkeypatch)
    graph = weighted(data)
    model, plain = few(name).fit(graph), plain_of(name).fit(graph)
    assert torch.equal(model.initial_strength_, plain.strength_)
    assert_plain(model, plain, graph)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gsebo", {}),
        ("amortised", {"candidates": 2}),
        ("amortised", {"backbone": "grand", "structure_backbone": "gcn"}),
        ("inoculated", {"floor": 0.5, "candidates": 1}),
    ],
    ids=str,
)
def test_validation_nodes_decide(
    data: Data, name: str, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the predictions that would be given, and those of the plain network."""
    asked: list[tuple[Tensor, ...]] = []

    def asking(*given: Tensor) -> SimpleNamespace:
        asked.append(given)
        return SimpleNamespace(is_sure=len(asked) == 1)

    monkeypatch.setattr(Lead, "of", asking)
    learned = few(name, **options).fit(data)
    shared = {"backbone": options.get("backbone", "gcn")}
    given, plain = few(name, **options).fit(data), plain_of(name, **shared).fit(data)
    assert not torch.equal(learned.probability_, given.probability_)
    assert_plain(given, plain, data)
    assert len(asked) == 2
    for ours, theirs, labels in asked:
        assert torch.equal(labels, data.y[data.val_mask])
        for told, fit in ((ours, learned), (theirs, plain)):
            # Logarithms, or not: which one is larger is all that counts.
            told = told.exp() if bool((told < 0).any()) else told
            torch.testing.assert_close(told, fit.probability_[data.val_mask])


@pytest.mark.parametrize("labels", ["train", "all"])
def test_fresh_weights_may_have_a_rate_of_their_own(data: Data, labels: str) -> None:
    """What is learned before them is the same, and so are they at the same rate."""
    # Then no strength depends on what fresh weights say.
    options = {"labels": labels, "fallback": labels == "all", "predictions": "features"}
    same = quick("amortised", **options).fit(data)
    alike = quick("amortised", refit_lr=same.inner_lr, **options).fit(data)
    assert_same_fit(same, alike)
    larger = quick("amortised", refit_lr=5 * same.inner_lr, **options).fit(data)
    assert torch.equal(larger.strength_, same.strength_)
    assert not torch.equal(larger.probability_, same.probability_)


def test_the_floor_of_features_counts_in_the_decision(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compared is what would be told, features alone included."""
    asked: list[Tensor] = []

    def asking(ours: Tensor, *_: Tensor) -> SimpleNamespace:
        asked.append(ours)
        return SimpleNamespace(is_sure=True)

    monkeypatch.setattr(Lead, "of", asking)
    fits = [few("inoculated", floor=each).fit(data) for each in (0.0, 0.5)]
    assert not torch.equal(*asked)
    for told, fit in zip(asked, fits, strict=True):
        assert torch.equal(told, fit.probability_[data.val_mask])


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gsebo", {}),
        ("gsebo", {"per_layer": True, "consistency": 1.0, "num_views": 2}),
        ("amortised", {}),
        ("amortised", {"candidates": 2, "per_layer": True}),
        ("amortised", {"backbone": "grand", "structure_backbone": "gcn"}),
        ("inoculated", {"floor": 0.4, "candidates": 1, "label_use": "cross"}),
    ],
    ids=str,
)
def test_what_is_loaded_predicts_alike(
    data: Data,
    name: str,
    options: Any,
    taken: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    always(taken, monkeypatch)
    model = few(name, **options).fit(data)
    assert torch.equal(model.strength_, model.initial_strength_) != taken
    torch.testing.assert_close(model.predict_proba(data), model.probability_)
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert_same_model(loaded, model, data)
    assert loaded.get_params() == model.get_params()
    fewer = with_fields(data, edge_index=data.edge_index[:, 20:])
    assert torch.equal(loaded.predict_proba(fewer), model.predict_proba(fewer))


def test_replicas_are_single_fits(data: Data) -> None:
    for name in ("gsebo", "amortised"):
        together = few(name).fit(data, replicas=2).replicas_
        for seed, replica in enumerate(together):
            assert_same_fit(replica, few(name, random_state=seed).fit(data))


# --- the automatic fit ---------------------------------------------------------------

# What is compared, in this order, by the methods below.
COMPARED = ["vanilla", "vanilla", "mlp", "vanilla", "gsebo", "amortised"]


def automatic(**changes: Any) -> Auto:
    options = {"methods": "vanilla,mlp,gsebo,amortised", "labels": "train"}
    return auto(**options | {"max_epochs": 10} | changes)


@pytest.fixture(scope="module")
def chosen(data: Data) -> Auto:
    return automatic().fit(data)


def test_one_is_chosen_and_all_say_why(data: Data, chosen: Auto) -> None:
    assert [record["candidate"] for record in chosen.choice_] == COMPARED
    (taken,) = (record for record in chosen.choice_ if record["chosen"])
    assert taken["candidate"] == chosen.chosen_
    assert taken["preparation"] == chosen.preparation_ == "given"
    assert taken["epochs"] == chosen.epochs_
    count, taught = int(data.val_mask.sum()), int(data.train_mask.sum())
    for record in chosen.choice_:
        assert f"of {count} validation nodes" in record["reason"]
        assert round(record["accuracy"] * count) == pytest.approx(
            record["accuracy"] * count
        )
    assert f"{taught} labels teach" in taken["reason"]
    assert json.loads(json.dumps(chosen.choice_)) == chosen.choice_
    assert json.loads(json.dumps(chosen.chosen_parameters_)) == (
        chosen.chosen_parameters_
    )
    right = (chosen.transduction_ == data.y)[data.val_mask].double().mean()
    assert float(right) == pytest.approx(taken["accuracy"])


def place_goes_to(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one candidate be surely better than the plain network, and no other."""
    monkeypatch.setattr(few_labels, "Lead", Only(number))
    monkeypatch.setattr(few_labels, "_is_likelier", lambda *_: False)


class Only:
    """A lead that is sure for one candidate, and for no other."""

    def __init__(self, number: int) -> None:
        self.number, self.asked = number, 0

    def of(self, *_: Tensor) -> SimpleNamespace:
        self.asked += 1
        sure = self.asked == self.number
        return SimpleNamespace(share=0.05, error=0.05, is_beyond=lambda _: sure)


@pytest.mark.parametrize(
    ("methods", "number", "chosen", "backbone", "taken"),
    [
        ("vanilla,mlp", 0, "vanilla", "gcn", False),
        ("vanilla,mlp", 1, "vanilla", "grand", False),
        ("vanilla,mlp", 2, "mlp", "mlp", False),
        ("vanilla,mlp", 3, "vanilla", "mlp", False),
        ("vanilla,gsebo", 2, "gsebo", "gcn", False),
        ("vanilla,gsebo", 2, "gsebo", "gcn", True),
        ("amortised,vanilla", 2, "amortised", "grand", True),
        ("vanilla,amortised", 2, "amortised", "grand", True),
    ],
)
def test_whoever_is_chosen_is_a_model_as_others(
    data: Data,
    methods: str,
    number: int,
    chosen: str,
    backbone: str,
    taken: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is what it would be alone, and predicts the same when it is loaded.

    The plain network stays where nobody is surely ahead.
    """
    place_goes_to(number, monkeypatch)
    always(taken, monkeypatch)
    # Two steps that nothing undoes, where there is to be something learned.
    options = {"outer_step": "paper", "max_epochs": 20} if taken else {}
    model = automatic(methods=methods, **options).fit(data)
    assert [record["chosen"] for record in model.choice_].index(True) == number
    assert (model.chosen_, model.chosen_parameters_["backbone"]) == (chosen, backbone)
    assert torch.equal(model.strength_, model.initial_strength_) != taken
    assert (model.model_.scorer is not None) == (taken and chosen == "amortised")
    torch.testing.assert_close(model.predict_proba(data), model.probability_)
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert_same_model(loaded, model, data)
    assert loaded.choice_ == model.choice_
    assert loaded.chosen_parameters_ == model.chosen_parameters_
    assert loaded.get_params() == model.get_params()
    fewer = with_fields(data, edge_index=data.edge_index[:, 20:])
    assert torch.equal(loaded.predict_proba(fewer), model.predict_proba(fewer))
    alone = METHODS[model.chosen_].estimator(**model.chosen_parameters_).fit(data)
    assert_same_fit(model, alone)


@pytest.mark.parametrize(
    ("number", "backbone", "own"),
    [(0, "gcnii", {"alpha": 0.3}), (1, "grand", {"feature_gates": True})],
)
def test_options_of_a_network_are_not_those_of_another(
    data: Data,
    number: int,
    backbone: str,
    own: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A choice says which network it has, and what options that one has."""
    place_goes_to(number, monkeypatch)
    options = {"backbone": "gcnii", "backbone_options": {"alpha": 0.3}}
    model = automatic(methods="vanilla", **options).fit(data)
    assert model.chosen_parameters_["backbone"] == backbone
    assert model.chosen_parameters_["backbone_options"] == own
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert_same_model(loaded, model, data)
    assert loaded.get_params() == model.get_params()


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_class_of_the_users_is_asked_for_again(
    data: Data, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is one of the candidates: another one may have been chosen."""
    place_goes_to(number, monkeypatch)
    model = automatic(methods="vanilla,mlp", backbone=HandWritten).fit(data)
    model.save(tmp_path)
    loaded = load_model(tmp_path, backbone=HandWritten)
    assert_same_model(loaded, model, data)
    assert loaded.choice_ == model.choice_
    assert "backbone" in assert_refused(tmp_path)


def test_a_choice_of_another_network_than_is_held_is_refused(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place_goes_to(1, monkeypatch)
    automatic(methods="vanilla").fit(data).save(tmp_path)
    choice = facts_of(tmp_path)["choice"]
    for other in ("gcn", "gat", "mlp", "gcnii", "nonsense", None, 3, {"code": "a.b"}):
        parameters = {**choice["parameters"], "backbone": other}
        change_facts(tmp_path, choice={**choice, "parameters": parameters})
        assert_refused(tmp_path)
    for options in ({"hops": 0}, {"hopps": 2}, {"node_dropout": 2.0}, {"order": 1}, []):
        parameters = {**choice["parameters"], "backbone_options": options}
        change_facts(tmp_path, choice={**choice, "parameters": parameters})
        assert_refused(tmp_path)


def assert_told_apart(model: Auto, count: int) -> None:
    """Who is ahead of the chosen one, but not surely, is said to be so."""
    (taken,) = (record for record in model.choice_ if record["chosen"])
    for record in model.choice_:
        if record is not taken:
            lead = round((record["accuracy"] - taken["accuracy"]) * count)
            where = "ahead, which is not sure" if lead >= 0 else "behind the chosen one"
            words = f"; {100 * abs(lead) / count:.1f} points {where} (standard error "
            assert words in record["reason"]
        assert not re.search(r"-\d", record["reason"]), record["reason"]


class Watched(NamedTuple):
    """One fit within an automatic one."""

    name: str
    loss: float  # Of the validation nodes.
    parameters: dict[str, Any]


def fits_of_random_propagation(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> list[Watched]:
    seen, train = list[Watched](), few_labels.train

    def watched(estimator: GraphClassifier, *given: Any) -> Any:
        outcome = train(estimator, *given)
        said = outcome.probability[data.val_mask]
        loss = -said.log().gather(1, data.y[data.val_mask].unsqueeze(1)).mean()
        own = estimator.get_params()
        if own["backbone"] == "grand":
            seen.append(Watched(type(estimator).__name__, float(loss), own))
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(few_labels, "train", watched)
        automatic(methods="vanilla,amortised").fit(data)
    return seen


def test_the_way_of_teaching_is_that_of_the_smaller_validation_loss(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is chosen with the first network, and then taken for whoever comes after.

    Which one is tried first does not matter.
    """
    chosen = set()
    rate = automatic().inner_lr
    for ways in (few_labels._TEACHINGS, few_labels._TEACHINGS[::-1]):
        monkeypatch.setattr(few_labels, "_TEACHINGS", ways)
        one, other, learned = fits_of_random_propagation(data, monkeypatch)
        rates = [each.parameters["inner_lr"] for each in (one, other)]
        assert rates == [rate * each.pace for each in ways]
        taken = min(one, other, key=lambda each: each.loss).parameters
        assert learned.name == "Amortised"
        assert learned.parameters["refit_lr"] == taken["inner_lr"]
        assert learned.parameters["consistency"] == taken["consistency"]
        assert learned.parameters["inner_lr"] == rate
        chosen.add(taken["inner_lr"])
    assert len(chosen) == 1


def test_nobody_is_behind_by_less_than_nothing(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(False, monkeypatch)
    monkeypatch.setattr(few_labels, "_is_likelier", lambda *_: False)
    model = automatic(methods="vanilla,mlp").fit(data)
    assert model.choice_[0]["chosen"]
    first, *others = (record["accuracy"] for record in model.choice_)
    assert max(others) > first
    assert_told_apart(model, int(data.val_mask.sum()))


@given(
    gain=st.lists(st.floats(-5, 5), min_size=2, max_size=40),
    shift=st.floats(-2, 2),
    errors=st.integers(1, 3),
)
def test_likelier_is_by_standard_errors(
    gain: list[float], shift: float, errors: int
) -> None:
    """Of one another, two predictions are never both; SciPy has the same statistic."""
    labels = torch.zeros(len(gain), dtype=torch.int64)
    said = torch.tensor([[each + shift, 0.0] for each in gain], dtype=torch.float64)
    other = torch.zeros_like(said)
    found = few_labels._is_likelier(said, other, labels, errors)
    assert not (found and few_labels._is_likelier(other, said, labels, errors))
    if np.std(said[:, 0].numpy()) > 1e-6:
        statistic = ttest_1samp(said[:, 0].numpy(), 0).statistic
        if abs(statistic - errors) > 1e-6:
            assert found == (statistic > errors)


def test_a_likelier_candidate_must_be_right_more_often(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever says it with more certainty alone does not take the place."""
    for answer, chosen in ((lambda *_: True, True), (lambda *_: False, False)):
        always(False, monkeypatch)
        monkeypatch.setattr(few_labels, "_is_likelier", answer)
        model = automatic(methods="vanilla,mlp").fit(data)
        accuracy = [record["accuracy"] for record in model.choice_]
        assert max(accuracy) > accuracy[0]
        (taken,) = (record for record in model.choice_ if record["chosen"])
        assert (taken["accuracy"] == max(accuracy)) == chosen


def test_who_wins_is_surely_ahead_of_who_held_the_place(data: Data) -> None:
    """Among edges drawn by chance, features alone do best; the reason says by how much.

    Nothing is forced here.
    """
    edges = torch.randint(60, (2, 300), generator=torch.Generator().manual_seed(2))
    noisy = with_fields(
        data,
        x=one_hot(data.y, 2).float() + 0.1 * data.x[:, :2],
        edge_index=edges,
        val_mask=data.val_mask | data.test_mask,
        test_mask=torch.zeros_like(data.test_mask),
    )
    model = automatic(methods="vanilla,mlp", max_epochs=60).fit(noisy)
    assert model.chosen_parameters_["backbone"] == "mlp"
    (taken,) = (record for record in model.choice_ if record["chosen"])
    count = int(noisy.val_mask.sum())
    lead = taken["accuracy"] - model.choice_[0]["accuracy"]
    assert round(lead * count) >= 5
    assert f"; {100 * lead:.1f} points before the plain network" in taken["reason"]
    assert_told_apart(model, count)
    assert "behind the chosen one" in model.choice_[0]["reason"]


@pytest.mark.parametrize(
    "methods", ["vanilla,frozen", "vanilla,dropedge", "vanilla,grcn"]
)
def test_a_candidate_is_one_that_its_method_accepts(
    data: Data, methods: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is chosen can be fitted again with the parameters that are told."""
    place_goes_to(2, monkeypatch)
    model = automatic(methods=methods).fit(data)
    assert model.chosen_ == methods.split(",")[1]
    alone = METHODS[model.chosen_].estimator(**model.chosen_parameters_).fit(data)
    assert_same_fit(model, alone)


def test_test_labels_are_no_part_of_a_choice(data: Data, chosen: Auto) -> None:
    y = data.y.clone()
    y[data.test_mask] = 1 - y[data.test_mask]
    other = automatic().fit(with_fields(data, y=y))
    assert_same_fit(other, chosen)
    for one, same in zip(chosen.choice_, other.choice_, strict=True):
        assert {**one, "seconds": 0} == {**same, "seconds": 0}


def test_who_learns_from_validation_labels_is_not_compared_on_them() -> None:
    """Said when parameters are checked, before anything is learned."""
    for name, info in METHODS.items():
        if name == "auto":
            continue
        # With the network that the method works with.
        backbone = info.backbones[0] if info.backbones else "gcn"
        options = {"methods": name, "backbone": backbone, "max_epochs": 1000}
        if not info.learns_from_val or "labels" in info.defaults:
            automatic(**options).check_parameters()
            continue
        automatic(labels="all", **options).check_parameters()
        with pytest.raises(InvalidInput) as caught:
            automatic(**options).check_parameters()
        assert "labels='train'" in str(caught.value)
        assert f"but {name} learns from validation labels" in str(caught.value)


@pytest.mark.parametrize(
    "select_by", ["loss", "balanced_accuracy", "f1_macro", "roc_auc", "last"]
)
def test_nothing_but_accuracy_decides_with_few_labels(select_by: str) -> None:
    with pytest.raises(InvalidInput, match="labels='train', where the accuracy on"):
        automatic(select_by=select_by).check_parameters()


def test_replicas_of_a_choice_are_what_they_would_be_alone(data: Data) -> None:
    first, second = automatic(methods="vanilla").fit(data, replicas=2).replicas_
    assert_same_fit(first, automatic(methods="vanilla").fit(data))
    assert_same_fit(second, automatic(methods="vanilla", random_state=1).fit(data))


def test_features_are_prepared_as_the_plain_network_does_best(data: Data) -> None:
    noise = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    skewed = with_fields(data, x=torch.cat([data.x, 1e4 * noise], dim=1))
    model = automatic(features="auto", methods="vanilla").fit(skewed)
    assert {record["preparation"] for record in model.choice_} == {"standard"}
    without = bare(larger_graph(homophily=0.95, average_degree=8.0))
    model = automatic(features="degree", methods="vanilla,mlp").fit(without)
    assert {record["preparation"] for record in model.choice_} == {"degree"}
    assert torch.equal(model.predict_proba(without), model.probability_)


# --- too few labels, and what is refused ---------------------------------------------


def with_one_label_of_each_class(data: Data) -> Data:
    train = torch.zeros_like(data.train_mask)
    for label in (0, 1):
        train[(data.train_mask & (data.y == label)).nonzero()[0]] = True
    return with_fields(data, train_mask=train)


@pytest.mark.parametrize("name", LEARNERS)
def test_one_label_of_each_class_cannot_be_divided(data: Data, name: str) -> None:
    """What is advised instead is not refused in turn."""
    with pytest.raises(InvalidInput, match="no class has two") as caught:
        few(name).fit(with_one_label_of_each_class(data))
    advice = str(caught.value).split("expected")[1]
    assert "fixed" not in advice


def test_an_automatic_fit_does_without_who_cannot_learn(
    data: Data, tmp_path: Path
) -> None:
    """Plain candidates are compared all the same, and whoever is not says why."""
    few_data = with_one_label_of_each_class(data)
    model = automatic(methods="gsebo,mlp,amortised,vanilla").fit(few_data)
    assert [record["candidate"] for record in model.choice_] == COMPARED
    *tried, gsebo, amortised = model.choice_
    assert any(record["chosen"] for record in tried)
    assert all(record["accuracy"] is not None for record in tried)
    for record in (gsebo, amortised):
        assert record["reason"].startswith("not tried: no class has two training nodes")
        assert record["accuracy"] is None and record["log_loss"] is None
    plain = automatic(methods="vanilla,mlp").fit(few_data)
    assert_same_fit(model, plain)
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert_same_model(loaded, model, few_data)
    assert loaded.choice_ == model.choice_


def test_somebody_has_to_be_able_to_learn(data: Data) -> None:
    model = automatic(methods="gsebo,amortised")
    with pytest.raises(InvalidInput, match="no class has two training nodes") as caught:
        model.fit(with_one_label_of_each_class(data))
    advice = str(caught.value).split("expected")[1]
    assert "vanilla" in advice and "labels='all'" in advice
    # One class is enough.
    model.fit(data)


BATCHED = {"batch_size": 20, "outer_step": "paper"}


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("gsebo", {"labels": "val"}, "labels='val'"),
        ("amortised", {"labels": None}, "labels=None"),
        ("auto", {"labels": "trains"}, "labels='trains'"),
        ("amortised", {"labels": "train", "label_use": "fixed"}, "label_use='fixed'"),
        ("inoculated", {"labels": "train", "label_use": "fixed"}, "label_use='fixed'"),
        ("amortised", {"labels": "train", "refit": False}, "refit=False given with"),
        (
            "amortised",
            {"structure_backbone": "gcn", "refit": False},
            "refit=False given with structure_backbone='gcn'",
        ),
        ("gsebo", {"labels": "train", "stop_on": "holdout"}, "stop_on='holdout' given"),
        ("gsebo", {"labels": "train", "batch_size": 20}, "labels='train' given with"),
        ("amortised", {"labels": "train", "batch_size": 20}, "given with batch_size"),
        ("gsebo", {"consistency": 1.0, "batch_size": 20}, "consistency=1.0 given with"),
        ("amortised", {"consistency": 1.0, "batch_size": 20}, "with batch_size"),
        (
            "amortised",
            {"structure_backbone": "gcn", "batch_size": 20},
            "structure_backbone='gcn' given with batch_size",
        ),
        ("amortised", {"structure_backbone": "gat"}, "which weighs edges otherwise"),
        (
            "inoculated",
            {"structure_backbone": "gcn", "backbone": "sage"},
            "structure_backbone='gcn' given with backbone='sage', which weighs",
        ),
        ("amortised", {"structure_backbone": "gncii"}, "did you mean 'gcnii'"),
        (
            "amortised",
            {"backbone": "grand", "structure_backbone": "gcn", "per_layer": True},
            "per_layer=True given with structure_backbone='gcn'",
        ),
        (
            "inoculated",
            {"structure_backbone": "gcn", "per_layer": True},
            "per_layer=True given with structure_backbone='gcn'",
        ),
        ("vanilla", {"consistency": -0.1}, "consistency=-0.1 given; expected a number"),
        ("vanilla", {"num_views": 0}, "num_views=0 given; expected an integer >= 1"),
        ("frozen", {"temperature": 0.0}, "temperature=0.0 given; expected"),
        ("vanilla", {"temperature": 0.009}, "temperature=0.009 given; expected"),
        ("gsebo", {"temperature": 101}, "temperature=101 given; expected"),
        ("train_val", {"warmup": 0}, "warmup=0 given; expected an integer >= 1"),
        ("gsebo", {"consistency": float("nan")}, "consistency=nan given"),
    ],
    ids=str,
)
def test_what_is_refused(
    data: Data, name: str, options: dict[str, Any], said: str
) -> None:
    before = copy.copy(data)
    with pytest.raises(InvalidInput) as caught:
        quick(name, **options).fit(data)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert torch.equal(before.val_mask, data.val_mask)
