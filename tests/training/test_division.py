"""Labelled nodes divided into those that teach and those that judge."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Data

from gsebo import InvalidInput, generate_graph
from gsebo.methods.fitting import NetworkChoices, PreparedGraph, make_problem
from gsebo.methods.folds import division_of, fold_nodes
from gsebo.structure import Fixed
from gsebo.training import (
    Division,
    Folds,
    FullBatch,
    NodeClassification,
    Redrawn,
)

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data() -> Data:
    return generate_graph(60, average_degree=4.0, split="random:20/30/50")


@pytest.fixture(scope="module")
def base(data: Data) -> NodeClassification:
    return make_problem(
        PreparedGraph(data, CPU),
        NetworkChoices("gcn", 4, 2, 0.0, None),
        Fixed(),
        outer_nodes=data.val_mask.nonzero().squeeze(-1),
        weight_decay=0.0,
        seed=0,
    )


def labelled(data: Data) -> Tensor:
    return (data.train_mask | data.val_mask).nonzero().squeeze(-1)


def nodes_of(division: Division, base: NodeClassification, step: int) -> list[Tensor]:
    problem = FullBatch(base).problem(division, step)
    return [problem.inner_nodes, problem.outer_nodes]


def joined(*parts: Tensor) -> Tensor:
    return torch.cat(parts).sort().values


@settings(max_examples=20)
@given(num_folds=st.integers(2, 40), seed=st.integers(0, 10**6))
def test_each_labelled_node_is_held_out_once(num_folds: int, seed: int) -> None:
    data = generate_graph(60, average_degree=4.0, split="random:20/30/50")
    parts = fold_nodes(data, "folds", num_folds, seed, CPU)
    assert len(parts.inner) == len(parts.outer) == min(num_folds, 30)
    assert torch.equal(joined(*parts.outer), labelled(data))
    for inner, outer in zip(*parts, strict=True):
        assert torch.equal(joined(inner, outer), labelled(data))
        assert set(data.y[outer].tolist()) <= set(data.y[inner].tolist())


def test_fixed_parts_are_the_masks(data: Data, base: NodeClassification) -> None:
    parts = fold_nodes(data, "fixed", 5, 0, CPU)
    division = division_of(parts, "fixed", 0.7, 0)
    assert division.num_networks == 1
    for step in (0, 3):
        inner, outer = nodes_of(division, base, step)
        assert torch.equal(inner, data.train_mask.nonzero().squeeze(-1))
        assert torch.equal(outer, data.val_mask.nonzero().squeeze(-1))
    assert torch.equal(division.held_out(0), outer)


def test_networks_take_turns(data: Data, base: NodeClassification) -> None:
    parts = fold_nodes(data, "folds", 3, 0, CPU)
    division = division_of(parts, "folds", 0.7, 0)
    assert isinstance(division, Folds)
    assert division.num_networks == 3
    for step in range(7):
        inner, outer = nodes_of(division, base, step)
        assert torch.equal(inner, parts.inner[step % 3])
        assert torch.equal(outer, parts.outer[step % 3])
        assert torch.equal(division.held_out(step % 3), outer)
    # Kernel calls of a part are made once.
    whole = FullBatch(base)
    kept = [whole.problem(division, step) for step in range(6)]
    assert kept[1] is kept[4]


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**63 - 1),
    step=st.integers(0, 1000),
    share=st.floats(0, 1, exclude_max=True),
)
def test_a_new_division_is_a_function_of_seed_and_step(
    base: NodeClassification, data: Data, seed: int, step: int, share: float
) -> None:
    nodes = labelled(data)
    division = Redrawn(nodes, share, seed)
    for earlier in (step + 2, 0):
        division.nodes(earlier)
    inner, outer = nodes_of(division, base, step)
    assert torch.equal(joined(inner, outer), nodes)
    assert len(inner) == min(max(round(share * 30), 1), 29)
    again = nodes_of(Redrawn(nodes, share, seed), base, step)
    assert torch.equal(again[0], inner)
    assert torch.equal(again[1], outer)


def test_divisions_differ(data: Data, base: NodeClassification) -> None:
    parts = fold_nodes(data, "cross", 5, 0, CPU)
    divisions = [division_of(parts, "cross", 0.5, seed) for seed in (0, 1)]
    assert all(isinstance(division, Redrawn) for division in divisions)
    drawn = [
        tuple(nodes_of(division, base, step)[0].tolist())
        for division in divisions
        for step in range(20)
    ]
    assert len(set(drawn)) == 40
    # Every node serves both sides at some time, so that none is held out.
    assert set().union(*drawn) == set(labelled(data).tolist())
    assert divisions[0].num_networks == 1
    assert divisions[0].held_out(0).numel() == 0


@pytest.mark.parametrize("label_use", ["folds", "cross"])
def test_nothing_can_be_held_out_of_single_nodes(data: Data, label_use: str) -> None:
    single = data.clone()
    first = [int((data.y == label).nonzero()[0]) for label in (0, 1)]
    for node, key in zip(first, ("train_mask", "val_mask"), strict=True):
        single[key] = torch.zeros_like(data[key])
        single[key][node] = True
    with pytest.raises(InvalidInput, match="no class has two nodes whose labels teach"):
        fold_nodes(single, label_use, 5, 0, CPU)
