"""Estimators that train on batches of a graph in memory."""

import gc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch_geometric.data import Data

from gsebo import GSEBO, InvalidInput, load_model
from gsebo.data import load
from gsebo.graph.arrays import GraphArrays
from gsebo.loader import ClusterSampler, NeighborSampler
from gsebo.methods import Amortised, GraphClassifier
from gsebo.sparse import Pattern
from methods.batch_examples import (
    WHOLE,
    amortised_on_batches,
    gsebo_on_batches,
    losses,
)
from methods.examples import assert_same_fit, small_graph, with_fields

METHODS = pytest.mark.parametrize("make", [gsebo_on_batches, amortised_on_batches])


@pytest.fixture(scope="module")
def data() -> Data:
    return small_graph(60)


@pytest.mark.exact
@pytest.mark.parametrize(
    "options", [{"backbone": "gcn"}, {"backbone": "sage", "per_layer": True}], ids=str
)
def test_one_batch_of_everything_is_no_batch(options: dict[str, Any]) -> None:
    make = partial(
        GSEBO, max_outer_steps=4, inner_steps=5, random_state=3, device="cpu"
    )
    cora = load("cora")
    whole = make(**options).fit(cora)
    batch = make(**options, **WHOLE).fit(cora)
    assert (whole.strength_ != whole.initial_strength_).any()
    assert_same_fit(whole, batch)
    assert losses(whole) == losses(batch)
    assert torch.equal(whole.predict_proba(cora), batch.predict_proba(cora))


