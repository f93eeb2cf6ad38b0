"""Trials with noise by its name, from the recipe to the result."""

import pytest
import torch
from tests.experiments.small import trial

from gsebo import load_data
from gsebo.data import apply_noise
from gsebo.experiments import load_recipe, select
from gsebo.experiments.fit import execute, trial_graph
from gsebo.experiments.result import same_graph_for_all_seeds

SHORT = {"max_outer_steps": 1, "inner_steps": 2, "hidden_channels": 4}


@pytest.mark.parametrize("noise", ["random:50", "removed:20"])
def test_edges_that_were_added_are_told_apart(noise: str) -> None:
    noisy = trial(seed=1, method="gsebo", noise=noise, parameters=SHORT)
    (result,) = execute([noisy])
    assert result.ok and result.edges is not None
    data = apply_noise(load_data("cora"), noise, seed=1)
    false = 100 if noise == "random:50" else 0
    for layer in result.edges:
        assert layer.get("false", {"count": 0})["count"] == false
        assert sum(group["count"] for group in layer.values()) == data.num_edges


def test_wrong_labels_tell_no_edges_apart() -> None:
    noisy = trial(seed=1, method="gsebo", noise="labels:20", parameters=SHORT)
    (result,) = execute([noisy])
    assert result.ok and result.edges is None


def test_the_graph_of_a_trial_has_its_own_noise() -> None:
    clean = load_data("cora")
    for noise in ("removed:20", "labels:20"):
        first, again, other = (
            trial_graph(trial(seed=seed, noise=noise)) for seed in (1, 1, 2)
        )
        assert torch.equal(first.edge_index, again.edge_index)
        assert torch.equal(first.y, again.y)
        changed = "edge_index" if noise == "removed:20" else "y"
        assert not torch.equal(first[changed], other[changed])
        assert torch.equal(first.y[clean.test_mask], clean.y[clean.test_mask])
        assert not same_graph_for_all_seeds(trial(noise=noise))


def test_keys_of_numbers_are_what_they_were() -> None:
    # As stored: a trial that is read again must be found.
    assert trial(seed=3, method="gsebo").key == "d764b68195847ec9"
    assert trial(seed=3, method="gsebo", noise=1000).key == "dd58c82f03c3ed83"
    keys = {trial(noise=noise).key for noise in (10, "random:10", "removed:10")}
    assert len(keys) == 3


def test_trials_say_their_noise() -> None:
    assert "1000 false edges" in str(trial(noise=1000))
    assert "30 % of edges removed" in str(trial(noise="removed:30"))
    assert "0" not in str(trial(seed=1, noise=0))


def test_a_part_of_a_recipe_by_its_noise() -> None:
    recipe = load_recipe("robustness_extended")
    chosen = select(recipe, ["noise=removed:10,Labels:20"])
    left = {one for block in chosen.narrowed(recipe).blocks for one in block.noise}
    assert left == {"removed:10", "labels:20"}
