import tomllib
from importlib.resources import files
from itertools import product

import pytest

from gsebo.data import DATASETS
from gsebo.experiments import load_recipe, recipe_names
from gsebo.experiments.plan import places
from gsebo.methods import METHODS
from gsebo.nn.registry import BACKBONES
from gsebo.report.names import (
    backbone_title,
    dataset_title,
    gain_place,
    method_title,
    published_figure,
    published_gain,
)

CONTENT = tomllib.loads(
    files("gsebo.experiments").joinpath("published.toml").read_text("utf-8")
)
TABLES = ("table1", "table2")


def test_every_name_is_one_of_ours() -> None:
    assert set(CONTENT["datasets"]) <= set(DATASETS)
    assert set(CONTENT["recipes"]) <= set(recipe_names())
    assert set(CONTENT["printed_as"]) <= set(METHODS) | set(BACKBONES)
    for table in TABLES:
        assert set(CONTENT[table]) <= set(BACKBONES)
        assert {m for row in CONTENT[table].values() for m in row} <= set(METHODS)


def test_figures_are_accuracies_with_a_deviation() -> None:
    rows = [row for t in TABLES for methods in CONTENT[t].values() for row in methods]
    assert len(rows) == 4 * 5 + 4 + 1
    for table in TABLES:
        for methods in CONTENT[table].values():
            for figures in methods.values():
                assert len(figures) == len(CONTENT["datasets"])
                assert all(50 < mean < 90 and 0 < std < 3 for mean, std in figures)


def test_what_both_tables_print_is_the_same() -> None:
    first, second = (CONTENT[table] for table in TABLES)
    shared = [
        (row, method)
        for row in first.keys() & second.keys()
        for method in first[row].keys() & second[row].keys()
    ]
    assert shared == [("gcn", "gsebo")]
    for row, method in shared:
        assert first[row][method] == second[row][method]


@pytest.mark.parametrize("name", ["table1", "table2"])
def test_the_paper_has_a_figure_for_every_cell(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.control is not None
    for block in recipe.blocks:
        for method, row, dataset in places(block):
            # The control with as many labels is ours alone.
            ours = method == recipe.control.method
            assert (published_figure(name, row, method, dataset) is None) is ours


def test_figures_are_found_in_their_place() -> None:
    assert published_figure("table1", "jk", "gsebo", "air-usa") == (59.6, 1.2)
    assert published_figure("table1", "sage", "dropedge", "citeseer") == (70.8, 0.5)
    assert published_figure("table2", "magna", "magna", "cora") == (81.7, 0.4)


def test_what_the_paper_does_not_tell_apart_is_the_same() -> None:
    for dataset in CONTENT["datasets"]:
        both = {
            published_figure("as_published", row, method, dataset)
            for row, method in product(("sage", "sage-gcn"), ("gaug_m", "gaug_o"))
        }
        assert len(both) == 1 and None not in both


def test_elsewhere_nothing_was_printed() -> None:
    assert published_figure("factors", "gcn", "gsebo", "cora") is None
    assert published_figure("table1", "gcn", "frozen", "cora") is None
    assert published_figure("table1", "mlp", "vanilla", "cora") is None
    assert published_figure("table1", "gcn", "gsebo", "pubmed") is None


def test_gains_belong_to_the_robustness_recipe() -> None:
    block, means, control = load_recipe("robustness").blocks
    assert means.backbones == ["sage"] and control.methods == ["train_val"]
    dataset, noise = gain_place()
    assert dataset in block.datasets and noise == max(block.noise)
    assert [published_gain(row) for row in block.backbones] == [17.6, 3.1, 40.6, 4.4]
    assert published_gain("mlp") is None


@pytest.mark.parametrize(
    ("title", "names"),
    [
        (method_title, METHODS),
        (backbone_title, BACKBONES),
        (dataset_title, DATASETS),
    ],
)
def test_titles_tell_all_names_apart(
    title: type[str], names: dict[str, object]
) -> None:
    assert len({title(name) for name in names}) == len(names)
    assert title("something new") == "something new"