@pytest.mark.exact
def test_amortised_on_one_batch_of_everything(data: Data) -> None:
    options = {"batch_size": None, "label_use": "fixed"}
    whole = amortised_on_batches(**options).fit(data)
    batch = amortised_on_batches(**options | WHOLE).fit(data)
    torch.testing.assert_close(batch.strength_, whole.strength_, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(
        batch.probability_, whole.probability_, rtol=1e-3, atol=1e-3
    )


@METHODS
@pytest.mark.parametrize("sampler", ["neighbor", "cluster"])
def test_batches_go_when_their_step_is_over(
    make: Callable[..., GraphClassifier], sampler: str, data: Data
) -> None:
    def left_behind(steps: int) -> int:
        gc.collect()
        gc.disable()
        try:
            make(sampler=sampler, max_outer_steps=steps).fit(data)
            # Not isinstance: it would look into proxies whose object is gone.
            return sum(issubclass(type(each), Pattern) for each in gc.get_objects())
        finally:
            gc.enable()

    assert left_behind(6) == left_behind(2)


@pytest.mark.exact
@METHODS
def test_the_seed_decides_everything(make: Any, data: Data) -> None:
    model = make().fit(data)
    first = model.probability_, model.strength_, losses(model)
    other = clone(model).set_params(random_state=1).fit(data)
    assert not torch.equal(other.strength_, first[1])
    model.fit(data)
    assert torch.equal(model.probability_, first[0])
    assert torch.equal(model.strength_, first[1])
    assert losses(model) == first[2]


@pytest.mark.exact
@METHODS
def test_labels_of_test_nodes_are_not_looked_at(make: Any, data: Data) -> None:
    hidden = ~(data.train_mask | data.val_mask)
    y = data.y.clone()
    y[hidden] = y[hidden][torch.randperm(int(hidden.sum()))]
    assert not torch.equal(y, data.y)
    assert_same_fit(make().fit(data), make().fit(with_fields(data, y=y)))


@pytest.mark.parametrize("loops", [False, True])
def test_only_edges_of_the_batches_change(loops: bool) -> None:
    graph = small_graph(200)
    sampler, steps = NeighborSampler(num_neighbors=2), 2
    model = gsebo_on_batches(
        batch_size=3,
        sampler=sampler,
        inner_steps=steps,
        # The strengths of a record are those from before its step.
        max_outer_steps=2,
        select_by="last",
        learn_self_loops=loops,
        random_state=5,
    ).fit(graph)
    arrays = GraphArrays.of(graph)
    bound = sampler.bind(arrays, num_layers=2, batch_size=3, seed=5)
    train = np.flatnonzero(arrays.train)
    batches = [bound.batch(train, number) for number in range(steps)]
    seen = torch.zeros(arrays.num_edges, dtype=torch.bool)
    seen_nodes = torch.zeros(arrays.num_nodes, dtype=torch.bool)
    # The outer batch only changes weights here, without a direct term.
    for batch in batches:
        seen[batch.edges] = True
        seen_nodes[batch.nodes] = True
    moved = model.strength_ != model.initial_strength_
    drawn = seen[model.model_.graph.entry_of_edge]
    assert drawn.any() and not drawn.all()
    assert moved.any() and not (moved & ~drawn).any()
    start = model.model_.start[arrays.num_edges :]
    moved_loops = model.loop_strength_ != start
    assert bool(moved_loops.any()) == loops
    assert not (moved_loops & ~seen_nodes).any()


@pytest.mark.parametrize(
    ("make", "changes", "said"),
    [
        (gsebo_on_batches, {"tied": True}, "tied=True given with batch_size"),
        (gsebo_on_batches, {"structure": "fixed"}, "structure='fixed' given with"),
        (gsebo_on_batches, {"initial_strength": "ones"}, "initial_strength='ones'"),
        (gsebo_on_batches, {"inner_reduction": "sum"}, "inner_reduction='sum' given"),
        (gsebo_on_batches, {"batch_size": 0}, "batch_size=0"),
        (gsebo_on_batches, {"batch_size": 2.5}, "batch_size=2.5"),
        (gsebo_on_batches, {"batches_per_step": 0}, "batches_per_step=0"),
        (gsebo_on_batches, {"sampler": "forest"}, "sampler 'forest'"),
        (gsebo_on_batches, {"sampler": 7}, "sampler=7"),
        (gsebo_on_batches, {"sampler": NeighborSampler((2, 3, 4))}, "3 numbers"),
        (gsebo_on_batches, {"sampler": ClusterSampler(100)}, "at most 60"),
        (gsebo_on_batches, {"shard_strengths": "yes"}, "shard_strengths='yes'"),
        (
            gsebo_on_batches,
            {"batch_size": None, "shard_strengths": True},
            "without batch_size",
        ),
        (amortised_on_batches, {"candidates": 3}, "candidates=3 given with batch_size"),
        (amortised_on_batches, {"refit": False}, "refit=False given with batch_size"),
        (amortised_on_batches, {"batch_size": -1}, "batch_size=-1"),
    ],
)
def test_what_batches_cannot_do_is_refused(
    make: Any, changes: dict[str, Any], said: str, data: Data
) -> None:
    with pytest.raises(InvalidInput, match=r"[eE]xpected") as caught:
        make(**changes).fit(data)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("backbone", ["gat", "magna", "GIN"])
@METHODS
def test_any_network(make: Any, backbone: str, data: Data) -> None:
    changes = {"select_by": "last"} if make is gsebo_on_batches else {}
    model: GraphClassifier = make(backbone=backbone, max_outer_steps=2, **changes)
    model.fit(data)
    assert torch.isfinite(model.probability_).all()
    assert torch.equal(model.predict_proba(data), model.probability_)
    assert (model.strength_ != model.initial_strength_).any()


@pytest.mark.parametrize("norm", ["layer", "batch"])
@METHODS
def test_norms(make: Any, norm: str, data: Data) -> None:
    """Those of a batch are over its nodes, and predictions over the whole graph's."""
    options = {"norm": norm, "residual": True, "input_projection": True}
    model: GraphClassifier = make(backbone_options=options, max_outer_steps=2)
    model.fit(data)
    assert torch.isfinite(model.probability_).all()
    assert torch.equal(model.predict_proba(data), model.probability_)


@METHODS
def test_partitions_and_several_batches_per_step(make: Any, data: Data) -> None:
    options = {"sampler": ClusterSampler(6, clusters_per_batch=2), "batch_size": 1}
    one = make(**options).fit(data)
    two = make(**options, batches_per_step=2).fit(data)
    assert not torch.equal(one.strength_, two.strength_)
    assert two.score(data) == float(
        (two.transduction_ == data.y)[data.test_mask].double().mean()
    )


@pytest.mark.exact
def test_saved_and_loaded_it_predicts_the_same(data: Data, tmp_path: Path) -> None:
    model = amortised_on_batches().fit(data)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert isinstance(loaded, Amortised)
    assert (loaded.batch_size, loaded.sampler) == (8, "neighbor")
    assert torch.equal(loaded.predict_proba(data), model.probability_)
    assert torch.equal(loaded.strength_, model.strength_)
    larger = _with_new_nodes(data)
    found = model.predict_proba(larger)
    assert found.shape == (data.num_nodes + 2, 2)
    assert torch.equal(loaded.predict_proba(larger), found)
    assert torch.isfinite(found).all()


def _with_new_nodes(data: Data) -> Data:
    """The same graph with two more nodes, one of them without edges."""
    size = data.num_nodes
    edges = torch.tensor([[0, size], [size, 0]])
    return Data(
        x=torch.cat([data.x, data.x[:2] + 0.5]),
        edge_index=torch.cat([data.edge_index, edges], dim=1),
    )


def test_samplers_are_parameters_as_any_other(data: Data) -> None:
    sampler = NeighborSampler(num_neighbors=3)
    model = gsebo_on_batches(sampler=sampler)
    copied = clone(model)
    assert copied.get_params() == model.get_params()
    assert copied.get_params()["sampler"] == sampler
    changed = clone(model).set_params(sampler="cluster", batch_size=20)
    assert (changed.sampler, changed.batch_size) == ("cluster", 20)
    assert_same_fit(copied.fit(data), model.fit(data))
    assert not torch.equal(changed.fit(data).strength_, model.strength_)
