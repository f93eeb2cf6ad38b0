"""Recipes that come with the package, and files that are none."""

import os
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from gsebo.data import NoiseSpec
from gsebo.errors import InvalidInput
from gsebo.experiments import (
    Cell,
    RecipePlan,
    Tuning,
    load_recipe,
    make_plan,
    recipe_names,
    select,
)
from gsebo.experiments.detection import DETECTORS, TRIED
from gsebo.experiments.plan import default_parameters, trial_parameters
from gsebo.experiments.result import Result, is_halved

DATASETS = ("cora", "citeseer", "terrorist", "air-usa")
BACKBONES = ("gcn", "gat", "sage", "jk")
OTHER_NOISE: tuple[NoiseSpec, ...] = (
    0,
    *(f"random:{count}" for count in (1000, 5000, 10000, 20000)),
    *(f"removed:{percent}" for percent in (10, 30, 50, 70, 90)),
    *(f"features:{percent}" for percent in (10, 30, 50, 70, 90)),
    *(f"labels:{percent}" for percent in (10, 20, 40, 60)),
)


@cache
def planned(recipe: str) -> RecipePlan:
    """What is to be run after searches in which every trial did equally well."""
    plan = make_plan(load_recipe(recipe), Tuning({}))
    found = {
        one.trial.key: Result(trial=one.trial, test_accuracy=0.5) for one in plan.first
    }
    return make_plan(load_recipe(recipe), Tuning(found))


@pytest.mark.parametrize("name", recipe_names())
def test_every_trial_can_be_built(name: str) -> None:
    plan = planned(name)
    assert plan.trials and not plan.first
    for trial in {one.trial.without_seed: one.trial for one in plan.trials}.values():
        network = {} if trial.method in DETECTORS else {"backbone": trial.backbone}
        made = TRIED[trial.method].make(**network, **trial.parameters)
        made.check_parameters()


@pytest.mark.parametrize(
    ("name", "methods", "backbones", "datasets", "noise"),
    [
        (
            "table1",
            ("vanilla", "adaedge", "dropedge", "gaug_o", "gsebo"),
            BACKBONES,
            DATASETS,
            (0,),
        ),
        ("table2", ("bgcn", "vgcn", "ptdnet", "gsebo"), ("gcn",), DATASETS, (0,)),
        ("table2", ("magna",), ("magna",), DATASETS, (0,)),
        (
            "robustness",
            ("vanilla", "dropedge", "adaedge", "gaug_o", "gsebo"),
            BACKBONES,
            ("cora",),
            (1000, 3000, 5000, 10000, 20000),
        ),
        (
            "controls",
            ("gsebo", "frozen", "train_val", "retrain"),
            BACKBONES,
            DATASETS,
            (0,),
        ),
        ("controls", ("mlp",), ("mlp",), DATASETS, (0,)),
        (
            "robustness_extended",
            ("vanilla", "train_val", "gsebo", "amortised"),
            ("gcn",),
            ("cora",),
            OTHER_NOISE,
        ),
        ("robustness_extended", ("train_val",), ("mlp",), ("cora",), OTHER_NOISE),
    ],
)
def test_every_cell_of_the_paper_has_ten_seeds(
    name: str,
    methods: tuple[str, ...],
    backbones: tuple[str, ...],
    datasets: tuple[str, ...],
    noise: tuple[NoiseSpec, ...],
) -> None:
    cells = planned(name).cells()
    for place in product(methods, backbones, datasets, noise):
        assert [trial.seed for trial in cells[Cell(*place)]] == list(range(10))


def test_only_searches_leave_the_test_nodes_out() -> None:
    for name in recipe_names():
        halved = {is_halved(one.trial.split) for one in planned(name).trials}
        assert halved == {name.startswith("tuning")}


