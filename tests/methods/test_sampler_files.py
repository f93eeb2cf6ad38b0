"""Samplers in model files: by name and settings, and never as code."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from gsebo import InputWarning, load_model
from gsebo.data.formats.folder import write_folder
from gsebo.graph.arrays import GraphArrays
from gsebo.loader import BoundSampler, ClusterSampler, NeighborSampler, Sampler
from methods.batch_examples import amortised_on_batches, gsebo_on_batches
from methods.examples import assert_same_fit, small_graph
from methods.saved import assert_refused, change_facts, facts_of


@dataclass(frozen=True)
class OwnSampler(Sampler):
    """What a user may have written."""

    num_neighbors: int = 2

    def bind(self, arrays: GraphArrays, **sizes: Any) -> BoundSampler:
        return NeighborSampler(self.num_neighbors).bind(arrays, **sizes)


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(60)


@pytest.mark.parametrize(
    "sampler",
    [
        NeighborSampler(num_neighbors=3),
        NeighborSampler(num_neighbors=(4, 2)),
        ClusterSampler(),
        ClusterSampler(num_parts=6, clusters_per_batch=2),
        "cluster",
    ],
    ids=str,
)
def test_a_loaded_model_is_fitted_again_as_before(
    sampler: str | Sampler, data: Data, tmp_path: Path
) -> None:
    model = gsebo_on_batches(sampler=sampler, max_outer_steps=2).fit(data)
    model.save(tmp_path)
    loaded = load_model(tmp_path)
    assert loaded.get_params() == model.get_params()
    assert_same_fit(loaded.fit(data), model)


def test_of_a_graph_on_disk(data: Data, tmp_path: Path) -> None:
    folder = write_folder(data, tmp_path / "graph")
    sampler = NeighborSampler((4, 2))
    model = amortised_on_batches(sampler=sampler, max_outer_steps=1).fit(folder)
    model.save(tmp_path / "model")
    assert load_model(tmp_path / "model").sampler == NeighborSampler((4, 2))


def test_numbers_of_numpy(data: Data, tmp_path: Path) -> None:
    sampler = ClusterSampler(num_parts=np.int64(6))
    gsebo_on_batches(sampler=sampler).fit(data).save(tmp_path)
    assert load_model(tmp_path).sampler == ClusterSampler(num_parts=6)


def test_a_sampler_of_the_users_own_is_forgotten_aloud(
    data: Data, tmp_path: Path
) -> None:
    model = gsebo_on_batches(sampler=OwnSampler()).fit(data)
    model.save(tmp_path)
    with pytest.warns(InputWarning, match="sampler given as code, .* the default"):
        loaded = load_model(tmp_path)
    assert loaded.sampler == "neighbor"
    assert torch.equal(loaded.predict_proba(data), model.probability_)


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ({"sampler": "forest", "settings": {}}, "unknown sampler 'forest'"),
        ({"sampler": 3, "settings": {}}, "3 given as sampler"),
        ({"sampler": "neighbor", "settings": {"depth": 2}}, "'depth'"),
        ({"sampler": "neighbor", "settings": {"num_neighbors": 0}}, "num_neighbors=0"),
        ({"sampler": "neighbor", "settings": {"num_neighbors": "many"}}, "settings"),
        ({"sampler": "neighbor", "settings": [2]}, "settings"),
    ],
    ids=str,
)
def test_a_damaged_sampler_is_refused(
    stored: dict[str, Any], said: str, data: Data, tmp_path: Path
) -> None:
    gsebo_on_batches().fit(data).save(tmp_path)
    parameters = facts_of(tmp_path)["parameters"] | {"sampler": stored}
    change_facts(tmp_path, parameters=parameters)
    message = assert_refused(tmp_path)
    assert said in message and "xpected" in message
