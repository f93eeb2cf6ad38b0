"""Presets hold parameters that the estimators take."""

from functools import cache
from importlib import import_module

import pytest

from gsebo import InvalidInput
from gsebo.data import DATASETS
from gsebo.experiments import Tuning, load_recipe, make_plan, recipe_names
from gsebo.methods import METHODS
from gsebo.methods.presets import Rule, preset_parameters, presets
from gsebo.nn import BACKBONES

RULES = [(name, rule) for name, rules in presets().items() for rule in rules]


def as_list(names: str | list[str] | None) -> list[str]:
    if names is None:
        return []
    return [names] if isinstance(names, str) else names


@cache
def known(method: str) -> set[str]:
    """The parameters of a method."""
    return set(METHODS[method].estimator().get_params(deep=False))


@pytest.mark.parametrize("preset", presets())
@pytest.mark.parametrize("method", METHODS)
def test_every_preset_is_usable(preset: str, method: str) -> None:
    estimator = METHODS[method].estimator
    for backbone in METHODS[method].backbones or BACKBONES:
        # Most datasets have the same values.
        tried = set()
        for dataset in DATASETS:
            found = preset_parameters(preset, backbone, method=method, dataset=dataset)
            taken = {name: found[name] for name in sorted(known(method) & set(found))}
            if repr(taken) not in tried:
                tried.add(repr(taken))
                estimator(backbone, **taken).check_parameters()


@pytest.mark.parametrize(("preset", "rule"), RULES)
def test_a_rule_names_what_exists(preset: str, rule: Rule) -> None:
    methods = as_list(rule.method)
    assert set(methods) <= set(METHODS)
    assert set(as_list(rule.backbone)) <= set(BACKBONES)
    assert set(as_list(rule.dataset)) <= set(DATASETS)
    taken = set().union(*(known(name) for name in methods or METHODS))
    assert set(rule.parameters) <= taken


def test_a_result_is_the_callers_own() -> None:
    first = preset_parameters("gaug", "sage", method="vanilla")
    first["backbone_options"]["aggregator"] = "changed"
    first["changed"] = True
    second = preset_parameters("gaug", "sage", method="vanilla")
    assert second["backbone_options"]["aggregator"] == "gcn"
    assert "changed" not in second


def test_a_backbone_that_a_preset_does_not_name() -> None:
    assert preset_parameters("paper", "GATv2") == {"outer_step": "paper"}


def test_later_rules_win_and_options_add_up() -> None:
    assert preset_parameters("gaug", "gat", method="vanilla")["hidden_channels"] == 16
    assert preset_parameters("gaug", "gcn", method="vanilla")["hidden_channels"] == 128
    found = preset_parameters("gaug", "sage", method="vanilla")
    assert found["backbone_options"] == {"aggregator": "gcn", "input_dropout": False}


def test_published_values_belong_to_their_dataset() -> None:
    published = {"method": "dropedge", "backbone": "gcn", "preset": "gaug"}
    assert preset_parameters(**published, dataset="Cora")["drop_rate"] == 0.067
    assert preset_parameters(**published, dataset="air_usa")["drop_rate"] == 0.194
    assert "drop_rate" not in preset_parameters(**published, dataset="pubmed")


def test_what_was_tuned_on_test_says_so() -> None:
    for preset, on_test in (("gaug", True), ("paper", False)):
        tuned = [
            rule
            for name, rule in RULES
            if name == preset and rule.dataset and rule.method == "dropedge"
        ]
        assert tuned
        assert all(("tuned on test" in rule.note) == on_test for rule in tuned)


def test_an_unknown_preset() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'paper'"):
        preset_parameters("papers", "gcn")


def test_a_search_does_not_depend_on_what_it_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Searches start from the preset ``paper``, which holds their own outcome."""

    def trials() -> list[set[str]]:
        names = [name for name in recipe_names() if name.startswith("tuning")]
        plans = [make_plan(load_recipe(name), Tuning({})) for name in names]
        return [{one.trial.key for one in plan.trials} for plan in plans]

    before, everything = trials(), presets()
    untuned = tuple(rule for rule in everything["paper"] if rule.dataset is None)
    assert 0 < len(untuned) < len(everything["paper"])
    module = import_module("gsebo.methods.presets")
    monkeypatch.setattr(module, "presets", lambda: {**everything, "paper": untuned})
    assert set(preset_parameters("paper", "gcn", dataset="cora")) == {"outer_step"}
    assert trials() == before