def test_parameters_have_one_form() -> None:
    place = {"method": "gsebo", "backbone": "gcn", "dataset": "cora", "preset": None}
    assert trial_parameters(**place, wanted={}) == {}
    defaults = dict(default_parameters("gsebo"))
    assert trial_parameters(**place, wanted=defaults) == {}
    assert trial_parameters(**place, wanted={"tied": True}) == {"tied": True}
    # What one method was tuned to may be more than another takes.
    other = {**place, "method": "train_val"}
    assert trial_parameters(**other, wanted={}, welcome={"inner_steps": 3}) == {}
    with pytest.raises(InvalidInput, match="inner_steps"):
        trial_parameters(**other, wanted={"inner_steps": 3})


HEAD = 'title = "x"\n[[trials]]\n'
BODY = 'methods = ["gsebo"]\nbackbones = ["gcn"]\ndatasets = ["cora"]\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title = ", "no TOML"),
        ('title = "x"', "missing required field `trials`"),
        (HEAD.replace("title", "tittle") + BODY, "unknown field `tittle`"),
        ("[[trials]]\n" + BODY, "missing required field `title`"),
        (
            HEAD + BODY.replace('"gsebo"', ""),
            r"length >= 1 - at `\$.trials\[0\].methods",
        ),
        (HEAD + BODY.replace('["cora"]', '"cora"'), "datasets"),
        (HEAD + BODY.replace("methods", "method"), "unknown field `method`"),
        (HEAD + BODY + "noises = [1]", "noises"),
        (HEAD + BODY + 'noise = ["removd:3"]', "did you mean 'removed'"),
        (HEAD + BODY + "noise = [0.5]", "Expected `int . str`, got `float`.*noise"),
        (HEAD + BODY + "noise = [-1]", "noise of .* expected a number of edges"),
        (HEAD + BODY + "seeds = 0", "seeds"),
        (HEAD + BODY + "seeds = true", "seeds"),
        (
            HEAD + BODY + "vary = { tied = [] }",
            r"length >= 1 - at `\$.trials\[0\].vary",
        ),
        (HEAD + BODY + "curves = 1", "curves"),
        (HEAD + BODY + "evasion = 'adaptve'", "did you mean 'adaptive'"),
        (
            HEAD + BODY + "evasion = 'adaptive'\n[[trials]]\n" + BODY,
            "evasion in some of the trials",
        ),
        (HEAD + BODY + "set = { inner_lr = nan }", "nan is not a finite number"),
        (HEAD + BODY + "set = { inner_lr = -inf }", "not a finite number"),
        (HEAD + BODY + "set = { inner_lr = 1979-05-27 }", "a date, which no field"),
        (HEAD + BODY + f"set = {{ seeds = 1{'0' * 30} }}", "beyond 64 bits"),
        (HEAD + BODY + f"seeds = 1{'0' * 5000}", "no TOML"),
        (HEAD + BODY + f"set = {{ x = {'[' * 9}{']' * 9} }}", "got `array`"),
        (HEAD + BODY + f"set = {{ x = {'[' * 9000}{']' * 9000} }}", "too deep"),
        (HEAD + BODY + f"set = {{ {'x.' * 20_000}x = 1 }}", "a key has more than"),
        (HEAD + BODY + f"label = '{'x' * 9000}'", "length <= 200"),
        (HEAD + BODY + f"split = '{'halves:' * 900}file'", "length <= 200"),
        (HEAD + BODY + "vary = { tied = [[]], x = 3 }", "Expected `array`"),
        (HEAD + BODY + "vary = [1]", "Expected `object`"),
        (HEAD + BODY + "variants = { gcn = [3] }", "Expected `str`"),
        (HEAD.replace('"x"', '"x"\nparts = ["table1", "Table1"]') + BODY, "each of"),
        (HEAD.replace('"x"', '"x"\nparts = [3]') + BODY, "Expected `str`"),
        ("x = 1\n" * 20_000, "65,536 at most"),
        ("\ufeff" + HEAD + BODY, "no TOML"),
    ],
)
def test_bad_recipes(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidInput, match=words):
        load_recipe(str(path))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("gsebo", "gsebbo"), "did you mean 'gsebo'"),
        (("cora", "coral"), "did you mean 'cora'"),
        (("datasets", "set = { taus = 3 }\ndatasets"), "unknown parameter of gsebo"),
        (("datasets", 'tuned_by = "table1"\ndatasets'), "expected a search"),
        (("gsebo", 'lds"]\ntuned_by = "tuning"#'), "no trials of lds"),
    ],
)
def test_recipes_that_name_what_is_not_there(
    change: tuple[str, str], words: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(HEAD + BODY.replace(*change), "utf-8")
    with pytest.raises(InvalidInput, match=words):
        make_plan(load_recipe(str(path)), Tuning({}))


@pytest.mark.parametrize(
    "more",
    [
        "seeds = 1_000_000_000",
        f"vary = {{ {', '.join(f'x{k} = [1, 2, 3, 4]' for k in range(60))} }}",
        f"noise = {list(range(10_001))}",
    ],
)
def test_more_trials_than_anyone_can_wait_for(more: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(HEAD + BODY + more, "utf-8")
    with pytest.raises(InvalidInput, match="trials; expected 100,000 at most"):
        load_recipe(str(path))


def test_more_seeds_than_anyone_can_wait_for() -> None:
    recipe = load_recipe("table1")
    for plan in (
        lambda: make_plan(recipe, Tuning({}), seeds=10**9),
        lambda: select(recipe, (), 10**9),
    ):
        with pytest.raises(InvalidInput, match="trials; expected 100,000 at most"):
            plan()


def test_a_recipe_is_a_plain_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "folder.toml").mkdir()
    for name, words in {
        "pipe.toml": "is a pipe",
        "folder.toml": "is a folder",
        f"{'x' * 5000}.toml": "name too long",
        "nul\0.toml": "null",
    }.items():
        with pytest.raises(InvalidInput, match=words):
            load_recipe(str(tmp_path / name))
    path = tmp_path / f"{'x' * 220}.toml"
    path.write_text(HEAD + BODY)
    with pytest.raises(InvalidInput, match="200 bytes"):
        load_recipe(str(path))


def test_a_recipe_that_tunes_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(HEAD + BODY + 'tuned_by = "mine.toml"\nsplit = "halves"', "utf-8")
    with pytest.raises(InvalidInput, match="expected a search"):
        make_plan(load_recipe(str(path)), Tuning({}))


def test_what_was_fitted_by_the_papers_step_asks_for_it() -> None:
    """Stored trials have it: else they would be run again with another one."""
    about_both = {"controls", "scales"}
    # Later than the default, which they are about.
    later = {"metattack", "nettack", "prbcd", "adaptive", "tuning_trust"}
    later |= {"splits", "hypergradients", "field", "few_labels", "few_labels_splits"}
    later |= {"few_labels_graphs", "five_labels"}
    # It has rows of both.
    about_both.add("table1")
    for name in sorted({*recipe_names()} - later):
        steps = set()
        for trial in (one.trial for one in planned(name).trials):
            if trial.method in ("gsebo", "auto"):
                steps.add(trial.parameters.get("outer_step", "trust"))
            if trial.method == "retrain":
                assert trial.parameters["method_options"]["outer_step"] == "paper"
        assert steps <= {"paper"} or (name in about_both and len(steps) == 2)


def test_noise_has_one_form(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    noise = 'noise = ["inter_class:7", "7", "Removed:0", "REMOVED:05", 3]'
    path.write_text(HEAD + BODY + noise, "utf-8")
    assert load_recipe(str(path)).blocks[0].noise == [7, 7, 0, "removed:5", 3]


def test_unknown_recipe() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'table1'"):
        load_recipe("tabel1")
    with pytest.raises(InvalidInput, match="no such file"):
        load_recipe("nowhere.toml")
