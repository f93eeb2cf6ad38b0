"""An automatic fit finds what suits a graph, and says why."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from gsebo import Checkpoint, InvalidInput, load_model
from gsebo.data import load, validate
from gsebo.methods import METHODS

from .auto_examples import auto, bare, graph
from .examples import assert_same_fit, quick, small_graph, with_fields


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph()


# --- what is chosen ------------------------------------------------------------------


def test_edges_that_say_nothing_are_left_alone() -> None:
    model = auto().fit(graph(homophily=0.5, feature_signal=2.0))
    assert model.chosen_ == "mlp"
    assert not model.model_.learned


def test_edges_that_say_much_are_used() -> None:
    model = auto().fit(graph(homophily=0.95, feature_signal=0.3))
    assert model.chosen_ == "vanilla"


def test_features_of_different_scales_are_standardised() -> None:
    data = graph(homophily=0.6, feature_signal=2.0)
    noise = torch.randn(150, 4, generator=torch.Generator().manual_seed(0))
    skewed = with_fields(data, x=torch.cat([data.x, 1e4 * noise], dim=1))
    model = auto(features="auto").fit(skewed)
    assert model.preparation_ == "standard"
    assert model.score(skewed) > auto().fit(skewed).score(skewed) + 0.1


def test_the_length_is_chosen() -> None:
    data = graph(feature_signal=0.5)
    short, long = (
        auto(methods="mlp", select_by="loss", inner_lr=rate).fit(data)
        for rate in (0.3, 0.003)
    )
    assert short.epochs_ < long.epochs_ <= 40
    assert long.history_[-1].inner_steps == long.epochs_ == long.best_step_ * 10


def test_one_record_for_each_candidate(data: Data) -> None:
    model = auto(methods="vanilla,gsebo,mlp", max_epochs=20).fit(data)
    assert [record["candidate"] for record in model.choice_] == [
        "vanilla",
        "gsebo",
        "mlp",
    ]
    (chosen,) = (record for record in model.choice_ if record["chosen"])
    assert chosen["candidate"] == model.chosen_
    assert (chosen["preparation"], chosen["epochs"]) == (
        model.preparation_,
        model.epochs_,
    )
    tried_as_often = [
        record["accuracy"]
        for record in model.choice_
        if len(record["fold_accuracy"]) == len(chosen["fold_accuracy"])
    ]
    assert chosen["accuracy"] == max(tried_as_often)
    assert json.loads(json.dumps(model.choice_)) == model.choice_
    assert all(record["reason"] for record in model.choice_)


def test_the_winner_is_trained_as_it_would_be_alone(data: Data) -> None:
    model = auto(methods="gsebo").fit(data)
    alone = METHODS["gsebo"].estimator(**model.chosen_parameters_).fit(data)
    assert_same_fit(model, alone)
    assert model.epochs_ is None


def test_a_plain_winner_is_trained_on_all_labels(data: Data) -> None:
    model = auto(methods="vanilla").fit(data)
    alone = METHODS["train_val"].estimator(**model.chosen_parameters_).fit(data)
    assert_same_fit(model, alone)


def test_held_out_labels_decide_and_no_others(data: Data) -> None:
    y = data.y.clone()
    y[data.test_mask] = 1 - y[data.test_mask]
    left, right = auto().fit(data), auto().fit(with_fields(data, y=y))
    assert [drop(record) for record in left.choice_] == [
        drop(record) for record in right.choice_
    ]


def drop(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "seconds"}


# --- few labels ----------------------------------------------------------------------


def labelled(data: Data, train: list[int], val: list[int]) -> Data:
    masks = {}
    for key, nodes in (("train_mask", train), ("val_mask", val)):
        masks[key] = torch.zeros(data.num_nodes, dtype=torch.bool)
        masks[key][nodes] = True
    return with_fields(data, test_mask=None, **masks)


def test_a_class_with_a_single_label(data: Data) -> None:
    y = data.y.clone()
    rare = int(data.val_mask.nonzero()[0])
    y[rare] = 2
    with pytest.warns(match="no training node is of class 2"):
        model = auto(methods="vanilla,mlp,gsebo").fit(with_fields(data, y=y))
    assert model.probability_.shape == (60, 3)


def test_one_label_of_each_class_decides_nothing(data: Data) -> None:
    y = torch.arange(60)
    few = labelled(with_fields(data, y=y), [0, 1], [2])
    with pytest.warns(match="no training node is of class 2"):
        model = auto(methods="mlp,vanilla").fit(few)
    assert (model.chosen_, model.preparation_, model.epochs_) == ("mlp", "given", 40)
    assert "no label could be held out" in model.choice_[0]["reason"]


def test_two_labels_of_each_class_are_too_few_to_validate(data: Data) -> None:
    first, second = ((data.y == label).nonzero().flatten().tolist() for label in (0, 1))
    few = labelled(data, [first[0], second[0]], [first[1], second[1]])
    model = auto(methods="gsebo,vanilla").fit(few)
    assert model.chosen_ == "vanilla"
    assert model.choice_[1]["accuracy"] is None
    alone = auto(methods="gsebo").fit(few)
    assert alone.chosen_ == "gsebo"


def test_fifty_classes() -> None:
    data = graph(num_classes=50, homophily=0.1)
    with pytest.warns(match="no training node"):
        model = auto(max_epochs=20).fit(data)
    assert model.probability_.shape == (150, 50)


# --- no features ---------------------------------------------------------------------


@pytest.mark.parametrize("features", ["auto", "degree", "identity", "degree+identity"])
def test_a_graph_without_features(features: str, tmp_path: Path) -> None:
    data = bare(graph(homophily=0.95, average_degree=8.0))
    model = auto(features=features).fit(data)
    assert model.score(data) > 0.6 or features == "degree"
    assert torch.equal(model.predict_proba(data), model.probability_)
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert torch.equal(loaded.predict_proba(data), model.probability_)
    assert loaded.preparation_ == model.preparation_


def test_others_say_who_does_without_features() -> None:
    data = bare(small_graph())
    for name in ("gsebo", "vanilla"):
        with pytest.raises(InvalidInput, match=r"no x.*only the method auto"):
            quick(name).fit(data)
    with pytest.raises(InvalidInput, match="expected y with shape"):
        validate(with_fields(data, num_nodes=70), features_needed=False)


def test_degrees_describe_another_graph_and_numbers_do_not() -> None:
    data, other = bare(graph()), bare(small_graph())
    by_degree = auto(features="degree").fit(data)
    assert by_degree.predict(other).shape == (60,)
    by_number = auto(features="identity").fit(data)
    with pytest.raises(InvalidInput, match="60 nodes; expected the 150 of the fit"):
        by_number.predict(other)


def test_features_are_needed_again_where_they_were_used(data: Data) -> None:
    model = auto(features="standard").fit(data)
    with pytest.raises(InvalidInput, match="no x; expected 8 features"):
        model.predict(bare(data))


# --- parameters ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"methods": "vanila"}, "did you mean 'vanilla'"),
        ({"methods": "auto"}, "unknown method 'auto'"),
        ({"methods": "mlp,mlp"}, "different names"),
        ({"methods": " , "}, "different names"),
        ({"methods": "vgcn", "backbone": "gat"}, "VGCN expected 'gcn'"),
        ({"features": "degrees"}, "did you mean 'degree'"),
        ({"num_folds": 1}, "num_folds=1 given; expected an integer >= 2"),
    ],
)
def test_bad_parameters(data: Data, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        auto(**options).fit(data)


def test_replicas_are_what_they_would_be_alone(data: Data) -> None:
    first, second = auto().fit(data, replicas=2).replicas_
    assert_same_fit(first, auto().fit(data))
    assert_same_fit(second, auto(random_state=1).fit(data))
    assert second.choice_ != first.choice_


def test_it_does_well_on_cora() -> None:
    data = load("cora")
    model = auto(hidden_channels=32, max_epochs=100, inner_lr=0.02).fit(data)
    assert model.chosen_ == "vanilla"
    assert model.score(data) > 0.83


# --- edges far from labels that look false -------------------------------------------


def attacked(seed: int = 0) -> Data:
    """False edges at test nodes alone, as many as there were edges."""
    data = graph(split="random:20/20/60", average_degree=8.0, feature_signal=1.0)
    rng = torch.Generator().manual_seed(seed)
    test = data.test_mask.nonzero().squeeze(-1)
    ends = test[torch.randint(len(test), (2, 4000), generator=rng)]
    apart = ends[:, data.y[ends[0]] != data.y[ends[1]]][:, : data.num_edges // 2]
    both = torch.cat([data.edge_index, apart, apart.flip(0)], dim=1)
    return with_fields(data, edge_index=both)


def test_an_attack_far_from_labels_is_noticed(tmp_path: Path) -> None:
    data = attacked()
    model = auto(methods="vanilla,mlp,amortised").fit(data)
    assert model.shift_ > 0.2
    names = {each["candidate"] for each in model.choice_}
    assert names == {"vanilla", "mlp", "inoculated"}
    (why,) = (each["reason"] for each in model.choice_ if each["chosen"])
    assert "false edges planted" in why and "look false" in why
    assert model.chosen_ != "vanilla"
    model.save(tmp_path / "model")
    assert load_model(tmp_path / "model").shift_ == model.shift_


def test_where_nothing_is_noticed_held_out_labels_decide() -> None:
    # One clean graph in forty is beyond two standard errors by chance; not this one.
    data = graph(split="random:20/20/60", seed=1)
    model = auto(methods="vanilla,mlp,amortised").fit(data)
    assert model.shift_ == 0
    assert all("planted" not in each["reason"] for each in model.choice_)
    assert {each["candidate"] for each in model.choice_} >= {"amortised"}


def test_an_interrupted_choice_with_planted_edges_goes_on(tmp_path: Path) -> None:
    data = attacked()
    whole = auto(methods="vanilla,amortised").fit(data)
    place = Checkpoint(tmp_path / "run")
    first = auto(methods="vanilla,amortised").fit(data, checkpoint=place)
    again = auto(methods="vanilla,amortised").fit(data, checkpoint=place)
    assert_same_fit(first, whole)
    assert_same_fit(again, whole)
