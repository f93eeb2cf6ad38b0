"""What a search chooses, and that it cannot see a test node."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gsebo.data import apply_split, load
from gsebo.errors import InvalidInput
from gsebo.experiments import Planned, Result, Tuning, load_recipe, make_plan

SEARCH = """
title = "search"
seeds = 2
[[trials]]
methods = ["gsebo"]
backbones = ["gcn", "sage"]
datasets = ["cora"]
split = "halves"
variants = { sage = ["sage", "sage-gcn"] }
vary = { inner_steps = [5, 10] }
"""
USER = """
title = "user"
seeds = 3
[[trials]]
methods = ["gsebo"]
backbones = ["gcn", "sage"]
datasets = ["cora"]
tuned_by = "search.toml"
[[trials]]
methods = ["retrain"]
backbones = ["gcn"]
datasets = ["cora"]
tuned_by = "search.toml"
tuned_as = "gsebo"
tuned_into = "method_options"
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("recipes")
    (folder / "search.toml").write_text(SEARCH, "utf-8")
    (folder / "user.toml").write_text(USER, "utf-8")
    return str(folder / "user.toml")


def searched(recipe: str) -> tuple[Planned, ...]:
    return make_plan(load_recipe(recipe), Tuning({})).first


def test_nothing_is_known_before_the_search(recipe: str) -> None:
    plan = make_plan(load_recipe(recipe), Tuning({}))
    assert not plan.trials
    # 2 seeds of 2 values for GCN, and of 2 networks for GraphSAGE.
    assert len(plan.first) == 4 + 8
    assert {one.trial.split for one in plan.first} == {"halves:file"}


@given(st.lists(st.floats(0, 1), min_size=12, max_size=12))
def test_the_best_mean_is_taken(recipe: str, scores: list[float]) -> None:
    planned = searched(recipe)
    given_scores = {id(one): score for one, score in zip(planned, scores, strict=True)}
    tuning = Tuning(
        {
            one.trial.key: Result(trial=one.trial, test_accuracy=given_scores[id(one)])
            for one in planned
        }
    )
    plan = make_plan(load_recipe(recipe), tuning, seeds=3)
    assert not plan.first
    means: dict[str, dict[tuple[str, int], float]] = {"gcn": {}, "sage": {}}
    for one in planned:
        steps = one.candidate.parameters["inner_steps"]
        place = (one.candidate.backbone, steps)
        known = means[one.cell.row].get(place, 0.0)
        means[one.cell.row][place] = known + given_scores[id(one)] / 2
    for one in plan.trials:
        best = max(means[one.cell.row].values())
        parameters = one.trial.parameters.get("method_options", one.trial.parameters)
        mine = (one.trial.backbone, parameters.get("inner_steps", 10))
        assert means[one.cell.row][mine] == pytest.approx(best)
    assert len(plan.trials) == 9


def test_a_candidate_that_failed_once_is_out(recipe: str) -> None:
    planned = searched(recipe)
    results = {}
    for one in planned:
        good = one.candidate.parameters["inner_steps"] == 5
        failed = good and one.trial.seed == 1
        results[one.trial.key] = Result(
            trial=one.trial,
            test_accuracy=None if failed else (0.9 if good else 0.1),
            error="broke" if failed else None,
        )
    plan = make_plan(load_recipe(recipe), Tuning(results))
    assert {one.trial.parameters.get("inner_steps", 10) for one in plan.trials} == {10}


def test_all_candidates_failed(recipe: str) -> None:
    results = {
        one.trial.key: Result(trial=one.trial, error="broke")
        for one in searched(recipe)
    }
    plan = make_plan(load_recipe(recipe), Tuning(results))
    assert not plan.trials and not plan.first
    assert len(plan.hopeless) == 3
    assert all("every candidate" in sentence for sentence in plan.hopeless)


@pytest.mark.parametrize("seed", [0, 1])
def test_halves_hold_no_test_node(seed: int) -> None:
    data = load("cora")
    split = apply_split(data, "halves", seed)
    assert torch.equal(split.train_mask, data.train_mask)
    assert not (split.val_mask & split.test_mask).any()
    assert torch.equal(split.val_mask | split.test_mask, data.val_mask)
    assert int(split.val_mask.sum()) == int(split.test_mask.sum()) == 250
    assert not torch.equal(split.val_mask, apply_split(data, "halves", 7).val_mask)


def test_a_search_of_test_nodes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "search.toml").write_text(SEARCH.replace('split = "halves"\n', ""))
    (tmp_path / "user.toml").write_text(USER)
    with pytest.raises(InvalidInput, match="sees no test nodes"):
        make_plan(load_recipe(str(tmp_path / "user.toml")), Tuning({}))
