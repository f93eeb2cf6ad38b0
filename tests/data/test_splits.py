from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from gsebo.data import apply_split, load_npz
from gsebo.data.splits import is_drawn
from gsebo.errors import InvalidInput

MASKS = ("train_mask", "val_mask", "test_mask")


def _graph(num_nodes: int = 200, num_classes: int = 3) -> Data:
    return Data(x=torch.ones(num_nodes, 1), y=torch.arange(num_nodes) % num_classes)


def _sizes(data: Data) -> list[int]:
    assert int(sum(data[key].int() for key in MASKS).max()) <= 1
    return [int(data[key].sum()) for key in MASKS]


def test_ratio_reproduces_the_terrorist_masks(shared: Path) -> None:
    data = load_npz(shared / "terrorist.npz")
    split = apply_split(data, "ratio")
    assert _sizes(split) == [126, 259, 908]
    assert all(torch.equal(split[key], data[key]) for key in MASKS)


def test_planetoid_has_as_many_of_each_class() -> None:
    split = apply_split(_graph(), "planetoid:20/50/60", seed=3)
    assert _sizes(split) == [60, 50, 60]
    assert split.y[split.train_mask].bincount().tolist() == [20, 20, 20]


def test_planetoid_has_the_published_sizes_by_default() -> None:
    assert _sizes(apply_split(_graph(2000), "planetoid")) == [60, 500, 1000]


def test_random_has_the_percentages() -> None:
    assert _sizes(apply_split(_graph(), "random")) == [20, 40, 140]
    assert _sizes(apply_split(_graph(), "random:60/20/20")) == [120, 40, 40]
    assert _sizes(apply_split(_graph(), "Random:10/10/10")) == [20, 20, 20]


@pytest.mark.parametrize("name", ["random", "planetoid:5/50/50"])
def test_seed_decides(name: str) -> None:
    first, again, other = (apply_split(_graph(), name, seed) for seed in (1, 1, 2))
    assert torch.equal(first.train_mask, again.train_mask)
    assert not torch.equal(first.train_mask, other.train_mask)


def test_nodes_without_label_are_in_no_mask() -> None:
    data = _graph()
    data.y[:50] = -1
    for name in ("random", "ratio", "planetoid:5/50/50"):
        split = apply_split(data, name)
        assert not any(bool(split[key][:50].any()) for key in MASKS)


def test_input_keeps_its_masks(graph: Data) -> None:
    before = graph.train_mask.clone()
    split = apply_split(graph, "random:50/50/0", seed=1)
    assert torch.equal(graph.train_mask, before)
    assert not torch.equal(split.train_mask, before)
    assert split.x is graph.x


def test_file_takes_what_ships(graph: Data) -> None:
    graph.train_masks = torch.eye(6, dtype=torch.bool)[:3]
    graph.val_masks = torch.eye(6, dtype=torch.bool)[1:4]
    graph.test_masks = torch.eye(6, dtype=torch.bool)[2:5]
    assert torch.equal(apply_split(graph, "file").train_mask, graph.train_mask)
    split = apply_split(graph, "file:2")
    assert [split[key].int().argmax().item() for key in MASKS] == [2, 3, 4]
    for name in ("file:3", "file:-1", "file:sed"):
        with pytest.raises(InvalidInput, match=r"with 3: expected .* or 'seed'"):
            apply_split(graph, name)


@pytest.mark.parametrize("seed", range(7))
def test_each_seed_has_its_own_of_the_splits_that_ship(graph: Data, seed: int) -> None:
    tables = torch.eye(6, dtype=torch.bool)
    for start, key in enumerate(MASKS):
        graph[f"{key}s"] = tables[start : start + 3]
    split = apply_split(graph, "File:Seed", seed)
    same = apply_split(graph, f"file:{seed % 3}")
    assert all(torch.equal(split[key], same[key]) for key in MASKS)


def test_without_any_row_no_seed_has_a_split(graph: Data) -> None:
    for key in MASKS:
        graph[f"{key}s"] = torch.zeros(0, 6, dtype=torch.bool)
    with pytest.raises(InvalidInput, match="came with 0"):
        apply_split(graph, "file:seed")


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("file", False),
        ("file:0", False),
        ("file:seed", True),
        ("File: Seed", True),
        ("halves:file", True),
        ("ratio:10/20/70", False),
        ("random:10/20/70", True),
    ],
)
def test_which_splits_are_drawn(name: str, drawn: bool) -> None:
    assert is_drawn(name) == drawn


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("file", "without train_mask"),
        ("file:0", "without train_masks"),
        ("file:seed", "without train_masks"),
        ("planetoid", "least 1500"),
        ("planetoid:100/1/1", "least the 100"),
        ("planetoid:0/1/1", "too small"),
        ("ratio:0/20/80", "too small"),
        ("random:60/30/20", "110 %"),
        ("random:60/40", "three numbers"),
        ("random:a/b/c", "whole number"),
        ("random:-1/2/3", "whole number"),
        ("rando", "did you mean 'random'"),
    ],
)
def test_split_that_cannot_be_made(name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        apply_split(_graph(), name)


def test_graph_without_usable_labels() -> None:
    for data in (Data(x=torch.ones(3, 1)), Data(y=torch.full((3,), -1))):
        with pytest.raises(InvalidInput, match="to make a split"):
            apply_split(data, "random")
    with pytest.raises(InvalidInput, match="too small"):
        apply_split(_graph(3), "random")
