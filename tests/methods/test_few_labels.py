"""Where labels are few: whose labels teach, and when a learned graph is taken."""

import copy
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from gsebo import Auto, Frozen, InvalidInput, Vanilla, load_model
from gsebo.methods import METHODS, GraphClassifier, amortised_fit, gsebo
from gsebo.methods.amortised import AmortisedClassifier
from gsebo.methods.amortised_fit import FullBatchFit, Learned
from gsebo.methods.auto import few_labels
from gsebo.methods.fitting import PreparedGraph
from gsebo.methods.folds import lead_over, surely_better, taught_labels
from gsebo.methods.run import Run

from .auto_examples import auto, bare
from .auto_examples import graph as larger_graph
from .examples import assert_same_fit, permuted, quick, small_graph, with_fields
from .saved import assert_same_model

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
def test_the_lead_is_that_of_numpy(given: tuple[Tensor, Tensor, Tensor]) -> None:
    left, right, labels = given
    lead, error = lead_over(left, right, labels)
    difference = (left.argmax(-1) == labels).numpy().astype(float)
    difference -= (right.argmax(-1) == labels).numpy()
    assert lead == pytest.approx(difference.mean(), abs=1e-12)
    if len(labels) > 1:
        expected = difference.std(ddof=1) / np.sqrt(len(labels))
        assert error == pytest.approx(expected, abs=1e-12)


@given(given=predictions())
def test_one_of_two_is_ahead(given: tuple[Tensor, Tensor, Tensor]) -> None:
    left, right, labels = given
    (lead, error), (behind, same) = (
        lead_over(*pair, labels) for pair in ((left, right), (right, left))
    )
    assert lead == -behind and error == same >= 0
    assert not surely_better(left, left, labels)
    assert not (surely_better(left, right, labels) and lead <= 0)
    assert not (surely_better(left, right, labels) and behind > 0)


@given(given=predictions())
def test_what_is_more_than_an_error_is_a_matter_of_counting(
    given: tuple[Tensor, Tensor, Tensor],
) -> None:
    """With a nodes won and b lost of any number, (a - b)² > a + b. Rounding aside."""
    left, right, labels = given
    ours, theirs = (each.argmax(-1) == labels for each in (left, right))
    won, lost = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    expected = won > lost and (won - lost) ** 2 > won + lost
    assert surely_better(left, right, labels) == expected


@pytest.mark.parametrize("size", [1, 2, 3, 10, 11, 30, 500])
def test_one_node_is_never_enough_and_two_are(size: int) -> None:
    labels = torch.zeros(size, dtype=torch.int64)
    right = torch.tensor([0.9, 0.1]).log().repeat(size, 1)
    for wrong in range(min(size, 3) + 1):
        worse = right.clone()
        worse[:wrong] = right[:wrong].flip(-1)
        assert surely_better(right, worse, labels) == (wrong > 1)


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


@pytest.mark.parametrize("name", AMORTISED)
@pytest.mark.parametrize("label_use", ["folds", "cross"])
@pytest.mark.parametrize("labels", ["train", "all"])
def test_validation_labels_teach_no_function(
    data: Data, name: str, label_use: str, labels: str
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
    for module in (amortised_fit, gsebo):
        monkeypatch.setattr(module, "surely_better", lambda *_: answer)


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
    assert_same_fit(quick(name, **options).fit(data), quick(name).fit(data))


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
    close = {"rtol": 0.0, "atol": 2e-6}
    assert torch.equal(model.strength_, model.initial_strength_)
    torch.testing.assert_close(model.probability_, plain.probability_, **close)
    torch.testing.assert_close(model.predict_proba(data), plain.probability_, **close)
    assert not bool(model.new_edge_strength_.any())
    assert model.model_.scorer is None


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"per_layer": True},
        {"backbone": "sage"},
        {"backbone": "grand", "consistency": 1.0, "num_views": 2},
    ],
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
    assert not model.model_.learned
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
        torch.testing.assert_close(
            model.predict_proba(other), plain.predict_proba(other)
        )


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


