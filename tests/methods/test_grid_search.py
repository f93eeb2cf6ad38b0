"""Searches over parameters: what they choose, and what they cannot see."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import uniform

import gsebo
from gsebo import InvalidInput
from gsebo.methods.folds import stratified_folds
from methods.examples import quick, small_graph, with_fields


def vanilla(**changes: Any) -> gsebo.Vanilla:
    return gsebo.Vanilla(max_epochs=30, device="cpu", **changes)


GRID = {"inner_lr": [1e-9, 0.05], "hidden_channels": [4, 8]}


def test_the_better_one_is_found_and_fitted_to_all_labels() -> None:
    graph = small_graph()
    found = gsebo.search(vanilla(), GRID, graph)
    table = found.results_
    assert len(table) == 4
    assert {"inner_lr", "hidden_channels", "mean", "std", "rank"} <= set(table)
    assert found.best_params_["inner_lr"] == 0.05
    best = table.loc[table["rank"] == 1].iloc[0]
    assert best["mean"] == table["mean"].max() == found.best_score_
    assert {name: best[name] for name in GRID} == found.best_params_
    folds = table[["fold_0", "fold_1", "fold_2"]]
    np.testing.assert_allclose(folds.mean(axis=1), table["mean"])
    np.testing.assert_allclose(folds.std(axis=1, ddof=0), table["std"])
    assert (table["seconds"] > 0).all() and table["error"].isna().all()
    alone = vanilla(random_state=0, **found.best_params_).fit(graph)
    assert found.best_estimator_ is not None
    assert torch.equal(found.best_estimator_.probability_, alone.probability_)


def test_the_scores_are_those_of_fits_without_the_fold() -> None:
    graph = small_graph()
    found = gsebo.search(
        vanilla(), {"hidden_channels": [4]}, graph, folds=4, seeds=2, refit=False
    )
    assert found.best_estimator_ is None
    for number, fold in enumerate(stratified_folds(graph, 4, 0)):
        part = fold.for_method(graph)
        assert bool((part.y[fold.held_out] == -1).all())
        right = [
            vanilla(hidden_channels=4, random_state=seed).fit(part).transduction_
            == graph.y
            for seed in (0, 1)
        ]
        wanted = torch.stack(right)[:, fold.held_out].double().mean()
        assert found.results_[f"fold_{number}"][0] == pytest.approx(float(wanted))


def test_one_seed_one_result_and_no_test_label() -> None:
    graph = small_graph()
    lies = with_fields(graph, y=graph.y.clone())
    lies.y[graph.test_mask] = 1 - lies.y[graph.test_mask]
    tables = [
        gsebo.search(vanilla(), GRID, each, random_state=3).results_
        for each in (graph, graph, lies)
    ]
    plain = [table.drop(columns="seconds") for table in tables]
    pd.testing.assert_frame_equal(plain[0], plain[1])
    pd.testing.assert_frame_equal(plain[0], plain[2])


def test_halves_of_the_validation_nodes() -> None:
    graph = small_graph()
    found = gsebo.search(vanilla(), GRID, graph, folds="val")
    halves = int(graph.val_mask.sum()) // 2
    for name in ("fold_0", "fold_1"):
        counts = found.results_[name] * halves
        np.testing.assert_allclose(counts, counts.round(), atol=1e-9)
    assert found.best_params_["inner_lr"] == 0.05


def test_some_combinations_drawn_at_random() -> None:
    graph = small_graph()
    found = gsebo.search(vanilla(), GRID, graph, draws=2, folds=2).results_
    assert len(found) == 2
    assert len(gsebo.search(vanilla(), GRID, graph, draws=99, folds=2).results_) == 4
    grid = {"dropout": uniform(0, 0.5), "hidden_channels": [4]}
    tables = [
        gsebo.search(vanilla(), grid, graph, draws=3, folds=2, random_state=seed)
        for seed in (0, 0, 1)
    ]
    drawn = [list(each.results_["dropout"]) for each in tables]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 3 and all(0 <= each < 0.5 for each in drawn[0])


def test_a_list_of_grids_and_a_score_of_ones_own() -> None:
    graph, seen = small_graph(), []

    def score(labels: np.ndarray, probability: np.ndarray) -> float:
        seen.append((labels.shape, probability.shape))
        return -float(probability.shape[1])

    grids = [{"hidden_channels": [4]}, {"num_layers": [1, 2]}]
    found = gsebo.search(vanilla(), grids, graph, folds=2, scoring=score, refit=False)
    assert found.results_["mean"].tolist() == [-2.0, -2.0, -2.0]
    # Of equals the first.
    assert found.best_params_ == {"hidden_channels": 4}
    assert {shape[1][1] for shape in seen} == {2}
    assert all(labels[0] == probability[0] for labels, probability in seen)


@pytest.mark.parametrize("scoring", ["balanced_accuracy", "neg_log_loss"])
def test_scores_by_name(scoring: str) -> None:
    found = gsebo.search(vanilla(), GRID, small_graph(), folds=2, scoring=scoring)
    assert found.best_params_["inner_lr"] == 0.05
    assert (found.results_["mean"] < (0 if scoring == "neg_log_loss" else 1.01)).all()


def test_one_that_fails_has_a_row() -> None:
    graph = small_graph()
    graph = with_fields(graph, x=graph.x * 1e18)
    grid = {"inner_lr": [1e15, 1e-20], "inner_optimizer": ["sgd"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = gsebo.search(vanilla(num_layers=3), grid, graph, folds=2, refit=False)
    first, second = found.results_.to_dict("records")
    assert "diverged" in first["error"] and np.isnan(first["mean"])
    assert second["error"] is None and second["rank"] == 1 < first["rank"]
    with pytest.raises(InvalidInput, match="each of 1 combinations failed"):
        gsebo.search(
            vanilla(num_layers=3),
            {"inner_lr": [1e15], "inner_optimizer": ["sgd"]},
            graph,
            folds=2,
        )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"grid": {"colour": [1]}}, "colour"),
        ({"grid": {"hidden_channels": [4, -1]}}, "hidden_channels=-1"),
        ({"grid": {"hidden_channels": 4}}, "expected a list of values"),
        ({"grid": {"backbone": "gcn"}}, "expected a list of values"),
        ({"grid": {"dropout": uniform(0, 1)}}, "draws=50"),
        ({"grid": {"dropout": []}}, "expected a list of values"),
        ({"grid": []}, "expected lists of values"),
        ({"grid": "dropout"}, "expected lists of values"),
        ({"grid": [3]}, "expected lists of values"),
        ({"scoring": "beauty"}, "beauty"),
        ({"folds": 1}, "folds=1"),
        ({"folds": "all"}, "folds='all'"),
        ({"seeds": 0}, "seeds=0"),
        ({"draws": 0}, "draws=0"),
        ({"random_state": -1}, "random_state=-1"),
        ({"estimator": gsebo.GSEBO}, "expected one of gsebo's"),
        ({"grid": {"inner_lr": range(1000), "dropout": np.arange(1000)}}, "100,000"),
    ],
)
def test_what_cannot_be_searched_is_said_before_any_fit(
    changes: dict[str, Any], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("a fit began")

    monkeypatch.setattr(gsebo.Vanilla, "fit", never)
    given = {"estimator": vanilla(), "grid": GRID, "data": small_graph()} | changes
    with pytest.raises(InvalidInput, match=says):
        gsebo.search(**given)


def test_a_search_tells_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    gsebo.search(
        quick("gsebo"), {"dropout": [0.1, 0.2]}, small_graph(), folds=2, verbose=True
    )
    assert "search: 4 of 4" in capsys.readouterr().err
