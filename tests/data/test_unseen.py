"""Splits that hide some test nodes, and the graph without them."""

import pytest
import torch
from torch_geometric.data import Data

from gsebo import generate_graph
from gsebo.data import apply_split, validate, visible_part
from gsebo.data.splits import has_unseen, is_drawn
from gsebo.errors import InvalidInput


@pytest.fixture(scope="module")
def data() -> Data:
    return generate_graph(80, average_degree=6.0, split="random:20/30/50", seed=2)


@pytest.mark.parametrize("base", ["file", "random:30/30/40", "halves:file"])
def test_seen_and_unseen_test_the_same_nodes(data: Data, base: str) -> None:
    whole = apply_split(data, base, 3)
    unseen, seen = (apply_split(data, f"{k}:25:{base}", 3) for k in ("unseen", "seen"))
    for split in (unseen, seen):
        assert torch.equal(split.train_mask, whole.train_mask)
        assert torch.equal(split.val_mask, whole.val_mask)
        assert int(split.test_mask.sum()) == int(whole.test_mask.sum()) // 4
        assert not bool((split.test_mask & ~whole.test_mask).any())
    assert torch.equal(unseen.test_mask, seen.test_mask)
    assert torch.equal(unseen.unseen_mask, unseen.test_mask)
    assert has_unseen(unseen) and not has_unseen(seen) and not has_unseen(data)
    assert "node_id" not in data and "node_id" not in seen


def test_the_seed_decides(data: Data) -> None:
    first, again, other = (
        apply_split(data, "unseen:20", seed).unseen_mask for seed in (1, 1, 2)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert is_drawn("unseen:20:file") and is_drawn("seen:20:file")


def test_names_that_a_graph_has_stay(data: Data) -> None:
    named = data.clone()
    named.node_id = torch.arange(80).flip(0)
    split = apply_split(named, "unseen:20")
    assert torch.equal(split.node_id, named.node_id)
    assert apply_split(data, "unseen:20").node_id.tolist() == list(range(80))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unseen", "whole number"),
        ("seen:file", "whole number"),
        ("unseen:0:file", "leaves 0 of 40 test nodes"),
        ("unseen:1:file", "leaves 0 of 40 test nodes"),
        ("seen:200:file", "from 1 to 100"),
        ("unseen:20:rando", "did you mean 'random'"),
    ],
)
def test_splits_that_cannot_be_made(data: Data, name: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        apply_split(data, name)


def test_a_graph_without_test_nodes(data: Data) -> None:
    bare = data.clone()
    del bare.test_mask
    with pytest.raises(InvalidInput, match="has no test nodes"):
        apply_split(bare, "unseen:20:file")


def test_the_visible_part(data: Data) -> None:
    split = apply_split(data, "unseen:30:file", 1)
    part = visible_part(split)
    validate(part)
    assert not has_unseen(part)
    kept = part.node_id
    assert torch.equal(kept, (~split.unseen_mask).nonzero().squeeze(-1))
    for key in ("x", "y", "train_mask", "val_mask", "test_mask"):
        assert torch.equal(part[key], split[key][kept])
    # Renamed back, they are the user's edges without those of hidden nodes, in order.
    hidden = split.unseen_mask[data.edge_index].any(0)
    assert torch.equal(kept[part.edge_index], data.edge_index[:, ~hidden])
    assert bool(hidden.any())
