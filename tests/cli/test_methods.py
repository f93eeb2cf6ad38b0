"""Every method and control by its name on the command line."""

import re

import pytest

from cli.conftest import Command, json_of, refused
from gsebo.methods import METHODS

# Enough of every schedule to see that it runs.
TINY = [
    item
    for setting in (
        "max_epochs=2",
        "max_outer_steps=1",
        "inner_steps=2",
        "evaluate_every=1",
        "hidden_channels=8",
        "max_episodes=1",
        "max_inner_steps=2",
        "test_samples=2",
        "warmup_epochs=1",
        "average_after=1",
        "random_iterations=2",
        "refit_iterations=1",
        "predictor_epochs=2",
        "pretrain_epochs=1",
        "pretrain_edge_epochs=1",
        "pretrain_weight_epochs=1",
        "contrast_epochs=1",
        "restoring_epochs=1",
        "num_folds=2",
        "refit_epochs=2",
        "method_options.max_outer_steps=1",
        "methods=vanilla,mlp",
        "features=given",
    )
    for item in ("--set", setting)
]


def settings_of(*methods: str) -> list[str]:
    """Those of the settings that some of the methods have."""
    taken = {key for name in methods for key in METHODS[name].estimator().get_params()}
    pairs = zip(TINY[::2], TINY[1::2], strict=True)
    return [
        item for pair in pairs if re.split("[.=]", pair[1])[0] in taken for item in pair
    ]


ANY_NETWORK = [
    name for name, info in METHODS.items() if "gat" in (info.backbones or ("gat",))
]


def test_the_list_says_paper_backbones_and_cost(command: Command) -> None:
    rows = json_of(command("list", "methods", "--json"))["methods"]
    assert [row["name"] for row in rows] == list(METHODS)
    for row in rows:
        assert set(row) == {"name", "description", "paper", "backbones", "cost"}
        assert all(row.values())
    assert {row["name"]: row["backbones"] for row in rows}["bgcn"] == "gcn"


def test_one_command_compares_all_on_a_planted_graph(command: Command) -> None:
    result = command("compare", "planted", "--methods", "all", *TINY)
    assert result.exit_code == 0, result.stderr
    for column in ("test", "seconds per run", "peak memory", "difference to vanilla"):
        assert column in result.stdout
    assert all(f" {name} " in result.stdout for name in METHODS)


def test_peak_memory_is_each_methods_own(command: Command) -> None:
    options = ("--methods", "gaug_o,vanilla", *settings_of("gaug_o"), "--json")
    dense, vanilla = json_of(command("compare", "cora", *options))["results"]
    # Some matrices of 2708 x 2708 numbers, and then none.
    assert dense["peak_memory_bytes"] > vanilla["peak_memory_bytes"] + 60_000_000


@pytest.mark.parametrize("method", METHODS)
def test_a_method_brings_its_own_network(command: Command, method: str) -> None:
    options = ("--method", method, *settings_of(method), "--json")
    result = json_of(command("fit", "planted", *options))
    default = METHODS[method].estimator().backbone
    assert (result["method"], result["backbone"]) == (method, default)
    assert 0 <= result["test_accuracy"] <= 1


@pytest.mark.parametrize("backbone", ["gat", "sage", "jk"])
@pytest.mark.parametrize("method", ANY_NETWORK)
def test_every_supported_pair_runs(
    command: Command, method: str, backbone: str
) -> None:
    options = ("--method", method, "--backbone", backbone, *settings_of(method))
    result = json_of(command("fit", "planted", *options, "--seeds", 2, "--json"))
    assert result["backbone"] == backbone and len(result["runs"]) == 2


def test_a_network_that_a_method_does_not_take(command: Command) -> None:
    said = refused(command("fit", "planted", "--method", "bgcn", "--backbone", "gat"))
    assert "'gat'" in said and "'gcn'" in said


def test_comparing_all_leaves_out_what_does_not_fit(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    # That all others run is seen above.
    for name in METHODS.keys() - {"bgcn", "dropedge", "gsebo", "magna", "vanilla"}:
        monkeypatch.delitem(METHODS, name)
    options = (
        "--methods",
        "all",
        "--backbone",
        "gat",
        *settings_of("dropedge", "gsebo"),
    )
    result = command("compare", "planted", *options)
    assert result.exit_code == 0, result.stderr
    assert "not for gat" in result.stderr
    assert "bgcn" not in result.stdout and "dropedge" in result.stdout


@pytest.mark.parametrize("spelling", ["gaug_m", "GAUG-M"])
def test_a_method_is_called_by_its_registered_name(
    command: Command, spelling: str
) -> None:
    options = ("--method", spelling, *settings_of("gaug_m"), "--json")
    assert json_of(command("fit", "planted", *options))["method"] == "gaug_m"


def test_published_parameters_go_by_dataset(command: Command) -> None:
    options = ("--method", "dropedge", "--preset", "gaug", "--set", "max_epochs=1")
    result = json_of(command("fit", "cora", *options, "--json"))
    assert result["parameters"]["drop_rate"] == 0.067
    assert result["parameters"]["hidden_channels"] == 128


def test_a_graph_that_is_too_large_for_all_pairs(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gsebo.methods.baselines.pairs.free_memory", lambda _: 10**6)
    for method in ("vgcn", "idgl", "lds", "prognn", "gaug_o"):
        said = refused(
            command("fit", "planted", "--method", method, *settings_of(method))
        )
        assert "GB" in said and "400 nodes" in said


def test_added_edges_are_told(command: Command, tmp_path) -> None:
    options = ("--method", "gaug_m", *settings_of("gaug_m"), "--out", tmp_path / "m")
    result = command("fit", "planted", *options)
    assert result.exit_code == 0, result.stderr
    assert "edges added" in result.stdout
    told = json_of(command("inspect", tmp_path / "m", "--json"))
    assert told["added_edges"] > 0
    assert f"{told['added_edges']}" in command("inspect", tmp_path / "m").stdout
