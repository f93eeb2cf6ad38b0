"""Noise by its name on the command line."""

from pathlib import Path
from typing import Any

import pytest
import torch

from cli.conftest import SHORT, Command, json_of, refused, small_graph
from gsebo.data import apply_noise, load_npz

FIT = (*SHORT, "--set", "max_outer_steps=1", "--seed", 3, "--split", "ratio:30/30/40")


@pytest.mark.parametrize(
    "noise", ["random:7", "removed:30", "features:50", "Inter_Class:7"]
)
def test_the_graph_is_what_apply_noise_gives(
    command: Command, graph_file: Path, noise: str
) -> None:
    result = json_of(command("fit", graph_file, *FIT, "--noise", noise, "--json"))
    expected: Any = 7 if noise.startswith("Inter") else noise
    assert result["noise"] == expected
    assert result["num_edges"] == apply_noise(small_graph(), noise, 3).num_edges


def test_a_number_stays_a_number(command: Command, graph_file: Path) -> None:
    results = [
        json_of(command("fit", graph_file, *FIT, *noise, "--json"))
        for noise in ((), ("--noise", "removed:0"))
    ]
    assert [result["noise"] for result in results] == [0, 0]
    assert len({result["test_accuracy"] for result in results}) == 1


def test_wrong_labels_are_learned_and_true_ones_tested(
    command: Command, graph_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    options = (*FIT, "--noise", "labels:50", "--out", folder)
    table = command("fit", graph_file, *options)
    assert table.exit_code == 0
    assert "50 % of labels replaced" in table.stdout
    kept, given = load_npz(folder / "graph.npz"), small_graph()
    learned = kept.train_mask | kept.val_mask
    assert torch.equal(kept.y[~learned], given.y[~learned])
    share = (kept.y != given.y)[learned].float().mean()
    assert float(share) == pytest.approx(0.5, abs=0.05)


def test_compare_takes_it_too(command: Command, graph_file: Path) -> None:
    options = ("--methods", "vanilla,gsebo", "--noise", "removed:20", "--json")
    result = json_of(command("compare", graph_file, *SHORT, *options))
    assert {one["noise"] for one in result["results"]} == {"removed:20"}


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        ("removd:5", "did you mean 'removed'?"),
        ("removed:101", "0 to 100"),
        ("removed", "KIND:LEVEL"),
        ("1.5", "--noise 1.5 given"),
        ("random:100000", "random edges to add: expected at most"),
    ],
)
@pytest.mark.parametrize("name", ["fit", "compare"])
def test_what_is_no_noise(
    command: Command, graph_file: Path, name: str, noise: str, words: str
) -> None:
    assert words in refused(command(name, graph_file, *SHORT, "--noise", noise))