@pytest.mark.parametrize("name", LEARNERS)
def test_validation_nodes_decide(
    data: Data, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the predictions that would be given, and those of the plain network."""
    asked: list[tuple[Tensor, ...]] = []

    def asking(*given: Tensor) -> bool:
        asked.append(given)
        return True

    for module in (amortised_fit, gsebo):
        monkeypatch.setattr(module, "surely_better", asking)
    model, plain = few(name).fit(data), plain_of(name).fit(data)
    ((ours, theirs, labels),) = asked
    assert torch.equal(labels, data.y[data.val_mask])
    for told, fit in ((ours, model), (theirs, plain)):
        expected = fit.probability_[data.val_mask]
        torch.testing.assert_close(told.exp(), expected, rtol=1e-4, atol=1e-5)


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
COMPARED = ["vanilla", "vanilla", "mlp", "mlp", "amortised"]


def automatic(**changes: Any) -> Auto:
    options = {"methods": "vanilla,mlp,amortised", "labels": "train", "max_epochs": 10}
    return auto(**options | changes)


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


def only(number: int) -> Callable[..., tuple[float, float]]:
    """A lead that is more than its error for one candidate, and equal to it for all."""
    asked = 0

    def lead(*_: Tensor) -> tuple[float, float]:
        nonlocal asked
        asked += 1
        return (0.1 if asked == number else 0.05), 0.05

    return lead


@pytest.mark.parametrize("number", range(len(COMPARED)))
def test_whoever_is_chosen_is_a_model_as_others(
    data: Data, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what it would be alone, and predicts the same when it is loaded.

    The plain network stays where nobody is ahead by more than an error.
    """
    monkeypatch.setattr(few_labels, "lead_over", only(number))
    model = automatic().fit(data)
    assert [record["chosen"] for record in model.choice_].index(True) == number
    assert model.chosen_ == COMPARED[number]
    torch.testing.assert_close(model.predict_proba(data), model.probability_)
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert_same_model(loaded, model, data)
    assert loaded.choice_ == model.choice_
    assert loaded.chosen_parameters_ == model.chosen_parameters_
    alone = METHODS[model.chosen_].estimator(**model.chosen_parameters_).fit(data)
    assert_same_fit(model, alone)


def test_nobody_is_behind_by_less_than_nothing(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is ahead, but not surely, is said to be so."""

    def unsure(*given: Tensor) -> tuple[float, float]:
        return lead_over(*given)[0], 1.0

    monkeypatch.setattr(few_labels, "lead_over", unsure)
    model = automatic().fit(data)
    assert model.choice_[0]["chosen"]
    first, *others = (record["accuracy"] for record in model.choice_)
    assert max(others) > first
    for record in model.choice_:
        assert not re.search(r"-\d", record["reason"]), record["reason"]


def test_test_labels_are_no_part_of_a_choice(data: Data, chosen: Auto) -> None:
    y = data.y.clone()
    y[data.test_mask] = 1 - y[data.test_mask]
    other = automatic().fit(with_fields(data, y=y))
    assert_same_fit(other, chosen)
    for one, same in zip(chosen.choice_, other.choice_, strict=True):
        assert {**one, "seconds": 0} == {**same, "seconds": 0}


@pytest.mark.parametrize("methods", ["vanilla,train_val", "vanilla,retrain"])
def test_who_learns_from_validation_labels_is_not_compared_on_them(
    data: Data, methods: str
) -> None:
    with pytest.raises(InvalidInput, match="labels='train'"):
        automatic(methods=methods).fit(data)


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


def test_an_automatic_fit_does_without_who_cannot_learn(data: Data) -> None:
    model = automatic().fit(with_one_label_of_each_class(data))
    assert model.chosen_ in ("vanilla", "mlp")
    assert model.choice_[0]["accuracy"] is not None


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
        ("vanilla", {"consistency": -0.1}, "consistency=-0.1 given; expected a number"),
        ("vanilla", {"num_views": 0}, "num_views=0 given; expected an integer >= 1"),
        ("frozen", {"temperature": 0.0}, "temperature=0.0 given; expected 0 <"),
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


def test_a_function_for_each_layer_needs_as_many_of_them(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said before anything is learned."""

    def learned(*_: Any) -> None:
        raise AssertionError("a structure was learned")

    monkeypatch.setattr(AmortisedClassifier, "learn", learned)
    options = {"backbone": "grand", "structure_backbone": "gcn", "per_layer": True}
    with pytest.raises(InvalidInput, match="per_layer"):
        quick("amortised", **options).fit(data)
