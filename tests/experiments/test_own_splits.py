"""Trials on a graph that came with several splits: one for each seed."""

from pathlib import Path

import pytest
import torch

from experiments.small import trial
from gsebo.data import load_npz
from gsebo.experiments import execute
from gsebo.experiments.fit import trial_graph
from gsebo.experiments.result import full_split_name, same_graph_for_all_seeds

SHORT = {"max_epochs": 3, "hidden_channels": 4}
MASKS = ("train_mask", "val_mask", "test_mask")


@pytest.fixture
def data_dir(shared: Path) -> Path:
    if not (shared / "texas.npz").is_file():
        pytest.skip("no texas.npz in the folder of datasets")
    return shared


def test_the_name_says_that_the_seed_decides() -> None:
    assert full_split_name("texas", None) == "file:seed"
    assert full_split_name("texas", "halves") == "halves:file:seed"
    assert full_split_name("texas", "unseen:20") == "unseen:20:file:seed"
    assert not same_graph_for_all_seeds(trial(dataset="texas", split="file:seed"))


@pytest.mark.parametrize("seed", [0, 9, 14])
def test_a_trial_has_the_split_of_its_seed(seed: int, data_dir: Path) -> None:
    asked = trial(seed, dataset="texas", split="file:seed")
    data, stored = trial_graph(asked, data_dir), load_npz(data_dir / "texas.npz")
    for key in MASKS:
        assert torch.equal(data[key], stored[f"{key}s"][seed % 10])


@pytest.mark.filterwarnings("ignore:no training node is of class 1")
@pytest.mark.parametrize("split", ["file:seed", "halves:file:seed"])
def test_a_class_without_training_nodes_is_no_failure(
    split: str, data_dir: Path
) -> None:
    asked = [
        trial(seed, dataset="texas", split=split, parameters=SHORT) for seed in (0, 3)
    ]
    train = [trial_graph(each, data_dir) for each in asked]
    # The smallest class has one node: split 3 trains on it, split 0 does not.
    assert [int((d.y[d.train_mask] == 1).sum()) for d in train] == [0, 1]
    for each in asked:
        (result,) = execute([each], data_dir=data_dir)
        assert result.ok, result.error
